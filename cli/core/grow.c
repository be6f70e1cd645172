/* The room is the next power of two, so that it need not be remembered. */
#include "cli/core/grow.h"

#include "cli/core/cli.h"

#include <stdlib.h>
#include <string.h>

void *grow(void *list, size_t count, size_t size)
{
    if (count & (count - 1)) return list;
    void *larger = cli_alloc(count ? 2 * count : 1, size);
    if (count) memcpy(larger, list, count * size);
    free(list);
    return larger;
}
