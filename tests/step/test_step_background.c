/* test_step_background.c - steps beside the caller: the same bits, one at a time, and errors when they
 * are waited for. */
#include "tests/world/model.h"

#include <fenv.h>
#include <math.h>
#include <pthread.h>

static void init(model *m)
{
    model_init(m);
    model_add(m, MUONS, "dense", NULL, SHAPE(20, 30));
    model_add(m, MUONS, "experts", "batch 1", SHAPE(3, 16, 20));
    model_add(m, ADAMWS, "bias", NULL, SHAPE(33));
    m->config.background = 1;
}

TEST(a_step_beside_the_caller_has_the_bits_of_muon_step)
{
    for (int threads = 1; threads <= 3; threads++) {
        model beside, plain;
        init(&beside);
        init(&plain);
        beside.config.threads = threads;
        beside.config.clip_norm = plain.config.clip_norm = 1;
        plain.config.background = 0;
        model_create(&beside);
        model_create(&plain);
        for (int step = 1; step <= 4; step++) {
            muon_result want, got;
            muon_result_init(&got, sizeof got);
            ship_fill_grads(&beside, step);
            ship_fill_grads(&plain, step);
            assert_ok(muon_step_start(beside.opt, &beside.args, &got));
            want = model_step(&plain);
            assert_ok(muon_step_wait(beside.opt));
            assert_true(muon_step_is_done(beside.opt));
            assert_true(got.applied && got.grad_norm == want.grad_norm &&
                        got.update_rms == want.update_rms);
        }
        model_assert_equal(&beside, &plain, "beside the caller");
        model_destroy(&beside);
        model_destroy(&plain);
    }
}

/* ---- A step that is surely in flight */

/* A step stays in this callback until it is let go. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int entered, open, fail;
    int rounding; /* found there */
    pthread_t thread;
} gate;

#define GATE                                                                                       \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, pthread_self()            \
    }

static int pass(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    gate *g = user;
    (void)x, (void)rows, (void)cols, (void)ld;
    pthread_mutex_lock(&g->lock);
    g->entered = 1;
    g->rounding = fegetround();
    g->thread = pthread_self();
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return g->fail;
}

static void gate_wait(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->entered)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = 1;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void create_gated(model *m, gate *g)
{
    init(m);
    m->config.orthogonalize = pass;
    m->config.user = g;
    model_create(m);
}

TEST(while_a_step_is_in_flight_other_calls_are_refused)
{
    gate g = GATE;
    model m;
    create_gated(&m, &g);
    assert_ok(muon_step_start(m.opt, &m.args, NULL));
    gate_wait(&g);
    assert_false(muon_step_is_done(m.opt));
    muon_tensor tensor;
    muon_offload_info info;
    double norm;
    float data;
    const muon_status refused[] = {
        muon_step(m.opt, &m.args, NULL),
        muon_step_start(m.opt, &m.args, NULL),
        muon_grad_norm(m.opt, &m.args, &norm),
        muon_opt_check_replicas(m.opt, m.buffers),
        muon_opt_set_group(m.opt, 0, &m.groups[0]),
        muon_opt_set_lr(m.opt, 0, 1),
        muon_opt_set_clip_norm(m.opt, 1),
        muon_opt_set_skip_norm(m.opt, 1),
        muon_opt_set_qk_clip(m.opt, 1, 0),
        muon_opt_get_offload(m.opt, &info, sizeof info),
        muon_offload(m.opt, "/tmp", 1 << 20),
        muon_state_get(m.opt, 0, &tensor, sizeof tensor),
        muon_state_read(m.opt, 0, 0, 1, &data),
        muon_state_write(m.opt, 0, 0, 1, &data),
        muon_state_reset(m.opt, 0),
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i] != MUON_E_BUSY) fail_msg("call %zu: %s", i, muon_status_name(refused[i]));
    assert_string_equal(muon_last_error(),
                        "muon_state_reset: a step is in flight; call muon_step_wait first");
    gate_open(&g);
    assert_ok(muon_step_wait(m.opt));
    assert_ok(muon_opt_set_lr(m.opt, 0, 1));
    assert_ok(muon_step(m.opt, &m.args, NULL));
    model_destroy(&m);
}

TEST(errors_of_a_step_come_when_it_is_waited_for)
{
    gate g = GATE;
    model m;
    create_gated(&m, &g);
    muon_step_args bad = m.args;
    bad.grad_scale = 0;
    assert_ok(muon_step_start(m.opt, &bad, NULL));
    assert_fails(muon_step_wait(m.opt), MUON_E_VALUE, "muon_step: grad_scale is 0");
    g.fail = 42;
    g.open = 1;
    assert_ok(muon_step_start(m.opt, &m.args, NULL));
    assert_fails(muon_step_wait(m.opt), MUON_E_CALLBACK, "returned 42");
    assert_fails(muon_step_start(m.opt, &m.args, NULL), MUON_E_BROKEN, "failed half-way");
    model_destroy(&m);
}

TEST(destroying_waits_for_the_step)
{
    gate g = GATE;
    model m;
    create_gated(&m, &g);
    muon_result result;
    muon_result_init(&result, sizeof result);
    assert_ok(muon_step_start(m.opt, &m.args, &result));
    gate_wait(&g);
    gate_open(&g);
    muon_destroy(m.opt);
    assert_int_equal(result.applied, 1);
    m.opt = NULL;
    model_destroy(&m);
}

TEST(callbacks_run_in_another_thread_in_the_mode_that_the_caller_has)
{
    static const int modes[] = {FE_UPWARD, FE_TONEAREST, FE_DOWNWARD};
    gate g = GATE;
    g.open = 1;
    model m;
    create_gated(&m, &g);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        g.rounding = -1;
        fesetround(modes[i]);
        muon_status started = muon_step_start(m.opt, &m.args, NULL);
        int after = fegetround();
        fesetround(FE_TONEAREST);
        assert_ok(started);
        assert_ok(muon_step_wait(m.opt));
        assert_int_equal(after, modes[i]);
        assert_int_equal(g.rounding, modes[i]);
        assert_false(pthread_equal(g.thread, pthread_self()));
    }
    model_destroy(&m);
}

TEST(wrong_use_is_explained)
{
    model m;
    init(&m);
    m.config.background = 0;
    model_create(&m);
    assert_fails(muon_step_start(m.opt, &m.args, NULL), MUON_E_ARG,
                 "created without config.background");
    assert_fails(muon_step_wait(m.opt), MUON_E_ARG, "no step is in flight");
    assert_fails(muon_step_start(NULL, &m.args, NULL), MUON_E_ARG, "opt must not be NULL");
    assert_fails(muon_step_wait(NULL), MUON_E_ARG, "opt must not be NULL");
    assert_true(muon_step_is_done(m.opt) && muon_step_is_done(NULL));
    model_destroy(&m);
    init(&m);
    m.config.background = 2;
    model_allocate(&m);
    assert_fails(muon_create(&m.opt, &m.config, m.params, m.nparams), MUON_E_VALUE,
                 "background is 2, must be 0 or 1");
    model_destroy(&m);
}

/* ---- Many ranks */

enum { RANKS = 3 };

static void make(fleet *f)
{
    fleet_fsdp(f, RANKS);
    fleet_add(f, MUONS, "dense", NULL, "0: fsdp", SHAPE(10, 6));
    fleet_add(f, MUONS, "whole", NULL, NULL, SHAPE(5, 7));
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(9));
    f->config.background = 1;
}

TEST(ranks_step_beside_their_callers_with_the_bits_of_one_process)
{
    for (int path = 0; path < 2; path++) {
        fleet f;
        make(&f);
        f.config.path = path ? MUON_PATH_REFERENCE : MUON_PATH_PIPELINE;
        fleet_check(&f, RANKS, 3);
    }
}

/* Some step beside their callers, some do not; one has a NaN. */
static void run_mixed(int rank, const muon_comm *comm, void *arg)
{
    fleet f;
    ship s;
    (void)arg;
    make(&f);
    f.config.background = rank != 1;
    rank_ok(ship_create(&s, &f, comm));
    ship_fill_grads(&s, 1);
    if (rank == 2) fleet_put(s.grads[2], MUON_F32, 0, (float)NAN);
    rank_ok(ship_step(&s));
    rank_check(!s.result.applied && s.result.skip == MUON_SKIP_NONFINITE_GRAD, "not skipped");
    s.args.grad_scale = rank == 2 ? 2 : 1;
    rank_fails(ship_step(&s), MUON_E_DISAGREE, "grad_scale is 1 on rank 0, 2 on rank 2");
    ship_destroy(&s);
}

TEST(each_rank_chooses_and_all_hear_the_same)
{
    ranks_run(RANKS, run_mixed, NULL);
}

static void run_with_one_thread(int rank, const muon_comm *comm, void *arg)
{
    fleet f;
    ship s;
    muon_comm narrow = *comm;
    (void)arg;
    make(&f);
    narrow.one_thread = rank == 1;
    rank_fails(
        ship_create(&s, &f, &narrow), MUON_E_ARG,
        "rank 1: background is 1, but the transport 'threads' may be called from one thread");
    ship_destroy(&s);
}

TEST(a_transport_of_one_thread_is_refused_on_all_ranks)
{
    ranks_run(RANKS, run_with_one_thread, NULL);
}
