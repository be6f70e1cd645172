/* test_mates.c - results go to a node once where that makes the step shorter, and only there. */
#include "muon/route.h"
#include "tests/plan/relay_cases.h"

static int64_t relayed(planned *c)
{
    muon_plan *plan = planned_make(c);
    int64_t bytes = planned_predict(plan).relayed_bytes;
    muon_plan_destroy(plan);
    return bytes;
}

static int64_t direct_peers(planned *c)
{
    muon_machine machine = c->config.machine;
    c->config.machine.node_bandwidth = machine.bandwidth;
    muon_plan *plan = planned_make(c);
    int64_t most = most_peers(plan);
    muon_plan_destroy(plan);
    c->config.machine = machine;
    return most;
}

/* All ranks hold all of some tensors, so that a rank has other mates for those. */
static void add_other_mates(planned *c)
{
    for (int i = 0; i < 2; i++)
        c->params[i].mesh = c->params[i].placement = NULL;
}

static const relay_case cases[] = {
    {&gpt2, {8, 1, 1, 1}, 4, MUON_F32, 1},  {&gpt2, {4, 2, 1, 1}, 4, MUON_BF16, 1},
    {&gpt2, {6, 2, 1, 2}, 8, MUON_F32, 1},  {&gpt2, {8, 1, 1, 1}, 3, MUON_F32, 1},
    {&mixed, {8, 2, 1, 1}, 4, MUON_F32, 1}, {&mixed, {9, 3, 1, 1}, 6, MUON_BF16, 1},
    {&gpt2, {12, 2, 1, 1}, 8, MUON_F32, 1}, {&gpt2, {16, 1, 1, 1}, 4, MUON_F32, 2},
    {&mixed, {6, 1, 1, 3}, 6, MUON_F32, 1}, {&qwen3_30b, {4, 1, 4, 1}, 8, MUON_F32, 1},
};

static void check_case(const relay_case *from, int others)
{
    planned c;
    make_case(&c, from);
    c.config.machine = slow_between_nodes;
    c.config.machine.ranks_per_node = from->ranks_per_node;
    if (others) add_other_mates(&c);
    muon_plan *plan = planned_make(&c);
    route **routes = make_routes(plan);
    assert_true(plan->results_once);
    check_both_ends(plan, routes);
    check_relays(plan, routes);
    check_taken(plan, routes);
    check_numbers(plan, routes);
    assert_true(most_peers(plan) <= direct_peers(&c));
    free_routes(routes, plan);
    muon_plan_destroy(plan);
    planned_free(&c);
}

TEST(results_go_to_a_node_once_and_every_message_has_two_ends)
{
    for (size_t i = 0; i < 2 * COUNT(cases); i++)
        check_case(&cases[i / 2], i % 2);
}

/* Only where it makes the step shorter. */
TEST(results_are_direct_where_that_is_as_fast)
{
    static const struct {
        int mesh[4];
        muon_machine machine;
        muon_path path;
        int passed;
    } steps[] = {
        {{8, 1, 1, 1}, {1e15, 1e12, 1e8, 4, 0, 0}, MUON_PATH_PIPELINE, 1},
        {{4, 2, 1, 1}, {1e15, 1e12, 1e8, 4, 0, 0}, MUON_PATH_PIPELINE, 1},
        {{2, 4, 1, 1},
         {1e15, 1e12, 1e8, 4, 0, 0},
         MUON_PATH_PIPELINE,
         0}, /* one replica on a node */
        {{1, 8, 1, 1}, {1e15, 1e12, 1e8, 4, 0, 0}, MUON_PATH_PIPELINE, 0},   /* no replicas */
        {{8, 1, 1, 1}, {1e15, 1e12, 1e8, 8, 0, 0}, MUON_PATH_PIPELINE, 0},   /* one node */
        {{8, 1, 1, 1}, {1e15, 1e12, 1e8, 1, 0, 0}, MUON_PATH_PIPELINE, 0},   /* nodes of one rank */
        {{8, 1, 1, 1}, {1e15, 1e8, 1e8, 4, 0, 0}, MUON_PATH_PIPELINE, 0},    /* the same rate */
        {{8, 1, 1, 1}, {1e15, 1e12, 1e8, 4, 1e3, 0}, MUON_PATH_PIPELINE, 0}, /* slow to begin */
        {{8, 1, 1, 1}, {1e8, 1e12, 1e8, 4, 0, 0}, MUON_PATH_PIPELINE, 0},    /* work hides it */
        {{8, 1, 1, 1}, {1e15, 1e12, 1e8, 4, 0, 0}, MUON_PATH_REFERENCE, 0},  /* no owners */
    };
    for (size_t i = 0; i < COUNT(steps); i++) {
        planned c;
        const int *size = steps[i].mesh;
        planned_init(&c, size[0], size[1], size[2], size[3]);
        planned_add_model(&c, &gpt2);
        c.config.machine = steps[i].machine;
        c.config.path = steps[i].path;
        if ((relayed(&c) > 0) != steps[i].passed) fail_msg("step %zu", i);
        planned_free(&c);
    }
}

/* Another engine need not pass anything on. */
TEST(a_public_route_is_direct)
{
    planned c;
    make_case(&c, &cases[0]);
    c.config.machine = slow_between_nodes;
    muon_plan *plan = planned_make(&c);
    assert_true(plan->results_once);
    for (int rank = 0; rank < 8; rank++) {
        muon_route *made = NULL;
        int64_t elements = 0;
        assert_ok(muon_route_create(&made, plan, rank));
        for (size_t w = 0; w < muon_route_count_waves(made); w++) {
            size_t n = muon_route_count_messages(made, w, MUON_ROUTE_SCATTER_SEND);
            for (size_t i = 0; i < n; i++) {
                muon_route_message m;
                assert_ok(
                    muon_route_get_message(made, w, MUON_ROUTE_SCATTER_SEND, i, &m, sizeof m));
                elements += m.elements;
            }
        }
        assert_int_equal(elements * (int64_t)sizeof(float), 7 * owned_bytes(plan, rank));
        muon_route_destroy(made);
    }
    muon_plan_destroy(plan);
    planned_free(&c);
}

TEST(without_memory_there_is_no_plan)
{
    planned c;
    make_case(&c, &(relay_case){&few, {8, 1, 1, 1}, 4, MUON_F32, 1});
    c.config.machine = slow_between_nodes;
    for (int64_t bound = 0; bound < 2; bound++) {
        muon_status status = MUON_E_NOMEM;
        int64_t failures = 0;
        c.config.peers_max = bound ? least_peers(&c) : 0;
        for (; status != MUON_OK; failures++) {
            muon_plan *plan = NULL;
            muon_prediction p;
            muon_rank_load load;
            testlib_allow_allocations(failures);
            status = muon_plan_create(&plan, &c.config, c.params, c.nparams);
            if (status == MUON_OK) status = muon_plan_predict(plan, &p, sizeof p);
            if (status == MUON_OK) status = muon_plan_get_rank(plan, 1, &load, sizeof load);
            testlib_allow_allocations(-1);
            if (status != MUON_OK) assert_int_equal(status, MUON_E_NOMEM);
            muon_plan_destroy(plan);
        }
        assert_true(failures > 100);
    }
    planned_free(&c);
}
