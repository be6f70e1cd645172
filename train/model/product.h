/* product.h - the large products of a model, several at a time, in tiles that threads share.
 *
 * Tiles are cut by the shapes alone and each is computed by one thread, so the bits do not depend on
 * how many threads there are. */
#ifndef TRAIN_MODEL_PRODUCT_H
#define TRAIN_MODEL_PRODUCT_H

#include "base/pool.h"
#include "train/model/blas.h"

typedef struct product_term { /* a[m][k] b[k][n] */
    mat a, b;
    int64_t k;
} product_term;

enum { PRODUCT_TERMS = 3 };

typedef struct product { /* c[m][n] = base + the sum of the terms */
    int64_t m, n;
    const float *base; /* with rows like c's: NULL is 0, c itself is added to */
    float *c;
    int64_t ldc;
    int nterms;
    product_term terms[PRODUCT_TERMS];
} product;

/* Runs all of them, in any order. */
void product_run(pool *p, const product *list, int count);

/* A layer y = x w' with w[out][in], for `rows` rows of x and y that are ldx and ldy floats apart. */
typedef struct linear {
    int64_t rows, in, out;
    const float *w;
    int64_t ldx, ldy;
} linear;

product linear_forward(const linear *l, const float *x, const float *base, float *y); /* y */
product linear_input(const linear *l, const float *dy, const float *base, float *dx);
product linear_weight(const linear *l, const float *dy, const float *x, float *dw); /* adds to dw */
/* Another term for the input's gradient: the same input feeds several layers. */
void linear_input_also(product *p, const linear *l, const float *dy);

#endif
