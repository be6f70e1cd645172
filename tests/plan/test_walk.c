/* test_walk.c - the way through the waves, by hand: what ranks wait for, and what they do not. */
#include "plan/route/walk.h"

#include "tests/plan/plan_cases.h"

#include <math.h>

enum { RANKS = 4, MOST_WAVES = 8 };

/* A rank computes 1 flop a second and sends 10 bytes inside its node of two, 1 to the other. */
typedef struct world {
    muon_plan plan;
    traffic t;
    wave_traffic of[RANKS * MOST_WAVES];
} world;

static void make(world *w, size_t nwaves)
{
    *w = (world){.plan = {.nranks = RANKS, .nwaves = nwaves}};
    w->plan.config.machine = (muon_machine){1, 10, 1, 2, 0, 0};
    w->t = (traffic){.nranks = RANKS, .nwaves = nwaves, .of = w->of};
}

static wave_traffic *at(world *w, size_t rank, size_t wave)
{
    return &w->of[rank * w->t.nwaves + wave];
}

static int64_t near(size_t from, size_t to, int64_t bytes)
{
    return from / 2 == to / 2 ? bytes : 0;
}

static void gather(world *w, size_t wave, size_t from, size_t to, int64_t bytes)
{
    at(w, from, wave)->gather_sent += bytes;
    at(w, from, wave)->gather_sent_near += near(from, to, bytes);
    at(w, to, wave)->gather_received += bytes;
    at(w, to, wave)->gather_received_near += near(from, to, bytes);
}

static void scatter(world *w, size_t wave, size_t from, size_t to, int64_t bytes)
{
    at(w, from, wave)->scatter_sent += bytes;
    at(w, from, wave)->scatter_sent_near += near(from, to, bytes);
    at(w, to, wave)->scatter_received += bytes;
    at(w, to, wave)->scatter_received_near += near(from, to, bytes);
}

static void check(const world *w, int in_flight, const double *want)
{
    double seconds[RANKS];
    assert_ok(muon__walk(seconds, &w->t, &w->plan, muon__rings_of_depth(&w->plan, in_flight)));
    for (int r = 0; r < RANKS; r++)
        if (fabs(seconds[r] - want[r]) > 1e-9)
            fail_msg("%d in flight, rank %d: %g s, not %g", in_flight, r, seconds[r], want[r]);
}

/* Rank 1 sends 100 bytes inside the node and rank 2 5 from the other; the sum comes in through one link. */
TEST(a_wave_is_gathered_computed_and_scattered)
{
    world w;
    make(&w, 1);
    gather(&w, 0, 1, 0, 100);
    gather(&w, 0, 2, 0, 5);
    at(&w, 0, 0)->flops = 7;
    scatter(&w, 0, 0, 1, 20);
    scatter(&w, 0, 0, 2, 3);
    const double in = 10 + 5, done = in + 7, left = done + 2 + 3;
    check(&w, 1, (double[]){left, left, left, 0});
}

/* Three waves of 10 seconds, each after 4 of gathering. */
static void make_three(world *w)
{
    make(w, 3);
    for (size_t i = 0; i < 3; i++) {
        gather(w, i, 2, 0, 4);
        at(w, 0, i)->flops = 10;
        scatter(w, i, 0, 2, 6);
    }
}

TEST(work_hides_the_messages_of_other_waves)
{
    world w;
    make_three(&w);
    check(&w, 1, (double[]){3 * 20, 0, 3 * 20, 0});
    /* The next wave comes in meanwhile, but the third needs the first one's buffer. */
    check(&w, 2, (double[]){4 + 10 + 6 + 2 * 10 + 6, 0, 4 + 10 + 6 + 2 * 10 + 6, 0});
    check(&w, 3, (double[]){4 + 3 * 10 + 6, 0, 4 + 3 * 10 + 6, 0});
    check(&w, 0, (double[]){4 + 3 * 10 + 6, 0, 4 + 3 * 10 + 6, 0});
}

/* Rank 0 needs 40 seconds for the first of five waves, all others 8 for each; in every wave they send each
 * other results. With three waves in flight, they wait for the first one when they have done the second. */
TEST(a_rank_that_is_late_holds_up_others_only_with_few_waves_in_flight)
{
    world w;
    make(&w, 5);
    at(&w, 0, 0)->flops = 40;
    for (size_t i = 0; i < 5; i++) {
        for (size_t r = 1; r < RANKS; r++)
            at(&w, r, i)->flops = 8;
        scatter(&w, i, 0, 2, i ? 0 : 1);
        scatter(&w, i, 1, 3, 1);
    }
    double seconds[RANKS];
    assert_ok(muon__walk(seconds, &w.t, &w.plan, muon__rings_of_depth(&w.plan, 3)));
    assert_true(seconds[2] > 41 + 3 * 8 - 1e-9);
    assert_ok(muon__walk(seconds, &w.t, &w.plan, muon__rings_of_depth(&w.plan, 0)));
    assert_true(seconds[2] < 41 + 8);
}

/* 2 bytes a second: rank 0 spends 2 seconds on each gather and 3 on each scatter. */
TEST(messages_take_the_time_of_a_processor_that_works)
{
    world w;
    make_three(&w);
    w.plan.config.machine.processor_bandwidth = 2;
    double seconds[RANKS];
    assert_ok(muon__walk(seconds, &w.t, &w.plan, muon__rings_of_depth(&w.plan, 3)));
    /* It waits for the first gather and the last scatter anyway: one gather and two scatters are left. */
    if (fabs(seconds[0] - (4 + 3 * 10 + 6 + 2 + 2 * 3)) > 1e-9) fail_msg("%g s", seconds[0]);
}

TEST(members_of_a_team_begin_together)
{
    planned c;
    planned_init(&c, 1, 4, 1, 1);
    planned_add(&c, &(tensor_kind){"w", 1, 1, 1500, 1500}, 0);
    c.config.team_min = c.config.team_max = 4;
    muon_plan *plan = planned_make(&c);
    assert_int_equal(plan->nteams, 1);
    plan->config.machine = (muon_machine){1, 10, 1, 2, 0, 0};
    world w;
    make(&w, 1);
    gather(&w, 0, 0, 3, 9);
    for (size_t r = 0; r < RANKS; r++)
        at(&w, r, 0)->flops = 5;
    double seconds[RANKS];
    assert_ok(muon__walk(seconds, &w.t, plan, muon__rings_of_depth(plan, 0)));
    for (int r = 0; r < RANKS; r++)
        if (fabs(seconds[r] - 14) > 1e-9) fail_msg("rank %d: %g s", r, seconds[r]);
    muon_plan_destroy(plan);
    planned_free(&c);
}
