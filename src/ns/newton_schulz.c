/* The iteration: a list of products, and the memory they work on. */
#include "ns/newton_schulz.h"
#include "base/memory.h"
#include "ns/normalize.h"

enum { LINE = MUON__ALIGN / sizeof(float) };

/* Floats, up to the next cache line. */
static int64_t aligned(int64_t n)
{
    return (n + LINE - 1) / LINE * LINE;
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
        __builtin_mul_overflow(m * square_ld(m), NS_SQUARES, &squares) ||
        __builtin_add_overflow(aligned(whole), squares, &total))
        return -1;
    return total;
}

int64_t muon__ns_lay_out(ns_operands *o, const ns_plan *plan, float *base)
{
    o->plan = plan;
    o->ld = square_ld(plan->m);
    for (int i = 0; base && i < NS_SQUARES; i++)
        o->square[i] = base + i * plan->m * o->ld;
    return NS_SQUARES * plan->m * o->ld;
}

/* ---- The list */

static ns_op gram_op(int to, int symmetric)
{
    return (ns_op){.kind = NS_GRAM, .to = to, .d = NS_NO_SQUARE, .symmetric = symmetric};
}

/* After the first R, if the norm comes from it. */
static int is_scaled(const ns_plan *plan, int step)
{
    return step == 0 && plan->normalization != MUON_NORM_FROBENIUS;
}

static ns_op scale_op(int square)
{
    return (ns_op){.kind = NS_SCALE, .to = square, .d = NS_NO_SQUARE};
}

static ns_op apply_op(int a, int last)
{
    return (ns_op){.kind = NS_APPLY, .a = a, .d = NS_NO_SQUARE, .last = last};
}

static ns_op multiply_op(int to, int a, int b)
{
    return (ns_op){
        .kind = NS_SQUARE, .to = to, .a = a, .b = b, .d = NS_NO_SQUARE, .alpha = 1, .symmetric = 1};
}

/* W = a I + b R + c R^2 of a step. */
static ns_op w_op(const ns_plan *plan, int step, int to, int gram, int symmetric)
{
    const double *abc = plan->steps.abc[step];
    return (ns_op){.kind = NS_SQUARE,
                   .to = to,
                   .a = gram,
                   .b = gram,
                   .d = gram,
                   .alpha = (float)abc[2],
                   .beta = (float)abc[1],
                   .diagonal = (float)abc[0],
                   .symmetric = symmetric};
}

static int next_direct(ns_cursor *c, ns_op *op)
{
    int symmetric = c->plan->algorithm == MUON_ALGORITHM_SYMMETRIC;
    if (c->step == c->plan->steps.count) return 0;
    if (c->stage == 1 && !is_scaled(c->plan, c->step)) c->stage++;
    switch (c->stage++) {
    case 0:
        *op = gram_op(0, symmetric);
        return 1;
    case 1:
        *op = scale_op(0);
        return 1;
    case 2:
        *op = w_op(c->plan, c->step, 1, 0, symmetric);
        return 1;
    default:
        c->stage = 0;
        *op = apply_op(1, ++c->step == c->plan->steps.count);
        return 1;
    }
}

/* Squares of the gram form: R, W, and two that take turns as Q and a spare one. */
enum { GRAM_R, GRAM_W, GRAM_Q, GRAM_SPARE };

static void exchange(ns_cursor *c)
{
    int q = c->q;
    c->q = c->spare;
    c->spare = q;
}

static int next_gram(ns_cursor *c, ns_op *op)
{
    const ns_plan *plan = c->plan;
    int last = plan->steps.count - 1;
    if (c->q == 0) {
        c->q = 1 + GRAM_Q;
        c->spare = 1 + GRAM_SPARE;
    }
    while (c->step <= last) {
        int k = c->step, fresh = k == 0 || plan->restart[k];
        int ends = k == last || plan->restart[k + 1]; /* nobody needs the R that this step leaves */
        int now = fresh ? c->q - 1 : GRAM_W;
        switch (c->stage++) {
        case 0:
            if (k == 0 || !fresh) continue;
            *op = apply_op(c->q - 1, 0);
            return 1;
        case 1:
            if (!fresh) continue;
            *op = gram_op(GRAM_R, 1);
            return 1;
        case 2:
            if (!is_scaled(plan, k)) continue;
            *op = scale_op(GRAM_R);
            return 1;
        case 3: /* fresh: Q = W, nothing to multiply yet */
            *op = w_op(plan, k, now, GRAM_R, 1);
            return 1;
        case 4:
            if (fresh) continue;
            *op = multiply_op(c->spare - 1, c->q - 1, GRAM_W);
            exchange(c);
            return 1;
        case 5:
            if (ends) continue;
            *op = multiply_op(c->spare - 1, GRAM_R, now);
            return 1;
        case 6:
            if (ends) continue;
            *op = multiply_op(GRAM_R, c->spare - 1, now);
            return 1;
        default:
            c->stage = 0;
            c->step++;
        }
    }
    if (c->stage++ > 0) return 0;
    *op = apply_op(c->q - 1, 1);
    return 1;
}

int muon__ns_next(ns_cursor *c, ns_op *op)
{
    return c->plan->algorithm == MUON_ALGORITHM_GRAM ? next_gram(c, op) : next_direct(c, op);
}

/* ---- Products */

la_product muon__ns_product(const ns_operands *o, const ns_op *op, const la_ops *la, float *y)
{
    const ns_plan *plan = o->plan;
    int64_t m = plan->m, ld = o->ld;
    int tall = plan->rows > plan->cols;
    la_view x = {o->x, plan->cols, 1};
    la_view wide = tall ? (la_view){x.data, x.cs, x.rs} : x;
    if (op->kind == NS_GRAM)
        return (la_product){.m = m,
                            .n = m,
                            .k = plan->n,
                            .alpha = 1,
                            .a = wide,
                            .b = {wide.data, wide.cs, wide.rs},
                            .c = o->square[op->to],
                            .ldc = ld,
                            .symmetric = op->symmetric};
    const float *square = o->square[op->a];
    la_view rows = {square, ld, 1};
    la_view a =
        plan->algorithm == MUON_ALGORITHM_STANDARD ? rows : muon__la_symmetric(la, square, ld);
    if (op->kind == NS_SQUARE)
        return (la_product){.m = m,
                            .n = m,
                            .k = op->alpha == 0 ? 0 : m,
                            .alpha = op->alpha,
                            .a = a,
                            .b = {o->square[op->b], ld, 1},
                            .beta = op->beta,
                            .d = op->d == NS_NO_SQUARE ? NULL : o->square[op->d],
                            .diagonal = op->diagonal,
                            .c = o->square[op->to],
                            .ldc = ld,
                            .symmetric = op->symmetric};
    return (la_product){.m = plan->rows, /* square[a] is symmetric, so X square[a] is right, too */
                        .n = plan->cols,
                        .k = m,
                        .alpha = 1,
                        .a = tall ? x : a,
                        .b = tall ? rows : x,
                        .c = y,
                        .ldc = plan->cols};
}

/* ---- A run */

/* How often the two buffers change places before the last pass over the long side. */
static int swaps(const ns_plan *plan)
{
    if (plan->algorithm != MUON_ALGORITHM_GRAM) return plan->steps.count - 1;
    int count = 0;
    for (int k = 0; k < plan->steps.count; k++)
        count += plan->restart[k];
    return count;
}

muon_status muon__ns_begin(ns_run *r, const ns_plan *plan, const la_ops *la, pool *p, float *out,
                           const float *x, float *scratch)
{
    *r = (ns_run){.cursor = {.plan = plan}, .la = la};
    float *y = scratch;
    muon__ns_lay_out(&r->operands, plan, scratch + aligned(plan->rows * plan->cols));
    /* The result must end in out: with an odd number of swaps the iteration starts there too. */
    r->from = swaps(plan) % 2 == 0 ? y : out;
    r->to = r->from == out ? y : out;
    TRY(muon__ns_normalize(r->from, x, plan, p, &r->operands.prescale));
    r->ended = !muon__ns_next(&r->cursor, &r->op);
    return MUON_OK;
}

static void end_op(ns_run *r)
{
    if (r->op.kind == NS_APPLY) { /* the two buffers change places */
        float *from = r->from;
        r->from = r->to;
        r->to = from;
    }
    r->tile = 0;
    r->ended = !muon__ns_next(&r->cursor, &r->op);
}

void muon__ns_advance(ns_run *r, pool *p, int64_t tiles)
{
    if (r->ended) return;
    r->operands.x = r->from;
    if (r->op.kind == NS_SCALE) {
        muon__ns_precondition(&r->operands, &r->op, p);
        end_op(r);
        return;
    }
    la_product q = muon__ns_product(&r->operands, &r->op, r->la, r->to);
    la_tiling g = muon__la_tiling(q.m, q.n, q.symmetric);
    int64_t all = muon__la_count_tiles(&g), n = all - r->tile < tiles ? all - r->tile : tiles;
    muon__la_multiply_some(r->la, p, &q, &g, (la_some){.first = r->tile, .n = n});
    r->tile += n;
    if (r->tile == all) end_op(r);
}

muon_status muon__ns_run(const ns_plan *plan, const la_ops *la, pool *p, float *out, const float *x,
                         float *scratch)
{
    ns_run r;
    TRY(muon__ns_begin(&r, plan, la, p, out, x, scratch));
    while (!r.ended)
        muon__ns_advance(&r, p, INT64_MAX);
    return MUON_OK;
}
