/* test_step_adamw.c - AdamW against fp64. */
#include "tests/world/step_oracle.h"

#include <math.h>
#include <string.h>

static void check_against_oracle(const muon_group *group, muon_dtype grad_dtype, int64_t n,
                                 int64_t steps_before, const char *what)
{
    model m;
    oracle o;
    model_init(&m);
    m.config.allow_no_muon = 1;
    m.groups[ADAMWS] = *group;
    model_add(&m, ADAMWS, "w", NULL, SHAPE(n))->grad_dtype = grad_dtype;
    model_create(&m);
    oracle_init(&o, &m, 0, 1, n, 1);
    *(int64_t *)model_state(&m, "w.step").data = o.step = steps_before;
    for (int step = 1; step <= 5; step++) {
        ship_fill_grads(&m, step);
        muon_result result = model_step(&m);
        assert_true(result.applied && result.matrices == 0 && result.update_rms == 0);
        oracle_adamw(&o, group, &m, 0, 1);
    }
    testlib_assert_error(oracle_weight_error(&o, &m, 0), 2e-5, "%s: weights", what);
    muon_tensor mean = model_state(&m, "w.exp_avg"), square = model_state(&m, "w.exp_avg_sq");
    testlib_assert_error(oracle_state_error(o.m, &mean), 1e-5, "%s: exp_avg", what);
    testlib_assert_error(oracle_state_error(o.v, &square), 1e-6, "%s: exp_avg_sq", what);
    assert_int_equal(*(int64_t *)model_state(&m, "w.step").data, steps_before + 5);
    oracle_free(&o);
    model_destroy(&m);
}

TEST(adamw_agrees_with_fp64_for_every_setting)
{
    static const struct {
        double lr, weight_decay, beta1, beta2, eps;
        int64_t n, steps_before;
    } cases[] = {
        {0.03, 0.1, 0.9, 0.95, 1e-8, 257, 0},      {0.03, 0, 0.9, 0.999, 1e-8, 1, 0}, /* a scalar */
        {0.03, 2, 0, 0.5, 1e-8, 100, 0},           {0.03, 0.1, 0.9, 0, 1e-8, 100, 0},
        {0.3, 0.1, 0.9, 0.95, 0.5, 1000, 0},       /* where the two eps modes are far apart */
        {0.03, 0.1, 0.9, 0.95, 0.1, 100, 1000000}, /* a resumed run: nothing left to correct */
        {0.02, 0.1, 0.8, 0.99, 1e-8, 100003, 3},   /* longer than any unit of work */
    };
    for (size_t i = 0; i < COUNT(cases) * 4; i++) {
        muon_group group;
        muon_group_init(&group, sizeof group);
        group.rule = MUON_RULE_ADAMW;
        group.lr = cases[i / 4].lr;
        group.weight_decay = cases[i / 4].weight_decay;
        group.beta1 = cases[i / 4].beta1;
        group.beta2 = cases[i / 4].beta2;
        group.adam_eps = cases[i / 4].eps;
        group.adam_eps_mode = i % 2 ? MUON_ADAM_EPS_RAW : MUON_ADAM_EPS_CORRECTED;
        check_against_oracle(&group, i / 2 % 2 ? MUON_BF16 : MUON_F32, cases[i / 4].n,
                             cases[i / 4].steps_before,
                             model_text("case %zu, eps mode %zu", i / 4, i % 2));
    }
}

/* The first step of AdamW is lr * sign(G), whatever the size of the gradient. */
TEST(bias_correction_makes_the_first_step_lr_for_every_gradient)
{
    model m;
    model_init(&m);
    m.config.allow_no_muon = 1;
    m.groups[ADAMWS].lr = 0.125;
    m.groups[ADAMWS].weight_decay = 0;
    model_add(&m, ADAMWS, "w", NULL, SHAPE(60));
    model_create(&m);
    memset(m.buffers[0].param, 0, 60 * sizeof(float));
    for (int i = 0; i < 60; i++)
        model_set_grad(&m, 0, i, ldexpf(i % 2 ? 1 : -1, i / 2 - 12)); /* 2^-12 .. 2^17 */
    model_step(&m);
    for (int i = 0; i < 60; i++)
        testlib_assert_error(fabs((double)model_weight(&m, 0, i) * (i % 2 ? -8 : 8) - 1), 5e-5,
                             "gradient %g", (double)model_grad(&m, 0, i));
    model_destroy(&m);
}

TEST(zero_gradients_only_decay_the_weights)
{
    model m;
    model_init(&m);
    m.config.allow_no_muon = 1;
    m.groups[ADAMWS].lr = 0.01;
    m.groups[ADAMWS].weight_decay = 0.5;
    model_add(&m, ADAMWS, "w", NULL, SHAPE(9, 5));
    model_create(&m);
    float before[45];
    memcpy(before, m.buffers[0].param, sizeof before);
    model_zero_grads(&m);
    model_step(&m);
    for (int i = 0; i < 45; i++)
        assert_true(model_weight(&m, 0, i) == before[i] * (float)(1 - 0.01 * 0.5));
    model_destroy(&m);
}
