#include "ns/normalize.h"

#include "base/simd.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 65536 }; /* floats that one thread scales at a time */

typedef struct pass {
    float *to;
    const float *x;
    int64_t n;
    double scale;
} pass;

MUON__SIMD void muon__ns_scale(float *to, const float *x, int64_t n, double factor)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)((double)x[i] * factor);
}

static void scale_part(void *arg, int64_t index, int worker)
{
    const pass *w = arg;
    (void)worker;
    int64_t begin = index * CHUNK;
    int64_t n = w->n - begin < CHUNK ? w->n - begin : CHUNK;
    muon__ns_scale(w->to + begin, w->x + begin, n, w->scale);
}

static double divisor(const ns_plan *plan, double norm)
{
    norm *= plan->steps.norm_scale;
    switch (plan->eps_mode) {
    case MUON_EPS_ADD:
        return norm + plan->eps;
    case MUON_EPS_CLAMP:
        return norm > plan->eps ? norm : plan->eps;
    case MUON_EPS_RELATIVE:
        break;
    }
    return norm * (1 + plan->eps);
}

/* What to multiply by; norm 0 means zero, whatever eps is. */
static double inverse(const ns_plan *plan, double norm)
{
    double by = norm > 0 ? divisor(plan, norm) : 0;
    return by > 0 ? 1 / by : 0;
}

void muon__ns_measure(sumsq *sum, const float *x, int64_t n, const ns_plan *plan, pool *p)
{
    if (plan->normalization == MUON_NORM_FROBENIUS)
        muon__sumsq_add_shared(sum, x, n, p);
    else
        muon__sumsq_see_shared(sum, x, n, p);
}

double muon__ns_factor(const ns_plan *plan, const sumsq *sum)
{
    if (plan->normalization == MUON_NORM_FROBENIUS)
        return inverse(plan, sqrt(muon__sumsq_value(sum)));
    /* The largest element gets near 2^LARGEST: A, of 2^45 columns at the most, is then below f32's
     * largest number, and a row may be 2^-110 of the largest before its square is 0. */
    enum { LARGEST = 40 };
    float largest;
    int exponent = LARGEST;
    memcpy(&largest, &sum->largest, sizeof largest);
    if (largest > 0) frexpf(largest, &exponent);
    return ldexp(1, LARGEST - exponent);
}

muon_status muon__ns_normalize(float *to, const float *x, const ns_plan *plan, pool *p,
                               double *factor)
{
    pass w = {.to = to, .x = x, .n = plan->rows * plan->cols};
    sumsq sum = {0};
    muon__ns_measure(&sum, x, w.n, plan, p);
    REQUIRE(muon__sumsq_finite(&sum), E_NONFINITE, "a %lld x %lld matrix has a NaN or infinity",
            (long long)plan->rows, (long long)plan->cols);
    w.scale = *factor = muon__ns_factor(plan, &sum);
    muon__pool_run(p, (w.n + CHUNK - 1) / CHUNK, scale_part, &w);
    return MUON_OK;
}

/* ---- By the norm of A */

typedef struct precondition {
    const ns_plan *plan;
    float *a, *x;
    int64_t lda;
    double *s; /* [m] first sums of the rows of A, then what rows of X are multiplied by */
} precondition;

enum { ROWS = 16, LANES = 8 };

/* The sum of |a| or a^2, in lanes that the loop cannot reorder. */
MUON__SIMD static double sum_row(const float *a, int64_t n, int squared)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t whole = n / LANES * LANES;
    for (int64_t j = 0; j < whole; j += LANES)
        for (int l = 0; l < LANES; l++) {
            double v = fabs((double)a[j + l]);
            lane[l] += squared ? v * v : v;
        }
    for (int64_t j = whole; j < n; j++) {
        double v = fabs((double)a[j]);
        lane[j - whole] += squared ? v * v : v;
    }
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

static int64_t end_of(int64_t index, int64_t n)
{
    return (index + 1) * ROWS < n ? (index + 1) * ROWS : n;
}

static void sum_rows(void *arg, int64_t index, int worker)
{
    const precondition *w = arg;
    (void)worker;
    int squared = w->plan->normalization == MUON_NORM_SCHATTEN4;
    for (int64_t i = index * ROWS; i < end_of(index, w->plan->m); i++)
        w->s[i] = sum_row(w->a + i * w->lda, w->plan->m, squared);
}

/* Sums into factors: one for each row, or the same for all. prescale: A's X is U times that, but eps
 * is in units of U. */
static void find_factors(const precondition *w, double prescale)
{
    int64_t m = w->plan->m;
    if (w->plan->normalization == MUON_NORM_AOL) {
        for (int64_t i = 0; i < m; i++)
            w->s[i] = inverse(w->plan, sqrt(w->s[i]) / prescale) / prescale;
        return;
    }
    double sum = 0;
    for (int64_t i = 0; i < m; i++)
        sum += w->s[i];
    double factor = inverse(w->plan, sqrt(sqrt(sum)) / prescale) / prescale;
    for (int64_t i = 0; i < m; i++)
        w->s[i] = factor;
}

/* x[j] *= by s[j] */
MUON__SIMD static void scale_by_columns(float *x, int64_t n, const double *s, double by)
{
    for (int64_t j = 0; j < n; j++)
        x[j] = (float)((double)x[j] * (by * s[j]));
}

static void scale_a(void *arg, int64_t index, int worker)
{
    const precondition *w = arg;
    (void)worker;
    for (int64_t i = index * ROWS; i < end_of(index, w->plan->m); i++)
        scale_by_columns(w->a + i * w->lda, w->plan->m, w->s, w->s[i]);
}

/* The short side is the rows of X as it is in memory, or its columns. */
static void scale_x(void *arg, int64_t index, int worker)
{
    const precondition *w = arg;
    const ns_plan *plan = w->plan;
    (void)worker;
    for (int64_t i = index * ROWS; i < end_of(index, plan->rows); i++) {
        float *row = w->x + i * plan->cols;
        if (plan->rows > plan->cols)
            scale_by_columns(row, plan->cols, w->s, 1);
        else
            muon__ns_scale(row, row, plan->cols, w->s[i]);
    }
}

void muon__ns_precondition(const ns_operands *o, const ns_op *op, pool *p)
{
    const ns_plan *plan = o->plan;
    precondition w = {.plan = plan,
                      .a = o->square[op->to],
                      .x = o->x,
                      .lda = o->ld,
                      .s = (void *)o->square[op->to + 1]};
    int64_t squares = (plan->m + ROWS - 1) / ROWS;
    muon__pool_run(p, squares, sum_rows, &w);
    find_factors(&w, o->prescale);
    muon__pool_run(p, squares, scale_a, &w);
    muon__pool_run(p, (plan->rows + ROWS - 1) / ROWS, scale_x, &w);
}
