/* Agreement in a step: one reduction in which everything has its place, and the same words about
 * trouble on every rank. */
#include "muon/plan.h"
#include "tests/step/agree_model.h"
#include "tests/world/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int sizes[] = {1, 2, 3, 5, 8, 17};

typedef struct stepper {
    model m;
    muon_plan *plan;
    agree questions;
    step_agree *a;
    unsigned char flags[NPARAMS];
    step_setting settings[2];
    step_word word;
} stepper;

static muon_status open_stepper(stepper *s, const muon_comm *comm)
{
    TRY(muon__agree_open(&s->questions, comm, CHANNEL_AGREE, s->m.config.timeout));
    return muon__step_agree_create(&s->a, comm, s->plan, 1, &s->questions);
}

static void start_stepper(stepper *s, const muon_comm *comm)
{
    memset(s, 0, sizeof *s);
    init_model(&s->m, comm ? comm->size : 1);
    rank_ok(muon_plan_create(&s->plan, &s->m.config, s->m.params, s->m.nparams));
    rank_ok(open_stepper(s, comm));
    s->settings[0] = (step_setting){"grad_scale", 1};
    s->settings[1] = (step_setting){"clip_norm", 0.5};
}

/* A word that all ranks could say. */
static void fresh_word(stepper *s)
{
    memset(s->flags, AGREE_PRESENT, sizeof s->flags);
    s->word = (step_word){.settings = 77,
                          .named = s->settings,
                          .nnamed = 2,
                          .groups = s->plan->groups,
                          .flags = s->flags};
}

static void end_stepper(stepper *s)
{
    muon__step_agree_destroy(s->a);
    muon__agree_close(&s->questions);
    muon_plan_destroy(s->plan);
}

/* Does a rank have logits to give? */
static int gives(int rank)
{
    return rank % 2 == 0 && rank % 3 != 2;
}

static int highest_giver(int n)
{
    int rank = n - 1;
    while (!gives(rank))
        rank--;
    return rank;
}

/* Rank r brings the squares of r + 1, flags of its own, and logits of one layer or none. */
static void merge(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    int n = comm->size;
    stepper s;
    start_stepper(&s, comm);
    for (int round = 0; round < 3; round++) {
        fresh_word(&s);
        float x = (float)(rank + 1);
        muon__sumsq_add_f32(&s.word.sum, &x, 1);
        s.word.want_result = rank == n - 1 && round == 1;
        memset(s.flags, 0, sizeof s.flags);
        s.flags[0] = AGREE_PRESENT;
        if (rank == 0) s.flags[1] = AGREE_ABSENT;
        if (rank == n - 1) s.flags[2] = AGREE_PRESENT | AGREE_NONFINITE;
        int highest = highest_giver(n);
        float logits[HEADS] = {(float)(rank + round), rank == highest ? -3.0F : NAN,
                               rank == 0 && n > 1 ? -50.0F : INFINITY, NAN};
        const float *given[2] = {logits, NULL};
        const float *none[2] = {NULL, NULL};
        s.word.max_logits = rank % 3 == 2 ? NULL : gives(rank) ? given : none;
        rank_ok(muon__agree_step(s.a, MUON_OK, &s.word));

        sumsq want = {0};
        for (int r = 0; r < n; r++) {
            float y = (float)(r + 1);
            muon__sumsq_add_f32(&want, &y, 1);
        }
        rank_check(muon__sumsq_value(&s.word.sum) == muon__sumsq_value(&want), "sum is %g, want %g",
                   muon__sumsq_value(&s.word.sum), muon__sumsq_value(&want));
        rank_check(s.word.want_result == (round == 1), "want_result is %d in round %d",
                   s.word.want_result, round);
        rank_check(s.flags[0] == AGREE_PRESENT && s.flags[1] == AGREE_ABSENT &&
                       s.flags[2] == (AGREE_PRESENT | AGREE_NONFINITE) && s.flags[3] == 0,
                   "flags are %d %d %d %d", s.flags[0], s.flags[1], s.flags[2], s.flags[3]);
        const float *agreed = s.word.agreed_logits[0];
        rank_check(agreed, "nobody gave the layer");
        rank_check(!s.word.agreed_logits[1], "somebody gave the other layer");
        rank_check(agreed[0] == (float)(highest + round), "logit 0 is %g, want %d",
                   (double)agreed[0], highest + round);
        rank_check(agreed[1] == -3.0F, "logit 1 is %g, want -3", (double)agreed[1]);
        rank_check(n > 1 ? agreed[2] == -50.0F : isnan(agreed[2]), "logit 2 is %g",
                   (double)agreed[2]);
        rank_check(isnan(agreed[3]), "logit 3 is %g, want NaN", (double)agreed[3]);
    }
    end_stepper(&s);
}

TEST(words_become_one)
{
    for (size_t i = 0; i < COUNT(sizes); i++)
        ranks_run(sizes[i], merge, NULL);
}

TEST(without_a_communicator_the_word_is_its_own)
{
    model m;
    init_model(&m, 1);
    muon_plan *plan = NULL;
    assert_ok(muon_plan_create(&plan, &m.config, m.params, m.nparams));
    agree questions = {0};
    step_agree *a = NULL;
    assert_ok(muon__agree_open(&questions, NULL, CHANNEL_AGREE, 1));
    assert_ok(muon__step_agree_create(&a, NULL, plan, 1, &questions));
    unsigned char flags[NPARAMS] = {AGREE_PRESENT, AGREE_ABSENT, 0, AGREE_PRESENT};
    float logits[HEADS] = {1, INFINITY, -2, NAN};
    const float *given[2] = {NULL, logits};
    step_word word = {.groups = plan->groups, .flags = flags, .max_logits = given};
    assert_ok(muon__agree_step(a, MUON_OK, &word));
    assert_int_equal(flags[1], AGREE_ABSENT);
    assert_null(word.agreed_logits[0]);
    assert_true(word.agreed_logits[1][0] == 1.0F && isnan(word.agreed_logits[1][1]) &&
                word.agreed_logits[1][2] == -2.0F && isnan(word.agreed_logits[1][3]));
    muon__fail(MUON_E_GRAD, "param 'embed': no gradient");
    assert_int_equal(muon__agree_step(a, MUON_E_GRAD, &word), MUON_E_GRAD);
    assert_string_equal(muon_last_error(), "param 'embed': no gradient");
    muon__step_agree_destroy(a);
    muon__step_agree_destroy(NULL);
    muon__agree_close(&questions);
    muon_plan_destroy(plan);
}

/* ---- What goes wrong in a step; the step after it goes on. */

typedef struct trouble {
    void (*change)(stepper *s, int rank, muon_status *status);
    muon_status want;
    const char *text;
} trouble;

static void get_into_trouble(int rank, const muon_comm *comm, void *arg)
{
    const trouble *t = arg;
    stepper s;
    start_stepper(&s, comm);
    for (int round = 0; round < 3; round++) {
        fresh_word(&s);
        muon_status status = MUON_OK;
        if (round != 1) {
            rank_ok(muon__agree_step(s.a, status, &s.word));
            continue;
        }
        muon_group kept = s.plan->groups[0];
        t->change(&s, rank, &status);
        unsigned char flags[NPARAMS];
        memcpy(flags, s.flags, sizeof flags);
        status = muon__agree_step(s.a, status, &s.word);
        rank_check(status == t->want, "got %s, want %s: %s", muon_status_name(status),
                   muon_status_name(t->want), muon_last_error());
        rank_check(strcmp(muon_last_error(), t->text) == 0, "said \"%s\"\n  want \"%s\"",
                   muon_last_error(), t->text);
        rank_check(memcmp(flags, s.flags, sizeof flags) == 0 && !s.word.agreed_logits,
                   "the word was changed");
        s.plan->groups[0] = kept;
        s.settings[1].value = 0.5;
    }
    end_stepper(&s);
}

static void step_fails(stepper *s, int rank, muon_status *status)
{
    (void)s;
    if (rank == 3 || rank == 2)
        *status = muon__fail(MUON_E_ALIAS, "param 'embed': weight and gradient overlap (%d)", rank);
}

static void step_lr(stepper *s, int rank, muon_status *status)
{
    (void)status;
    if (rank == 2) s->plan->groups[0].lr = 0.03;
    if (rank == 3) s->plan->groups[0].momentum = 0.5;
}

static void step_settings(stepper *s, int rank, muon_status *status)
{
    (void)status;
    if (rank < 3) return;
    s->word.settings = 78;
    s->settings[1].value = 0.75;
}

static void step_unnamed(stepper *s, int rank, muon_status *status)
{
    (void)status;
    s->word.nnamed = 0;
    if (rank == 4) s->word.settings = 78;
}

static void step_gradient(stepper *s, int rank, muon_status *status)
{
    (void)status;
    s->flags[1] = rank < 2 ? 0 : rank == 4 ? AGREE_PRESENT : AGREE_ABSENT;
    s->flags[3] = rank == 0 ? AGREE_ABSENT : AGREE_PRESENT;
}

static void step_fails_and_differs(stepper *s, int rank, muon_status *status)
{
    step_lr(s, rank, status);
    step_gradient(s, rank, status);
    if (rank == 4) *status = muon__fail(MUON_E_ARG, "buffers is NULL");
}

TEST(trouble_in_a_step_is_the_same_everywhere)
{
    static const trouble cases[] = {
        {step_fails, MUON_E_ALIAS, "rank 2: param 'embed': weight and gradient overlap (2)"},
        {step_lr, MUON_E_DISAGREE, "group 'muon': lr is 0.02 on rank 0, 0.03 on rank 2"},
        {step_settings, MUON_E_DISAGREE, "muon_step: clip_norm is 0.5 on rank 0, 0.75 on rank 3"},
        {step_unnamed, MUON_E_DISAGREE, "muon_step differs between ranks 0 and 4"},
        {step_gradient, MUON_E_GRAD, "param 'h.0.wk': rank 4 has a gradient, rank 2 has none"},
        {step_fails_and_differs, MUON_E_ARG, "rank 4: buffers is NULL"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        trouble t = cases[i];
        ranks_run(5, get_into_trouble, &t);
    }
}

/* ---- Cost */

enum { STEPS = 1000 };

static void step_often(int rank, const muon_comm *comm, void *arg)
{
    int64_t *allocated = arg;
    stepper s;
    start_stepper(&s, comm);
    sumsq class_sum[8] = {0};
    rank_check(s.plan->nclasses <= 8, "%zu classes", s.plan->nclasses);
    ranks_barrier();
    int64_t before = testlib_allocations();
    ranks_barrier();
    for (int i = 0; i < STEPS; i++) {
        fresh_word(&s);
        rank_ok(muon__agree_step(s.a, MUON_OK, &s.word));
    }
    ranks_barrier();
    if (rank == 0) *allocated = testlib_allocations() - before;
    ranks_barrier();
    /* Trouble costs messages, but no memory either. */
    before = testlib_allocations();
    ranks_barrier();
    fresh_word(&s);
    if (rank == 1) s.flags[0] = AGREE_ABSENT;
    rank_fails(muon__agree_step(s.a, MUON_OK, &s.word), MUON_E_GRAD, "param 'h.0.wq'");
    step_sums sums = {.class_sum = class_sum};
    rank_ok(muon__agree_end(s.a, MUON_OK, &sums));
    ranks_barrier();
    if (rank == 0) *allocated += testlib_allocations() - before;
    ranks_barrier();
    end_stepper(&s);
}

TEST(a_step_is_one_reduction_and_allocates_nothing)
{
    enum { RANKS = 5 };
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, RANKS));
    int64_t allocated = -1;
    ranks_run_in(world, RANKS, step_often, &allocated);
    assert_int_equal(allocated, 0);
    int64_t messages = 0;
    for (int rank = 0; rank < RANKS; rank++)
        messages += muon__threads_count(world, rank).messages;
    assert_int_equal(messages,
                     (STEPS + 3) * 4 * (RANKS - 1)); /* and trouble, its question, the end */
    muon__threads_destroy(world);
}

static void interleave(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    stepper s[2];
    start_stepper(&s[0], comm);
    start_stepper(&s[1], comm);
    for (int i = 0; i < 100; i++) {
        int k = i % 3 == 1;
        fresh_word(&s[k]);
        s[k].flags[2] = rank == i % comm->size ? AGREE_PRESENT : 0;
        rank_ok(muon__agree_step(s[k].a, MUON_OK, &s[k].word));
        rank_check(s[k].flags[2] == AGREE_PRESENT, "step %d: flag is %d", i, s[k].flags[2]);
    }
    end_stepper(&s[0]);
    end_stepper(&s[1]);
}

TEST(two_optimizers_share_a_communicator)
{
    ranks_run(3, interleave, NULL);
}

/* ---- The end of a step */

static void add_up(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    int n = comm->size;
    stepper s;
    start_stepper(&s, comm);
    sumsq class_sum[8] = {0};
    float x = (float)(rank + 1);
    muon__sumsq_add_f32(&class_sum[1], &x, 1);
    step_sums sums = {.nonfinite_matrices = rank == 0,
                      .matrices = rank + 1,
                      .class_sum = class_sum,
                      .seconds = 10 + rank};
    sums.phase[MUON_PHASE_GATHER] = n - rank;
    rank_ok(muon__agree_end(s.a, MUON_OK, &sums));
    rank_check(sums.nonfinite_matrices == 1 && sums.matrices == n * (n + 1) / 2,
               "%lld matrices, %lld not finite", (long long)sums.matrices,
               (long long)sums.nonfinite_matrices);
    double squares = (double)n * (n + 1) * (2 * n + 1) / 6;
    rank_check(muon__sumsq_value(&class_sum[0]) == 0 && muon__sumsq_value(&class_sum[1]) == squares,
               "sums are %g and %g, want 0 and %g", muon__sumsq_value(&class_sum[0]),
               muon__sumsq_value(&class_sum[1]), squares);
    rank_check(sums.seconds == 10 + rank && sums.seconds_max == 9 + n && sums.seconds_min == 10,
               "seconds are %g: %g..%g", sums.seconds, sums.seconds_min, sums.seconds_max);
    rank_check(sums.phase_max[MUON_PHASE_GATHER] == n && sums.phase_min[MUON_PHASE_GATHER] == 1 &&
                   sums.phase_max[MUON_PHASE_ORTHO] == 0,
               "gather took %g..%g", sums.phase_min[MUON_PHASE_GATHER],
               sums.phase_max[MUON_PHASE_GATHER]);
    muon_status status = MUON_OK;
    if (rank == n - 1) status = muon__fail(MUON_E_CALLBACK, "orthogonalize returned 3");
    if (n > 1) {
        char want[64];
        snprintf(want, sizeof want, "rank %d: orthogonalize returned 3", n - 1);
        rank_fails(muon__agree_end(s.a, status, &sums), MUON_E_CALLBACK, want);
    } else {
        rank_fails(muon__agree_end(s.a, status, &sums), MUON_E_CALLBACK,
                   "orthogonalize returned 3");
    }
    end_stepper(&s);
}

TEST(the_end_of_a_step_adds_up)
{
    for (size_t i = 0; i < COUNT(sizes); i++)
        ranks_run(sizes[i], add_up, NULL);
}

/* ---- Who does not come, and who has no memory */

static void stay_away(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    stepper s;
    memset(&s, 0, sizeof s);
    init_model(&s.m, comm->size);
    s.m.config.timeout = 0.5;
    rank_ok(muon_plan_create(&s.plan, &s.m.config, s.m.params, s.m.nparams));
    rank_ok(open_stepper(&s, comm));
    ranks_barrier();
    fresh_word(&s);
    if (rank != 3) {
        rank_fails(muon__agree_step(s.a, MUON_OK, &s.word), MUON_E_TIMEOUT,
                   "rank 3 did not reach muon_step within 0.5 s");
        rank_fails(muon__agree_step(s.a, MUON_OK, &s.word), MUON_E_COMM, "lost the others");
        rank_fails(ask_status(comm, 0.5, MUON_OK), MUON_E_TIMEOUT,
                   "rank 3 did not reach muon_create within 0.5 s");
    }
    end_stepper(&s);
}

TEST(a_rank_that_stays_away_is_named)
{
    ranks_run(5, stay_away, NULL);
}

TEST(memory_that_runs_out_leaves_nothing_behind)
{
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, 3));
    model m;
    init_model(&m, 3);
    muon_plan *plan = NULL;
    assert_ok(muon_plan_create(&plan, &m.config, m.params, m.nparams));
    for (int64_t k = 0;; k++) {
        stepper s = {.m = m, .plan = plan};
        testlib_allow_allocations(k);
        muon_status status = open_stepper(&s, muon__threads_comm(world, 0));
        testlib_allow_allocations(-1);
        muon__step_agree_destroy(s.a);
        muon__agree_close(&s.questions);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        assert_true(k < 60);
    }
    muon_plan_destroy(plan);
    muon__threads_destroy(world);
}

/* One rank cannot create its part; the others hear of it from the agreement that follows. */
static void one_has_no_memory(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    stepper s;
    memset(&s, 0, sizeof s);
    init_model(&s.m, comm->size);
    rank_ok(muon_plan_create(&s.plan, &s.m.config, s.m.params, s.m.nparams));
    muon_status status = MUON_OK;
    for (int turn = 0; turn < comm->size; turn++) { /* allocations are counted for all threads */
        ranks_barrier();
        if (turn != rank) continue;
        testlib_allow_allocations(rank == 1 ? 4 : -1);
        status = open_stepper(&s, comm);
        testlib_allow_allocations(-1);
    }
    ranks_barrier();
    rank_check((rank == 1) == (status == MUON_E_NOMEM), "got %s", muon_status_name(status));
    rank_fails(ask_status(comm, PATIENT, status), MUON_E_NOMEM, "rank 1: ");
    end_stepper(&s);
}

TEST(a_rank_without_memory_is_heard)
{
    ranks_run(3, one_has_no_memory, NULL);
}
