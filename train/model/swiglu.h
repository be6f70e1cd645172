/* swiglu.h - the feed-forward part: y = down(silu(gate x) * (up x)), for one group of rows or several
 * with weights of their own. A dense layer is one group of all tokens; experts are a group each.
 *
 * gate and up are one tensor, (groups, 2 * hidden, width): first the rows of gate, then those of up. */
#ifndef TRAIN_MODEL_SWIGLU_H
#define TRAIN_MODEL_SWIGLU_H

#include "train/model/product.h"

typedef struct swiglu {
    int64_t width, hidden, groups;
    const int64_t *offsets;   /* [groups + 1]: group g has the rows offsets[g] .. offsets[g + 1] */
    const float *row_weights; /* [rows]: factors on the rows of y, or NULL */
    const float *gate_up, *down; /* (groups, 2 * hidden, width), (groups, width, hidden) */
    float *inner;       /* [rows][2 * hidden]: gate x, up x; kept for the way back, and used up
                                by it */
    float *hidden_rows; /* [rows][hidden], scratch */
    product *list;      /* 3 * groups, scratch */
} swiglu;

/* y = base + ...; rows of width floats. */
void swiglu_forward(pool *p, const swiglu *s, const float *x, const float *base, float *y);

typedef struct swiglu_gradients {
    float *gate_up, *down; /* added to */
    float *row_weights;    /* [rows], or NULL */
    float *x;              /* overwritten */
} swiglu_gradients;

void swiglu_backward(pool *p, const swiglu *s, const float *x, const float *dy,
                     const swiglu_gradients *d);

#endif
