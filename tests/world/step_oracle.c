#include "tests/world/step_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ns/coefficients.h"

static double *zeros(int64_t n)
{
    double *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

static int64_t size_of(const oracle *o)
{
    return o->batch * o->rows * o->cols;
}

void oracle_init(oracle *o, const model *m, size_t p, int64_t batch, int64_t rows, int64_t cols)
{
    *o = (oracle){.batch = batch, .rows = rows, .cols = cols};
    int64_t n = size_of(o);
    assert_int_equal(n, fleet_numel(&m->params[p]));
    o->start = zeros(n);
    o->w = zeros(n);
    o->m = zeros(n);
    o->v = zeros(n);
    o->second = zeros(n);
    for (int64_t i = 0; i < n; i++)
        o->start[i] = o->w[i] = (double)model_weight(m, p, i);
}

void oracle_free(oracle *o)
{
    free(o->start);
    free(o->w);
    free(o->m);
    free(o->v);
    free(o->second);
}

double oracle_bf16(double x)
{
    int exponent;
    double fraction = frexp((double)(float)x, &exponent); /* 8 bits of it are kept */
    return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

double oracle_factor(const muon_group *group, double rows, double cols)
{
    switch (group->lr_mode) {
    case MUON_LR_RMS_NORM:
        return group->lr_scale * 0.2 * sqrt(rows > cols ? rows : cols);
    case MUON_LR_SPECTRAL_NORM:
        return group->lr_scale * sqrt(rows / cols);
    case MUON_LR_ORIGINAL:
        return group->lr_scale * (rows > cols ? sqrt(rows / cols) : 1);
    case MUON_LR_SPECTRAL:
        return group->lr_scale * sqrt(rows > cols ? rows : cols);
    case MUON_LR_NONE:
        break;
    }
    return group->lr_scale;
}

/* The part of a weight that decays in a step; of form l2, the part that its gradient gets. */
static double decay_of(const muon_group *group)
{
    switch (group->decay_form) {
    case MUON_DECAY_DECOUPLED:
        return group->lr * group->weight_decay;
    case MUON_DECAY_PALM:
        return group->lr * group->lr * group->weight_decay;
    case MUON_DECAY_INDEPENDENT:
    case MUON_DECAY_L2:
        break;
    }
    return group->weight_decay;
}

static double grad_of(const oracle *o, const muon_group *group, const model *m, size_t p, int64_t i,
                      double multiplier)
{
    double g = (double)model_grad(m, p, i) * multiplier;
    return group->decay_form == MUON_DECAY_L2 ? g + decay_of(group) * o->w[i] : g;
}

/* Decays w[i], which is about to be changed by -lr times `update`. */
static void decay(oracle *o, const muon_group *group, int64_t i, double update)
{
    if (group->decay_form == MUON_DECAY_L2) return;
    if (!group->cautious_decay || o->w[i] * update >= 0) o->w[i] -= decay_of(group) * o->w[i];
}

/* M becomes the new momentum; u[i] is what is orthogonalized. */
static void momentum(oracle *o, double *u, double *gs, const muon_group *group, const model *m,
                     size_t p, double multiplier)
{
    double mu = group->momentum, t = (double)o->step + 1;
    for (int64_t i = 0; i < size_of(o); i++) {
        double g = gs[i] = grad_of(o, group, m, p, i, multiplier);
        if (group->momentum_form == MUON_EMA) {
            o->m[i] = mu * o->m[i] + (1 - mu) * g;
            u[i] = group->nesterov ? mu * o->m[i] + (1 - mu) * g : o->m[i];
        } else {
            o->m[i] = mu * o->m[i] + g;
            u[i] = group->nesterov ? mu * o->m[i] + g : o->m[i];
        }
        if (group->bias_correction)
            u[i] = group->nesterov
                       ? mu * o->m[i] / (1 - pow(mu, t + 1)) + (1 - mu) * g / (1 - pow(mu, t))
                       : o->m[i] / (1 - pow(mu, t));
        if (group->momentum_dtype == MUON_BF16) o->m[i] = oracle_bf16(o->m[i]);
        if (o->wire_bf16) u[i] = oracle_bf16(u[i]);
    }
}

int64_t oracle_elements(const oracle *o, int64_t batch, int matrix, int64_t *index, int64_t *rows)
{
    int64_t n = 0;
    *rows = 0;
    for (int64_t r = 0; r < o->rows; r++) {
        int64_t before = n;
        for (int64_t c = 0; c < o->cols; c++)
            if ((o->matrix_of ? o->matrix_of(r, c) : 0) == matrix)
                index[n++] = (batch * o->rows + r) * o->cols + c;
        *rows += n > before;
    }
    return n;
}

typedef struct room {
    int64_t *index;
    float *x;
    double *u, *g, *orthogonal;
    const double *before; /* weights before the step */
    double *change;       /* of weights, in units of -lr; 0 in no matrix */
} room;

/* ---- Variants, on a matrix [rows][cols] */

static double dot(const double *a, const double *b, int64_t n, int64_t stride)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i * stride] * b[i * stride];
    return sum;
}

static void scale(double *x, int64_t n, int64_t stride, double by)
{
    for (int64_t i = 0; i < n; i++)
        x[i * stride] *= by;
}

/* Lines are rows, or columns: `count` lines of n elements, `step` apart, with `stride` inside. */
typedef struct lines {
    int64_t count, n, step, stride;
} lines;

static lines lines_of(int64_t rows, int64_t cols, int columns)
{
    return columns ? (lines){cols, rows, 1, cols} : (lines){rows, cols, cols, 1};
}

static void equalize(double *u, int64_t rows, int64_t cols, int columns)
{
    lines l = lines_of(rows, cols, columns);
    double norm = sqrt(dot(u, u, rows * cols, 1) / (double)l.count);
    for (int64_t i = 0; i < l.count; i++) {
        double own = sqrt(dot(u + i * l.step, u + i * l.step, l.n, l.stride));
        scale(u + i * l.step, l.n, l.stride, norm / fmax(own, 1e-6));
    }
}

static double second_root(const muon_group *group, double v)
{
    return group->second_eps_mode == MUON_SECOND_EPS_CLAMP ? sqrt(fmax(v, group->second_eps))
                                                           : sqrt(v) + group->second_eps;
}

/* A second moment for all of a matrix, at its first element. */
static void divide_by_grads(const oracle *o, const muon_group *group, const room *r, double *x,
                            const double *u, int64_t n)
{
    double *v = &o->second[r->index[0]], square = 0;
    for (int64_t i = 0; i < n; i++)
        square += r->g[r->index[i]] * r->g[r->index[i]];
    *v = group->second_beta * *v + (1 - group->second_beta) * square;
    scale(x, n, 1, sqrt(dot(u, u, n, 1)) / second_root(group, *v));
}

static double norm_at(const double *x, const int64_t *index, int64_t n)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++)
        square += x[index[i]] * x[index[i]];
    return sqrt(square);
}

static double relative_length(const muon_group *group, const room *r, const double *x, int64_t n)
{
    int decays = group->update_norm == MUON_UPDATE_RELATIVE && !group->cautious_decay &&
                 group->decay_form != MUON_DECAY_L2;
    return norm_at(r->before, r->index, n) * (decays ? 1 - decay_of(group) : 1) /
           sqrt(dot(x, x, n, 1));
}

/* V is at the first element of each line. */
static void divide(const oracle *o, const muon_group *group, const int64_t *index, double *x,
                   int64_t rows, int64_t cols)
{
    int elements = group->second_moment == MUON_SECOND_ELEMENTS;
    int wide = o->transposed ? cols < rows : rows < cols;
    int columns = (group->second_moment == MUON_SECOND_LONG_SIDE && wide) != o->transposed;
    lines l = elements ? (lines){rows * cols, 1, 1, 1} : lines_of(rows, cols, columns);
    double before = dot(x, x, rows * cols, 1);
    for (int64_t i = 0; i < l.count; i++) {
        double *line = x + i * l.step, *v = &o->second[index[i * l.step]];
        double mean = dot(line, line, l.n, l.stride) / (double)l.n;
        *v = group->second_beta * *v + (1 - group->second_beta) * mean;
        scale(line, l.n, l.stride, 1 / second_root(group, *v));
    }
    double after = dot(x, x, rows * cols, 1);
    if (!elements) scale(x, rows * cols, 1, sqrt(before) / fmax(sqrt(after), group->second_eps));
}

/* Finds how the weights of one matrix move; 0 if there is none of this number. */
static int turn_matrix(oracle *o, const room *r, const muon_group *group, int64_t batch, int matrix)
{
    int64_t rows, n = oracle_elements(o, batch, matrix, r->index, &rows);
    if (n == 0) return 0;
    int64_t cols = n / rows;
    double *u = zeros(2 * n);
    for (int64_t i = 0; i < n; i++)
        u[i] = u[n + i] = r->u[r->index[i]];
    if (group->equalize) equalize(u, rows, cols, o->transposed);
    for (int64_t i = 0; i < n; i++)
        r->x[i] = (float)u[i];
    ns_steps steps;
    assert_ok(muon__ns_steps_make(&steps, group));
    testlib_newton_schulz(r->orthogonal, r->x, rows, cols, (const double(*)[3])steps.abc,
                          steps.count, steps.norm_scale, group);
    if (group->adaptive) scale(r->orthogonal, n, 1, dot(u + n, r->orthogonal, n, 1));
    if (group->renormalize) {
        double norm = sqrt(dot(r->orthogonal, r->orthogonal, n, 1));
        scale(r->orthogonal, n, 1, sqrt((double)(rows < cols ? rows : cols)) / fmax(norm, 1e-6));
    }
    if (group->second_moment == MUON_SECOND_MATRIX)
        divide_by_grads(o, group, r, r->orthogonal, u + n, n);
    else if (group->second_moment != MUON_SECOND_NONE)
        divide(o, group, r->index, r->orthogonal, rows, cols);
    free(u);
    if (group->update_norm != MUON_UPDATE_NORM_OWN)
        scale(r->orthogonal, n, 1, relative_length(group, r, r->orthogonal, n));
    double factor = group->update_norm != MUON_UPDATE_NORM_OWN ? 1
                    : o->transposed ? oracle_factor(group, (double)cols, (double)rows)
                                    : oracle_factor(group, (double)rows, (double)cols);
    for (int64_t i = 0; i < n; i++) {
        double change = factor * r->orthogonal[i];
        r->change[r->index[i]] = change;
        o->update_sumsq += pow(group->lr * change, 2);
    }
    o->update_elements += (double)n;
    return 1;
}

/* W of one matrix back to its norm before the step; 0 if there is none of this number. */
static int restore_norm(oracle *o, const room *r, int64_t batch, int matrix)
{
    int64_t rows, n = oracle_elements(o, batch, matrix, r->index, &rows);
    if (n == 0) return 0;
    double by = norm_at(r->before, r->index, n) / norm_at(o->w, r->index, n);
    for (int64_t i = 0; i < n; i++)
        o->w[r->index[i]] *= by;
    return 1;
}

void oracle_muon(oracle *o, const muon_group *group, const model *m, size_t p, double multiplier)
{
    int64_t n = size_of(o);
    double *before = zeros(n);
    memcpy(before, o->w, (size_t)n * sizeof *before);
    room r = {malloc((size_t)n * sizeof *r.index),
              malloc((size_t)n * sizeof *r.x),
              zeros(n),
              zeros(n),
              zeros(n),
              before,
              zeros(n)};
    assert_true(r.index && r.x);
    momentum(o, r.u, r.g, group, m, p, multiplier);
    o->update_sumsq = o->update_elements = 0;
    for (int64_t b = 0; b < o->batch; b++)
        for (int matrix = 0; turn_matrix(o, &r, group, b, matrix);)
            matrix++;
    for (int64_t i = 0; i < n; i++) {
        decay(o, group, i, r.change[i]);
        o->w[i] -= group->lr * r.change[i];
    }
    for (int64_t b = 0; b < o->batch && group->update_norm == MUON_UPDATE_HYPERBALL; b++)
        for (int matrix = 0; restore_norm(o, &r, b, matrix);)
            matrix++;
    o->step++;
    free(before);
    free(r.g);
    free(r.index);
    free(r.x);
    free(r.u);
    free(r.orthogonal);
    free(r.change);
}

void oracle_lion(oracle *o, const muon_group *group, const model *m, size_t p, double multiplier)
{
    for (int64_t i = 0; i < size_of(o); i++) {
        double g = grad_of(o, group, m, p, i, multiplier);
        double c = group->beta1 * o->m[i] + (1 - group->beta1) * g;
        double d = c > 0 ? 1 : c < 0 ? -1 : 0;
        o->m[i] = group->beta2 * o->m[i] + (1 - group->beta2) * g;
        decay(o, group, i, d);
        o->w[i] -= group->lr * d;
    }
}

void oracle_adamw(oracle *o, const muon_group *group, const model *m, size_t p, double multiplier)
{
    double t = (double)++o->step;
    double correction1 = 1 - pow(group->beta1, t), correction2 = 1 - pow(group->beta2, t);
    for (int64_t i = 0; i < size_of(o); i++) {
        double g = grad_of(o, group, m, p, i, multiplier);
        o->m[i] = group->beta1 * o->m[i] + (1 - group->beta1) * g;
        o->v[i] = group->beta2 * o->v[i] + (1 - group->beta2) * g * g;
        double root = group->adam_eps_mode == MUON_ADAM_EPS_RAW
                          ? (sqrt(o->v[i]) + group->adam_eps) / sqrt(correction2)
                          : sqrt(o->v[i] / correction2) + group->adam_eps;
        decay(o, group, i, o->m[i]);
        o->w[i] -= group->lr * (o->m[i] / correction1) / root;
    }
}

double oracle_weight_error(const oracle *o, const model *m, size_t p)
{
    double error = 0, moved = 0;
    for (int64_t i = 0; i < size_of(o); i++) {
        error += pow((double)model_weight(m, p, i) - o->w[i], 2);
        moved += pow(o->w[i] - o->start[i], 2);
    }
    return sqrt(error / moved);
}

double oracle_state_error(const double *want, const muon_tensor *got)
{
    double error = 0, norm = 0;
    int64_t n = (int64_t)(got->bytes / (got->dtype == MUON_BF16 ? 2 : 4));
    for (int64_t i = 0; i < n; i++) {
        double value = got->dtype == MUON_BF16
                           ? (double)model_bf16(((const uint16_t *)got->data)[i])
                           : (double)((const float *)got->data)[i];
        error += pow(value - want[i], 2);
        norm += want[i] * want[i];
    }
    return sqrt(error / norm);
}
