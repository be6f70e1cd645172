/* test_train_kernels.c - the parts a model is made of, each against plain loops in double. */
#include "train/model/attend.h"
#include "train/model/norm.h"
#include "train/model/product.h"
#include "train/model/rope.h"
#include "train/model/route.h"
#include "train/model/rows.h"
#include "train/model/vector.h"

#include "tests/support/testlib.h"

#include <math.h>
#include <stdlib.h>

static float *gauss(int64_t count, double scale)
{
    float *x = malloc((size_t)(count > 0 ? count : 1) * sizeof *x);
    assert_non_null(x);
    testlib_fill_gauss(x, count, scale);
    return x;
}

/* ---- vectors ----------------------------------------------------------------------------------- */

static float exp_of(float x)
{
    return vector_softmax(&x, 0, 1);
}

TEST(exponentials_have_an_error_below_2e_7)
{
    double worst = 0;
    for (int i = 0; i < 2000000; i++) {
        float x = (float)(-87 + 175 * testlib_uniform());
        double want = exp((double)x), error = fabs((double)exp_of(x) / want - 1);
        if (error > worst) worst = error;
    }
    testlib_assert_error(worst, 2e-7, "exponential");
    assert_true(exp_of(0) == 1);
    assert_true(isnan(exp_of(NAN)));
    const float ends[] = {-87.01f, -1000, -INFINITY, 88.01f, 1000, INFINITY};
    for (size_t i = 0; i < COUNT(ends); i++) {
        float got = exp_of(ends[i]), want = exp_of(ends[i] < 0 ? -87.0f : 88.0f);
        if (got != want || !isnormal(got))
            fail_msg("exp(%g) is %g, want %g", (double)ends[i], (double)got, (double)want);
    }
}

TEST(sums_and_maxima_do_for_every_length)
{
    enum { MOST = 70 };
    testlib_seed(1);
    float *x = gauss(MOST, 1), *y = gauss(MOST, 1);
    for (int64_t n = 1; n <= MOST; n++) {
        double dot = 0, sum = 0;
        float most = -(double)INFINITY, e[MOST];
        for (int64_t i = 0; i < n; i++) {
            dot += (double)x[i] * (double)y[i];
            sum += exp((double)x[i] - 3);
            most = x[i] > most ? x[i] : most;
            e[i] = x[i];
        }
        testlib_assert_error(fabs((double)vector_dot(x, y, n) - dot), 1e-5, "dot of %d", (int)n);
        testlib_assert_error(fabs((double)vector_softmax(e, 3, n) / sum - 1), 1e-6, "sum of %d",
                             (int)n);
        for (int64_t i = 0; i < n; i++)
            if (e[i] != exp_of(x[i] - 3)) fail_msg("element %d of %d", (int)i, (int)n);
        if (vector_max(x, n) != most) fail_msg("maximum of %d", (int)n);
    }
    assert_true(vector_dot(x, y, 0) == 0);
    x[3] = NAN;
    assert_true(vector_max(x, MOST) > 0);
    free(x);
    free(y);
}

/* ---- products ---------------------------------------------------------------------------------- */

typedef struct shape_case {
    int64_t m, n;
    int nterms;
    int64_t k[PRODUCT_TERMS];
} shape_case;

static const shape_case shape_cases[] = {
    {1, 1, 1, {1}},           {7, 5, 3, {3, 9, 1}}, {600, 40, 1, {30}},
    {40, 1100, 2, {300, 17}}, {513, 530, 1, {20}},  {0, 5, 1, {4}},
    {5, 0, 1, {4}},           {6, 8, 1, {0}},       {1030, 9, 3, {8, 8, 8}}};

/* All of them in one list, forms 0..2: nothing, c itself and another matrix as base. */
static void run_products(pool *p, int form, float **results)
{
    product list[COUNT(shape_cases)];
    float *operands[COUNT(shape_cases)][2 * PRODUCT_TERMS], *bases[COUNT(shape_cases)];
    testlib_seed(2);
    for (size_t i = 0; i < COUNT(shape_cases); i++) {
        const shape_case *s = &shape_cases[i];
        bases[i] = gauss(s->m * s->n, 1);
        results[i] = gauss(s->m * s->n, 1);
        list[i] = (product){.m = s->m, .n = s->n, .c = results[i], .ldc = s->n};
        list[i].base = form == 0 ? NULL : form == 1 ? results[i] : bases[i];
        for (int t = 0; t < s->nterms; t++) {
            operands[i][2 * t] = gauss(s->m * s->k[t], 1);
            operands[i][2 * t + 1] = gauss(s->k[t] * s->n, 1);
            list[i].terms[list[i].nterms++] = (product_term){
                {operands[i][2 * t], 1, s->m}, {operands[i][2 * t + 1], s->n, 1}, s->k[t]};
        }
    }
    float **before = results;
    double *want[COUNT(shape_cases)];
    for (size_t i = 0; i < COUNT(shape_cases); i++) {
        const product *q = &list[i];
        want[i] = calloc((size_t)(q->m * q->n) + 1, sizeof **want);
        assert_non_null(want[i]);
        for (int64_t e = 0; e < q->m * q->n; e++) {
            int64_t row = e / q->n, col = e % q->n;
            double sum = form == 0 ? 0 : (double)(form == 1 ? before[i] : bases[i])[e];
            for (int t = 0; t < q->nterms; t++)
                for (int64_t k = 0; k < q->terms[t].k; k++)
                    sum += (double)operands[i][2 * t][k * q->m + row] *
                           (double)operands[i][2 * t + 1][k * q->n + col];
            want[i][e] = sum;
        }
    }
    product_run(p, list, COUNT(shape_cases));
    for (size_t i = 0; i < COUNT(shape_cases); i++) {
        const product *q = &list[i];
        for (int64_t e = 0; e < q->m * q->n; e++)
            testlib_assert_error(fabs((double)q->c[e] - want[i][e]), 2e-4,
                                 "product %d, form %d, element %d", (int)i, form, (int)e);
        for (int t = 0; t < 2 * shape_cases[i].nterms; t++)
            free(operands[i][t]);
        free(bases[i]);
        free(want[i]);
    }
}

TEST(products_agree_with_plain_loops_for_any_threads)
{
    for (int form = 0; form < 3; form++) {
        float *one[COUNT(shape_cases)], *more[COUNT(shape_cases)];
        pool *threads = NULL;
        assert_ok(muon__pool_create(&threads, 3));
        run_products(NULL, form, one);
        run_products(threads, form, more);
        for (size_t i = 0; i < COUNT(shape_cases); i++) {
            const shape_case *s = &shape_cases[i];
            assert_memory_equal(one[i], more[i], (size_t)(s->m * s->n) * sizeof(float));
            free(one[i]);
            free(more[i]);
        }
        muon__pool_destroy(threads);
    }
}

/* ---- norm -------------------------------------------------------------------------------------- */

TEST(norms_and_their_gradients_agree_with_the_formulas)
{
    enum { ROWS = 70, WIDTH = 13, LD = 17 };
    const double eps = 1e-3;
    testlib_seed(3);
    float *x = gauss(ROWS * LD, 1), *w = gauss(WIDTH, 1), *dy = gauss(ROWS * WIDTH, 1);
    float *base = gauss(ROWS * LD, 1), *dx = gauss(ROWS * LD, 1), *y = gauss(ROWS * WIDTH, 1);
    float *again = gauss(ROWS * WIDTH, 1), inverse[ROWS], dw[WIDTH], untouched = dx[WIDTH];
    float *partial = gauss(rows_blocks(ROWS) * WIDTH, 1);
    double want_dw[WIDTH];
    for (int j = 0; j < WIDTH; j++)
        want_dw[j] = (double)(dw[j] = (float)j);
    norm n = {ROWS, WIDTH, w, x, LD, inverse};
    norm_forward(NULL, &n, (float)eps, y);
    norm_again(NULL, &n, again);
    assert_memory_equal(y, again, ROWS * WIDTH * sizeof *y);
    norm_backward(NULL, &n, dy, base, dx, dw, partial);
    for (int64_t i = 0; i < ROWS; i++) {
        double square = 0, mean = 0;
        for (int j = 0; j < WIDTH; j++) {
            square += (double)x[i * LD + j] * (double)x[i * LD + j] / WIDTH;
            mean += (double)x[i * LD + j] * (double)w[j] * (double)dy[i * WIDTH + j] / WIDTH;
        }
        double r = 1 / sqrt(square + eps);
        for (int j = 0; j < WIDTH; j++) {
            double at = (double)x[i * LD + j], d = (double)dy[i * WIDTH + j];
            testlib_assert_error(fabs((double)y[i * WIDTH + j] - at * r * (double)w[j]), 2e-6,
                                 "row %d: y", (int)i);
            double want = (double)base[i * LD + j] + r * (d * (double)w[j] - at * r * r * mean);
            testlib_assert_error(fabs((double)dx[i * LD + j] - want), 5e-6, "row %d: dx", (int)i);
            want_dw[j] += d * at * r;
        }
    }
    for (int j = 0; j < WIDTH; j++)
        testlib_assert_error(fabs((double)dw[j] - want_dw[j]), 2e-5, "dw");
    assert_true(dx[WIDTH] == untouched); /* what stands between the rows */
    float *all[] = {x, w, dy, base, dx, y, again, partial};
    for (size_t i = 0; i < COUNT(all); i++)
        free(all[i]);
}

/* ---- rotary positions -------------------------------------------------------------------------- */

enum { ROPE_DIM = 8, POSITIONS = 40 };

typedef struct rope_table {
    float cos[POSITIONS * ROPE_DIM / 2], sin[POSITIONS * ROPE_DIM / 2];
} rope_table;

static rope make_rope(rope_table *table, double theta)
{
    rope r = {ROPE_DIM, table->cos, table->sin};
    rope_fill(&r, POSITIONS, theta);
    return r;
}

TEST(turned_products_depend_on_the_distance_only)
{
    rope_table table;
    rope r = make_rope(&table, 500);
    testlib_seed(4);
    float *q = gauss(ROPE_DIM, 1), *k = gauss(ROPE_DIM, 1);
    float turned_q[POSITIONS * ROPE_DIM], turned_k[POSITIONS * ROPE_DIM];
    for (int i = 0; i < POSITIONS * ROPE_DIM; i++) {
        turned_q[i] = q[i % ROPE_DIM];
        turned_k[i] = k[i % ROPE_DIM];
    }
    rope_rows rows = {POSITIONS, ROPE_DIM, POSITIONS, 0, ROPE_DIM, 1};
    rope_turn(NULL, &r, &rows, turned_q, 0);
    rope_turn(NULL, &r, &rows, turned_k, 0);
    assert_memory_equal(turned_q, q, ROPE_DIM * sizeof *q); /* position 0 */
    for (int distance = 0; distance < POSITIONS; distance++) {
        double first = (double)vector_dot(turned_q + distance * ROPE_DIM, turned_k, ROPE_DIM);
        for (int at = 1; at + distance < POSITIONS; at++) {
            double here = (double)vector_dot(turned_q + (at + distance) * ROPE_DIM,
                                             turned_k + at * ROPE_DIM, ROPE_DIM);
            testlib_assert_error(fabs(here - first), 5e-6, "distance %d at %d", distance, at);
        }
    }
    free(q);
    free(k);
}

TEST(halves_are_turned_in_every_head_and_back_again)
{
    enum { HEADS = 3, FIRST = 2, STRIDE = 11, LD = 40, LENGTH = 5, ROWS = 10 };
    rope_table table;
    rope r = make_rope(&table, 100);
    testlib_seed(5);
    float *x = gauss(ROWS * LD, 1), *before = malloc(ROWS * LD * sizeof *before);
    assert_non_null(before);
    memcpy(before, x, ROWS * LD * sizeof *x);
    rope_rows rows = {ROWS, LD, LENGTH, FIRST, STRIDE, HEADS};
    rope_turn(NULL, &r, &rows, x, 0);
    for (int i = 0; i < ROWS * LD; i++) {
        int row = i / LD, in_head = (i % LD - FIRST) % STRIDE, head = (i % LD - FIRST) / STRIDE;
        double want = (double)before[i];
        if (i % LD >= FIRST && head < HEADS && in_head < ROPE_DIM) {
            int pair = in_head % (ROPE_DIM / 2), is_low = in_head < ROPE_DIM / 2;
            double angle = row % LENGTH * pow(100, -2.0 * pair / ROPE_DIM);
            double other = (double)before[is_low ? i + ROPE_DIM / 2 : i - ROPE_DIM / 2];
            want = want * cos(angle) + (is_low ? -other : other) * sin(angle);
        }
        testlib_assert_error(fabs((double)x[i] - want), 1e-6, "row %d, column %d", row, i % LD);
    }
    rope_turn(NULL, &r, &rows, x, 1);
    for (int i = 0; i < ROWS * LD; i++)
        testlib_assert_error(fabs((double)x[i] - (double)before[i]), 1e-6, "back, element %d", i);
    free(x);
    free(before);
}

/* ---- attention --------------------------------------------------------------------------------- */

typedef struct attend_case {
    int sequences, length, nheads, group, dim, v_dim;
} attend_case;

static const attend_case attend_cases[] = {
    {1, 1, 1, 1, 2, 1},  {2, 7, 4, 2, 6, 5},     {1, 63, 2, 2, 8, 4},  {1, 64, 1, 1, 16, 16},
    {2, 65, 3, 3, 5, 9}, {1, 200, 2, 1, 32, 24}, {3, 129, 4, 4, 4, 4}, {1, 128, 6, 2, 8, 8}};

/* One query in double; the largest logit. */
static double attend_one(const attend *a, int64_t s, int64_t h, int64_t i, double *out)
{
    double logits[256], most = -(double)INFINITY, sum = 0;
    const float *q = a->q.data + (s * a->length + i) * a->q.ld + h * a->q.stride;
    int64_t kv = h / a->group;
    for (int64_t j = 0; j <= i; j++) {
        const float *k = a->k.data + (s * a->length + j) * a->k.ld + kv * a->k.stride;
        logits[j] = 0;
        for (int64_t d = 0; d < a->dim; d++)
            logits[j] += (double)q[d] * (double)k[d] / sqrt((double)a->dim);
        most = fmax(most, logits[j]);
    }
    for (int64_t d = 0; d < a->v_dim; d++)
        out[d] = 0;
    for (int64_t j = 0; j <= i; j++) {
        const float *v = a->v.data + (s * a->length + j) * a->v.ld + kv * a->v.stride;
        double p = exp(logits[j] - most);
        sum += p;
        for (int64_t d = 0; d < a->v_dim; d++)
            out[d] += p * (double)v[d];
    }
    for (int64_t d = 0; d < a->v_dim; d++)
        out[d] /= sum;
    return most;
}

static attend make_attend(const attend_case *c, float **memory)
{
    int64_t tokens = c->sequences * c->length, kv_heads = c->nheads / c->group;
    int64_t q = c->nheads * c->dim + 3, k = kv_heads * c->dim, v = kv_heads * (c->v_dim + 2);
    int64_t out = c->nheads * c->v_dim, rows = tokens * c->nheads;
    int64_t parts[] = {tokens * q, tokens * k, tokens * v, tokens * out, rows, rows};
    int64_t sum = attend_scratch(c->length);
    for (size_t i = 0; i < COUNT(parts); i++)
        sum += parts[i];
    float *at = *memory = gauss(sum, 1.5), *starts[COUNT(parts)];
    for (size_t i = 0; i < COUNT(parts); at += parts[i++])
        starts[i] = at;
    return (attend){.sequences = c->sequences,
                    .length = c->length,
                    .nheads = c->nheads,
                    .group = c->group,
                    .dim = c->dim,
                    .v_dim = c->v_dim,
                    .q = {starts[0], q, c->dim},
                    .k = {starts[1], k, c->dim},
                    .v = {starts[2], v, c->v_dim + 2},
                    .out = {starts[3], out, c->v_dim},
                    .most = starts[4],
                    .inverse = starts[5],
                    .scratch = at};
}

TEST(attention_and_its_largest_logits_agree_with_plain_loops)
{
    for (size_t n = 0; n < COUNT(attend_cases); n++) {
        const attend_case *c = &attend_cases[n];
        testlib_seed(n);
        float *memory, max_logits[8];
        attend a = make_attend(c, &memory);
        attend_forward(NULL, &a, max_logits);
        for (int64_t h = 0; h < c->nheads; h++) {
            double most = -(double)INFINITY, want[64];
            for (int64_t row = 0; row < c->sequences * c->length; row++) {
                double here = attend_one(&a, row / c->length, h, row % c->length, want);
                most = fmax(most, here);
                for (int64_t d = 0; d < c->v_dim; d++)
                    testlib_assert_error(
                        fabs((double)a.out.data[row * a.out.ld + h * c->v_dim + d] - want[d]), 1e-5,
                        "case %d, head %d, token %d", (int)n, (int)h, (int)row);
            }
            testlib_assert_error(fabs((double)max_logits[h] - most), 1e-5, "case %d, head %d: max",
                                 (int)n, (int)h);
        }
        free(memory);
    }
}

/* To the bit: also keys that share a block with the queries they must not reach. */
TEST(later_tokens_change_nothing)
{
    enum { FROM = 70 };
    attend_case c = {1, 100, 2, 1, 8, 8};
    testlib_seed(6);
    float *memory, before[FROM * 16];
    attend a = make_attend(&c, &memory);
    attend_forward(NULL, &a, NULL);
    memcpy(before, a.out.data, sizeof before);
    for (int64_t i = FROM; i < c.length; i++) {
        a.k.data[i * a.k.ld] += 50;
        a.v.data[i * a.v.ld] -= 50;
    }
    attend_forward(NULL, &a, NULL);
    assert_memory_equal(before, a.out.data, sizeof before);
    assert_memory_not_equal(a.out.data + FROM * 16, before, 16 * sizeof *before);
    free(memory);
}

/* ---- routing ----------------------------------------------------------------------------------- */

enum { SEQUENCES = 2, LENGTH = 9, EXPERTS = 5, TOP_K = 3, TOKENS = SEQUENCES * LENGTH };

typedef struct routing {
    float probabilities[TOKENS * EXPERTS], fractions[SEQUENCES * EXPERTS];
    double balance[SEQUENCES];
    int32_t chosen[TOKENS * TOP_K], tokens[TOKENS * TOP_K], rows[TOKENS * TOP_K];
    int64_t offsets[EXPERTS + 1];
    float weights[TOKENS * TOP_K];
} routing;

static route route_of(routing *r)
{
    return (route){SEQUENCES,    LENGTH,     EXPERTS,    TOP_K,     r->probabilities, r->chosen,
                   r->fractions, r->balance, r->offsets, r->tokens, r->rows,          r->weights};
}

TEST(every_token_has_its_rows_and_its_best_experts)
{
    routing r;
    testlib_seed(8);
    testlib_fill_gauss(r.probabilities, TOKENS * EXPERTS, 1);
    route all = route_of(&r);
    route_forward(NULL, &all);
    assert_int_equal(r.offsets[0], 0);
    assert_int_equal(r.offsets[EXPERTS], TOKENS * TOP_K);
    for (int i = 0; i < TOKENS; i++) {
        const float *p = r.probabilities + i * EXPERTS;
        double sum = 0, chosen = 0;
        for (int e = 0; e < EXPERTS; e++)
            sum += (double)p[e];
        for (int j = 0; j < TOP_K; j++) {
            int32_t e = r.chosen[i * TOP_K + j], row = r.rows[i * TOP_K + j];
            assert_true(row >= r.offsets[e] && row < r.offsets[e + 1]);
            assert_int_equal(r.tokens[row], i);
            chosen += (double)p[e];
            int better = 0;
            for (int other = 0; other < EXPERTS; other++)
                better += p[other] > p[e];
            assert_int_equal(better, j);
        }
        testlib_assert_error(fabs(sum - 1), 1e-6, "token %d: probabilities", i);
        for (int j = 0; j < TOP_K; j++)
            testlib_assert_error(fabs((double)r.weights[r.rows[i * TOP_K + j]] -
                                      (double)p[r.chosen[i * TOP_K + j]] / chosen),
                                 1e-6, "token %d: weight %d", i, j);
    }
    for (int e = 0; e < EXPERTS; e++)
        for (int64_t row = r.offsets[e]; row + 1 < r.offsets[e + 1]; row++)
            assert_true(r.tokens[row] < r.tokens[row + 1]);
}

TEST(ties_go_to_the_lowest_numbers_and_nan_to_somebody)
{
    routing r;
    const float logits[][EXPERTS] = {
        {0, 0, 0, 0, 0}, {1, 2, 2, 2, 2}, {NAN, 1, 2, 3, 4}, {0, -100, 0, -100, -100}};
    const int32_t want[][TOP_K] = {{0, 1, 2}, {1, 2, 3}, {0, 1, 2}, {0, 2, 1}};
    for (int i = 0; i < TOKENS; i++)
        memcpy(r.probabilities + i * EXPERTS, logits[i % 4], sizeof logits[0]);
    route all = route_of(&r);
    route_forward(NULL, &all);
    for (int i = 0; i < TOKENS; i++)
        assert_memory_equal(r.chosen + i * TOP_K, want[i % 4], sizeof want[0]);
}

/* Sequence 0: all logits equal, so that the balance is 1 however choices fall. Sequence 1: all choices
 * on the same experts with all the probability. */
TEST(balance_is_1_if_even_and_grows_if_not)
{
    routing r;
    for (int i = 0; i < TOKENS * EXPERTS; i++)
        r.probabilities[i] = i < LENGTH * EXPERTS || i % EXPERTS >= TOP_K ? 0 : 60;
    route all = route_of(&r);
    route_forward(NULL, &all);
    testlib_assert_error(fabs(r.balance[0] - 1), 1e-6, "even");
    testlib_assert_error(fabs(r.balance[1] - (double)EXPERTS / TOP_K), 1e-6, "uneven");
}
