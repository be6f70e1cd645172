/* blis_panels.h - products by BLIS's inner kernel on panels that are packed here.
 *
 * For AVX-512 ("skx"), BLIS 0.9 to 1.1 has a fast inner kernel, but neither packs with vector
 * instructions nor has kernels for small products: it packs slowly, and a tile is little work for much
 * packing (docs/design.md has figures). */
#ifndef LA_BLIS_PANELS_H
#define LA_BLIS_PANELS_H

#include "base/blis.h"

/* Is that so for the kernels in use? Only for the BLIS of the headers; to be asked after the check. */
int muon__panels_suit(void);

/* Memory for products on so many more threads at the same time, 2.3 MB each for AVX-512; and for so many
 * fewer. */
muon_status muon__panels_reserve(int threads);
void muon__panels_release(int threads);

/* c[m][n] = alpha a[m][k] b[k][n] + beta c, in rows of ldc floats, with whatever kernels are in use.
 * lower: on and below the diagonal; above it c may hold anything afterwards. Who has not reserved memory
 * gets it here, or without any the product of BLIS itself, with other bits. */
void muon__panels_multiply(int64_t m, int64_t n, int64_t k, float alpha, blis_matrix a,
                           blis_matrix b, float beta, float *c, int64_t ldc, int lower);

#endif
