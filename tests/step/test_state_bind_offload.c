/* Bound state goes to a file and comes back to the caller's memory, which is free in between. */
#include "tests/step/offload_fleet.h"

enum { BUDGET = 1 << 20 };

static void bound_fleet(fleet *f)
{
    offload_fleet(f);
    f->bind = 1;
}

static void assert_same(ship *s, const ship *want, const char *when)
{
    const char *wrong = offload_compare(s, want);
    if (wrong) fail_msg("%s: %s", when, wrong);
}

static int is_home(const ship *s)
{
    return ship_state(s, 0, "momentum_buffer").data == s->state[0].momentum &&
           ship_state(s, 0, "step").data == s->state[0].step;
}

TEST(the_callers_memory_is_free_while_state_is_in_a_file)
{
    for (int reference = 0; reference < 2; reference++) {
        fleet f;
        bound_fleet(&f);
        f.config.path = reference ? MUON_PATH_REFERENCE : MUON_PATH_PIPELINE;
        ship s, want;
        fleet_run_whole(&want, &f, 6);
        assert_ok(ship_create(&s, &f, NULL));
        assert_ok(ship_run(&s, 1, 2));
        assert_ok(muon_offload(s.opt, offload_dir(), BUDGET));
        state_free(s.state, &f);
        assert_false(offload_is_in_memory(&s));
        assert_ok(ship_run(&s, 3, 3));
        assert_ok(muon_offload(s.opt, offload_dir(), 2 * BUDGET)); /* to another file */
        assert_ok(ship_run(&s, 4, 4));
        state_allocate(s.state, &f, muon_opt_get_plan(s.opt), 0);
        *s.state[0].step = -5; /* nobody looks at what is in it now */
        assert_ok(muon_state_bind(s.opt, s.state));
        assert_false(offload_is_in_memory(&s));
        assert_ok(ship_run(&s, 5, 5));
        assert_ok(muon_offload(s.opt, NULL, 0));
        assert_true(is_home(&s));
        assert_int_equal(*s.state[0].step, 5);
        assert_ok(ship_run(&s, 6, 6));
        assert_same(&s, &want, "back home");
        ship_destroy(&s);
        ship_destroy(&want);
    }
}

TEST(it_comes_back_to_where_it_was_if_nothing_else_is_bound)
{
    fleet f;
    bound_fleet(&f);
    ship s, want;
    fleet_run_whole(&want, &f, 3);
    assert_ok(ship_create(&s, &f, NULL));
    for (int step = 1; step <= 3; step++) {
        assert_ok(muon_offload(s.opt, offload_dir(), BUDGET));
        assert_ok(ship_run(&s, step, step));
        assert_ok(muon_offload(s.opt, NULL, 0));
        assert_true(is_home(&s));
        assert_ok(muon_offload(s.opt, NULL, 0)); /* it is there already */
        assert_true(is_home(&s));
    }
    assert_same(&s, &want, "at home");
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(bound_to_null_it_comes_back_to_memory_of_its_own)
{
    fleet f;
    bound_fleet(&f);
    ship s, want;
    fleet_run_whole(&want, &f, 3);
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 1));
    assert_ok(muon_offload(s.opt, offload_dir(), BUDGET));
    assert_ok(muon_state_bind(s.opt, NULL));
    state_free(s.state, &f);
    assert_ok(ship_run(&s, 2, 2));
    assert_ok(muon_offload(s.opt, NULL, 0));
    assert_true(offload_is_in_memory(&s));
    assert_ok(ship_run(&s, 3, 3));
    assert_same(&s, &want, "in memory of its own");
    ship_destroy(&s);
    ship_destroy(&want);
}

/* State that has begun in the optimizer's memory may come back to the caller's. */
TEST(memory_may_be_bound_for_the_first_time_while_state_is_in_a_file)
{
    fleet f;
    bound_fleet(&f);
    f.bind = 0;
    ship s, want;
    fleet_run_whole(&want, &f, 3);
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 1));
    assert_ok(muon_offload(s.opt, offload_dir(), BUDGET));
    state_allocate(s.state, &f, muon_opt_get_plan(s.opt), 0);
    assert_ok(muon_state_bind(s.opt, s.state));
    assert_ok(ship_run(&s, 2, 2));
    assert_ok(muon_offload(s.opt, NULL, 0));
    assert_true(is_home(&s));
    assert_ok(ship_run(&s, 3, 3));
    assert_same(&s, &want, "at a new home");
    ship_destroy(&s);
    ship_destroy(&want);
}

/* What is in the memory at creation goes to the file; the memory is free from then on. */
TEST(created_with_both_the_contents_go_to_the_file)
{
    fleet f;
    bound_fleet(&f);
    ship first, second, want;
    fleet_run_whole(&want, &f, 4);
    fleet_run_whole(&first, &f, 2);
    fleet filed = f;
    filed.config.state = first.state;
    filed.config.offload_dir = offload_dir();
    filed.config.offload_budget = BUDGET;
    assert_ok(ship_create(&second, &filed, NULL));
    for (size_t i = 0; i < f.nparams; i++)
        memcpy(second.buffers[i].param, first.buffers[i].param,
               (size_t)second.numel[i] * fleet_bytes(f.params[i].dtype));
    ship_destroy(&first); /* with its memory */
    assert_false(offload_is_in_memory(&second));
    assert_ok(ship_run(&second, 3, 4));
    assert_same(&second, &want, "from the file");
    assert_ok(muon_state_bind(second.opt, NULL));
    assert_ok(muon_offload(second.opt, NULL, 0));
    assert_same(&second, &want, "in memory");
    ship_destroy(&second);
    ship_destroy(&want);
}

/* While it is in a file the caller may have anything in that memory, weights too. */
TEST(memory_of_state_in_a_file_may_be_a_buffer_of_the_step)
{
    fleet f;
    fleet_init(&f);
    f.bind = 1;
    fleet_add(&f, MUONS, "w", NULL, NULL, SHAPE(64, 64));
    ship s, want;
    fleet_run_whole(&want, &f, 2);
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 1));
    assert_ok(muon_offload(s.opt, offload_dir(), BUDGET));
    s.buffers[0].grad = s.state[0].momentum;
    ship_fill_grads(&s, 2);
    memcpy(s.state[0].momentum, s.grads[0], (size_t)s.numel[0] * sizeof(float));
    assert_ok(ship_step(&s));
    assert_ok(muon_offload(s.opt, NULL, 0));
    assert_same(&s, &want, "at home");
    assert_fails(ship_step(&s), MUON_E_ALIAS,
                 "the grad of param 'w' and the momentum of param 'w' overlap");
    ship_destroy(&s);
    ship_destroy(&want);
}

/* ---- Memory that is not there */

TEST(without_memory_of_its_own_it_stays_with_the_caller)
{
    fleet f;
    bound_fleet(&f);
    ship s, want;
    fleet_run_whole(&want, &f, 2);
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 1));
    for (int k = 0;; k++) {
        testlib_allow_allocations(k);
        muon_status status = muon_state_bind(s.opt, NULL);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) {
            assert_true(k > 0);
            break;
        }
        assert_int_equal(status, MUON_E_NOMEM);
        assert_true(is_home(&s));
    }
    state_free(s.state, &f);
    assert_ok(ship_run(&s, 2, 2));
    assert_same(&s, &want, "in memory of its own");
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(without_memory_for_the_file_it_stays_with_the_caller)
{
    fleet f;
    bound_fleet(&f);
    ship s, want;
    fleet_run_whole(&want, &f, 2);
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 1));
    for (int k = 0;; k++) {
        testlib_allow_allocations(k);
        muon_status status = muon_offload(s.opt, offload_dir(), BUDGET);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) {
            assert_true(k > 3);
            break;
        }
        assert_true(is_home(&s));
    }
    assert_ok(ship_run(&s, 2, 2));
    assert_same(&s, &want, "in its file");
    ship_destroy(&s);
    ship_destroy(&want);
}
