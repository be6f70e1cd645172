/* test_step_whole.c - variants that look at whole matrices, and AdaMuon, against fp64; and what they do
 * with state, teams and numbers that are hard to divide by. (Layouts: zoo and random cases.) */
#include "tests/world/step_oracle.h"

#include <math.h>
#include <string.h>

static const double tolerance = 1e-4; /* f32 against fp64, of how far the weights have moved */

typedef struct shape {
    int64_t rows, cols;
    const char *matrices;
    int transposed;
} shape;

static const shape shapes[] = {
    {20, 40, NULL, 0}, {40, 20, NULL, 0},         {24, 24, NULL, 0},        {1, 30, NULL, 0},
    {30, 1, NULL, 0},  {20, 40, "transposed", 1}, {40, 20, "transposed", 1}};

/* V of all matrices (here one), where the oracle has it: at the first element of each line. */
static void check_second(const oracle *o, const model *m, const muon_group *group, const shape *s)
{
    muon_tensor got = model_state(m, "w.second_moment");
    int64_t n = (int64_t)(got.bytes / sizeof(float));
    int wide = s->transposed ? s->cols < s->rows : s->rows < s->cols;
    int columns = (group->second_moment == MUON_SECOND_LONG_SIDE && wide) != (s->transposed != 0);
    int elements = group->second_moment == MUON_SECOND_ELEMENTS;
    int64_t want = elements ? s->rows * s->cols : columns ? s->cols : s->rows;
    if (group->second_moment == MUON_SECOND_MATRIX) want = 1;
    int64_t step = elements || columns ? 1 : s->cols;
    assert_int_equal(n, want);
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = o->second[i * step];
        error += pow((double)((const float *)got.data)[i] - v, 2);
        norm += v * v;
    }
    testlib_assert_error(sqrt(error / norm), 1e-4, "second moments");
}

static void check(const muon_group *group, const shape *s, muon_path path, const char *what)
{
    model m;
    oracle o;
    model_init(&m);
    m.config.path = path;
    m.groups[MUONS] = *group;
    model_add(&m, MUONS, "w", s->matrices, SHAPE(s->rows, s->cols));
    model_create(&m);
    oracle_init(&o, &m, 0, 1, s->rows, s->cols);
    o.transposed = s->transposed;
    for (int step = 1; step <= 4; step++) {
        ship_fill_grads(&m, step);
        muon_result result = model_step(&m);
        assert_true(result.applied);
        oracle_muon(&o, group, &m, 0, 1);
        if (group->second_moment != MUON_SECOND_ELEMENTS)
            testlib_assert_error(
                fabs(result.update_rms / sqrt(o.update_sumsq / o.update_elements) - 1), 1e-4,
                "%s: update rms", what);
    }
    testlib_assert_error(oracle_weight_error(&o, &m, 0), tolerance, "%s: weights", what);
    if (group->second_moment != MUON_SECOND_NONE) check_second(&o, &m, group, s);
    oracle_free(&o);
    model_destroy(&m);
}

static muon_group settings(void)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.lr = 0.05;
    return group;
}

TEST(every_variant_agrees_with_fp64_for_every_shape)
{
    for (int i = 0; i < 2 * 2 * 2 * 5 * 2; i++) {
        muon_group group = settings();
        group.equalize = i % 2;
        group.adaptive = i / 2 % 2;
        group.renormalize = i / 4 % 2;
        group.second_moment = (muon_second_moment)(i / 8 % 5);
        group.second_eps_mode = (muon_second_eps)(i / 40);
        group.second_beta = i % 3 ? 0.95 : 0.5;
        group.update_norm = (muon_update_norm)(i % 7 % 3);
        group.cautious_decay = i % 4 == 3;
        if (group.second_moment == MUON_SECOND_ELEMENTS) group.update_norm = MUON_UPDATE_NORM_OWN;
        for (size_t k = 0; k < COUNT(shapes); k++)
            check(&group, &shapes[k], i % 5 == 4 ? MUON_PATH_REFERENCE : MUON_PATH_PIPELINE,
                  model_text("equalize %d, adaptive %d, renormalize %d, second moments %d, eps %d, "
                             "norm %d, %lld x %lld%s",
                             i % 2, i / 2 % 2, i / 4 % 2, i / 8 % 5, i / 40, group.update_norm,
                             (long long)shapes[k].rows, (long long)shapes[k].cols,
                             shapes[k].transposed ? ", transposed" : ""));
    }
}

/* A matrix without a gradient has O = 0, and so have rows of zeros; nothing may become NaN. */
TEST(zeros_stay_zeros_whatever_they_are_divided_by)
{
    for (int i = 0; i < 2 * 5 * 2; i++) {
        model m;
        model_init(&m);
        m.groups[MUONS] = settings();
        m.groups[MUONS].weight_decay = 0;
        m.groups[MUONS].equalize = m.groups[MUONS].adaptive = m.groups[MUONS].renormalize = 1;
        m.groups[MUONS].second_moment = (muon_second_moment)(i / 2 % 5);
        if (i % 3 && i / 2 % 5 != MUON_SECOND_ELEMENTS)
            m.groups[MUONS].update_norm = (muon_update_norm)(i % 3);
        m.groups[MUONS].second_eps_mode = (muon_second_eps)(i % 2);
        m.groups[MUONS].second_eps = i / 10 ? 1e-30 : 1e-8;
        model_add(&m, MUONS, "w", "rows / 2", SHAPE(16, 12));
        model_create(&m);
        float before[16 * 12];
        memcpy(before, m.buffers[0].param, sizeof before);
        for (int e = 0; e < 16 * 12; e++) /* of the second matrix, every other row has none */
            model_set_grad(&m, 0, e, e < 8 * 12 || e / 12 % 2 ? 0 : (float)(e * e % 11) - 5.5f);
        muon_result result = model_step(&m);
        assert_int_equal(result.nonfinite_matrices, 0);
        for (int e = 0; e < 16 * 12; e++) {
            float now = model_weight(&m, 0, e);
            if (!isfinite(now)) fail_msg("case %d: element %d is %g", i, e, (double)now);
            if (e < 8 * 12) assert_true(now == before[e]);
        }
        model_destroy(&m);
    }
}

/* What is not finite gets no update, and leaves no mark in second moments. */
TEST(a_matrix_that_is_not_finite_leaves_second_moments_alone)
{
    model m;
    model_init(&m);
    m.groups[MUONS] = settings();
    m.groups[MUONS].second_moment = MUON_SECOND_ROWS;
    m.groups[MUONS].momentum = 0;
    m.groups[MUONS].nesterov = 0;
    m.groups[MUONS].coefficients = MUON_COEFFICIENTS_CUSTOM;
    static const double wild[][3] = {{1e30, 0, 0}, {1e30, 0, 0}};
    m.groups[MUONS].custom = wild;
    m.groups[MUONS].ncustom = 2;
    model_add(&m, MUONS, "w", NULL, SHAPE(6, 9));
    model_create(&m);
    ship_fill_grads(&m, 1);
    assert_int_equal(model_step(&m).nonfinite_matrices, 1);
    muon_tensor v = model_state(&m, "w.second_moment");
    assert_int_equal(v.bytes, 6 * sizeof(float));
    for (int i = 0; i < 6; i++)
        assert_true(((const float *)v.data)[i] == 0);
    model_destroy(&m);
}

/* The list is in the order of the matrices, and can be reset. */
TEST(second_moments_are_a_list_with_one_matrix_after_the_other)
{
    model m;
    model_init(&m);
    m.groups[MUONS] = settings();
    m.groups[MUONS].second_moment = MUON_SECOND_LONG_SIDE;
    model_add(&m, MUONS, "w", "batch 1; cols 4, 12", SHAPE(2, 8, 16));
    model_create(&m);
    ship_fill_grads(&m, 1);
    model_step(&m);
    muon_tensor v = model_state(&m, "w.second_moment");
    assert_int_equal(v.ndim, 1);
    assert_int_equal(v.shape[0], 2 * (8 + 12));
    float all[40], some[5];
    memcpy(all, v.data, sizeof all);
    for (int i = 0; i < 40; i++)
        assert_true(all[i] > 0);
    size_t index = 0;
    for (muon_tensor t; index < muon_state_count(m.opt); index++) {
        assert_ok(muon_state_get(m.opt, index, &t, sizeof t));
        if (strcmp(t.name, "w.second_moment") == 0) break;
    }
    assert_ok(muon_state_read(m.opt, index, 7, 5, some));
    assert_memory_equal(some, all + 7, sizeof some);
    assert_ok(muon_state_reset(m.opt, 0));
    for (int i = 0; i < 40; i++)
        assert_true(((const float *)v.data)[i] == 0);
    model_destroy(&m);
}

/* In the caller's memory it is as in ours, and nothing is written behind it. */
TEST(a_list_of_second_moments_may_be_bound)
{
    enum { ROWS = 8, COLS = 16 };
    model own, bound;
    float list[ROWS + ROWS * COLS], momentum[ROWS * COLS] = {0};
    int64_t steps = 0;
    for (int i = 0; i < ROWS + ROWS * COLS; i++)
        list[i] = i < ROWS ? 0 : 7;
    muon_state_buffers state = {.momentum = momentum, .step = &steps, .second_moment = list};
    model *const models[] = {&own, &bound};
    for (int k = 0; k < 2; k++) {
        model_init(models[k]);
        models[k]->groups[MUONS] = settings();
        models[k]->groups[MUONS].second_moment = MUON_SECOND_ROWS;
        model_add(models[k], MUONS, "w", NULL, SHAPE(ROWS, COLS));
        model_create(models[k]);
        if (k == 1) assert_ok(muon_state_bind(models[k]->opt, &state));
        model_run(models[k], 3);
    }
    model_assert_equal(&own, &bound, "second moments in the caller's memory");
    assert_memory_equal(list, model_state(&own, "w.second_moment").data, ROWS * sizeof *list);
    for (int i = ROWS; i < ROWS + ROWS * COLS; i++)
        assert_true(list[i] == 7);
    assert_ok(muon_state_bind(bound.opt, NULL));
    assert_memory_equal(model_state(&bound, "w.second_moment").data, list, ROWS * sizeof *list);
    model_destroy(&own);
    model_destroy(&bound);
}

TEST(variants_cannot_be_switched_on_later)
{
    static const char *const fields[][2] = {{"equalize", "1"},
                                            {"adaptive", "1"},
                                            {"renormalize", "1"},
                                            {"second_moment", "rows"},
                                            {"update_norm", "relative"}};
    model m;
    model_init(&m);
    model_add(&m, MUONS, "w", NULL, SHAPE(6, 8));
    model_create(&m);
    for (size_t i = 0; i < COUNT(fields); i++) {
        muon_group group;
        muon_group_init(&group, sizeof group);
        assert_ok(muon_opt_get_group(m.opt, MUONS, &group));
        assert_ok(muon_group_set(&group, fields[i][0], fields[i][1]));
        assert_fails(muon_opt_set_group(m.opt, MUONS, &group), MUON_E_VALUE, fields[i][0]);
    }
    model_destroy(&m);
}

/* However far it is trained, and whatever its dtype. */
TEST(hyperball_keeps_the_norm_of_every_matrix)
{
    model m;
    model_init(&m);
    m.groups[MUONS] = settings();
    m.groups[MUONS].update_norm = MUON_UPDATE_HYPERBALL;
    model_add(&m, MUONS, "w", "rows 10, skip 2, 12", SHAPE(24, 16));
    model_create(&m);
    double before[2] = {0}, after[2] = {0};
    for (int step = 0; step <= 20; step++) {
        for (int e = 0; e < 24 * 16; e++) {
            double w = pow((double)model_weight(&m, 0, e), 2);
            int row = e / 16;
            if (row < 10 || row >= 12) *(step ? &after[row >= 12] : &before[row >= 12]) += w;
        }
        for (int i = 0; i < 2 && step > 0; i++) {
            testlib_assert_error(fabs(after[i] / before[i] - 1), 1e-6, "matrix %d, step %d", i,
                                 step);
            after[i] = 0;
        }
        ship_fill_grads(&m, step);
        model_step(&m);
    }
    model_destroy(&m);
}

TEST(what_has_no_meaning_together_is_refused)
{
    muon_group group = settings();
    muon_config config;
    muon_param param;
    muon_config_init(&config, sizeof config);
    muon_param_init(&param, sizeof param);
    param.name = "w";
    param.ndim = 2;
    param.group = 0;
    param.shape[0] = param.shape[1] = 8;
    config.groups = &group;
    config.ngroups = 1;
    muon_plan *plan = NULL;
    group.update_norm = MUON_UPDATE_HYPERBALL;
    group.second_moment = MUON_SECOND_ELEMENTS;
    assert_fails(muon_plan_create(&plan, &config, &param, 1), MUON_E_VALUE,
                 "update_norm is hyperball, but second_moment is elements");
    group.second_moment = MUON_SECOND_MATRIX;
    group.decay_form = MUON_DECAY_L2;
    assert_fails(muon_plan_create(&plan, &config, &param, 1), MUON_E_VALUE,
                 "decay_form is l2, but second_moment is matrix");
}

/* One matrix on eight ranks, which would share it. */
TEST(whole_matrices_are_never_shared)
{
    muon_config config;
    muon_group group = settings();
    muon_param param;
    muon_config_init(&config, sizeof config);
    muon_param_init(&param, sizeof param);
    param.name = "w";
    param.ndim = 2;
    param.group = 0;
    param.shape[0] = param.shape[1] = 4096;
    config.groups = &group;
    config.ngroups = 1;
    config.nranks = 8;
    for (int whole = 0; whole < 2; whole++) {
        muon_plan *plan = NULL;
        muon_matrix m;
        muon_prediction p;
        group.renormalize = whole;
        assert_ok(muon_plan_create(&plan, &config, &param, 1));
        assert_ok(muon_plan_get_matrix(plan, 0, &m, sizeof m));
        assert_ok(muon_plan_predict(plan, &p, sizeof p));
        assert_int_equal(m.team > 1, !whole);
        assert_true(p.makespan >= p.lower_bound * (1 - 1e-9));
        muon_plan_destroy(plan);
    }
}
