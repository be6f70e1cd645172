/* test_step_callbacks.c - the caller's own orthogonalizer, news about gradients, and the log. */
#include "muon/plan.h"
#include "tests/world/model.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ZOO = 4 };

static void init_zoo(model *m)
{
    model_init(m);
    model_add(m, MUONS, "dense", NULL, SHAPE(20, 30));
    model_add(m, ADAMWS, "bias", NULL, SHAPE(33));
    model_add(m, MUONS, "blocks", "rows 3*[4, 2], skip 2; cols 5, 4", SHAPE(20, 9));
    model_add(m, MUONS, "experts", "batch 1", SHAPE(3, 16, 20));
}

/* ---- orthogonalize ---------------------------------------------------------------------------- */

typedef struct caller {
    pthread_t thread;
    int calls, fail_at;
    int64_t elements;
} caller;

/* The library's own orthogonalization, called from outside. */
static int by_hand(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    caller *c = user;
    assert_true(pthread_equal(pthread_self(), c->thread));
    assert_true(ld >= cols);
    if (++c->calls == c->fail_at) return 42;
    c->elements += rows * cols;
    float *dense = malloc((size_t)(rows * cols) * sizeof *dense);
    assert_non_null(dense);
    for (int64_t i = 0; i < rows; i++)
        memcpy(dense + i * cols, x + i * ld, (size_t)cols * sizeof *x);
    muon_ortho *ortho = NULL;
    assert_ok(muon_ortho_create(&ortho, 1, rows, cols, NULL, 1, NULL));
    assert_ok(muon_ortho_run(ortho, dense, dense));
    muon_ortho_destroy(ortho);
    for (int64_t i = 0; i < rows; i++)
        memcpy(x + i * ld, dense + i * cols, (size_t)cols * sizeof *x);
    free(dense);
    return 0;
}

TEST(a_callback_sees_every_matrix_once_and_decides_the_update)
{
    for (int threads = 1; threads <= 3; threads++) {
        caller c = {.thread = pthread_self()};
        model with, without;
        init_zoo(&with);
        init_zoo(&without);
        with.config.threads = threads;
        with.config.orthogonalize = by_hand;
        with.config.user = &c;
        model_create(&with);
        model_create(&without);
        muon_result result = model_run(&with, 3);
        model_run(&without, 3);
        assert_int_equal(result.matrices, 1 + 4 + 3);
        assert_int_equal(c.calls, 3 * 8);
        assert_int_equal(c.elements, 3 * (600 + 18 * 9 + 960));
        assert_true(result.phase[MUON_PHASE_ORTHO].flops == 0); /* not ours to count */
        model_assert_equal(&with, &without, "the same orthogonalization from outside");
        model_destroy(&with);
        model_destroy(&without);
    }
}

static int leave_as_it_is(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    (void)x, (void)rows, (void)cols, (void)ld;
    ++*(int *)user;
    return 0;
}

TEST(an_orthogonalizer_that_does_nothing_makes_momentum_descent)
{
    int calls = 0;
    model m;
    model_init(&m);
    m.config.orthogonalize = leave_as_it_is;
    m.config.user = &calls;
    m.groups[MUONS].lr = 0.5;
    m.groups[MUONS].lr_mode = MUON_LR_NONE;
    m.groups[MUONS].weight_decay = 0;
    m.groups[MUONS].nesterov = 0;
    model_add(&m, MUONS, "w", NULL, SHAPE(6, 7));
    model_create(&m);
    float before[42];
    memcpy(before, m.buffers[0].param, sizeof before);
    model_step(&m);
    for (int64_t i = 0; i < 42; i++)
        assert_true(model_weight(&m, 0, i) == before[i] - 0.5f * model_grad(&m, 0, i));
    assert_int_equal(calls, 1);
    model_destroy(&m);
}

TEST(a_callback_never_sees_a_matrix_that_is_not_finite)
{
    int calls = 0;
    model m;
    model_init(&m);
    m.config.orthogonalize = leave_as_it_is;
    m.config.user = &calls;
    model_add(&m, MUONS, "w", "rows / 2", SHAPE(8, 5));
    model_create(&m);
    for (int64_t i = 20; i < 40; i++)
        model_set_grad(&m, 0, i, 3e38f);
    muon_result result = model_step(&m); /* U = G + mu M is too large for a float */
    assert_int_equal(result.nonfinite_matrices, 1);
    assert_int_equal(result.matrices, 2);
    assert_int_equal(calls, 1);
    assert_true(isfinite(result.update_rms));
    for (int64_t i = 0; i < 40; i++)
        assert_true(isfinite(model_weight(&m, 0, i)));
    model_destroy(&m);
}

static int make_nan(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    (void)cols, (void)ld;
    if (rows == *(int *)user) x[0] = (float)NAN;
    return 0;
}

TEST(a_nan_from_a_callback_does_not_reach_the_weights)
{
    int rows = 3;
    model m;
    model_init(&m);
    m.config.orthogonalize = make_nan;
    m.config.user = &rows;
    model_add(&m, MUONS, "w", "rows 3, 5", SHAPE(8, 5));
    model_create(&m);
    muon_result result = model_step(&m);
    assert_int_equal(result.nonfinite_matrices, 1);
    assert_true(isfinite(result.update_rms) && result.update_rms > 0);
    for (int64_t i = 0; i < 40; i++)
        assert_true(isfinite(model_weight(&m, 0, i)));
    model_destroy(&m);
}

TEST(a_callback_that_fails_ends_the_step_and_the_optimizer)
{
    for (int fail_at = 1; fail_at <= 8; fail_at++) {
        caller c = {.thread = pthread_self(), .fail_at = fail_at};
        model m;
        init_zoo(&m);
        m.config.orthogonalize = by_hand;
        m.config.user = &c;
        model_create(&m);
        muon_result result;
        muon_result_init(&result, sizeof result);
        result.applied = 77;
        assert_fails(muon_step(m.opt, &m.args, &result), MUON_E_CALLBACK, "returned 42");
        assert_fails(muon_step(m.opt, &m.args, &result), MUON_E_BROKEN, "destroy");
        assert_int_equal(result.applied, 77); /* outputs are written on success only */
        assert_int_equal(c.calls, fail_at);
        model_destroy(&m);
    }
}

TEST(a_failed_callback_names_the_parameter_and_the_shape)
{
    caller c = {.thread = pthread_self(), .fail_at = 1};
    model m;
    model_init(&m);
    m.config.orthogonalize = by_hand;
    m.config.user = &c;
    model_add(&m, MUONS, "tall", NULL, SHAPE(12, 5));
    model_create(&m);
    assert_fails(muon_step(m.opt, &m.args, NULL), MUON_E_CALLBACK, "param 'tall'");
    assert_non_null(strstr(muon_last_error(), "12 x 5"));
    model_destroy(&m);
}

/* ---- grad_consumed ---------------------------------------------------------------------------- */

typedef struct consumer {
    model *m;
    int times[ZOO];
} consumer;

/* Whoever reads the gradient after this reads NaN. */
static void spoil(void *user, size_t index)
{
    consumer *c = user;
    c->times[index]++;
    for (int64_t i = 0; i < fleet_numel(&c->m->params[index]); i++)
        model_set_grad(c->m, index, i, (float)NAN);
}

TEST(a_consumed_gradient_is_told_once_and_never_read_again)
{
    for (int i = 0; i < 4; i++) {
        model with, without;
        consumer c = {.m = &with};
        init_zoo(&with);
        init_zoo(&without);
        with.config.threads = i % 2 ? 2 : 1;
        if (i / 2) with.config.workspace_budget = model_least_budget(&with);
        with.config.clip_norm = without.config.clip_norm = 1;
        with.config.missing_grad = without.config.missing_grad = MUON_MISSING_GRAD_SKIP;
        with.config.grad_consumed = spoil;
        with.config.user = &c;
        model_create(&with);
        model_create(&without);
        muon_plan_cost cost;
        assert_ok(muon_plan_get_cost(muon_opt_get_plan(with.opt), &cost, sizeof cost));
        assert_int_equal(cost.waves, i / 2 ? 4 : 1); /* the experts are in three of them */
        model_run(&with, 2);
        model_run(&without, 2);
        for (int p = 0; p < ZOO; p++)
            assert_int_equal(c.times[p], 2);
        with.buffers[3].grad = without.buffers[3].grad = NULL; /* nothing to consume here */
        model_run(&with, 1);
        model_run(&without, 1);
        for (int p = 0; p < ZOO; p++)
            assert_int_equal(c.times[p], p == 3 ? 2 : 3);
        model_assert_equal(&with, &without, "spoiled after use");
        model_destroy(&with);
        model_destroy(&without);
    }
}

/* ---- log -------------------------------------------------------------------------------------- */

static void keep(void *user, muon_log_level level, const char *message)
{
    if (level == MUON_LOG_INFO) strncpy(user, message, 255);
}

TEST(creation_is_logged_with_what_was_made)
{
    char message[256] = "";
    model m;
    init_zoo(&m);
    m.config.log = keep;
    m.config.user = message;
    m.config.backend = "reference";
    model_create(&m);
    static const char *const parts[] = {"4 parameters", "8 matrices", "1 threads",
                                        "backend reference"};
    for (size_t i = 0; i < COUNT(parts); i++)
        if (!strstr(message, parts[i])) fail_msg("\"%s\" lacks \"%s\"", message, parts[i]);
    model_destroy(&m);
}
