/* test_step_skip.c - gradients with a NaN or infinity, numbers that overflow, and zeros. */
#include "tests/world/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ZOO = 5 };

static void make_zoo(model *m, int threads)
{
    model_init(m);
    m->config.threads = threads;
    m->config.clip_norm = 2;
    model_add(m, MUONS, "dense", NULL, SHAPE(20, 30))->copy_dtype = MUON_BF16;
    model_add(m, MUONS, "experts", "batch 1", SHAPE(3, 8, 10))->grad_dtype = MUON_BF16;
    model_add(m, MUONS, "narrow", "rows 4, skip 2", SHAPE(6, 9))->dtype = MUON_BF16;
    model_add(m, ADAMWS, "table", NULL, SHAPE(300, 110)); /* more than one unit of work */
    model_add(m, ADAMWS, "bias", NULL, SHAPE(31))->grad_dtype = MUON_BF16;
    fleet_attend(m, "dense", "experts", 1, 1, 2);
    model_create(m);
}

static void check_skipped(const muon_result *result, const char *name, int nonfinite)
{
    assert_int_equal(result->applied, 0);
    assert_int_equal(result->skip, MUON_SKIP_NONFINITE_GRAD);
    assert_non_null(result->skip_param);
    assert_string_equal(result->skip_param, name);
    assert_int_equal(result->nonfinite_params, nonfinite);
    assert_int_equal(result->matrices + result->clipped_heads, 0);
    assert_true(result->clip_coef == 1 && result->update_rms == 0);
}

/* ---- NaN and infinity in a gradient ----------------------------------------------------------- */

/* Without a result and without clipping the norm is not computed; what is not finite is still seen, and
 * every other bit is the same. */
TEST(a_step_that_tells_nobody_its_norm_skips_and_steps_alike)
{
    model quiet, loud;
    make_zoo(&quiet, 2);
    make_zoo(&loud, 2);
    assert_ok(muon_opt_set_clip_norm(quiet.opt, 0));
    assert_ok(muon_opt_set_clip_norm(loud.opt, 0));
    for (size_t p = 0; p < ZOO; p++) {
        int64_t last = fleet_numel(&quiet.params[p]) - 1;
        float good = model_grad(&quiet, p, last);
        unsigned char *before = model_snapshot(&quiet);
        model_set_grad(&quiet, p, last, p % 2 ? (float)NAN : -(float)INFINITY);
        assert_ok(muon_step(quiet.opt, &quiet.args, NULL));
        model_assert_same(&quiet, before, quiet.params[p].name);
        free(before);
        model_set_grad(&quiet, p, last, good);
    }
    assert_ok(muon_step(quiet.opt, &quiet.args, NULL));
    assert_true(model_step(&loud).applied);
    model_assert_equal(&quiet, &loud, "with and without a result");
    model_destroy(&quiet);
    model_destroy(&loud);
}

/* N3 */
TEST(one_bad_element_skips_the_step_and_changes_no_bit)
{
    const float bad[] = {(float)NAN, (float)INFINITY, -(float)INFINITY};
    const float logits[] = {1000}, *const max_logits[] = {logits};
    for (int threads = 1; threads <= 2; threads++) {
        model m, healthy; /* the second one never sees the bad gradients */
        make_zoo(&m, threads);
        make_zoo(&healthy, threads);
        m.args.max_logits = max_logits;
        healthy.args.max_logits = max_logits;
        model_run(&m, 2);
        model_run(&healthy, 2);
        unsigned char *before = model_snapshot(&m);
        for (size_t p = 0; p < ZOO; p++) {
            int64_t n = fleet_numel(&m.params[p]);
            for (int64_t k = 0; k < 9; k++) {
                int64_t at = k / 3 * (n - 1) / 2; /* first, middle, last */
                float good = model_grad(&m, p, at);
                model_set_grad(&m, p, at, bad[k % 3]);
                muon_result result = model_step(&m);
                check_skipped(&result, m.params[p].name, 1);
                model_assert_same(&m, before, m.params[p].name);
                model_set_grad(&m, p, at, good);
            }
        }
        free(before);
        ship_fill_grads(&m, 3);
        ship_fill_grads(&healthy, 3);
        muon_result result = model_step(&m);
        assert_true(result.applied && result.clipped_heads == 1);
        model_step(&healthy);
        model_assert_equal(&m, &healthy, "after the skipped steps");
        model_destroy(&m);
        model_destroy(&healthy);
    }
}

TEST(the_first_of_several_bad_parameters_is_named)
{
    model m;
    make_zoo(&m, 2);
    model_set_grad(&m, 4, 30, (float)NAN);
    model_set_grad(&m, 3, 32999, (float)INFINITY);
    model_set_grad(&m, 3, 1, (float)NAN);
    model_set_grad(&m, 1, 100, (float)NAN);
    muon_result result = model_step(&m);
    check_skipped(&result, "experts", 3);
    model_destroy(&m);
}

/* N18: the first step that counts is corrected as the first one, lr * sign(G). */
TEST(adamw_bias_correction_does_not_count_skipped_steps)
{
    model m;
    model_init(&m);
    m.config.allow_no_muon = 1;
    m.groups[ADAMWS].lr = 0.5;
    m.groups[ADAMWS].weight_decay = 0;
    model_add(&m, ADAMWS, "w", NULL, SHAPE(64));
    model_create(&m);
    memset(m.buffers[0].param, 0, 64 * sizeof(float));
    for (int i = 0; i < 64; i++)
        model_set_grad(&m, 0, i, 3);
    model_set_grad(&m, 0, 5, (float)NAN);
    for (int i = 0; i < 10; i++)
        assert_int_equal(model_step(&m).applied, 0);
    assert_int_equal(*(int64_t *)model_state(&m, "w.step").data, 0);
    model_set_grad(&m, 0, 5, 3);
    assert_int_equal(model_step(&m).applied, 1);
    for (int i = 0; i < 64; i++)
        testlib_assert_error(fabs((double)model_weight(&m, 0, i) + 0.5), 1e-6, "element %d", i);
    model_destroy(&m);
}

static void count_warnings(void *user, muon_log_level level, const char *message)
{
    if (level == MUON_LOG_WARN && strstr(message, "'dense'")) ++*(int *)user;
}

TEST(a_skipped_step_is_logged_with_the_name)
{
    int warnings = 0;
    model m;
    model_init(&m);
    m.config.log = count_warnings;
    m.config.user = &warnings;
    model_add(&m, MUONS, "dense", NULL, SHAPE(4, 4));
    model_create(&m);
    model_step(&m);
    assert_int_equal(warnings, 0);
    model_set_grad(&m, 0, 0, (float)NAN);
    model_step(&m);
    assert_int_equal(warnings, 1);
    model_destroy(&m);
}

/* ---- overflow --------------------------------------------------------------------------------- */

/* Gradients that are finite, with a momentum that is not: for EMA they must change their sign. */
TEST(a_momentum_that_overflows_gives_its_matrix_no_update)
{
    for (int i = 0; i < 2 * 2 * 2 * 2; i++) {
        model m;
        model_init(&m);
        m.config.threads = 1 + i / 8;
        muon_group *group = &m.groups[MUONS];
        group->momentum_form = (muon_momentum_form)(i % 2);
        group->nesterov = i / 2 % 2;
        group->momentum_dtype = i / 4 % 2 ? MUON_BF16 : MUON_F32;
        model_add(&m, MUONS, "w", "rows / 3", SHAPE(24, 16))->copy_dtype = MUON_BF16;
        model_create(&m);
        for (int step = 0; step < 4; step++) { /* the middle one of three matrices */
            for (int64_t e = 8 * 16; e < 16 * 16; e++)
                model_set_grad(&m, 0, e, step % 2 && i % 2 ? -3.3e38f : 3.3e38f);
            for (int64_t e = 0; e < 8 * 16; e++)
                model_set_grad(&m, 0, e, (float)(e % 7) - 3);
            float before[24 * 16];
            memcpy(before, m.buffers[0].param, sizeof before);
            muon_result result = model_step(&m);
            float decay = (float)(1 - group->lr * group->weight_decay);
            int64_t moved = 0;
            assert_true(result.applied && isfinite(result.grad_norm) &&
                        isfinite(result.update_rms));
            assert_true(result.matrices == 3 && result.nonfinite_matrices <= 1);
            for (int64_t e = 0; e < 24 * 16; e++) {
                float w = model_weight(&m, 0, e);
                int bad = result.nonfinite_matrices && e >= 8 * 16 && e < 16 * 16;
                if (!isfinite(w))
                    fail_msg("case %d: element %lld is %g", i, (long long)e, (double)w);
                if (bad) assert_true(w == before[e] * decay);
                moved += w != before[e] * decay;
            }
            assert_true(moved >= 2 * 8 * 16 - 40);
            if (step == 3 && result.nonfinite_matrices != 1) fail_msg("case %d: no overflow", i);
        }
        model_destroy(&m);
    }
}

TEST(coefficients_that_diverge_give_no_update)
{
    static const double diverging[][3] = {{1000, 1000, 1000}};
    model m;
    model_init(&m);
    m.groups[MUONS].coefficients = MUON_COEFFICIENTS_CUSTOM;
    m.groups[MUONS].custom = diverging;
    m.groups[MUONS].ncustom = 1;
    m.groups[MUONS].ns_steps = 20;
    m.groups[MUONS].weight_decay = 0;
    model_add(&m, MUONS, "w", "rows / 2", SHAPE(16, 9));
    model_create(&m);
    float before[16 * 9];
    memcpy(before, m.buffers[0].param, sizeof before);
    muon_result result = model_step(&m);
    assert_true(result.applied && result.nonfinite_matrices == 2 && result.update_rms == 0);
    assert_memory_equal(m.buffers[0].param, before, sizeof before);
    model_destroy(&m);
}

TEST(huge_gradients_have_a_norm_and_can_be_clipped)
{
    model m;
    model_init(&m);
    m.config.clip_norm = 1;
    model_add(&m, MUONS, "w", NULL, SHAPE(10, 10));
    model_add(&m, ADAMWS, "b", NULL, SHAPE(10));
    model_create(&m);
    for (size_t p = 0; p < 2; p++)
        for (int64_t i = 0; i < fleet_numel(&m.params[p]); i++)
            model_set_grad(&m, p, i, 2e38f);
    for (int step = 0; step < 5; step++) {
        muon_result result = model_step(&m);
        testlib_assert_error(fabs(result.grad_norm / ((double)2e38f * sqrt(110)) - 1), 1e-12,
                             "norm");
        assert_true(result.applied && result.nonfinite_matrices == 0);
    }
    const float *momentum = model_state(&m, "w.momentum_buffer").data;
    double want = (1 - pow(0.95, 5)) / 0.05 / sqrt(110);
    testlib_assert_error(fabs((double)momentum[0] / want - 1), 1e-3, "clipped momentum");
    for (size_t p = 0; p < 2; p++)
        for (int64_t i = 0; i < fleet_numel(&m.params[p]); i++)
            assert_true(isfinite(model_weight(&m, p, i)));
    model_destroy(&m);
}

TEST(huge_gradients_leave_adamw_weights_finite)
{
    model m;
    model_init(&m);
    m.config.allow_no_muon = 1;
    model_add(&m, ADAMWS, "b", NULL, SHAPE(40));
    model_create(&m);
    for (int step = 0; step < 6; step++) {
        for (int64_t i = 0; i < 40; i++)
            model_set_grad(&m, 0, i, step % 2 ? -1e38f : 1e38f);
        assert_true(model_step(&m).applied);
        for (int64_t i = 0; i < 40; i++)
            assert_true(isfinite(model_weight(&m, 0, i)));
    }
    model_destroy(&m);
}

/* Divided by a small grad_scale, a finite gradient can be infinite. */
TEST(a_gradient_that_unscaling_makes_infinite_skips_the_step)
{
    for (size_t p = 0; p < ZOO; p++) {
        model m;
        make_zoo(&m, 1);
        model_set_grad(&m, p, 3, 1e37f);
        m.args.grad_scale = 0.0078125;
        unsigned char *before = model_snapshot(&m);
        muon_result result = model_step(&m);
        check_skipped(&result, m.params[p].name, 1);
        model_assert_same(&m, before, "unscaling");
        m.args.grad_scale = 1;
        assert_true(model_step(&m).applied);
        free(before);
        model_destroy(&m);
    }
}

/* ---- zeros ------------------------------------------------------------------------------------ */

TEST(zero_gradients_are_safe_with_and_without_clipping)
{
    for (int clip = 0; clip < 2; clip++) {
        model m;
        make_zoo(&m, 2);
        assert_ok(muon_opt_set_clip_norm(m.opt, clip));
        model_zero_grads(&m);
        for (int step = 0; step < 2; step++) {
            muon_result result = model_step(&m);
            assert_true(result.applied && result.grad_norm == 0 && result.clip_coef == 1);
            assert_true(result.update_rms == 0 && result.nonfinite_matrices == 0);
        }
        for (size_t p = 0; p < ZOO; p++)
            for (int64_t i = 0; i < fleet_numel(&m.params[p]); i++)
                assert_true(isfinite(model_weight(&m, p, i)));
        model_destroy(&m);
    }
}
