#define _GNU_SOURCE /* madvise */
#include "cli/core/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int tensors_open(muon_st **out, const char *path)
{
    return muon_st_open(out, path) == MUON_OK ? CLI_DONE : cli_fail_library();
}

int tensors_get(const muon_st *file, size_t index, muon_st_tensor *out)
{
    return muon_st_get(file, index, out, sizeof *out) == MUON_OK ? CLI_DONE : cli_fail_library();
}

int64_t tensors_elements(const muon_st_tensor *tensor)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->ndim; d++)
        count *= tensor->shape[d];
    return count;
}

int tensors_same_shape(const muon_st_tensor *tensor, int ndim, const int64_t *shape)
{
    if (tensor->ndim != ndim) return 0;
    for (int d = 0; d < ndim; d++)
        if (tensor->shape[d] != shape[d]) return 0;
    return 1;
}

const char *tensors_shape_text(tensors_shape *out, int ndim, const int64_t *shape)
{
    size_t used = 0;
    snprintf(out->text, sizeof out->text, "scalar");
    for (int d = 0; d < ndim && used < sizeof out->text; d++)
        used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%lld", d ? "x" : "",
                                 (long long)shape[d]);
    return out->text;
}

/* Large blocks are huge pages where the system has them: a pass over memory then misses fewer
 * translations. */
void *tensors_alloc(size_t bytes)
{
    const size_t line = 64, page = (size_t)2 << 20, align = bytes < 2 * page ? line : page;
    size_t rounded = bytes <= SIZE_MAX - align ? (bytes / align + 1) * align : 0;
    void *memory = rounded ? aligned_alloc(align, rounded) : NULL;
    if (!memory) {
        cli_fail("out of memory: %zu bytes", bytes);
        exit(CLI_FAILED);
    }
    if (align == page) (void)madvise(memory, rounded, MADV_HUGEPAGE);
    return memory;
}

int tensors_read(void **out, muon_st *file, size_t index)
{
    muon_st_tensor tensor;
    DO(tensors_get(file, index, &tensor));
    void *data = tensors_alloc(tensor.bytes);
    if (muon_st_read(file, index, data, tensor.bytes) != MUON_OK) {
        free(data);
        return cli_fail_library();
    }
    *out = data;
    return CLI_DONE;
}
