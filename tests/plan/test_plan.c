/* test_plan.c - the plan as a value: which matrices, at what cost, in which waves. */
#include "muon/plan.h"
#include "tests/world/model.h"

#include <math.h>

#include "step/opt.h"

static muon_plan *plan_of(const model *m)
{
    muon_plan *plan = NULL;
    assert_ok(muon_plan_create(&plan, &m->config, m->params, m->nparams));
    return plan;
}

/* ---- matrices --------------------------------------------------------------------------------- */

typedef struct expected {
    size_t param;
    int64_t rows, cols, batch, row, col;
    double factor; /* 0.2 sqrt(max(rows, cols)), unless the group says otherwise */
} expected;

static void check_matrices(const model *m, const expected *want, size_t n)
{
    muon_plan *plan = plan_of(m);
    assert_int_equal(muon_plan_count_matrices(plan), n);
    for (size_t i = 0; i < n; i++, want++) {
        muon_matrix got;
        assert_ok(muon_plan_get_matrix(plan, i, &got, sizeof got));
        int where = got.param == want->param && got.batch == want->batch && got.row == want->row &&
                    got.col == want->col;
        if (!where || got.rows != want->rows || got.cols != want->cols || got.owner != 0 ||
            fabs(got.factor - want->factor) > 1e-12)
            fail_msg("matrix %zu: param %zu, [%lld, %lld] at %lld: %lld, %lld, factor %g", i,
                     got.param, (long long)got.rows, (long long)got.cols, (long long)got.batch,
                     (long long)got.row, (long long)got.col, got.factor);
        assert_true(got.algorithm != MUON_ALGORITHM_AUTO && got.flops > 0);
    }
    muon_plan_destroy(plan);
}

/* R1, R2: of two layers with the same shape, and of a stack of them */
TEST(convolutions_are_flattened_and_never_merged)
{
    model m;
    model_init(&m);
    model_add(&m, MUONS, "conv.0", "flatten 1", SHAPE(16, 25, 3, 3));
    model_add(&m, MUONS, "conv.1", "flatten 1", SHAPE(16, 25, 3, 3));
    model_add(&m, MUONS, "stack", "batch 1; flatten 1", SHAPE(2, 16, 25, 3, 3));
    check_matrices(&m,
                   (expected[]){{0, 16, 225, 0, 0, 0, 3},
                                {1, 16, 225, 0, 0, 0, 3},
                                {2, 16, 225, 0, 0, 0, 3},
                                {2, 16, 225, 1, 0, 0, 3}},
                   4);
}

/* R3 */
TEST(every_block_of_a_fused_tensor_has_its_own_factor)
{
    model m;
    model_init(&m);
    model_add(&m, MUONS, "gqa", "rows 400, 100, 100", SHAPE(600, 25));
    model_add(&m, MUONS, "gated", "rows 4*[64, 64, 25, 25]", SHAPE(712, 16));
    model_add(&m, MUONS, "mla", "rows 2*(225, 64)", SHAPE(578, 100));
    model_add(&m, MUONS, "kv_a", "rows 225, skip 64", SHAPE(289, 9));
    check_matrices(&m,
                   (expected[]){{0, 400, 25, 0, 0, 0, 4},
                                {0, 100, 25, 0, 400, 0, 2},
                                {0, 100, 25, 0, 500, 0, 2},
                                {1, 256, 16, 0, 0, 0, 3.2},
                                {1, 256, 16, 0, 64, 0, 3.2},
                                {1, 100, 16, 0, 128, 0, 2},
                                {1, 100, 16, 0, 153, 0, 2},
                                {2, 225, 100, 0, 0, 0, 3},
                                {2, 64, 100, 0, 225, 0, 2},
                                {2, 225, 100, 0, 289, 0, 3},
                                {2, 64, 100, 0, 514, 0, 2},
                                {3, 225, 9, 0, 0, 0, 3}},
                   12);
}

/* R4, R8 */
TEST(stacked_experts_use_the_last_two_axes_and_storage_order_is_declared)
{
    model m;
    model_init(&m);
    m.groups[MUONS].lr_mode = MUON_LR_SPECTRAL_NORM;
    model_add(&m, MUONS, "out_in", "batch 1", SHAPE(2, 36, 9));
    model_add(&m, MUONS, "in_out", "batch 1; transposed", SHAPE(2, 9, 36));
    model_add(&m, MUONS, "wide", NULL, SHAPE(9, 36)); /* the same shape, not transposed */
    model_add(&m, MUONS, "heads", "cols / 2; transposed", SHAPE(9, 72));
    check_matrices(&m,
                   (expected[]){{0, 36, 9, 0, 0, 0, 2},
                                {0, 36, 9, 1, 0, 0, 2},
                                {1, 9, 36, 0, 0, 0, 2},
                                {1, 9, 36, 1, 0, 0, 2},
                                {2, 9, 36, 0, 0, 0, 0.5},
                                {3, 9, 36, 0, 0, 0, 2},
                                {3, 9, 36, 0, 0, 36, 2}},
                   7);
}

/* R5: a name decides nothing unless a pattern says so, and patterns are globs over whole names. */
TEST(routing_is_by_explicit_rules_without_substring_traps)
{
    static const char *const adamw[] = {"*.attn_gate", "*embed*", "*.router"};
    model m;
    model_init(&m);
    model_add(&m, MUON_AUTO, "h.0.attn_gate", NULL, SHAPE(8, 8));
    model_add(&m, MUON_AUTO, "h.0.attn_gated_norm", NULL, SHAPE(8, 8));
    model_add(&m, MUON_AUTO, "h.0.router", NULL, SHAPE(8, 8));
    model_add(&m, MUON_AUTO, "h.0.router.bias_table", NULL, SHAPE(8, 8));
    model_add(&m, MUON_AUTO, "h.0.norm", NULL, SHAPE(8));
    model_add(&m, MUON_AUTO, "h.0.depthwise", "flatten 1", SHAPE(8, 1, 4));
    model_add(&m, MUONS, "embed", NULL, SHAPE(8, 8)); /* the caller's word is the last */
    muon_classifier c;
    muon_classifier_init(&c, sizeof c);
    c.muon_group = MUONS;
    c.adamw_group = ADAMWS;
    c.adamw_patterns = adamw;
    c.nadamw_patterns = COUNT(adamw);
    assert_ok(muon_classify(m.params, m.nparams, &c));
    static const int want[] = {ADAMWS, MUONS, ADAMWS, MUONS, ADAMWS, MUONS, MUONS};
    for (size_t p = 0; p < m.nparams; p++)
        if (m.params[p].group != want[p])
            fail_msg("%s is in group %d", m.params[p].name, m.params[p].group);
}

/* ---- cost ------------------------------------------------------------------------------------- */

TEST(flops_are_those_of_the_algorithm_that_runs)
{
    static const struct {
        muon_algorithm asked, runs;
        double rows, cols, flops; /* five steps of the default set */
    } cases[] = {
        {MUON_ALGORITHM_STANDARD, MUON_ALGORITHM_STANDARD, 100, 1000, 5 * (4e7 + 2e6)},
        {MUON_ALGORITHM_SYMMETRIC, MUON_ALGORITHM_SYMMETRIC, 100, 1000, 5 * (3e7 + 1e6)},
        {MUON_ALGORITHM_GRAM, MUON_ALGORITHM_GRAM, 100, 1000, 3e7 + 17e6},
        {MUON_ALGORITHM_AUTO, MUON_ALGORITHM_GRAM, 100, 1000, 3e7 + 17e6},
        {MUON_ALGORITHM_AUTO, MUON_ALGORITHM_GRAM, 1000, 100, 3e7 + 17e6},
        {MUON_ALGORITHM_AUTO, MUON_ALGORITHM_GRAM, 10, 100, 6e4 + 14e3}, /* one restart */
        {MUON_ALGORITHM_AUTO, MUON_ALGORITHM_SYMMETRIC, 100, 100, 5 * (3e6 + 1e6)},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        model m;
        model_init(&m);
        m.groups[MUONS].algorithm = cases[i].asked;
        model_add(&m, MUONS, "w", "batch 1",
                  SHAPE(3, (int64_t)cases[i].rows, (int64_t)cases[i].cols));
        muon_plan *plan = plan_of(&m);
        muon_matrix matrix;
        muon_plan_cost cost;
        assert_ok(muon_plan_get_matrix(plan, 2, &matrix, sizeof matrix));
        assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
        if (matrix.algorithm != cases[i].runs || matrix.flops != cases[i].flops)
            fail_msg("case %zu: algorithm %d, %g flops", i, (int)matrix.algorithm, matrix.flops);
        assert_true(cost.flops == 3 * cases[i].flops);
        muon_plan_destroy(plan);
    }
}

TEST(costs_count_every_element_once)
{
    model m;
    model_init(&m);
    m.groups[OTHERS].momentum_dtype = MUON_BF16;
    model_add(&m, MUONS, "dense", NULL, SHAPE(30, 40));
    model_add(&m, OTHERS, "experts", "batch 1", SHAPE(4, 5, 6))->expert = 1;
    model_add(&m, MUONS, "gaps", "rows 5, skip 2", SHAPE(7, 10));
    model_add(&m, ADAMWS, "embed", NULL, SHAPE(100, 3))->expert = 1;
    model_add(&m, FROZEN, "old", NULL, SHAPE(77));
    muon_plan *plan = plan_of(&m);
    muon_plan_cost cost;
    assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
    assert_int_equal(cost.muon_elements, 1200 + 70);
    assert_int_equal(cost.expert_elements, 120);
    assert_int_equal(cost.adamw_elements, 300);
    assert_int_equal(cost.frozen_elements, 77);
    assert_int_equal(cost.matrices, 6);
    assert_int_equal(cost.state_bytes, 4 * 1270 + 2 * 120 + 8 * 300 + 4 * 8);
    muon_plan_destroy(plan);
}

/* ---- waves and workspace ---------------------------------------------------------------------- */

static void add_many_shapes(model *m)
{
    model_add(m, MUONS, "large", NULL, SHAPE(400, 410));
    model_add(m, MUONS, "experts", "batch 1", SHAPE(40, 33, 61));
    model_add(m, MUONS, "gaps", "rows 3*[20, 12], skip *; cols skip 7, 50", SHAPE(107, 57));
    model_add(m, MUONS, "row", NULL, SHAPE(1, 777));
}

/* Slots of a wave lie side by side inside the buffer, and every item is in exactly one wave. */
static void check_waves(const muon_plan *plan)
{
    assert_int_equal(plan->wave[0], 0);
    assert_int_equal(plan->wave[plan->nwaves], plan->nitems);
    for (size_t w = 0; w < plan->nwaves; w++) {
        assert_true(plan->wave[w] < plan->wave[w + 1]);
        int64_t end = 0;
        for (size_t i = plan->wave[w]; i < plan->wave[w + 1]; i++) {
            const plan_item *item = &plan->items[i];
            assert_true(plan->order[i] >= plan->wave[w] && plan->order[i] < plan->wave[w + 1]);
            if (item->class == PLAN_IDLE) continue;
            assert_true(item->slot >= end);
            end = item->slot + muon__item_numel(item);
        }
        assert_true(end <= plan->wave_floats);
    }
}

TEST(workspace_is_planned_to_the_byte_and_never_above_the_budget)
{
    for (int threads = 1; threads <= 4; threads++) {
        int64_t least = 0, most = 0;
        for (int i = 0; i <= 20; i++) { /* no limit; then from the least to the most */
            model m;
            model_init(&m);
            m.config.threads = threads;
            add_many_shapes(&m);
            if (i == 0)
                least = model_least_budget(&m);
            else
                m.config.workspace_budget = least + (most - least) * (i - 1) / 19 + i % 3;
            assert_ok(muon_create(&m.opt, &m.config, m.params, m.nparams));
            muon_plan_cost cost;
            assert_ok(muon_plan_get_cost(muon_opt_get_plan(m.opt), &cost, sizeof cost));
            assert_int_equal(cost.workspace_bytes, m.opt->workspace.used);
            if (i == 0)
                most = cost.workspace_bytes;
            else
                assert_true(cost.workspace_bytes <= m.config.workspace_budget);
            if (i == 0 || i == 20) assert_int_equal(cost.waves, 1);
            if (i == 1) assert_true(cost.waves > 1);
            check_waves(m.opt->plan);
            muon_destroy(m.opt);
        }
    }
}

TEST(the_budget_that_the_error_names_is_the_least_that_works)
{
    model m;
    model_init(&m);
    add_many_shapes(&m);
    int64_t least = model_least_budget(&m);
    for (int threads = 1; threads <= 4; threads++) {
        m.config.threads = threads;
        assert_int_equal(model_least_budget(&m), least); /* more threads need no more */
        muon_plan *plan = NULL;
        m.config.workspace_budget = least - 1;
        assert_fails(muon_plan_create(&plan, &m.config, m.params, m.nparams), MUON_E_BUDGET,
                     model_text("is %lld bytes, but the largest matrix needs %lld",
                                (long long)least - 1, (long long)least));
        m.config.workspace_budget = least;
        muon_plan_destroy(plan_of(&m));
    }
}

TEST(a_plan_of_a_trillion_parameters_needs_no_memory_for_them)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    model m;
    model_init(&m);
    m.config.workspace_budget = INT64_C(1) << 30;
    for (size_t i = 0; i < COUNT(names); i++) /* 4 layers of 384 experts, up and down */
        model_add(&m, MUONS, names[i], "batch 2", SHAPE(15, 384, 7168, 3072))->expert = 1;
    muon_plan *plan = plan_of(&m);
    muon_plan_cost cost;
    assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
    assert_int_equal(cost.matrices, 8 * 15 * 384);
    assert_true(cost.expert_elements == INT64_C(8) * 15 * 384 * 7168 * 3072);
    assert_true(cost.expert_elements > INT64_C(1000000000000));
    assert_true(cost.workspace_bytes <= m.config.workspace_budget);
    muon_plan_destroy(plan);
}
