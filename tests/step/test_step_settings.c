/* test_step_settings.c - what stands around the update: clipping, scaling, settings that change,
 * state that is carried over, gradients that are not there. */
#include "tests/world/step_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A Muon matrix, a second one in another group, and an AdamW vector, each with its oracle. */
typedef struct trio {
    model m;
    oracle o[3];
} trio;

static void trio_create(trio *t)
{
    for (int i = 0; i < FLEET_GROUPS; i++)
        t->m.groups[i].lr = 0.05;
    model_add(&t->m, MUONS, "first", NULL, SHAPE(16, 24));
    model_add(&t->m, OTHERS, "second", NULL, SHAPE(30, 10));
    model_add(&t->m, ADAMWS, "third", NULL, SHAPE(50));
    model_create(&t->m);
    oracle_init(&t->o[0], &t->m, 0, 1, 16, 24);
    oracle_init(&t->o[1], &t->m, 1, 1, 30, 10);
    oracle_init(&t->o[2], &t->m, 2, 1, 50, 1);
}

/* The step the oracles make, with a multiplier for each gradient. */
static void trio_follow(trio *t, const double multiplier[3])
{
    for (size_t p = 0; p < 3; p++) {
        const muon_group *group = &t->m.groups[t->m.params[p].group];
        if (p < 2)
            oracle_muon(&t->o[p], group, &t->m, p, multiplier[p]);
        else
            oracle_adamw(&t->o[p], group, &t->m, p, multiplier[p]);
    }
}

static void trio_check(trio *t, const char *what)
{
    for (size_t p = 0; p < 3; p++)
        testlib_assert_error(oracle_weight_error(&t->o[p], &t->m, p), 1e-4, "%s: %s", what,
                             t->m.params[p].name);
}

static void trio_destroy(trio *t)
{
    for (size_t p = 0; p < 3; p++)
        oracle_free(&t->o[p]);
    model_destroy(&t->m);
}

/* In double and in order: the library's may do better, not worse. */
static double norm_of_grads(const model *m)
{
    double sum = 0;
    for (size_t p = 0; p < m->nparams; p++)
        for (int64_t i = 0; m->buffers[p].grad && i < fleet_numel(&m->params[p]); i++)
            sum += pow((double)model_grad(m, p, i), 2);
    return sqrt(sum);
}

/* ---- clipping and loss scale ---------------------------------------------------------------- */

TEST(clipping_scales_every_group_but_those_that_opt_out)
{
    for (int opt_out = 0; opt_out < 8; opt_out++) {
        trio t;
        model_init(&t.m);
        t.m.config.clip_norm = 5;
        for (int i = 0; i < 3; i++)
            t.m.groups[i == 2 ? OTHERS : i].clip = !(opt_out >> i & 1);
        trio_create(&t);
        for (int step = 1; step <= 4; step++) {
            ship_fill_grads(&t.m, step);
            double norm = norm_of_grads(&t.m); /* about 27; from step 3 on, below the limit */
            if (step == 3) assert_ok(muon_opt_set_clip_norm(t.m.opt, 1000));
            double coef = step < 3 ? 5 / norm : 1;
            muon_result result = model_step(&t.m);
            testlib_assert_error(fabs(result.grad_norm / norm - 1), 1e-12, "grad_norm");
            testlib_assert_error(fabs(result.clip_coef / coef - 1), 1e-12, "clip_coef");
            double multiplier[3];
            for (size_t p = 0; p < 3; p++)
                multiplier[p] = t.m.groups[t.m.params[p].group].clip ? coef : 1;
            trio_follow(&t, multiplier);
        }
        trio_check(&t, model_text("opt-out %d", opt_out));
        trio_destroy(&t);
    }
}

TEST(grad_scale_divides_before_norm_and_clipping)
{
    static const double scales[] = {1, 3, 1000, 65536, 0.125};
    for (size_t i = 0; i < COUNT(scales); i++) {
        trio t;
        model_init(&t.m);
        t.m.config.clip_norm = 10;
        t.m.args.grad_scale = scales[i];
        trio_create(&t);
        for (int step = 1; step <= 3; step++) {
            ship_fill_grads(&t.m, step);
            double norm = norm_of_grads(&t.m) / scales[i];
            double coef = norm > 10 ? 10 / norm : 1;
            muon_result result = model_step(&t.m);
            testlib_assert_error(fabs(result.grad_norm / norm - 1), 1e-12, "grad_norm");
            double multiplier = coef / scales[i];
            trio_follow(&t, (double[]){multiplier, multiplier, multiplier});
        }
        trio_check(&t, model_text("grad_scale %g", scales[i]));
        trio_destroy(&t);
    }
}

TEST(a_loss_scale_that_is_a_power_of_two_changes_no_bit)
{
    model plain, scaled;
    model *both[] = {&plain, &scaled};
    for (int i = 0; i < 2; i++) {
        model_init(both[i]);
        model_add(both[i], MUONS, "w", NULL, SHAPE(20, 30));
        model_add(both[i], ADAMWS, "b", NULL, SHAPE(77));
        model_create(both[i]);
    }
    for (int step = 1; step <= 3; step++) {
        double scale = ldexp(1, 7 * step); /* may change at every step */
        ship_fill_grads(&plain, step);
        ship_fill_grads(&scaled, step);
        for (size_t p = 0; p < 2; p++)
            for (int64_t i = 0; i < fleet_numel(&scaled.params[p]); i++)
                model_set_grad(&scaled, p, i, (float)scale * model_grad(&plain, p, i));
        scaled.args.grad_scale = scale;
        muon_result a = model_step(&plain), b = model_step(&scaled);
        testlib_assert_error(fabs(a.grad_norm / b.grad_norm - 1), 1e-12, "grad_norm");
    }
    model_assert_equal(&plain, &scaled, "loss scale");
    model_destroy(&plain);
    model_destroy(&scaled);
}

/* ---- settings between steps ----------------------------------------------------------------- */

/* R9 */
TEST(settings_of_every_group_apply_from_the_next_step_on)
{
    static const double custom[][3] = {{2.5, -2, 0.6}};
    trio t;
    model_init(&t.m);
    trio_create(&t);
    for (int step = 1; step <= 6; step++) {
        for (size_t i = 0; i < FLEET_GROUPS; i++) {
            muon_group *group = &t.m.groups[i];
            group->lr = 1e-2 / (step + (int)i);
            group->weight_decay = 0.3 * step;
            group->momentum = step % 3 * 0.4;
            group->nesterov = step % 2;
            group->momentum_form = (muon_momentum_form)(step / 3 % 2);
            group->lr_mode = (muon_lr_mode)(step % 5);
            group->lr_scale = 1 + 0.1 * step;
            group->coefficients = (muon_coefficients)((step + (int)i) % 6);
            group->custom = custom;
            group->ncustom = 1;
            group->ns_steps = step;
            group->algorithm = (muon_algorithm)(step % 4);
            group->beta1 = 0.8 + 0.01 * step;
            group->beta2 = 0.9 + 0.01 * step;
            group->adam_eps = 1e-3 * step;
            group->adam_eps_mode = (muon_adam_eps)(step % 2);
            group->decay_form = (muon_decay_form)(step % 4);
            group->cautious_decay = step % 4 == 3;
            group->bias_correction = step == 4;
            assert_ok(muon_opt_set_group(t.m.opt, i, group));
        }
        assert_ok(muon_opt_set_lr(t.m.opt, ADAMWS, t.m.groups[ADAMWS].lr = 0.02 * step));
        assert_ok(muon_opt_set_lr(t.m.opt, MUONS, t.m.groups[MUONS].lr = 0.01 * step));
        ship_fill_grads(&t.m, step);
        model_step(&t.m);
        trio_follow(&t, (double[]){1, 1, 1});
        trio_check(&t, model_text("step %d", step));
    }
    trio_destroy(&t);
}

TEST(a_group_reads_back_as_it_was_set)
{
    double custom[][3] = {{2, -1.5, 0.5}, {1.5, -0.5, 0}};
    char name[] = "renamed";
    trio t;
    model_init(&t.m);
    trio_create(&t);
    muon_group want = t.m.groups[MUONS], got;
    want.lr = 0.125;
    want.name = name;
    want.coefficients = MUON_COEFFICIENTS_CUSTOM;
    want.custom = (const double(*)[3])custom;
    want.ncustom = 2;
    assert_ok(muon_opt_set_group(t.m.opt, MUONS, &want));
    memset(name, 'x', 3); /* what the caller passed is copied */
    custom[0][0] = 99;
    muon_group_init(&got, sizeof got);
    assert_ok(muon_opt_get_group(t.m.opt, MUONS, &got));
    assert_string_equal(got.name, "renamed");
    assert_true(got.lr == 0.125 && got.ncustom == 2 && got.custom[0][0] == 2 &&
                got.custom[1][1] == -0.5);
    assert_ok(muon_opt_set_group(t.m.opt, MUONS, &got)); /* its own borrowed pointers, back again */
    assert_ok(muon_opt_get_group(t.m.opt, MUONS, &got));
    assert_string_equal(got.name, "renamed");
    assert_true(got.custom[0][0] == 2);
    muon_group_init(&got, sizeof got);
    assert_ok(muon_opt_get_group(t.m.opt, OTHERS, &got)); /* the others are as they were */
    assert_true(got.lr == 0.05 && got.coefficients == MUON_COEFFICIENTS_YOU);
    trio_destroy(&t);
}

/* ---- state ---------------------------------------------------------------------------------- */

/* N15: an EMA buffer is a heavy-ball buffer times 1 - mu. */
TEST(a_momentum_buffer_can_be_carried_from_ema_to_heavy_ball)
{
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        model ema, heavy;
        model *both[] = {&ema, &heavy};
        for (int i = 0; i < 2; i++) {
            model_init(both[i]);
            both[i]->groups[MUONS].nesterov = nesterov;
            both[i]->groups[MUONS].momentum_form = i ? MUON_HEAVY_BALL : MUON_EMA;
            model_add(both[i], MUONS, "w", NULL, SHAPE(24, 31));
            model_create(both[i]);
        }
        model_run(&ema, 5);
        memcpy(heavy.buffers[0].param, ema.buffers[0].param, 24 * 31 * sizeof(float));
        const float *from = model_state(&ema, "w.momentum_buffer").data;
        float *to = model_state(&heavy, "w.momentum_buffer").data;
        double largest = 0;
        for (int64_t i = 0; i < 24 * 31; i++)
            to[i] = (float)((double)from[i] / (1 - 0.95));
        ship_fill_grads(&ema, 6);
        ship_fill_grads(&heavy, 6);
        model_step(&ema);
        model_step(&heavy);
        for (int64_t i = 0; i < 24 * 31; i++)
            largest = fmax(largest, fabs((double)model_weight(&ema, 0, i) -
                                         (double)model_weight(&heavy, 0, i)));
        testlib_assert_error(largest, 1e-6, "nesterov %d: weights after the change", nesterov);
        model_destroy(&ema);
        model_destroy(&heavy);
    }
}

TEST(an_optimizer_resumes_from_state_with_the_same_bits)
{
    trio first, second;
    model_init(&first.m);
    model_init(&second.m);
    trio_create(&first);
    trio_create(&second);
    model_run(&first.m, 3);
    for (size_t p = 0; p < 3; p++)
        memcpy(second.m.buffers[p].param, first.m.buffers[p].param,
               (size_t)fleet_numel(&first.m.params[p]) * sizeof(float));
    for (size_t i = 0; i < muon_state_count(first.m.opt); i++) {
        muon_tensor from, to;
        assert_ok(muon_state_get(first.m.opt, i, &from, sizeof from));
        assert_ok(muon_state_get(second.m.opt, i, &to, sizeof to));
        assert_string_equal(from.name, to.name);
        assert_int_equal(from.bytes, to.bytes);
        memcpy(to.data, from.data, from.bytes);
    }
    for (int step = 4; step <= 5; step++) {
        ship_fill_grads(&first.m, step);
        ship_fill_grads(&second.m, step);
        model_step(&first.m);
        model_step(&second.m);
    }
    model_assert_equal(&first.m, &second.m, "resumed");
    trio_destroy(&first);
    trio_destroy(&second);
}

/* ---- parameters that do not move ------------------------------------------------------------ */

TEST(a_parameter_without_gradient_stays_and_the_others_do_not_notice)
{
    for (size_t missing = 0; missing < 3; missing++) {
        trio with, without;
        trio *both[] = {&with, &without};
        for (int i = 0; i < 2; i++) {
            model_init(&both[i]->m);
            both[i]->m.config.missing_grad = MUON_MISSING_GRAD_SKIP;
            trio_create(both[i]);
            model_run(&both[i]->m, 2);
        }
        model *m = &without.m;
        m->buffers[missing].grad = NULL;
        double norm = norm_of_grads(m);
        muon_result result = model_step(m);
        model_step(&with.m);
        assert_int_equal(result.applied, 1);
        assert_int_equal(result.missing_params, 1);
        assert_int_equal(result.matrices, missing < 2 ? 1 : 2);
        testlib_assert_error(fabs(result.grad_norm / norm - 1), 1e-12, "norm of what there is");
        for (size_t p = 0; p < 3; p++) {
            size_t bytes = (size_t)fleet_numel(&m->params[p]) * sizeof(float);
            const void *stepped = with.m.buffers[p].param;
            if (p != missing)
                assert_memory_equal(m->buffers[p].param, stepped, bytes);
            else
                assert_memory_not_equal(m->buffers[p].param, stepped, bytes);
            muon_tensor counter = model_state(m, model_text("%s.step", m->params[p].name));
            assert_int_equal(*(int64_t *)counter.data, p == missing ? 2 : 3);
        }
        for (size_t p = 0; p < 3; p++)
            m->buffers[p].grad = NULL; /* none at all */
        unsigned char *before = model_snapshot(m);
        result = model_step(m);
        assert_true(result.applied && result.missing_params == 3 && result.grad_norm == 0);
        model_assert_same(m, before, "a step without gradients");
        free(before);
        trio_destroy(&with);
        trio_destroy(&without);
    }
}

TEST(frozen_parameters_are_never_touched_and_may_have_no_memory)
{
    model m;
    model_init(&m);
    model_add(&m, MUONS, "w", NULL, SHAPE(8, 8));
    model_add(&m, FROZEN, "table", NULL, SHAPE(40, 3));
    model_add(&m, FROZEN, "absent", NULL, SHAPE(1000))->dtype = MUON_BF16;
    model_create(&m);
    float before[120];
    memcpy(before, m.buffers[1].param, sizeof before);
    free(m.buffers[2].param);
    m.buffers[2].param = NULL;
    model_run(&m, 2);
    assert_memory_equal(m.buffers[1].param, before, sizeof before);
    assert_int_equal(muon_state_count(m.opt), 2); /* of w only */
    model_destroy(&m);
}
