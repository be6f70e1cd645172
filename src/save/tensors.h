/* tensors.h - the tensors of an optimizer's checkpoint: their names, and where this rank has its
 * part of them. */
#ifndef SAVE_TENSORS_H
#define SAVE_TENSORS_H

#include "muon/checkpoint.h"
#include "step/state.h"

/* What a tensor is of its parameter: a part of the state, or one of these. */
enum { TENSOR_STEP = STATE_PARTS, TENSOR_WEIGHT };

typedef struct saved_tensor {
    size_t param;
    int what;
    muon_dtype dtype;
    int64_t numel;
    size_t element; /* bytes */
    char *name;
} saved_tensor;

typedef struct saved_tensors {
    muon_opt *opt;
    const muon_buffers *buffers; /* NULL: no weights */
    saved_tensor *list;          /* the same on every rank */
    size_t n;
} saved_tensors;

/* The state of all parameters that are not frozen, and with buffers their weights. */
muon_status muon__tensors_create(saved_tensors *out, muon_opt *opt, const muon_buffers *buffers);
void muon__tensors_destroy(saved_tensors *tensors); /* zeroed is fine */

/* As a checkpoint describes it; the name is borrowed. */
muon_checkpoint_tensor muon__tensor_describe(const saved_tensors *tensors, size_t index);

/* Which rank has which of its elements. */
typedef struct tensor_layout {
    const layout *layout;
    int ndim;
    const int64_t *shape;
} tensor_layout;
tensor_layout muon__tensor_layout(const saved_tensors *tensors, size_t index);

/* Elements of this rank's shard. Not for TENSOR_STEP, which has no shards. */
void *muon__tensor_at(const saved_tensors *tensors, size_t index, int64_t at); /* NULL: in a file */
muon_status muon__tensor_read(const saved_tensors *tensors, size_t index, int64_t at, int64_t n,
                              void *data);
muon_status muon__tensor_write(const saved_tensors *tensors, size_t index, int64_t at, int64_t n,
                               const void *data);

#endif
