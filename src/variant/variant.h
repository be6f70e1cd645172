/* variant.h - stages on a whole matrix, before and after its orthogonalization.
 *
 * They run at the matrix's owner, where no sharding can be seen. Every sum is taken in double along rows
 * or columns, in an order that only the shape determines, so threads do not change a bit either. */
#ifndef VARIANT_VARIANT_H
#define VARIANT_VARIANT_H

#include "base/pool.h"
#include "muon/muon.h"

typedef struct variant {
    const muon_group *group;
    int64_t rows, cols;
    int transposed; /* the matrix is stored so: its rows are the neurons' inputs */
    float *second;  /* [muon__variant_second] V; NULL if that is 0 */
    double weight;  /* norm of W before the step, for update_norm */
    double decay;   /* the part of W that decays */
    double grad;    /* norm of G, for MUON_SECOND_MATRIX */
} variant;

/* Some stage looks at whole matrices: one rank must have all of it. */
int muon__variant_is_on(const muon_group *group);

/* Floats of V that an owner keeps for a matrix. */
int64_t muon__variant_second(const muon_group *group, int64_t rows, int64_t cols, int transposed);

/* Floats that both stages need; the second finds what the first has left in them. */
int64_t muon__variant_scratch(const muon_group *group, int64_t rows, int64_t cols);

/* U, before it is orthogonalized. */
void muon__variant_before(const variant *v, float *u, pool *p, float *scratch);
/* O; changes V. If O is not finite, both stay as they are: sums of squares of floats, in double, are
 * finite if and only if all elements are. */
void muon__variant_after(const variant *v, float *o, pool *p, float *scratch);

#endif
