/* layer_dense.h - a SwiGLU that all tokens go through: a dense layer, or the expert they share. */
#ifndef TRAIN_MODEL_LAYER_DENSE_H
#define TRAIN_MODEL_LAYER_DENSE_H

#include "train/model/parts.h"

void dense_describe(model *m, int layer, dense *d, const char *gate_up, const char *down,
                    int64_t hidden);
void dense_keep(model *m, dense *d, int64_t hidden, arena *a);
/* hidden_rows: [tokens][hidden] of scratch. */
void dense_forward(model *m, const dense *d, const float *base, float *out, float *hidden_rows);
void dense_backward(model *m, const dense *d, float *hidden_rows); /* overwrites m->d_normal */

#endif
