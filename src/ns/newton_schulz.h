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
 * A norm that comes from R rather than from X is one more operation, after the first R.
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
    muon_normalization normalization;
    ns_steps steps;
    unsigned char restart[MUON_MAX_NS_STEPS]; /* gram: start afresh before this step */
} ns_plan;

/* Settings have been checked. Fails only if coefficients cannot be made. */
muon_status muon__ns_plan_make(ns_plan *out, int64_t rows, int64_t cols,
                               const muon_group *settings);

double muon__ns_flops(const ns_plan *plan); /* of the algorithm that runs */

/* ---- One after the other: what the algorithm multiplies */

enum { NS_SQUARES = 4, NS_NO_SQUARE = -1 };

typedef enum ns_kind {
    NS_GRAM,   /* square[to] = X X' */
    NS_SCALE,  /* square[to] = S square[to] S and X = S X, by the norm of the plan (normalize.h) */
    NS_SQUARE, /* square[to] = alpha square[a] square[b] + beta square[d] + diagonal I */
    NS_APPLY   /* the next X is square[a] X; of a tall matrix, X square[a] */
} ns_kind;

typedef struct ns_op {
    ns_kind kind;
    int to, a, b, d;
    float alpha, beta, diagonal;
    int symmetric; /* the square is known to be */
    int last;      /* NS_APPLY: the next X is the result */
} ns_op;

/* Where in the list of operations a run is. Zero, but for the plan, is before the first. */
typedef struct ns_cursor {
    const ns_plan *plan;
    int step, stage;
    int q, spare; /* gram: the squares that change places, as 1 + index; 0: not yet */
} ns_cursor;

/* The next operation; 0 after the last. */
int muon__ns_next(ns_cursor *c, ns_op *op);

/* The memory that operations work on. x and y are [rows][cols] and are read as wide m x n matrices. */
typedef struct ns_operands {
    const ns_plan *plan;
    float *x;
    double prescale;           /* what U was multiplied by to become the first X (normalize.h) */
    float *square[NS_SQUARES]; /* [m][ld] each */
    int64_t ld;
} ns_operands;

/* Lays out the squares; returns the floats that they take. base NULL only counts. */
int64_t muon__ns_lay_out(ns_operands *o, const ns_plan *plan, float *base);

/* An operation, but for NS_SCALE, as a product of la; y: where the next X goes, [rows][cols]. */
la_product muon__ns_product(const ns_operands *o, const ns_op *op, const la_ops *la, float *y);

/* ---- All of it */

/* Floats of scratch that any settings need for this shape; -1 if the number does not fit. */
int64_t muon__ns_scratch(int64_t rows, int64_t cols);

/* A run that can be left between two tiles and taken up again. */
typedef struct ns_run {
    ns_operands operands;
    ns_cursor cursor;
    const la_ops *la;
    float *from, *to; /* X, and where the next one goes */
    ns_op op;         /* in work, unless `ended` */
    int64_t tile;     /* the next of its product */
    int ended;
} ns_run;

/* Normalises x; out and x are as in muon__ns_run. */
muon_status muon__ns_begin(ns_run *r, const ns_plan *plan, const la_ops *la, pool *p, float *out,
                           const float *x, float *scratch);
/* Computes up to so many tiles of the operation in work. */
void muon__ns_advance(ns_run *r, pool *p, int64_t tiles);

/* out = the orthogonal factor of x, both [rows][cols] and contiguous; out may be x. MUON_E_NONFINITE
 * leaves out alone. */
muon_status muon__ns_run(const ns_plan *plan, const la_ops *la, pool *p, float *out, const float *x,
                         float *scratch);

#endif
