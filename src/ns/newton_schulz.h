/* newton_schulz.h - one matrix replaced by (nearly) its orthogonal polar factor.
 *
 * Every algorithm evaluates the same composition of odd quintics; with X wide (m <= n; a tall matrix
 * is read as its transpose) a step is X <- W X, W = a I + b R + c R^2, R = X X'.
 *
 *   standard   three full products per step
 *   symmetric  R and R^2 are symmetric: half the work, mirrored
 *   gram       R = X X' once; all W commute, so Q = W_k ... W_1 and R <- R W W are built from m x m
 *              symmetric products, and X is touched once more at the end: Q X. Rounding noise in R
 *              grows by a^2 per step, so before it passes a budget the iteration restarts from
 *              X <- Q X; where is decided by the coefficients alone.
 *
 * What runs depends on (rows, cols, settings) only, never on data, threads or layout. */
#ifndef NS_NEWTON_SCHULZ_H
#define NS_NEWTON_SCHULZ_H

#include "la/la.h"
#include "ns/coefficients.h"

typedef struct ns_plan {
    int64_t rows, cols;
    int64_t m, n; /* the short and the long side */
    muon_algorithm algorithm;
    double eps;
    muon_eps_mode eps_mode;
    ns_steps steps;
    unsigned char restart[MUON_MAX_NS_STEPS]; /* gram: start afresh before this step */
} ns_plan;

/* Settings have been checked. Fails only if coefficients cannot be made. */
muon_status muon__ns_plan_make(ns_plan *out, int64_t rows, int64_t cols,
                               const muon_group *settings);

double muon__ns_flops(const ns_plan *plan); /* of the algorithm that runs */

/* Floats of scratch that any settings need for this shape; -1 if the number does not fit. */
int64_t muon__ns_scratch(int64_t rows, int64_t cols);

/* out = the orthogonal factor of x, both [rows][cols] and contiguous; out may be x. MUON_E_NONFINITE
 * leaves out alone. */
muon_status muon__ns_run(const ns_plan *plan, const la_ops *la, pool *p, float *out, const float *x,
                         float *scratch);

#endif
