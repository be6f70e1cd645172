/* test_qk_scales.c - QK-clip's arithmetic against an oracle that knows one row at a time.
 *
 * The oracle starts from the opposite end: for every row of a tensor it asks which head the row
 * belongs to and what the definition says about that head, in long double, with no ranges. */
#include "tests/support/testlib.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rule/config.h"
#include "rule/qk_clip.h"

enum { MAX_ROWS = 4096, MAX_HEADS = 64 };

static const double tau = 100;

/* ---- the oracle --------------------------------------------------------------------------- */

static long double gamma_of(float logit)
{
    if (isnan(logit) || isinf(logit) || (double)logit <= tau) return 1;
    return (long double)tau / (long double)logit;
}

/* Which group a row is in and how far inside; -1 if in none. */
static int64_t block_of(int64_t row, int64_t first, int64_t blocks, int64_t rows, int64_t stride,
                        int64_t *inside)
{
    for (int64_t b = 0; b < blocks; b++) {
        *inside = row - (first + b * stride);
        if (*inside >= 0 && *inside < rows) return b;
    }
    return -1;
}

static long double group_gamma(const muon_attention *a, const float *logits, int64_t group)
{
    long double smallest = 1;
    for (int h = 0; h < a->heads; h++)
        if (h / (a->heads / a->kv_heads) == group && gamma_of(logits[h]) < smallest)
            smallest = gamma_of(logits[h]);
    return smallest;
}

static long double q_row_scale(const muon_attention *a, const float *logits, int64_t row)
{
    long double alpha = (long double)a->alpha;
    int64_t inside, b;
    if (a->kind == MUON_ATTENTION_MLA) {
        int64_t rows = a->nope_dim + a->rope_dim;
        b = block_of(row, a->q_row, a->heads, rows, rows, &inside);
        if (b < 0) return 1;
        return inside < a->nope_dim ? powl(gamma_of(logits[b]), alpha) : gamma_of(logits[b]);
    }
    int64_t per_group = a->heads / a->kv_heads, rows = per_group * a->head_dim;
    b = block_of(row, a->q_row, a->kv_heads, rows, a->group_stride ? a->group_stride : rows,
                 &inside);
    if (b < 0) return 1;
    return powl(a->rule == MUON_QK_GROUP ? group_gamma(a, logits, b)
                                         : gamma_of(logits[b * per_group + inside / a->head_dim]),
                alpha);
}

static long double k_row_scale(const muon_attention *a, const float *logits, int64_t row)
{
    long double rest = 1 - (long double)a->alpha;
    int64_t inside, b;
    if (a->kind == MUON_ATTENTION_MLA) {
        int64_t rows = a->nope_dim + a->v_dim;
        b = block_of(row, a->k_row, a->heads, rows, rows, &inside);
        return b < 0 || inside >= a->nope_dim ? 1 : powl(gamma_of(logits[b]), rest);
    }
    b = block_of(row, a->k_row, a->kv_heads, a->head_dim,
                 a->group_stride ? a->group_stride : a->head_dim, &inside);
    return b < 0 ? 1 : powl(group_gamma(a, logits, b), rest);
}

/* ---- comparing ---------------------------------------------------------------------------- */

/* The scale of every row, by applying ranges; fails if a row is in two or a range is idle. */
static void spread(float *scale, const qk_range *ranges, size_t n, size_t capacity,
                   const char *what)
{
    if (n > capacity) fail_msg("%s: %zu ranges, capacity is %zu", what, n, capacity);
    for (int i = 0; i < MAX_ROWS; i++)
        scale[i] = 1;
    for (size_t i = 0; i < n; i++) {
        qk_range r = ranges[i];
        if (r.scale == 1 || !(r.scale > 0) || r.nrows < 1)
            fail_msg("%s: range %zu has scale %g and %lld rows", what, i, (double)r.scale,
                     (long long)r.nrows);
        if (i && r.row < ranges[i - 1].row + ranges[i - 1].nrows)
            fail_msg("%s: range %zu starts at row %lld, before the last one ends", what, i,
                     (long long)r.row);
        for (int64_t row = r.row; row < r.row + r.nrows; row++) {
            if (row < 0 || row >= MAX_ROWS) fail_msg("%s: row %lld", what, (long long)row);
            scale[row] = r.scale;
        }
    }
}

static void expect_rows(const muon_attention *a, const float *logits, const float *got,
                        long double (*want)(const muon_attention *, const float *, int64_t),
                        const char *what)
{
    for (int64_t row = 0; row < MAX_ROWS; row++) {
        float right = (float)want(a, logits, row);
        /* A double rounded to float is off by at most a half and a little of the last place. */
        if (fabs((double)got[row] - (double)right) > (double)right * (double)FLT_EPSILON / 1.9 ||
            (right == 1) != (got[row] == 1))
            fail_msg("%s: row %lld is scaled by %.9g, want %.9g", what, (long long)row,
                     (double)got[row], (double)right);
    }
}

static void expect_oracle(const muon_attention *layer, const float *logits)
{
    muon_attention a;
    assert_ok(muon__attention_load(&a, layer, 0));
    int64_t q_rows, k_rows;
    muon__attention_extent(&a, &q_rows, &k_rows);
    assert_true(q_rows <= MAX_ROWS && k_rows <= MAX_ROWS && a.heads <= MAX_HEADS);

    qk_range q[2 * MAX_HEADS], k[2 * MAX_HEADS];
    size_t q_capacity, k_capacity, nq = 99, nk = 99;
    muon__qk_capacity(&a, &q_capacity, &k_capacity);
    assert_true(q_capacity <= COUNT(q) && k_capacity <= COUNT(k));
    int64_t above = muon__qk_scales(&a, tau, logits, q, &nq, k, &nk);

    int64_t want = 0;
    for (int h = 0; h < a.heads; h++)
        want += gamma_of(logits[h]) < 1;
    if (above != want) fail_msg("%lld heads above, want %lld", (long long)above, (long long)want);

    float scale[MAX_ROWS];
    spread(scale, q, nq, q_capacity, "queries");
    expect_rows(&a, logits, scale, q_row_scale, "queries");
    spread(scale, k, nk, k_capacity, "keys");
    expect_rows(&a, logits, scale, k_row_scale, "keys");
}

/* ---- layers ------------------------------------------------------------------------------- */

static muon_attention layer(int heads, int kv_heads, int head_dim)
{
    muon_attention a;
    muon_attention_init(&a, sizeof a);
    a.q = "q";
    a.k = "k";
    a.heads = heads;
    a.kv_heads = kv_heads;
    a.head_dim = head_dim;
    return a;
}

static muon_attention mla_layer(int heads, int nope, int rope, int v)
{
    muon_attention a = layer(heads, 0, 0);
    a.kind = MUON_ATTENTION_MLA;
    a.nope_dim = nope;
    a.rope_dim = rope;
    a.v_dim = v;
    return a;
}

/* Calm, hot, barely above, exactly at the threshold, and everything that is no use as a logit. */
static float any_logit(void)
{
    const float values[] = {12,     99.99f,   100,   nextafterf(100, 200),
                            100.5f, 130,      250,   1e4f,
                            3e38f,  0,        -0.0f, -5,
                            -1e30f, INFINITY, NAN,   -INFINITY};
    uint64_t i = testlib_bits() % (COUNT(values) + 8);
    if (i < COUNT(values)) return values[i];
    return (float)(80 + 100 * testlib_uniform());
}

static void expect_oracle_for_many_logits(const muon_attention *a)
{
    float logits[MAX_HEADS] = {0};
    for (int round = 0; round < 20; round++) {
        for (int h = 0; h < a->heads; h++)
            logits[h] = any_logit();
        expect_oracle(a, logits);
    }
}

static const double alphas[] = {0.5, 0.2, 0.9, 1e-6};
static const muon_qk_rule rules[] = {MUON_QK_KV_MIN, MUON_QK_GROUP};

/* ---- tests -------------------------------------------------------------------------------- */

TEST(mha_and_gqa_scale_the_rows_that_the_definition_says)
{
    static const int shapes[][3] = {{1, 1, 1}, {8, 8, 16},  {8, 2, 16}, {8, 1, 4},
                                    {6, 3, 5}, {32, 4, 64}, {12, 6, 1}};
    for (size_t i = 0; i < COUNT(shapes) * COUNT(alphas) * COUNT(rules); i++) {
        const int *shape = shapes[i % COUNT(shapes)];
        muon_attention a = layer(shape[0], shape[1], shape[2]);
        a.alpha = alphas[i / COUNT(shapes) % COUNT(alphas)];
        a.rule = rules[i / COUNT(shapes) / COUNT(alphas)];
        expect_oracle_for_many_logits(&a);
        a.q_row = 17; /* and inside a larger tensor */
        a.k_row = 1003;
        expect_oracle_for_many_logits(&a);
    }
}

TEST(interleaved_q_k_v_is_found_through_the_group_stride)
{
    for (size_t i = 0; i < COUNT(alphas) * COUNT(rules); i++) {
        muon_attention a = layer(8, 2, 16); /* rows of a group: 4 queries, key, value, 7 spare */
        a.q = a.k = "qkv";
        a.k_row = 64;
        a.group_stride = 6 * 16 + 7;
        a.alpha = alphas[i % COUNT(alphas)];
        a.rule = rules[i / COUNT(alphas)];
        expect_oracle_for_many_logits(&a);
        a.q_row += 5;
        a.k_row += 5;
        expect_oracle_for_many_logits(&a);
    }
}

TEST(mla_scales_nope_and_rope_and_leaves_v)
{
    static const int shapes[][4] = {{1, 1, 1, 1}, {16, 64, 32, 64}, {5, 3, 2, 7}, {4, 2, 9, 1}};
    for (size_t i = 0; i < COUNT(shapes) * COUNT(alphas); i++) {
        const int *s = shapes[i % COUNT(shapes)];
        muon_attention a = mla_layer(s[0], s[1], s[2], s[3]);
        a.alpha = alphas[i / COUNT(shapes)];
        expect_oracle_for_many_logits(&a);
        a.q_row = 31;
        a.k_row = 2;
        expect_oracle_for_many_logits(&a);
    }
}

typedef struct scales {
    qk_range q[8], k[8];
    size_t nq, nk;
    int64_t above;
} scales;

static scales scales_of(const muon_attention *a, double threshold, const float *logits)
{
    scales s;
    s.above = muon__qk_scales(a, threshold, logits, s.q, &s.nq, s.k, &s.nk);
    return s;
}

static void expect_range(const qk_range *got, int64_t row, int64_t nrows, double scale)
{
    if (got->row != row || got->nrows != nrows || got->scale != (float)scale)
        fail_msg("rows %lld..+%lld by %.9g, want %lld..+%lld by %.9g", (long long)got->row,
                 (long long)got->nrows, (double)got->scale, (long long)row, (long long)nrows,
                 scale);
}

/* The same numbers worked out by hand, in case oracle and code share a mistake. */
TEST(the_two_gqa_rules_differ_as_written)
{
    const float logits[] = {400, 1600, 50, 60}; /* gamma 1/4, 1/16, 1, 1 */
    muon_attention a = layer(4, 2, 10);
    scales s = scales_of(&a, 100, logits);
    assert_int_equal(s.above, 2);
    assert_int_equal(s.nq, 2);
    expect_range(&s.q[0], 0, 10, 0.5);
    expect_range(&s.q[1], 10, 10, 0.25);
    assert_int_equal(s.nk, 1);
    expect_range(&s.k[0], 0, 10, 0.25);

    a.rule = MUON_QK_GROUP;
    a.alpha = 0.25;
    s = scales_of(&a, 100, logits);
    assert_int_equal(s.above, 2);
    assert_int_equal(s.nq, 1);
    expect_range(&s.q[0], 0, 20, 0.5);
    assert_int_equal(s.nk, 1);
    expect_range(&s.k[0], 0, 10, 0.125);
}

TEST(mla_by_hand)
{
    const float logits[] = {50, 400};
    muon_attention a = mla_layer(2, 6, 2, 4);
    a.q_row = 100;
    a.k_row = 200;
    scales s = scales_of(&a, 100, logits);
    assert_int_equal(s.above, 1);
    assert_int_equal(s.nq, 2);
    expect_range(&s.q[0], 108, 6, 0.5);
    expect_range(&s.q[1], 114, 2, 0.25);
    assert_int_equal(s.nk, 1);
    expect_range(&s.k[0], 210, 6, 0.5);
}

TEST(logits_at_the_threshold_or_no_logits_at_all_touch_nothing)
{
    static const float idle[] = {100, 0, -0.0f, -7, -FLT_MAX, NAN, INFINITY, -INFINITY, FLT_MIN};
    for (size_t i = 0; i < COUNT(idle); i++) {
        const float logits[] = {idle[i], idle[i]};
        for (size_t r = 0; r < COUNT(rules); r++) {
            muon_attention a = layer(2, 1, 3), mla = mla_layer(2, 3, 2, 1);
            a.rule = rules[r];
            scales s = scales_of(&a, 100, logits), t = scales_of(&mla, 100, logits);
            if (s.above || s.nq || s.nk || t.above || t.nq || t.nk)
                fail_msg("logit %g: %lld and %lld heads, %zu %zu %zu %zu ranges", (double)idle[i],
                         (long long)s.above, (long long)t.above, s.nq, s.nk, t.nq, t.nk);
        }
    }
}

TEST(a_broken_head_does_not_hide_or_change_its_neighbours)
{
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNT(broken); i++) {
        const float logits[] = {broken[i], 400};
        muon_attention a = layer(2, 1, 3);
        scales s = scales_of(&a, 100, logits);
        assert_int_equal(s.above, 1);
        assert_int_equal(s.nq, 1);
        expect_range(&s.q[0], 3, 3, 0.5);
        assert_int_equal(s.nk, 1);
        expect_range(&s.k[0], 0, 3, 0.5);
        a.rule = MUON_QK_GROUP;
        s = scales_of(&a, 100, logits);
        assert_int_equal(s.above, 1);
        expect_range(&s.q[0], 0, 6, 0.5);
        expect_range(&s.k[0], 0, 3, 0.5);
    }
}

TEST(no_threshold_is_small_enough_to_erase_weights)
{
    const float logits[] = {FLT_MAX};
    muon_attention a = mla_layer(1, 1, 1, 1);
    scales s = scales_of(&a, 1e-300, logits);
    assert_int_equal(s.nq, 2);
    expect_range(&s.q[0], 0, 1, (double)FLT_MIN);
    expect_range(&s.q[1], 1, 1, (double)FLT_MIN);
    expect_range(&s.k[0], 0, 1, (double)FLT_MIN);
}

/* Above, but by less than a float can say: counted, and no bit changes. */
TEST(a_scale_that_rounds_to_one_makes_no_range)
{
    const float logits[] = {nextafterf(100, 200)};
    muon_attention a = layer(1, 1, 4);
    a.alpha = 1e-3;
    scales s = scales_of(&a, 100, logits);
    assert_int_equal(s.above, 1);
    assert_int_equal(s.nq, 0);
    assert_int_equal(s.nk, 1);
}
