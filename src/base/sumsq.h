/* sumsq.h - a sum of squares that no order, sharding or number of threads can change.
 *
 * The square of a float is exact in double. The number line of squares is cut into bins of 40 bits;
 * bin b has a grid, and a square contributes to its top bin the nearest multiple of that grid and
 * to the bin below the rest, rounded to the finer grid. Contributions are counted as integers, so
 * adding them is exact, in any order. The value is read from the top two bins of the largest
 * element seen. What lies below them is lost, the same for every order: less than 2^-40 of the
 * largest square per element. Merging two sums adds integers, even across processes. */
#ifndef BASE_SUMSQ_H
#define BASE_SUMSQ_H

#include "base/pool.h"

enum { MUON__SUMSQ_BINS = 17 };

typedef struct sumsq {
    int64_t high[MUON__SUMSQ_BINS], low[MUON__SUMSQ_BINS]; /* bin = (high 2^40 + low) grid */
    uint32_t largest; /* bits of the largest |x|; NaN and infinity are largest of all */
} sumsq;

void muon__sumsq_add_f32(sumsq *s, const float *x, int64_t n);
void muon__sumsq_add_bf16(sumsq *s, const uint16_t *x, int64_t n);
void muon__sumsq_merge(sumsq *into, const sumsq *from);
/* Only as much as muon__sumsq_finite needs, at the speed of memory; the value is then of no use. */
void muon__sumsq_see_f32(sumsq *s, const float *x, int64_t n);
void muon__sumsq_see_bf16(sumsq *s, const uint16_t *x, int64_t n);
void muon__sumsq_add_f16(sumsq *s, const uint16_t *x, int64_t n);
void muon__sumsq_see_f16(sumsq *s, const uint16_t *x, int64_t n);
void muon__sumsq_see_shared(sumsq *s, const float *x, int64_t n, pool *p); /* by all threads */
void muon__sumsq_add_shared(sumsq *s, const float *x, int64_t n, pool *p); /* by all threads */
/* The functions above for elements of any dtype that gradients can have. */
typedef struct sumsq_reader {
    void (*add)(sumsq *s, const void *x, int64_t n);
    void (*see)(sumsq *s, const void *x, int64_t n);
} sumsq_reader;
const sumsq_reader *muon__sumsq_reader(muon_dtype dtype);
int muon__sumsq_finite(const sumsq *s);
double muon__sumsq_value(const sumsq *s); /* NaN if an element was not finite */

#endif
