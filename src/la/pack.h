/* pack.h - an operand of a product in panels, as inner kernels of a BLAS read it. */
#ifndef LA_PACK_H
#define LA_PACK_H

#include <stdint.h>

/* Panels of `width` rows, one after the other: for each of the k columns, the panel's elements. Element
 * (i, l), i < m and l < k, is from[i * rs + l * cs]; the rows that the last panel lacks become zeros. */
void muon__pack(float *to, int64_t width, const float *from, int64_t rs, int64_t cs, int64_t m,
                int64_t k);

#endif
