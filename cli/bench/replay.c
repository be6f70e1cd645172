/* The rule of a Muon group in double, for a gradient that is the same in every step: U is then always a
 * multiple of it, and what is orthogonalized always the same. */
#include "cli/bench/bench.h"
#include "cli/core/files.h"

#include <math.h>
#include <stdlib.h>

static const double least_norm = 1e-6; /* as docs/presets.md has it */
static const double most = 1e-3; /* of the error, relative to how far the weights have moved */
static const double most_in_one = 5e-2; /* of one element, relative to their root mean square */
static const double most_narrow = 0.1;  /* with momentum in 8 bits, as for `most` */

typedef struct state {
    const bench_replay *r;
    double *first;  /* the orthogonal factor */
    double *o;      /* the update of a step */
    double *w, *v;  /* weights; second moments */
    double product; /* the sum of gradient * first */
} state;

static double root_of_sum(const double *x, int64_t n, int64_t stride)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i * stride] * x[i * stride];
    return sqrt(sum);
}

static void scale(double *x, int64_t n, int64_t stride, double by)
{
    for (int64_t i = 0; i < n; i++)
        x[i * stride] *= by;
}

/* MuonEq, of the gradient: U differs only by a factor, which orthogonalization does not see. */
static void equalize(double *u, int64_t rows, int64_t cols)
{
    double norm = root_of_sum(u, rows * cols, 1) / sqrt((double)rows);
    for (int64_t i = 0; i < rows; i++)
        scale(u + i * cols, cols, 1, norm / fmax(root_of_sum(u + i * cols, cols, 1), least_norm));
}

static int orthogonalize(state *s)
{
    const bench_replay *r = s->r;
    int64_t n = r->rows * r->cols;
    float *x = tensors_alloc((size_t)n * sizeof *x);
    muon_ortho *ortho = NULL;
    for (int64_t i = 0; i < n; i++)
        s->first[i] = (double)r->grad[i];
    if (r->group->equalize) equalize(s->first, r->rows, r->cols);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)s->first[i];
    int is_done = muon_ortho_create(&ortho, 1, r->rows, r->cols, r->group, 0, NULL) == MUON_OK &&
                  muon_ortho_run(ortho, x, x) == MUON_OK;
    muon_ortho_destroy(ortho);
    for (int64_t i = 0; i < n; i++) {
        s->first[i] = (double)x[i];
        s->product += (double)r->grad[i] * (double)x[i];
    }
    free(x);
    return is_done ? CLI_DONE : cli_fail_library();
}

/* ---- second moments --------------------------------------------------------------------------- */

static double divisor(const muon_group *group, double *v, double square)
{
    *v += (1 - group->second_beta) * (square - *v);
    if (group->second_eps_mode == MUON_SECOND_EPS_CLAMP) return sqrt(fmax(*v, group->second_eps));
    return sqrt(*v) + group->second_eps;
}

/* count lists of `length` elements, which are `stride` apart. */
static void divide_lists(state *s, int64_t count, int64_t length, int64_t step, int64_t stride)
{
    int64_t n = count * length;
    double before = root_of_sum(s->o, n, 1);
    for (int64_t i = 0; i < count; i++) {
        double norm = root_of_sum(s->o + i * step, length, stride);
        double by = divisor(s->r->group, &s->v[i], norm * norm / (double)length);
        scale(s->o + i * step, length, stride, 1 / by);
    }
    scale(s->o, n, 1, before / root_of_sum(s->o, n, 1));
}

/* By the norm of the gradient; U has `weight` times that. */
static void divide_matrix(state *s, double weight)
{
    int64_t n = s->r->rows * s->r->cols;
    double square = 0;
    for (int64_t i = 0; i < n; i++)
        square += (double)s->r->grad[i] * (double)s->r->grad[i];
    scale(s->o, n, 1, weight * sqrt(square) / divisor(s->r->group, s->v, square));
}

static void divide(state *s, double weight)
{
    int64_t rows = s->r->rows, cols = s->r->cols;
    switch (s->r->group->second_moment) {
    case MUON_SECOND_NONE:
        break;
    case MUON_SECOND_ROWS:
        divide_lists(s, rows, cols, cols, 1);
        break;
    case MUON_SECOND_LONG_SIDE:
        if (rows >= cols)
            divide_lists(s, rows, cols, cols, 1);
        else
            divide_lists(s, cols, rows, 1, cols);
        break;
    case MUON_SECOND_ELEMENTS:
        for (int64_t i = 0; i < rows * cols; i++)
            s->o[i] /= divisor(s->r->group, &s->v[i], s->o[i] * s->o[i]);
        break;
    case MUON_SECOND_MATRIX:
        divide_matrix(s, weight);
    }
}

/* ---- a step ------------------------------------------------------------------------------------ */

/* U in units of the gradient, in step 1, 2, ... */
static double weight_of(const muon_group *group, int step)
{
    double mu = group->momentum, m = 1 - pow(mu, step);
    if (group->momentum_form == MUON_HEAVY_BALL) m /= 1 - mu;
    if (!group->nesterov) return m;
    return group->momentum_form == MUON_HEAVY_BALL ? 1 + mu * m : 1 + mu * (m - 1);
}

/* How much longer O becomes, for update_norm. */
static double lengthen(const state *s, int64_t n, double norm)
{
    const muon_group *group = s->r->group;
    if (group->update_norm == MUON_UPDATE_NORM_OWN) return s->r->factor;
    int decays = group->update_norm == MUON_UPDATE_RELATIVE && !group->cautious_decay;
    return norm * (decays ? 1 - group->lr * group->weight_decay : 1) / root_of_sum(s->o, n, 1);
}

static void take_step(state *s, int step)
{
    const bench_replay *r = s->r;
    const muon_group *group = r->group;
    int64_t n = r->rows * r->cols;
    double by = group->adaptive ? weight_of(group, step) * s->product : 1;
    double rank = (double)(r->rows < r->cols ? r->rows : r->cols);
    for (int64_t i = 0; i < n; i++)
        s->o[i] = by * s->first[i];
    if (group->renormalize)
        scale(s->o, n, 1, sqrt(rank) / fmax(root_of_sum(s->o, n, 1), least_norm));
    divide(s, weight_of(group, step));
    double norm = root_of_sum(s->w, n, 1), factor = lengthen(s, n, norm);
    for (int64_t i = 0; i < n; i++) {
        int decays = !group->cautious_decay || s->w[i] * s->o[i] >= 0;
        if (decays) s->w[i] *= 1 - group->lr * group->weight_decay;
        s->w[i] -= group->lr * factor * s->o[i];
    }
    if (group->update_norm == MUON_UPDATE_HYPERBALL)
        scale(s->w, n, 1, norm / root_of_sum(s->w, n, 1));
}

static int compare(const state *s)
{
    const bench_replay *r = s->r;
    int64_t n = r->rows * r->cols;
    double error = 0, moved = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double difference = (double)r->weight[i] - s->w[i], way = s->w[i] - (double)r->start[i];
        error += difference * difference;
        moved += way * way;
        if (!(fabs(difference) <= worst)) worst = fabs(difference); /* keeps a NaN */
    }
    /* Where O is 0 up to rounding, its second moment makes anything of it. */
    int narrow = r->group->momentum_dtype == MUON_I8;
    int any = narrow || r->group->second_moment == MUON_SECOND_ELEMENTS;
    double limit = narrow ? most_narrow : most;
    error = sqrt(error / moved);
    worst /= sqrt(moved / (double)n);
    if (error <= limit && (any || worst <= most_in_one)) return CLI_DONE; /* false for NaN */
    return cli_fail("wrong result: %s is off by %.3g, and %.3g in one element; the limits are %g "
                    "and %g",
                    r->what, error, worst, limit, most_in_one);
}

int bench_replay_check(const bench_replay *r)
{
    size_t n = (size_t)(r->rows * r->cols);
    state s = {.r = r,
               .first = cli_alloc(n, sizeof(double)),
               .o = cli_alloc(n, sizeof(double)),
               .w = cli_alloc(n, sizeof(double)),
               .v = cli_alloc(n, sizeof(double))};
    int code = orthogonalize(&s);
    for (size_t i = 0; i < n; i++)
        s.w[i] = (double)r->start[i];
    for (int step = 1; code == CLI_DONE && step <= r->steps; step++)
        take_step(&s, step);
    if (code == CLI_DONE) code = compare(&s);
    free(s.first);
    free(s.o);
    free(s.w);
    free(s.v);
    return code;
}
