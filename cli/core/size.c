#include "cli/core/size.h"

#include <stdlib.h>
#include <string.h>

int size_parse(const char *where, const char *text, int64_t *out)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    double bytes = strtod(text, &end);
    const char *unit = end != text && *end ? strchr(units, *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        bytes *= 1024;
    if (end == text || (unit ? end[1] : *end) || !(bytes >= 1 && bytes < 0x1p62))
        return cli_misuse("--%s: '%s' is not a size like 300000, 500M or 1.5G", where, text);
    *out = (int64_t)bytes;
    return CLI_DONE;
}
