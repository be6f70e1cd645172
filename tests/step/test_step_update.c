/* test_step_update.c - Muon's update on dense matrices, step by step against fp64. */
#include "muon/plan.h"
#include "tests/world/step_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double tolerance = 4e-5; /* f32 against fp64, of how far the weights have moved */

/* ---- the update rule ------------------------------------------------------------------------ */

/* Five steps of a model of one dense matrix. */
static void check_against_oracle(const muon_group *group, const char *backend, int64_t rows,
                                 int64_t cols, const char *what)
{
    model m;
    oracle o;
    model_init(&m);
    m.config.backend = backend;
    m.groups[MUONS] = *group;
    model_add(&m, MUONS, "w", NULL, SHAPE(rows, cols));
    model_create(&m);
    oracle_init(&o, &m, 0, 1, rows, cols);
    for (int step = 1; step <= 5; step++) {
        ship_fill_grads(&m, step);
        muon_result result = model_step(&m);
        oracle_muon(&o, group, &m, 0, 1);
        assert_true(result.applied);
        double rms = sqrt(o.update_sumsq / o.update_elements);
        testlib_assert_error(fabs(result.update_rms / rms - 1), 5e-5, "%s: update_rms", what);
    }
    testlib_assert_error(oracle_weight_error(&o, &m, 0), tolerance, "%s: weights", what);
    muon_tensor momentum = model_state(&m, "w.momentum_buffer");
    testlib_assert_error(oracle_state_error(o.m, &momentum), 1e-6, "%s: momentum", what);
    assert_int_equal(*(int64_t *)model_state(&m, "w.step").data, 5);
    oracle_free(&o);
    model_destroy(&m);
}

static muon_group muon_settings(void)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.lr = 0.02;
    return group;
}

TEST(muon_agrees_with_fp64_for_every_form_factor_and_decay)
{
    static const double decays[] = {0, 0.1, 3};
    static const int64_t shapes[][2] = {{24, 40}, {40, 24}, {17, 17}};
    for (const char *const *backend = model_backends(); *backend; backend++) {
        for (int i = 0; i < 2 * 2 * 5 * 3; i++) {
            muon_group group = muon_settings();
            group.momentum_form = (muon_momentum_form)(i % 2);
            group.nesterov = i / 2 % 2;
            group.lr_mode = (muon_lr_mode)(i / 4 % 5);
            group.weight_decay = decays[i / 20];
            group.lr_scale = i % 3 ? 1 : 0.7;
            const char *what =
                model_text("%s: form %d, nesterov %d, lr_mode %d, weight_decay %g", *backend, i % 2,
                           group.nesterov, (int)group.lr_mode, group.weight_decay);
            const int64_t *shape = shapes[i % 3];
            check_against_oracle(&group, *backend, shape[0], shape[1], what);
        }
    }
}

TEST(every_orthogonalization_setting_reaches_the_weights)
{
    static const double custom[][3] = {{3, -3.2, 1.2}, {2, -1.5, 0.5}};
    for (const char *const *backend = model_backends(); *backend; backend++) {
        for (int i = 0; i < 6 * 4; i++) {
            muon_group group = muon_settings();
            group.coefficients = (muon_coefficients)(i % 6);
            group.algorithm = (muon_algorithm)(i / 6);
            group.custom = custom;
            group.ncustom = COUNT(custom);
            group.ns_steps = i % 5;
            group.eps_mode = (muon_eps_mode)(i % 3);
            group.ns_eps = i % 3 == 1 ? 0.5 : i % 3 == 2 ? 80 : 1e-3; /* of norms of 50 and more */
            const char *what =
                model_text("%s: coefficients %d, algorithm %d, ns_steps %d, eps_mode %d", *backend,
                           i % 6, i / 6, group.ns_steps, i % 3);
            check_against_oracle(&group, *backend, 20, 33, what);
        }
    }
}

/* R10 */
TEST(lora_factors_of_extreme_aspect_agree_with_fp64)
{
    static const int64_t shapes[][2] = {{4, 2048}, {2048, 4}, {1, 300}, {300, 1}, {2, 2}, {1, 1}};
    for (const char *const *backend = model_backends(); *backend; backend++) {
        for (size_t i = 0; i < COUNT(shapes); i++) {
            for (int mode = 0; mode < 5; mode++) {
                muon_group group = muon_settings();
                group.lr_mode = (muon_lr_mode)mode;
                const char *what =
                    model_text("%s: %lld x %lld, lr_mode %d", *backend, (long long)shapes[i][0],
                               (long long)shapes[i][1], mode);
                check_against_oracle(&group, *backend, shapes[i][0], shapes[i][1], what);
            }
        }
    }
}

/* ---- single properties ---------------------------------------------------------------------- */

/* N16 */
TEST(weight_decay_uses_the_base_lr_whatever_the_factor)
{
    for (int mode = 0; mode < 5; mode++) {
        model m;
        model_init(&m);
        m.groups[MUONS].lr = 0.01;
        m.groups[MUONS].weight_decay = 0.25;
        m.groups[MUONS].lr_scale = 50;
        m.groups[MUONS].lr_mode = (muon_lr_mode)mode;
        model_add(&m, MUONS, "w", NULL, SHAPE(30, 12));
        model_create(&m);
        model_zero_grads(&m); /* no update: what is left is the decay */
        float before[360];
        memcpy(before, m.buffers[0].param, sizeof before);
        model_step(&m);
        for (int64_t i = 0; i < 360; i++) {
            float want = before[i] * (float)(1 - 0.01 * 0.25);
            if (model_weight(&m, 0, i) != want)
                fail_msg("lr_mode %d: element %lld is %.9g, want %.9g", mode, (long long)i,
                         (double)model_weight(&m, 0, i), (double)want);
        }
        model_destroy(&m);
    }
}

/* N5: without Nesterov, U is M itself; with bf16 state and a bf16 wire even of the same type. */
TEST(orthogonalization_leaves_the_momentum_buffer_alone)
{
    for (int i = 0; i < 2 * 2 * 2 * 2; i++) {
        model m;
        oracle o;
        model_init(&m);
        muon_group *group = &m.groups[MUONS];
        group->momentum = 0.5; /* exact in f32 */
        group->nesterov = i % 2;
        group->momentum_form = (muon_momentum_form)(i / 2 % 2);
        group->momentum_dtype = i / 4 % 2 ? MUON_BF16 : MUON_F32;
        m.config.wire = i / 8 ? MUON_BF16 : MUON_F32;
        model_add(&m, MUONS, "w", NULL, SHAPE(32, 48));
        model_create(&m);
        oracle_init(&o, &m, 0, 1, 32, 48);
        for (int step = 1; step <= 4; step++) {
            ship_fill_grads(&m, step);
            model_step(&m);
            oracle_muon(&o, group, &m, 0, 1);
            muon_tensor momentum = model_state(&m, "w.momentum_buffer");
            assert_int_equal(momentum.dtype, group->momentum_dtype);
            if (oracle_state_error(o.m, &momentum) != 0)
                fail_msg("case %d, step %d: momentum is off by %g", i, step,
                         oracle_state_error(o.m, &momentum));
        }
        oracle_free(&o);
        model_destroy(&m);
    }
}

/* N6 */
TEST(gradients_are_only_read)
{
    model m;
    model_init(&m);
    m.config.clip_norm = 0.1;
    m.config.wire = MUON_BF16;
    m.args.grad_scale = 3;
    model_add(&m, MUONS, "dense", NULL, SHAPE(20, 30));
    model_add(&m, MUONS, "blocks", "rows 4, 8, skip 3", SHAPE(15, 7))->grad_dtype = MUON_BF16;
    model_add(&m, ADAMWS, "norm", NULL, SHAPE(33));
    model_add(&m, ADAMWS, "bias", NULL, SHAPE(9))->grad_dtype = MUON_BF16;
    model_create(&m);
    void *before[4];
    size_t bytes[4];
    for (size_t p = 0; p < 4; p++) {
        bytes[p] = (size_t)fleet_numel(&m.params[p]) * (p % 2 ? 2 : 4);
        before[p] = malloc(bytes[p]);
        assert_non_null(before[p]);
        memcpy(before[p], m.grads[p], bytes[p]);
    }
    for (int step = 0; step < 3; step++)
        assert_ok(muon_step(m.opt, &m.args, NULL));
    for (size_t p = 0; p < 4; p++) {
        assert_memory_equal(before[p], m.grads[p], bytes[p]);
        free(before[p]);
    }
    model_destroy(&m);
}

TEST(the_result_counts_what_was_done)
{
    model m;
    model_init(&m);
    model_add(&m, MUONS, "experts", "rows / 3", SHAPE(36, 20));
    model_add(&m, OTHERS, "dense", NULL, SHAPE(16, 50));
    model_add(&m, ADAMWS, "norm", NULL, SHAPE(40));
    model_create(&m);
    muon_result result = model_run(&m, 2);
    assert_int_equal(result.matrices, 4);
    assert_int_equal(result.nonfinite_matrices, 0);
    assert_int_equal(result.missing_params + result.nonfinite_params + result.clipped_heads, 0);
    assert_true(result.skip == MUON_SKIP_NONE && !result.skip_param && result.clip_coef == 1);

    double sum = 0;
    for (size_t p = 0; p < 3; p++)
        for (int64_t i = 0; i < fleet_numel(&m.params[p]); i++)
            sum += pow((double)model_grad(&m, p, i), 2);
    testlib_assert_error(fabs(result.grad_norm / sqrt(sum) - 1), 1e-12, "grad_norm");

    muon_plan_cost cost;
    assert_ok(muon_plan_get_cost(muon_opt_get_plan(m.opt), &cost, sizeof cost));
    const muon_phase_cost *phase = result.phase;
    assert_true(phase[MUON_PHASE_ORTHO].flops == cost.flops);
    double muon = 36 * 20 + 16 * 50;
    assert_true(phase[MUON_PHASE_CHECK].bytes == 4 * (muon + 40));
    assert_true(phase[MUON_PHASE_MOMENTUM].bytes == 16 * muon); /* G, M twice, U */
    assert_true(phase[MUON_PHASE_UPDATE].bytes == 12 * muon);   /* W twice, O */
    assert_true(phase[MUON_PHASE_ADAMW].bytes == 28 * 40);      /* G, and W, M, V twice */
    assert_true(phase[MUON_PHASE_QK_CLIP].bytes == 0);
    double seconds = 0;
    for (int i = 0; i < MUON_MAX_PHASES; i++)
        seconds += phase[i].seconds;
    assert_true(seconds > 0 && seconds <= result.seconds * (1 + 1e-9));
    model_destroy(&m);
}
