/* test_step_qk_clip.c - QK-clip as part of a step: which rows change, by exactly what, and when.
 *
 * Two models take the same steps, one without logits. Then a clipped row is the other model's row
 * times one float, and every other row has the same bits. */
#include "muon/route.h"
#include "tests/world/step_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 10, HEADS = 4 };

/* Rows that must be multiplied by (100 / logit)^exponent; all rows that are not named stay. */
typedef struct shrunk {
    int tensor; /* 0: q, 1: k */
    int row, nrows;
    double logit, exponent;
} shrunk;

typedef struct layer {
    const char *what;
    const char *matrices[2];
    int64_t rows[2];  /* of q and k; none for k: it is in q */
    muon_attention a; /* without names */
    float logits[HEADS];
    int above;
    shrunk want[12];
} layer;

#define GQA(h, kv, dim) .kind = MUON_ATTENTION_GQA, .heads = h, .kv_heads = kv, .head_dim = dim

/* Logits: below, above, exactly at, above the threshold of 100. */
static const layer layers[] = {
    {"MHA",
     {NULL, NULL},
     {24, 24},
     {GQA(4, 4, 6), .alpha = 0.5},
     {50, 400, 100, 137.5f},
     2,
     {{0, 6, 6, 400, 0.5}, {0, 18, 6, 137.5, 0.5}, {1, 6, 6, 400, 0.5}, {1, 18, 6, 137.5, 0.5}}},
    {"MHA, alpha 0.25",
     {NULL, NULL},
     {24, 24},
     {GQA(4, 4, 6), .alpha = 0.25},
     {50, 1600, 100, 3},
     1,
     {{0, 6, 6, 1600, 0.25}, {1, 6, 6, 1600, 0.75}}},
    /* Q3: a kv head follows the largest logit among its query heads */
    {"GQA, kv_min",
     {NULL, NULL},
     {24, 12},
     {GQA(4, 2, 6), .alpha = 0.5},
     {400, 225, 99, 100},
     2,
     {{0, 0, 6, 400, 0.5}, {0, 6, 6, 225, 0.5}, {1, 0, 6, 400, 0.5}}},
    {"GQA, group",
     {NULL, NULL},
     {24, 12},
     {GQA(4, 2, 6), .rule = MUON_QK_GROUP, .alpha = 0.5},
     {400, 225, 99, 101},
     3,
     {{0, 0, 12, 400, 0.5}, {0, 12, 12, 101, 0.5}, {1, 0, 6, 400, 0.5}, {1, 6, 6, 101, 0.5}}},
    {"MQA with rows around it",
     {NULL, NULL},
     {30, 9},
     {GQA(4, 1, 6), .q_row = 4, .k_row = 2, .alpha = 0.5},
     {1, 2, 900, 4},
     1,
     {{0, 16, 6, 900, 0.5}, {1, 2, 6, 900, 0.5}}},
    {"fused Q, K, V",
     {"rows 24, 12, 12", NULL},
     {48, 0},
     {GQA(4, 2, 6), .k_row = 24, .alpha = 0.5},
     {1, 400, 150, 4},
     2,
     {{0, 6, 6, 400, 0.5}, {0, 12, 6, 150, 0.5}, {0, 24, 6, 400, 0.5}, {0, 30, 6, 150, 0.5}}},
    {"interleaved Q, K, V",
     {"rows 2*[12, 6, 6]", NULL},
     {48, 0},
     {GQA(4, 2, 6), .k_row = 12, .group_stride = 24, .alpha = 0.5},
     {1, 400, 150, 4},
     2,
     {{0, 6, 6, 400, 0.5}, {0, 12, 6, 400, 0.5}, {0, 24, 6, 150, 0.5}, {0, 36, 6, 150, 0.5}}},
    /* Q4: nope by the root, rope of the query by the whole, v and the shared rope key not at all */
    {"MLA",
     {"rows 4*(4, 2)", "rows 4*(4, 3)"},
     {24, 28},
     {.kind = MUON_ATTENTION_MLA,
      .heads = 4,
      .nope_dim = 4,
      .rope_dim = 2,
      .v_dim = 3,
      .alpha = 0.5},
     {20, 400, 100, 250},
     2,
     {{0, 6, 4, 400, 0.5},
      {0, 10, 2, 400, 1},
      {1, 7, 4, 400, 0.5},
      {0, 18, 4, 250, 0.5},
      {0, 22, 2, 250, 1},
      {1, 21, 4, 250, 0.5}}},
};

typedef enum storage { F32, F32_WITH_COPY, BF16, NSTORAGES } storage;

static void make(model *m, const layer *l, storage kind, int group)
{
    model_init(m);
    m->config.seed = 5;
    for (int i = 0; i < 2 && l->rows[i]; i++) {
        muon_param *param =
            model_add(m, group, i ? "k" : "q", group == ADAMWS ? NULL : l->matrices[i],
                      SHAPE(l->rows[i], WIDTH));
        param->dtype = kind == BF16 ? MUON_BF16 : MUON_F32;
        param->copy_dtype = kind == F32_WITH_COPY ? MUON_BF16 : MUON_NONE;
    }
    muon_attention *a = fleet_attend(m, "q", l->rows[1] ? "k" : "q", 1, 1, 1);
    muon_attention names = *a;
    *a = l->a;
    a->struct_size = sizeof *a;
    a->q = names.q;
    a->k = names.k;
    m->config.allow_no_muon = 1;
    model_create(m);
}

/* One step with these logits; the result of the step. */
static muon_result step_with(model *m, const float *logits, int step)
{
    m->args.max_logits = &logits;
    ship_fill_grads(m, step);
    muon_result result = model_step(m);
    m->args.max_logits = NULL;
    return result;
}

static float wanted_scale(const layer *l, size_t tensor, int64_t row)
{
    for (const shrunk *s = l->want; s < l->want + COUNT(l->want) && s->nrows; s++)
        if (s->tensor == (int)tensor && row >= s->row && row < s->row + s->nrows)
            return (float)pow(100 / s->logit, s->exponent);
    return 1;
}

/* Whether `got` is what a weight of type `kind` holds after its value was multiplied. */
static int is_stored(storage kind, float got, float before, float scale)
{
    float exact = before * scale;
    if (kind != BF16 || scale == 1) return got == exact;
    uint32_t bits, stored;
    memcpy(&bits, &exact, sizeof bits);
    memcpy(&stored, &got, sizeof stored);
    return stored >> 16 == bits >> 16 || (stored >> 16 == (bits >> 16) + 1 && bits & 0xffff);
}

static void compare(const model *clipped, const model *plain, const layer *l, storage kind)
{
    for (size_t p = 0; p < plain->nparams; p++) {
        const uint16_t *copy = clipped->buffers[p].copy;
        for (int64_t i = 0; i < fleet_numel(&plain->params[p]); i++) {
            float scale = wanted_scale(l, p, i / WIDTH);
            float got = model_weight(clipped, p, i), before = model_weight(plain, p, i);
            if (!is_stored(kind, got, before, scale))
                fail_msg("%s, storage %d: %s row %lld: %.9g became %.9g, want times %.9g", l->what,
                         (int)kind, plain->params[p].name, (long long)(i / WIDTH), (double)before,
                         (double)got, (double)scale);
            if (copy && (double)model_bf16(copy[i]) != oracle_bf16((double)got)) /* Q5 */
                fail_msg("%s: %s row %lld: the copy is not the master's", l->what,
                         plain->params[p].name, (long long)(i / WIDTH));
        }
    }
}

/* ---- tests ------------------------------------------------------------------------------------ */

/* Q2, Q3, Q4, Q5 */
TEST(heads_above_the_threshold_shrink_exactly_and_no_other_row)
{
    for (size_t i = 0; i < COUNT(layers) * NSTORAGES * 2; i++) {
        const layer *l = &layers[i / (NSTORAGES * 2)];
        storage kind = (storage)(i / 2 % NSTORAGES);
        model clipped, plain;
        make(&clipped, l, kind, i % 2 ? ADAMWS : MUONS);
        make(&plain, l, kind, i % 2 ? ADAMWS : MUONS);
        model_run(&clipped, 2);
        model_run(&plain, 2);
        muon_result result = step_with(&clipped, l->logits, 3);
        ship_fill_grads(&plain, 3);
        model_step(&plain);
        float largest = l->logits[0];
        for (int h = 1; h < HEADS; h++)
            largest = fmaxf(largest, l->logits[h]);
        assert_int_equal(result.clipped_heads, l->above);
        assert_true(result.max_logit == (double)largest);
        assert_true(result.phase[MUON_PHASE_QK_CLIP].bytes > 0);
        compare(&clipped, &plain, l, kind);
        model_destroy(&clipped);
        model_destroy(&plain);
    }
}

static float *new_factors(int64_t rows)
{
    float *made = malloc((size_t)rows * sizeof *made);
    assert_non_null(made);
    return made;
}

/* What another engine does: an update without logits, then rows times the plan's factors. */
TEST(factors_of_the_plan_do_to_weights_what_a_step_does)
{
    for (size_t i = 0; i < COUNT(layers) * 2; i++) {
        const layer *l = &layers[i / 2];
        model clipped, plain;
        make(&clipped, l, F32, i % 2 ? ADAMWS : MUONS);
        make(&plain, l, F32, i % 2 ? ADAMWS : MUONS);
        step_with(&clipped, l->logits, 1);
        ship_fill_grads(&plain, 1);
        model_step(&plain);
        float *factors[2] = {new_factors(l->rows[0]), NULL};
        factors[1] = l->rows[1] ? new_factors(l->rows[1]) : factors[0];
        int64_t above = -1;
        const muon_plan *plan = muon_opt_get_plan(plain.opt);
        assert_ok(muon_plan_get_qk_scales(plan, 0, l->logits, factors[0], factors[1], &above));
        assert_int_equal(above, l->above);
        for (size_t p = 0; p < plain.nparams; p++)
            for (int64_t e = 0; e < fleet_numel(&plain.params[p]); e++)
                ((float *)plain.buffers[p].param)[e] *= factors[p][e / WIDTH];
        model_assert_equal(&clipped, &plain, l->what);
        if (factors[1] != factors[0]) free(factors[1]);
        free(factors[0]);
        model_destroy(&clipped);
        model_destroy(&plain);
    }
}

TEST(factors_of_a_layer_that_does_not_exist_or_of_wrong_arrays_are_refused)
{
    model two, one;
    make(&two, &layers[0], F32, MUONS);
    make(&one, &layers[5], F32, MUONS); /* queries and keys in one tensor */
    float q[48] = {7}, k[48] = {7};
    int64_t above = 7;
    const float *logits = layers[0].logits;
    const muon_plan *plan = muon_opt_get_plan(two.opt), *fused = muon_opt_get_plan(one.opt);
    assert_fails(muon_plan_get_qk_scales(plan, 1, logits, q, k, &above), MUON_E_ARG,
                 "layer 1 does not exist: the plan has 1");
    assert_fails(muon_plan_get_qk_scales(plan, 0, NULL, q, k, &above), MUON_E_ARG, "NULL");
    assert_fails(muon_plan_get_qk_scales(plan, 0, logits, q, q, &above), MUON_E_ARG,
                 "two tensors, but one array");
    assert_fails(muon_plan_get_qk_scales(fused, 0, logits, q, k, &above), MUON_E_ARG,
                 "one tensor, but two arrays");
    assert_true(q[0] == 7 && k[0] == 7 && above == 7);
    model_destroy(&two);
    model_destroy(&one);
}

/* Q1, Q2: the comparison is strict, and a logit that is no number says nothing. */
TEST(logits_that_ask_for_nothing_change_no_bit)
{
    static const struct {
        float logit;
        double max_logit;
    } cases[] = {{0, 0},
                 {-0.0f, 0},
                 {-400, 0},
                 {100, 100},
                 {99.99999f, (double)99.99999f},
                 {1e-45f, (double)1e-45f},
                 {-3e38f, 0},
                 {(float)NAN, 0},
                 {(float)INFINITY, 0},
                 {-(float)INFINITY, 0}};
    for (size_t i = 0; i < COUNT(cases) * COUNT(layers); i++) {
        const layer *l = &layers[i / COUNT(cases)];
        float logit = cases[i % COUNT(cases)].logit;
        model with, without;
        make(&with, l, (storage)(i % NSTORAGES), MUONS);
        make(&without, l, (storage)(i % NSTORAGES), MUONS);
        muon_result result = step_with(&with, (float[]){logit, logit, logit, logit}, 1);
        ship_fill_grads(&without, 1);
        model_step(&without);
        assert_int_equal(result.clipped_heads, 0);
        assert_true(result.max_logit == cases[i % COUNT(cases)].max_logit);
        model_assert_equal(&with, &without, model_text("%s, logit %g", l->what, (double)logit));
        model_destroy(&with);
        model_destroy(&without);
    }
}

/* A head whose logit is no number does not keep its neighbours from being clipped. */
TEST(a_bad_logit_leaves_the_other_heads_to_their_own)
{
    layer l = layers[0];
    const float bad[] = {(float)NAN, (float)INFINITY, -1};
    for (size_t i = 0; i < COUNT(bad); i++) {
        l.logits[0] = bad[i];
        model clipped, plain;
        make(&clipped, &l, F32, MUONS);
        make(&plain, &l, F32, MUONS);
        muon_result result = step_with(&clipped, l.logits, 1);
        model_step(&plain);
        assert_int_equal(result.clipped_heads, 2);
        assert_true(result.max_logit == 400);
        compare(&clipped, &plain, &l, F32);
        model_destroy(&clipped);
        model_destroy(&plain);
    }
}

/* Q7 */
TEST(layers_without_logits_are_left_alone)
{
    model m, plain;
    model *both[] = {&m, &plain};
    for (int i = 0; i < 2; i++) {
        model_init(both[i]);
        for (int p = 0; p < 3; p++)
            model_add(both[i], MUONS, (const char *[]){"a", "b", "c"}[p], NULL, SHAPE(8, 6));
        fleet_attend(both[i], "a", "a", 2, 2, 2)->k_row = 4;
        fleet_attend(both[i], "b", "b", 2, 2, 2)->k_row = 4;
        fleet_attend(both[i], "c", "c", 2, 2, 2)->k_row = 4;
        model_create(both[i]);
    }
    const float b[] = {400, 7};
    const float *const only_b[] = {NULL, b, NULL}, *const none[] = {NULL, NULL, NULL};
    m.args.max_logits = none;
    assert_true(model_step(&m).clipped_heads == 0);
    model_step(&plain);
    model_assert_equal(&m, &plain, "no layer has logits");
    m.args.max_logits = only_b;
    assert_true(model_step(&m).clipped_heads == 1);
    model_step(&plain);
    for (size_t p = 0; p < 3; p++)
        for (int64_t i = 0; i < 48; i++) {
            int shrinks = p == 1 && (i / 6 < 2 || (i / 6 >= 4 && i / 6 < 6));
            assert_true(model_weight(&m, p, i) ==
                        model_weight(&plain, p, i) * (shrinks ? 0.5f : 1));
        }
    model_destroy(&m);
    model_destroy(&plain);
}

static void keep_message(void *user, muon_log_level level, const char *message)
{
    if (level == MUON_LOG_INFO && strstr(message, "heads above")) strncpy(user, message, 199);
}

/* Q8 */
TEST(log_only_counts_and_tells_but_changes_nothing)
{
    const layer *l = &layers[0];
    char message[200] = "";
    model m, plain;
    make(&m, l, BF16, MUONS);
    make(&plain, l, BF16, MUONS);
    muon_destroy(m.opt);
    m.config.qk_log_only = 1;
    m.config.log = keep_message;
    m.config.user = message;
    m.attention[0].name = "h.3";
    assert_ok(muon_create(&m.opt, &m.config, m.params, m.nparams));
    muon_result result = step_with(&m, l->logits, 1);
    model_step(&plain);
    assert_true(result.clipped_heads == 2 && result.max_logit == 400);
    assert_true(result.phase[MUON_PHASE_QK_CLIP].bytes == 0);
    assert_non_null(strstr(message, "attention 'h.3': 2 of 4 heads above 100 (log only)"));
    model_assert_equal(&m, &plain, "log only");

    assert_ok(muon_opt_set_qk_clip(m.opt, 200, 0)); /* and now for real, with another threshold */
    assert_true(step_with(&m, (float[]){0, 0, 200, 800}, 2).clipped_heads == 1);
    ship_fill_grads(&plain, 2);
    model_step(&plain);
    for (int64_t i = 0; i < 24 * WIDTH; i++)
        assert_true(model_weight(&m, 0, i) == model_weight(&plain, 0, i) * (i < 180 ? 1 : 0.5f));
    model_destroy(&m);
    model_destroy(&plain);
}

/* Q8: what one step has seen is not in the next one's result. */
TEST(counts_start_afresh_at_every_step)
{
    const layer *l = &layers[0];
    model m;
    make(&m, l, F32, MUONS);
    assert_true(step_with(&m, l->logits, 1).clipped_heads == 2);
    muon_result result = step_with(&m, (float[]){1, 2, 3, 4}, 2);
    assert_true(result.clipped_heads == 0 && result.max_logit == 4);
    result = model_step(&m);
    assert_true(result.clipped_heads == 0 && result.max_logit == 0);
    model_destroy(&m);
}

TEST(a_parameter_without_gradient_is_not_clipped_either)
{
    const layer *l = &layers[0];
    model m;
    make(&m, l, F32, MUONS);
    muon_destroy(m.opt);
    m.config.missing_grad = MUON_MISSING_GRAD_SKIP;
    assert_ok(muon_create(&m.opt, &m.config, m.params, m.nparams));
    float before[24 * WIDTH];
    memcpy(before, m.buffers[0].param, sizeof before);
    m.buffers[0].grad = NULL;
    assert_true(step_with(&m, l->logits, 1).clipped_heads == 2);
    assert_memory_equal(m.buffers[0].param, before, sizeof before);
    model_destroy(&m);
}
