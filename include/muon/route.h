/* route.h - what another program needs to do a step of Muon where libmuon does not run, for example on an
 * accelerator: the coefficients of an orthogonalization. The rules of muon.h apply. */
#ifndef MUON_ROUTE_H
#define MUON_ROUTE_H

#include "muon/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The schedule of an orthogonalization -------------------------------------------------- */

/* How a matrix U of rows x cols becomes O: what muon_step and muon_ortho_run do. If U or O has a
 * NaN or infinity, the matrix gets no update: O = 0.
 *
 * With m = min(rows, cols), let X be U, or its transpose if rows > cols, so that X has m rows.
 * First X is divided by its norm, with d = norm_scale * norm:
 *
 *     MUON_EPS_RELATIVE    X = X / (d (1 + eps))
 *     MUON_EPS_ADD         X = X / (d + eps)
 *     MUON_EPS_CLAMP       X = X / max(d, eps)
 *
 * The norm is summed in double. With A = X X' it is
 *
 *     MUON_NORM_FROBENIUS  the root of the sum of squares of X
 *     MUON_NORM_SCHATTEN4  sqrt(|A|), |A| the root of the sum of squares of A
 *     MUON_NORM_AOL        sqrt(sum_j |A_ij|) for row i, so that each row has a divisor of its own
 *
 * and what has norm 0 becomes zero. With the last two, R of the first step is A, divided on both sides
 * by what X is divided by; to keep A from overflowing, X is multiplied by a power of two before.
 *
 * Then each step k = 0 .. steps - 1 is X = W X, where W = a I + b R + c R R, R = X X' and
 * (a, b, c) = abc[k]. In the end O is X, transposed back. MUON_ALGORITHM_STANDARD and _SYMMETRIC do
 * just that. MUON_ALGORITHM_GRAM does the same with fewer products of the long side: as all W
 * commute, it collects their product Q and iterates on R alone,
 *
 *     for each k:
 *         if k > 0 and restart[k]:        X = Q X
 *         if k == 0 or restart[k]:        R = X X'
 *         W = a I + b R + c R R
 *         if k == 0 or restart[k]:        Q = W
 *         otherwise:                      Q = Q W
 *         unless k is the last step or restart[k + 1]:
 *                                         R = (R W) W
 *     X = Q X
 *
 * All m x m matrices are symmetric. Rounding errors in R grow with a^2 in every step; the restarts
 * keep them small in f32 and depend on the coefficients and the shape only. */
typedef struct muon_schedule {
    double factor;            /* on lr: from lr_mode, the shape and lr_scale */
    muon_algorithm algorithm; /* the one that runs, never AUTO */
    muon_eps_mode eps_mode;
    double eps;
    double norm_scale; /* the group's; if that is 0, 1, or 1 + polar_safety for polar_express */
    double flops;      /* of one matrix */
    int64_t steps;
    double abc[MUON_MAX_NS_STEPS][3];
    /* 1: the Gram form starts afresh before this step. Set whichever algorithm runs. */
    unsigned char restart[MUON_MAX_NS_STEPS];
    muon_normalization normalization;
} muon_schedule;

/* For a matrix of rows x cols as it is in the tensor; transposed is 1 if its description says so,
 * which affects only the factor. Returns MUON_E_VALUE if the group's rule is not Muon. */
MUON_API muon_status muon_group_get_schedule(const muon_group *group, int64_t rows, int64_t cols,
                                             int transposed, muon_schedule *schedule,
                                             size_t schedule_size);

#ifdef __cplusplus
}
#endif
#endif
