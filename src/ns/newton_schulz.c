#include "ns/newton_schulz.h"

#include "base/memory.h"
#include "ns/normalize.h"

/* Noise that a gram iteration may carry in R: an f32 rounding error times the product of a^2 since
 * the last restart. A list that stays below the first bound needs no restart (the five steps of
 * `you` reach 1.8e-3); any other gets as many as keep it below the second, because what one segment
 * leaves is multiplied by all that follow. */
static const double NOISE_UNRESTARTED = 2e-3;
static const double NOISE_BUDGET = 5e-4;
static const double F32_EPS = 5.96e-8;
/* Noise differs from one singular value to the next, and an error is about all of them: that of fewer
 * than this varies so much that the list above would exceed its bound. */
enum { FEW = 64 };
/* The part of the whole cost that restarts at every step may add: for a list that could do without,
 * and for one that could not. */
static const double CHEAP = 0.05, CHEAP_IF_NEEDED = 0.15;

enum {
    NSQUARES = 4, /* [m][m] buffers of a run */
    LINE = MUON__ALIGN / sizeof(float)
};

/* Floats, up to the next cache line. */
static int64_t aligned(int64_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

/* Marks the steps that must start afresh to keep the noise in R within a budget; returns how many. */
static int place_restarts(unsigned char *restart, const ns_steps *steps, double budget)
{
    int count = 0;
    double noise = F32_EPS;
    for (int k = 0; k < steps->count; k++) {
        restart[k] = k > 0 && noise > budget;
        count += restart[k];
        if (restart[k]) noise = F32_EPS;
        noise *= steps->abc[k][0] * steps->abc[k][0]; /* in the R that step k leaves */
    }
    return count;
}

/* Restarts come as late as the budget allows: what noise an early segment leaves, later steps pull
 * towards 1 like everything else, but nothing comes after the last. Near a square, where a restart
 * costs next to nothing, there is one at every step. */
static void choose_restarts(ns_plan *plan)
{
    double m = (double)plan->m, n = (double)plan->n, steps = plan->steps.count;
    double cost = 3 * (n - m) * (steps - 1) / (3 * n + (4 * steps - 3) * m);
    int needed =
        place_restarts(plan->restart, &plan->steps, NOISE_UNRESTARTED) > 0 || plan->m < FEW;
    if (cost <= (needed ? CHEAP_IF_NEEDED : CHEAP))
        place_restarts(plan->restart, &plan->steps, 0);
    else if (needed)
        place_restarts(plan->restart, &plan->steps, NOISE_BUDGET);
}

static int count_restarts(const ns_plan *plan)
{
    int count = 0;
    for (int k = 0; k < plan->steps.count; k++)
        count += plan->restart[k];
    return count;
}

static double flops_with(const ns_plan *plan, muon_algorithm algorithm)
{
    double m = (double)plan->m, n = (double)plan->n, steps = plan->steps.count;
    double segments = count_restarts(plan) + 1;
    switch (algorithm) {
    case MUON_ALGORITHM_STANDARD:
        return steps * (4 * m * m * n + 2 * m * m * m);
    case MUON_ALGORITHM_SYMMETRIC:
        return steps * (3 * m * m * n + m * m * m);
    case MUON_ALGORITHM_GRAM:
    case MUON_ALGORITHM_AUTO:
        break;
    }
    return 3 * segments * m * m * n + (4 * steps - 3 * segments) * m * m * m;
}

double muon__ns_flops(const ns_plan *plan)
{
    return flops_with(plan, plan->algorithm);
}

muon_status muon__ns_plan_make(ns_plan *out, int64_t rows, int64_t cols, const muon_group *settings)
{
    ns_plan plan = {
        .rows = rows, .cols = cols, .eps = settings->ns_eps, .eps_mode = settings->eps_mode};
    plan.m = rows < cols ? rows : cols;
    plan.n = rows < cols ? cols : rows;
    TRY(muon__ns_steps_make(&plan.steps, settings));
    choose_restarts(&plan);
    plan.algorithm = settings->algorithm;
    if (plan.algorithm == MUON_ALGORITHM_AUTO) {
        /* With a restart at every step gram is symmetric with more names. */
        int gram =
            flops_with(&plan, MUON_ALGORITHM_GRAM) < flops_with(&plan, MUON_ALGORITHM_SYMMETRIC);
        plan.algorithm = gram ? MUON_ALGORITHM_GRAM : MUON_ALGORITHM_SYMMETRIC;
    }
    *out = plan;
    return MUON_OK;
}

/* From row to row of an m x m buffer. Rows a multiple of 1 KiB apart would share a few lines of the
 * first cache, and mirroring, which walks down columns, would throw them out again and again. */
static int64_t square_ld(int64_t m)
{
    int64_t ld = aligned(m);
    return ld % 256 == 0 ? ld + LINE : ld;
}

int64_t muon__ns_scratch(int64_t rows, int64_t cols)
{
    int64_t m = rows < cols ? rows : cols;
    int64_t whole, squares, total;
    if (__builtin_mul_overflow(rows, cols, &whole) || whole > INT64_MAX - LINE ||
        __builtin_mul_overflow(m * square_ld(m), NSQUARES, &squares) ||
        __builtin_add_overflow(aligned(whole), squares, &total))
        return -1;
    return total;
}

/* What a run works with. x and y are [rows][cols], both read as wide m x n matrices. */
typedef struct run {
    const ns_plan *plan;
    const la_ops *la;
    pool *p;
    float *y, *square[NSQUARES]; /* [m][ld] each */
    int64_t ld;
} run;

static la_view wide(const run *r, const float *x)
{
    int tall = r->plan->rows > r->plan->cols;
    return tall ? (la_view){x, 1, r->plan->cols} : (la_view){x, r->plan->cols, 1};
}

static la_view transpose(la_view v)
{
    return (la_view){v.data, v.cs, v.rs};
}

/* to = X X' */
static void make_gram(const run *r, float *to, const float *x, int symmetric)
{
    la_view v = wide(r, x);
    int64_t m = r->plan->m;
    la_product q = {.m = m,
                    .n = m,
                    .k = r->plan->n,
                    .alpha = 1,
                    .a = v,
                    .b = transpose(v),
                    .c = to,
                    .ldc = r->ld,
                    .symmetric = symmetric};
    muon__la_multiply(r->la, r->p, &q);
}

/* to = a b (+ beta d + diagonal I), all m x m. */
static void square_product(const run *r, float *to, float alpha, const float *a, const float *b,
                           float beta, const float *d, float diagonal, int symmetric)
{
    int64_t m = r->plan->m;
    la_product q = {.m = m,
                    .n = m,
                    .k = m,
                    .alpha = alpha,
                    .a = {a, r->ld, 1},
                    .b = {b, r->ld, 1},
                    .beta = beta,
                    .d = d,
                    .diagonal = diagonal,
                    .c = to,
                    .ldc = r->ld,
                    .symmetric = symmetric};
    muon__la_multiply(r->la, r->p, &q);
}

/* W = a I + b R + c R^2 of step k. */
static void make_w(const run *r, float *w, const float *gram, int k, int symmetric)
{
    const double *abc = r->plan->steps.abc[k];
    square_product(r, w, (float)abc[2], gram, gram, (float)abc[1], gram, (float)abc[0], symmetric);
}

/* to = W X, or X W for a tall x: W is symmetric. */
static void apply(const run *r, float *to, const float *w, const float *x)
{
    const ns_plan *plan = r->plan;
    la_view square = {w, r->ld, 1};
    la_view matrix = {x, plan->cols, 1};
    int tall = plan->rows > plan->cols;
    la_product q = {.m = plan->rows,
                    .n = plan->cols,
                    .k = plan->m,
                    .alpha = 1,
                    .a = tall ? matrix : square,
                    .b = tall ? square : matrix,
                    .c = to,
                    .ldc = plan->cols};
    muon__la_multiply(r->la, r->p, &q);
}

static void swap(float **a, float **b)
{
    float *t = *a;
    *a = *b;
    *b = t;
}

/* Both start from the normalised matrix in *from and leave the result in *to; the two buffers
 * change places at every pass over the long side. */
static void iterate_direct(run *r, float **from, float **to, int symmetric)
{
    for (int k = 0; k < r->plan->steps.count; k++) {
        if (k > 0) swap(from, to);
        make_gram(r, r->square[0], *from, symmetric);
        make_w(r, r->square[1], r->square[0], k, symmetric);
        apply(r, *to, r->square[1], *from);
    }
}

static void iterate_gram(run *r, float **from, float **to)
{
    const ns_plan *plan = r->plan;
    float *gram = r->square[0], *w = r->square[1], *q = r->square[2], *spare = r->square[3];
    int last = plan->steps.count - 1;
    for (int k = 0; k <= last; k++) {
        int fresh = k == 0 || plan->restart[k];
        if (k > 0 && fresh) {
            apply(r, *to, q, *from);
            swap(from, to);
        }
        if (fresh) {
            make_gram(r, gram, *from, 1);
            make_w(r, q, gram, k, 1); /* Q = W: nothing to multiply yet */
        } else {
            make_w(r, w, gram, k, 1);
            square_product(r, spare, 1, q, w, 0, NULL, 0, 1);
            swap(&q, &spare);
        }
        if (k == last || plan->restart[k + 1]) continue;
        const float *now = fresh ? q : w;
        square_product(r, spare, 1, gram, now, 0, NULL, 0, 1);
        square_product(r, gram, 1, spare, now, 0, NULL, 0, 1);
    }
    apply(r, *to, q, *from);
}

/* How often the two buffers change places before the last pass. */
static int swaps(const ns_plan *plan)
{
    return plan->algorithm == MUON_ALGORITHM_GRAM ? count_restarts(plan) : plan->steps.count - 1;
}

muon_status muon__ns_run(const ns_plan *plan, const la_ops *la, pool *p, float *out, const float *x,
                         float *scratch)
{
    run r = {.plan = plan, .la = la, .p = p, .y = scratch, .ld = square_ld(plan->m)};
    for (int i = 0; i < NSQUARES; i++)
        r.square[i] = scratch + aligned(plan->rows * plan->cols) + i * plan->m * r.ld;

    /* The result must end in out: with an odd number of swaps the iteration starts there too. */
    float *from = swaps(plan) % 2 == 0 ? r.y : out;
    float *to = from == out ? r.y : out;
    TRY(muon__ns_normalize(from, x, plan, p));
    if (plan->algorithm == MUON_ALGORITHM_GRAM)
        iterate_gram(&r, &from, &to);
    else
        iterate_direct(&r, &from, &to, plan->algorithm == MUON_ALGORITHM_SYMMETRIC);
    return MUON_OK;
}
