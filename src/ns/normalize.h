/* normalize.h - a matrix divided by its own norm, whatever its scale.
 *
 * A norm of X itself, Frobenius's, is summed and divided by before the first product. Norms of A = XX'
 * follow it: U is only multiplied by a power of two, so that A neither overflows nor loses small rows,
 * and the norm is taken and divided by when A is there. Sums and divisions are in double, so inputs of
 * 1e-30 and 1e30 come out alike; their order depends on the shape alone. */
#ifndef NS_NORMALIZE_H
#define NS_NORMALIZE_H

#include "base/sumsq.h"
#include "ns/newton_schulz.h"

/* to = x times the factor of the plan, which *factor becomes; zero stays zero. to may be x.
 * MUON_E_NONFINITE, with nothing written, if x has a NaN or infinity. */
muon_status muon__ns_normalize(float *to, const float *x, const ns_plan *plan, pool *p,
                               double *factor);

/* In three parts: what the factor needs to know of x; the factor, of what is finite; and n products, or
 * copies for a factor of 1. */
void muon__ns_measure(sumsq *sum, const float *x, int64_t n, const ns_plan *plan, pool *p);
double muon__ns_factor(const ns_plan *plan, const sumsq *sum);
void muon__ns_scale(float *to, const float *x, int64_t n, double factor);

/* NS_SCALE: divides X and its A, which is square[op->to], by the norm of A. square[op->to + 1] is
 * scratch. */
void muon__ns_precondition(const ns_operands *o, const ns_op *op, pool *p);

#endif
