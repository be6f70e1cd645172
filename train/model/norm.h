/* norm.h - RMSNorm: y = w x / sqrt(mean(x^2) + eps), row by row. */
#ifndef TRAIN_MODEL_NORM_H
#define TRAIN_MODEL_NORM_H

#include "base/pool.h"

typedef struct norm {
    int64_t rows, width;
    const float *w; /* [width] */
    const float *x; /* rows ldx floats apart */
    int64_t ldx;
    float *inverse; /* [rows]: 1 / sqrt(mean(x^2) + eps), kept for the way back */
} norm;

/* y[rows][width], and the inverses. */
void norm_forward(pool *p, const norm *n, float eps, float *y);
/* y again, from the inverses. */
void norm_again(pool *p, const norm *n, float *y);
/* From dy[rows][width]: adds to dw, and puts base + the gradient of x into dx, which has rows of ldx
 * floats, as has base (NULL: 0; may be dx). partial: [rows_blocks(rows)][width] of scratch. */
void norm_backward(pool *p, const norm *n, const float *dy, const float *base, float *dx, float *dw,
                   float *partial);

#endif
