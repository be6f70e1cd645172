/* State in the caller's memory: the same bits, taken as it is, moved between steps. */
#include "tests/step/offload_fleet.h"
#include "tests/world/zoo.h"

enum { RANKS = 4, STEPS = 5 };

/* Two rules, bf16 momentum, weights and copies, shards that are uneven or empty, replicas. */
static void every_kind(fleet *f)
{
    offload_fleet(f);
    f->config.threads = 2;
    f->bind = 1;
    fleet_add(f, MUONS, "few", NULL, "0: fsdp", SHAPE(1, 9));
    fleet_add(f, ADAMWS, "one", NULL, "0: fsdp", SHAPE(1));
}

static void assert_same(ship *s, const ship *want)
{
    const char *wrong = ship_compare(s, want);
    if (wrong) fail_msg("%s", wrong);
}

/* All of it is at these addresses. */
static int is_at(const ship *s, const muon_state_buffers *state)
{
    for (size_t i = 0; i < s->f->nparams; i++) {
        if (s->numel[i] && ship_state(s, i, "momentum_buffer").data != state[i].momentum) return 0;
        if (s->numel[i] && ship_state(s, i, "exp_avg").data != state[i].exp_avg) return 0;
        if (s->numel[i] && ship_state(s, i, "exp_avg_sq").data != state[i].exp_avg_sq) return 0;
        if (ship_state(s, i, "step").data != state[i].step) return 0;
    }
    return 1;
}

/* ---- Bits */

static void run_rank(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    (void)rank;
    ship s;
    rank_ok(ship_create(&s, t->f, comm));
    for (int step = 1; step <= t->steps; step++) {
        if (step % 2 == 0) rank_ok(ship_move_state(&s));
        rank_check(is_at(&s, s.state), "state is elsewhere");
        rank_ok(ship_run(&s, step, step));
    }
    rank_same(&s, t->whole);
    rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
    ship_destroy(&s);
}

TEST(bound_state_has_the_bits_of_unbound_state)
{
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        fleet bound, plain;
        every_kind(&bound);
        bound.config.path = (muon_path)path;
        plain = bound;
        plain.bind = 0;
        ship whole, here;
        fleet_run_whole(&whole, &plain, STEPS);
        assert_ok(ship_create(&here, &bound, NULL));
        for (int step = 1; step <= STEPS; step++) {
            assert_ok(ship_move_state(&here));
            assert_ok(ship_run(&here, step, step));
        }
        assert_same(&here, &whole);
        fleet_task t = {&bound, &whole, STEPS};
        ranks_run(RANKS, run_rank, &t);
        ship_destroy(&here);
        ship_destroy(&whole);
    }
}

typedef struct zoo_task {
    const zoo *z;
    const zoo_run *whole;
} zoo_task;

static void run_zoo(int rank, const muon_comm *comm, void *arg)
{
    const zoo_task *t = arg;
    (void)rank;
    const char *wrong = zoo_compare(t->z, comm, t->whole);
    rank_check(!wrong, "%s", wrong);
}

/* With missing gradients, and a step that is skipped. */
TEST(every_kind_of_tensor_has_the_bits_of_one_process)
{
    static const zoo_axes axes[] = {{1, 2, 1, 1}, {2, 2, 1, 1}, {1, 2, 2, 1}, {1, 3, 1, 2}};
    zoo z;
    zoo_init(&z);
    z.f.config.missing_grad = MUON_MISSING_GRAD_SKIP;
    z.skip_grads = 1;
    z.nan_step = 4;
    zoo_run *whole = NULL;
    const char *wrong = zoo_run_whole(&whole, &z);
    if (wrong) fail_msg("%s", wrong);
    z.f.bind = 1;
    for (size_t i = 0; i < COUNT(axes); i++) {
        zoo_lay_out(&z, axes[i]);
        zoo_task t = {&z, whole};
        ranks_run(axes[i].replicate * axes[i].fsdp * axes[i].ep * axes[i].tp, run_zoo, &t);
    }
    zoo_run_free(whole);
}

static void run_some_bound(int rank, const muon_comm *comm, void *arg)
{
    fleet_task t = *(const fleet_task *)arg;
    fleet mine = *t.f;
    ship s;
    mine.bind = rank % 2;
    rank_ok(ship_create(&s, &mine, comm));
    rank_ok(ship_run(&s, 1, t.steps));
    rank_same(&s, t.whole);
    rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
    ship_destroy(&s);
}

TEST(each_rank_binds_or_not_for_itself)
{
    fleet f;
    every_kind(&f);
    fleet_check_by(run_some_bound, &f, RANKS, STEPS);
}

/* ---- Contents */

/* The state of a ship, wherever it is. */
static void read_state(muon_state_buffers *to, const ship *s)
{
    state_allocate(to, s->f, muon_opt_get_plan(s->opt), s->rank);
    size_t k = 0;
    for (size_t i = 0; i < s->f->nparams; i++) {
        void *parts[] = {to[i].momentum, to[i].exp_avg, to[i].exp_avg_sq};
        for (size_t part = 0; part < COUNT(parts); part++)
            if (parts[part]) assert_ok(muon_state_read(s->opt, k++, 0, s->numel[i], parts[part]));
        if (to[i].step) assert_ok(muon_state_read(s->opt, k++, 0, 1, to[i].step));
    }
    assert_int_equal(k, muon_state_count(s->opt));
}

static void copy_weights(ship *to, const ship *from)
{
    for (size_t i = 0; i < to->f->nparams; i++)
        memcpy(to->buffers[i].param, from->buffers[i].param,
               (size_t)to->numel[i] * fleet_bytes(to->f->params[i].dtype));
}

/* A framework has restored its tensors before it makes an optimizer. */
TEST(what_is_in_the_memory_at_creation_is_the_state)
{
    fleet f;
    every_kind(&f);
    f.bind = 0;
    ship first, second, whole;
    fleet_run_whole(&whole, &f, STEPS);
    fleet_run_whole(&first, &f, 3);
    muon_state_buffers restored[FLEET_PARAMS];
    read_state(restored, &first);
    fleet bound = f;
    bound.config.state = restored;
    assert_ok(ship_create(&second, &bound, NULL));
    assert_true(is_at(&second, restored));
    copy_weights(&second, &first);
    assert_ok(ship_run(&second, 4, STEPS));
    assert_same(&second, &whole);
    ship_destroy(&first);
    ship_destroy(&second);
    ship_destroy(&whole);
    state_free(restored, &f);
}

/* An optimizer that has begun with memory of its own gives it up for the caller's, and the other way
 * round. What is in the caller's memory counts. */
TEST(state_goes_to_the_callers_memory_and_back_to_its_own)
{
    fleet f;
    every_kind(&f);
    f.bind = 0;
    ship s, whole;
    fleet_run_whole(&whole, &f, 4);
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 2));
    muon_state_buffers mine[FLEET_PARAMS];
    read_state(mine, &s);
    assert_ok(muon_state_bind(s.opt, mine));
    assert_true(is_at(&s, mine));
    assert_ok(ship_run(&s, 3, 3));
    assert_ok(muon_state_bind(s.opt, NULL));
    assert_false(is_at(&s, mine));
    state_free(mine, &f);
    assert_ok(muon_state_bind(s.opt, NULL)); /* it is there already */
    assert_ok(ship_run(&s, 4, 4));
    assert_same(&s, &whole);
    state_allocate(mine, &f, muon_opt_get_plan(s.opt), 0);
    assert_ok(muon_state_bind(s.opt, mine));
    assert_int_equal(*(int64_t *)ship_state(&s, 0, "step").data, 0);
    assert_ok(muon_state_bind(s.opt, NULL));
    for (size_t b = 0; b < ship_state(&s, 0, "momentum_buffer").bytes; b++)
        assert_int_equal(((char *)ship_state(&s, 0, "momentum_buffer").data)[b], 0);
    state_free(mine, &f);
    ship_destroy(&s);
    ship_destroy(&whole);
}

TEST(elements_are_read_written_and_reset_where_they_are)
{
    fleet f;
    every_kind(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 2));
    float value = 7, got = 0;
    assert_ok(muon_state_write(s.opt, 0, 5, 1, &value));
    assert_true(((float *)s.state[0].momentum)[5] == 7);
    ((float *)s.state[0].momentum)[5] = 8;
    assert_ok(muon_state_read(s.opt, 0, 5, 1, &got));
    assert_true(got == 8);
    assert_int_equal(*s.state[0].step, 2);
    assert_ok(muon_state_reset(s.opt, 0));
    assert_int_equal(*s.state[0].step, 0);
    for (int64_t i = 0; i < s.numel[0]; i++)
        assert_true(((float *)s.state[0].momentum)[i] == 0);
    ship_destroy(&s);
}

/* ---- Cost */

TEST(binding_and_stepping_allocate_nothing)
{
    fleet f;
    every_kind(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 1));
    muon_state_buffers other[FLEET_PARAMS];
    state_allocate(other, &f, muon_opt_get_plan(s.opt), 0);
    int64_t before = testlib_allocations();
    for (int k = 0; k < 4; k++) {
        assert_ok(muon_state_bind(s.opt, k % 2 ? s.state : other));
        assert_ok(muon_state_bind(s.opt, k % 2 ? s.state : other));
        assert_ok(ship_step(&s));
    }
    assert_int_equal(testlib_allocations(), before);
    state_free(other, &f);
    ship_destroy(&s);
}

/* ---- Ranks */

static void differ(int rank, const muon_comm *comm, void *arg)
{
    ship s;
    rank_ok(ship_create(&s, arg, comm));
    rank_ok(ship_run(&s, 1, 2));
    if (rank == 2) *s.state[3].step = 9;
    rank_fails(ship_run(&s, 3, 3), MUON_E_DISAGREE,
               "the sum of all step counters is 28 on rank 0, 35 on rank 2");
    if (rank == 2) *s.state[3].step = 2;
    rank_ok(ship_run(&s, 3, 3));
    ship_destroy(&s);
}

/* Restored on one rank and not on another: the ranks would drift apart. */
TEST(counters_that_differ_between_ranks_are_noticed)
{
    fleet f;
    every_kind(&f);
    ranks_run(RANKS, differ, &f);
}

/* One bit of a bound tensor, changed by its owner. */
static void drift(int rank, const muon_comm *comm, void *arg)
{
    static const char *const things[] = {"momentum_buffer", "exp_avg", "exp_avg_sq", "step"};
    const fleet *f = arg;
    ship s;
    rank_ok(ship_create(&s, f, comm));
    rank_ok(ship_run(&s, 1, 2));
    for (size_t i = 0; i < f->nparams; i++) {
        if (strcmp(f->params[i].name, "whole") != 0 && strcmp(f->params[i].name, "norm") != 0)
            continue;
        for (size_t k = 0; k < COUNT(things); k++) {
            char *data = ship_state(&s, i, things[k]).data, text[128];
            if (!data) continue;
            rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
            snprintf(text, sizeof text, "param '%s': %s differs between its replicas on ranks 0",
                     f->params[i].name, things[k]);
            if (rank == 3) *data ^= 1;
            rank_fails(muon_opt_check_replicas(s.opt, s.buffers), MUON_E_DISAGREE, text);
            if (rank == 3) *data ^= 1;
        }
    }
    ship_destroy(&s);
}

TEST(replicas_that_drift_in_bound_memory_are_found)
{
    fleet f;
    every_kind(&f);
    ranks_run(RANKS, drift, &f);
}

static void spoil_one(int rank, const muon_comm *comm, void *arg)
{
    ship s;
    rank_ok(ship_create(&s, arg, comm));
    if (rank == 1) {
        muon_state_buffers wrong[FLEET_PARAMS];
        memcpy(wrong, s.state, sizeof wrong);
        wrong[0].momentum = NULL;
        rank_fails(muon_state_bind(s.opt, wrong), MUON_E_ARG, "param 'a': state.momentum is NULL");
    }
    rank_ok(ship_run(&s, 1, 1));
    muon_opt *opt = s.opt;
    fleet mine = *(const fleet *)arg;
    muon_state_buffers state[FLEET_PARAMS];
    state_allocate(state, &mine, muon_opt_get_plan(opt), rank);
    void *kept = state[0].momentum;
    mine.config.state = state;
    if (rank == 1) state[0].momentum = NULL;
    ship failed;
    rank_fails(ship_create(&failed, &mine, comm), MUON_E_ARG,
               "rank 1: param 'a': state.momentum is NULL");
    state[0].momentum = kept;
    state_free(state, &mine);
    ship_destroy(&s);
}

TEST(one_ranks_mistake_is_told_to_all_at_creation)
{
    fleet f;
    every_kind(&f);
    ranks_run(RANKS, spoil_one, &f);
}
