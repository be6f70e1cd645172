/* product.h - matrix products in plain loops, for a small model that does without a BLAS. */
#ifndef DEMO_PRODUCT_H
#define DEMO_PRODUCT_H

typedef struct product_view { /* element (i, j) is data[i * row_step + j * col_step] */
    const float *data;
    int row_step, col_step;
} product_view;

/* c[m][n] = a[m][k] b[k][n]; m and k are multiples of 4. */
void product(float *c, product_view a, const float *b, int m, int n, int k);

#endif
