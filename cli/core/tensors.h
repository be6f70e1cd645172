/* tensors.h - tensors of safetensors files, with messages that name the file or the tensor. */
#ifndef CLI_TENSORS_H
#define CLI_TENSORS_H

#include "cli/core/cli.h"

#include "muon/safetensors.h"

int tensors_open(muon_st **out, const char *path);
int tensors_get(const muon_st *file, size_t index, muon_st_tensor *out);

int64_t tensors_elements(const muon_st_tensor *tensor);
int tensors_same_shape(const muon_st_tensor *tensor, int ndim, const int64_t *shape);

/* "2x3x4", or "scalar". */
typedef struct tensors_shape {
    char text[192];
} tensors_shape;
const char *tensors_shape_text(tensors_shape *out, int ndim, const int64_t *shape);

/* The bytes of a tensor in memory of its own, for free. */
int tensors_read(void **out, muon_st *file, size_t index);

/* Memory for the elements of vector instructions; ends the program if there is none. */
void *tensors_alloc(size_t bytes);

#endif
