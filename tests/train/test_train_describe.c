/* test_train_describe.c - what a model says about itself: sizes, tensors, first values, operations; and
 * that libmuon takes it. */
#include "muon/plan.h"
#include "tests/train/train_cases.h"

#include "tests/support/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static model *make(const char *name)
{
    model_config config;
    if (!model_config_named(&config, name)) fail_msg("no size is called %s", name);
    model *m = model_create(&config, 1, 1);
    if (!m) fail_msg("%s: %s", name, muon_last_error());
    return m;
}

/* ---- configs ----------------------------------------------------------------------------------- */

TEST(named_sizes_are_good_and_others_are_refused)
{
    size_t count = 0;
    model_config config;
    for (const char *name; (name = model_config_name(count)); count++) {
        assert_true(model_config_named(&config, name));
        if (model_config_check(&config)) fail_msg("%s: %s", name, model_config_check(&config));
    }
    assert_true(count >= 5);
    assert_null(model_config_name(count + 1));
    assert_false(model_config_named(&config, "enormous"));
    assert_false(model_config_named(&config, ""));
}

typedef struct wrong {
    const char *from;
    size_t field; /* offset of an int */
    int value;
    const char *message;
} wrong;

#define FIELD(name) offsetof(model_config, name)

static const wrong wrongs[] = {
    {"gqa", FIELD(layers), 0, "layers is 0, must be 1..1000"},
    {"gqa", FIELD(width), -1, "width is -1, must be 1.."},
    {"gqa", FIELD(width), 1 << 30, "width is 1073741824"},
    {"gqa", FIELD(context), 0, "context is 0"},
    {"gqa", FIELD(attention), 7, "attention is 7"},
    {"gqa", FIELD(heads), 0, "heads is 0"},
    {"gqa", FIELD(kv_heads), 0, "kv_heads is 0"},
    {"gqa", FIELD(kv_heads), 3, "heads 4 is not a multiple of kv_heads 3"},
    {"gqa", FIELD(kv_heads), 8, "kv_heads is 8, must be 1..4"},
    {"gqa", FIELD(head_dim), 5, "head_dim is 5, must be even"},
    {"gqa", FIELD(hidden), 0, "hidden is 0"},
    {"gqa", FIELD(experts), -1, "experts is -1"},
    {"mla", FIELD(q_rank), -1, "q_rank is -1"},
    {"mla", FIELD(kv_rank), 0, "kv_rank is 0"},
    {"mla", FIELD(nope_dim), 0, "nope_dim is 0"},
    {"mla", FIELD(rope_dim), 3, "rope_dim is 3, must be even"},
    {"mla", FIELD(rope_dim), 0, "rope_dim is 0"},
    {"mla", FIELD(v_dim), 0, "v_dim is 0"},
    {"moe", FIELD(top_k), 0, "top_k is 0, must be 1..5"},
    {"moe", FIELD(top_k), 6, "top_k is 6, must be 1..5"},
    {"moe", FIELD(expert_hidden), 0, "expert_hidden is 0"},
    {"moe", FIELD(shared_hidden), -1, "shared_hidden is -1"},
    {"moe", FIELD(dense_layers), 3, "dense_layers is 3, must be 0..2"},
};

static void assert_refused(const model_config *config, const char *message)
{
    const char *got = model_config_check(config);
    if (!got || !strstr(got, message)) fail_msg("got '%s', want '%s'", got ? got : "", message);
    assert_null(model_create(config, 1, 1));
    if (!strstr(muon_last_error(), message)) fail_msg("the error is '%s'", muon_last_error());
}

TEST(wrong_sizes_are_named_with_their_numbers)
{
    for (size_t i = 0; i < COUNT(wrongs); i++) {
        model_config config = train_case_named(wrongs[i].from)->config;
        memcpy((char *)&config + wrongs[i].field, &wrongs[i].value, sizeof(int));
        assert_refused(&config, wrongs[i].message);
    }
    const double numbers[] = {-1, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        model_config config = train_case_named("moe")->config;
        config.balance = numbers[i];
        assert_refused(&config, "balance is");
        config.balance = 0;
        config.rope_theta = numbers[i];
        assert_refused(&config, "rope_theta is");
        config.rope_theta = 100;
        config.norm_eps = numbers[i];
        assert_refused(&config, "norm_eps is");
    }
    /* Not looked at, because nothing uses it: */
    model_config config = train_case_named("moe")->config;
    config.hidden = 0;
    config.kv_rank = -5;
    assert_null(model_config_check(&config));
}

TEST(a_model_that_does_not_fit_is_refused_with_a_message)
{
    model_config config = train_case_named("gqa")->config;
    assert_null(model_create(&config, 0, 1));
    assert_non_null(strstr(muon_last_error(), "batch is 0"));
    assert_null(model_create(&config, 1, -1));
    assert_null(model_create(&config, INT32_MAX, 1));
    assert_non_null(strstr(muon_last_error(), "too many"));
    config.width = 1 << 17;
    config.context = 1 << 17;
    assert_null(model_create(&config, 1 << 13, 1));
    assert_non_null(strstr(muon_last_error(), "activations"));
}

TEST(failing_allocations_leave_nothing_behind)
{
    const train_case *from = train_case_named("moe_shared");
    for (int64_t k = 0;; k++) {
        testlib_allow_allocations(k);
        model *m = model_create(&from->config, from->batch, 2);
        testlib_allow_allocations(-1);
        if (m) {
            assert_true(k >= 5);
            assert_true(model_bytes(m) > 1000);
            model_destroy(m);
            break;
        }
        assert_true(strlen(muon_last_error()) > 0);
    }
    model_destroy(NULL);
}

/* ---- tensors ----------------------------------------------------------------------------------- */

typedef struct wanted_tensor {
    const char *name, *matrices;
    int64_t shape[3];
    int is_muon;
} wanted_tensor;

static const wanted_tensor mla_tensors[] = {
    {"embedding", NULL, {256, 16}, 0},
    {"layers.0.attn_norm", NULL, {16}, 0},
    {"layers.0.attn.wq_a", NULL, {12, 16}, 1},
    {"layers.0.attn.q_norm", NULL, {12}, 0},
    {"layers.0.attn.wq_b", "rows 3*(4, 6)", {30, 12}, 1},
    {"layers.0.attn.wkv_a", "rows 10, 6", {16, 16}, 1},
    {"layers.0.attn.kv_norm", NULL, {10}, 0},
    {"layers.0.attn.wkv_b", "rows 3*(4, 5)", {27, 10}, 1},
    {"layers.0.attn.wo", "cols / 3", {16, 15}, 1},
    {"layers.0.ffn_norm", NULL, {16}, 0},
    {"layers.0.moe.router", NULL, {4, 16}, 0},
    {"layers.0.moe.w_gate_up", "batch 1; rows / 2", {4, 14, 16}, 1},
    {"layers.0.moe.w_down", "batch 1", {4, 16, 7}, 1},
    {"layers.0.moe.shared.w_gate_up", "rows / 2", {12, 16}, 1},
    {"layers.0.moe.shared.w_down", NULL, {16, 6}, 1},
    {"layers.1.attn_norm", NULL, {16}, 0},
};

static const wanted_tensor gqa_tensors[] = {
    {"embedding", NULL, {256, 16}, 0},
    {"layers.0.attn_norm", NULL, {16}, 0},
    {"layers.0.attn.wq", "rows / 4", {24, 16}, 1},
    {"layers.0.attn.wk", "rows / 2", {12, 16}, 1},
    {"layers.0.attn.wv", "rows / 2", {12, 16}, 1},
    {"layers.0.attn.wo", "cols / 4", {16, 24}, 1},
    {"layers.0.ffn_norm", NULL, {16}, 0},
    {"layers.0.mlp.w_gate_up", "rows / 2", {40, 16}, 1},
    {"layers.0.mlp.w_down", NULL, {16, 20}, 1},
    {"layers.1.attn_norm", NULL, {16}, 0},
};

static void compare_tensors(const char *name, const wanted_tensor *want, size_t count)
{
    trained t = trained_create(train_case_named(name), 1);
    int64_t sum = 0;
    for (size_t i = 0; i < t.ntensors; i++) {
        const model_tensor *got = model_tensor_at(t.m, i);
        sum += got->numel;
        if (i >= count) continue;
        assert_string_equal(got->name, want[i].name);
        assert_memory_equal(got->shape, want[i].shape, sizeof got->shape);
        assert_int_equal(got->ndim, want[i].shape[2] ? 3 : want[i].shape[1] ? 2 : 1);
        assert_int_equal(got->is_muon, want[i].is_muon);
        assert_int_equal(got->expert, got->ndim == 3);
        if (!want[i].matrices)
            assert_null(got->matrices);
        else
            assert_string_equal(got->matrices, want[i].matrices);
    }
    assert_string_equal(model_tensor_at(t.m, t.ntensors - 2)->name, "norm");
    assert_string_equal(model_tensor_at(t.m, t.ntensors - 1)->name, "head");
    assert_int_equal(model_numel(t.m), sum);
    trained_destroy(&t);
}

TEST(tensors_are_described_one_by_one)
{
    compare_tensors("gqa", gqa_tensors, COUNT(gqa_tensors));
    compare_tensors("moe_mla", mla_tensors, COUNT(mla_tensors));
}

/* Names, shapes, texts and attention layers, as muon_create will see them. */
static void check_with_libmuon(const model *m, const char *name)
{
    enum { MOST_TENSORS = 200, MOST_LAYERS = 16 };
    static muon_param params[MOST_TENSORS];
    muon_attention attention[MOST_LAYERS];
    muon_group groups[2];
    muon_config config;
    size_t count = model_ntensors(m);
    assert_true(count <= MOST_TENSORS);
    for (size_t i = 0; i < count; i++) {
        const model_tensor *t = model_tensor_at(m, i);
        muon_param_init(&params[i], sizeof params[i]);
        params[i].name = t->name;
        params[i].ndim = t->ndim;
        memcpy(params[i].shape, t->shape, sizeof t->shape);
        params[i].matrices = t->matrices;
        params[i].group = t->is_muon ? 0 : 1;
        params[i].expert = t->expert;
    }
    muon_group_init(&groups[0], sizeof groups[0]);
    muon_group_init(&groups[1], sizeof groups[1]);
    groups[1].rule = MUON_RULE_ADAMW;
    muon_config_init(&config, sizeof config);
    config.groups = groups;
    config.ngroups = 2;
    config.attention = attention;
    config.nattention = model_attention_layers(m, attention, MOST_LAYERS);
    assert_true(config.nattention > 0 && config.nattention <= MOST_LAYERS);
    muon_plan *plan = NULL;
    if (muon_plan_create(&plan, &config, params, count) != MUON_OK)
        fail_msg("%s: %s", name, muon_last_error());
    muon_plan_destroy(plan);
    assert_int_equal(model_attention_layers(m, NULL, 0), config.nattention);
}

TEST(libmuon_takes_every_model)
{
    for (size_t i = 0; i < ntrain_cases; i++) {
        trained t = trained_create(&train_cases[i], 1);
        check_with_libmuon(t.m, t.from->name);
        trained_destroy(&t);
    }
    for (size_t i = 0; model_config_name(i); i++) {
        model *m = make(model_config_name(i));
        check_with_libmuon(m, model_config_name(i));
        model_destroy(m);
    }
}

/* ---- first values ------------------------------------------------------------------------------ */

TEST(first_values_have_their_deviation_and_can_be_made_in_parts)
{
    model *m = make("tiny");
    for (size_t i = 0; i < model_ntensors(m); i++) {
        const model_tensor *t = model_tensor_at(m, i);
        float *whole = malloc((size_t)t->numel * sizeof *whole);
        float *part = malloc((size_t)t->numel * sizeof *part);
        assert_non_null(whole);
        assert_non_null(part);
        model_fill(m, i, whole, 0, t->numel, 5);
        int64_t third = t->numel / 3;
        model_fill(m, i, part + third, third, t->numel - third, 5);
        model_fill(m, i, part, 0, third, 5);
        assert_memory_equal(whole, part, (size_t)t->numel * sizeof *whole);
        double sum = 0, squares = 0, n = (double)t->numel;
        for (int64_t k = 0; k < t->numel; k++) {
            sum += (double)whole[k];
            squares += (double)whole[k] * (double)whole[k];
        }
        if (t->ndim == 1) {
            assert_true(t->deviation == 0 && sum == n && squares == n);
        } else {
            double deviation = (double)t->deviation;
            testlib_assert_error(fabs(sum / n), 5 * deviation / sqrt(n), "%s: mean", t->name);
            testlib_assert_error(fabs(sqrt(squares / n) / deviation - 1), 5 / sqrt(n),
                                 "%s: deviation", t->name);
            model_fill(m, i, part, 0, t->numel, 6);
            assert_memory_not_equal(whole, part, (size_t)t->numel * sizeof *whole);
        }
        free(whole);
        free(part);
    }
    model_destroy(m);
}

/* The same on every machine and in every version, or runs could not be repeated. */
TEST(first_values_never_change)
{
    const float want[3] = {-0.29486832f, 0.998143971f, 0.264871418f};
    float got[3];
    model *m = make("tiny");
    model_fill(m, 0, got, 1000, 3, 42);
    for (int i = 0; i < 3; i++)
        if (got[i] != want[i])
            fail_msg("%d: got %.9g, want %.9g", i, (double)got[i], (double)want[i]);
    model_destroy(m);
}

/* ---- operations -------------------------------------------------------------------------------- */

/* By hand, for 3 x 11 tokens: GQA has 2 layers of 16 x (24 + 12 + 12 + 24) and 16 x (40 + 20) weights,
 * a head of 256 x 16; and in each layer 4 heads with 66 pairs of 6 + 6. */
TEST(operations_are_those_of_the_mathematics)
{
    double layer = 16.0 * (72 + 60), pairs = 3 * 66 * 4 * 12.0;
    struct {
        const char *name;
        double forward;
    } cases[] = {
        {"gqa", 2 * (33 * (2 * layer + 4096) + 2 * pairs)},
        /* instead of the feed-forward part a router of 5 and two experts of 14 + 7 */
        {"moe", 2 * (33 * (2 * 16.0 * (72 + 5 + 2 * 21) + 4096) + 2 * pairs)},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        trained t = trained_create(train_case_named(cases[i].name), 1);
        double forward = trained_forward(&t).flops, both = trained_run(&t, 1).flops;
        testlib_assert_error(fabs(forward / cases[i].forward - 1), 1e-12, "%s: %.9g, want %.9g",
                             cases[i].name, forward, cases[i].forward);
        testlib_assert_error(fabs(both / (3 * forward) - 1), 1e-12, "%s: both", cases[i].name);
        trained_destroy(&t);
    }
}
