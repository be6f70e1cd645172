/* test_relays.c - config.peers_max: no rank has more peers, both ends of every message agree, what is
 * relayed goes on, and nothing else about the plan changes. */
#include "muon/route.h"
#include "tests/plan/relay_cases.h"

static const relay_case cases[] = {
    {&gpt2, {1, 16, 1, 1}, 4, MUON_F32, 1},  {&gpt2, {1, 16, 1, 1}, 2, MUON_BF16, 1},
    {&gpt2, {4, 4, 1, 1}, 4, MUON_F32, 1},   {&gpt2, {2, 3, 1, 3}, 4, MUON_BF16, 1},
    {&gpt2, {1, 13, 1, 1}, 5, MUON_F32, 1},  {&gpt2, {1, 12, 1, 1}, 3, MUON_F32, 2},
    {&gpt2, {8, 1, 1, 2}, 4, MUON_F32, 1},   {&qwen3_30b, {1, 8, 4, 1}, 8, MUON_F32, 1},
    {&gpt2, {1, 96, 1, 1}, 16, MUON_F32, 1}, {&mixed, {1, 9, 1, 1}, 3, MUON_F32, 1},
    {&mixed, {2, 8, 1, 1}, 4, MUON_BF16, 1}, {&few, {35, 2, 1, 1}, 66, MUON_F32, 1},
};

static int has_replicas(const muon_plan *plan)
{
    for (size_t i = 0; i < plan->nparams; i++)
        if (muon__layout_has_replicas(plan->params[i].layout)) return 1;
    return 0;
}

/* The same owners: the ends send and receive the same bytes, whoever is between them. Only a result for
 * several ranks of a node goes there as often as there are relays for it. */
static void check_ends(const muon_plan *bound, route *const *routes, const muon_plan *plain)
{
    route **direct = make_routes(plain);
    for (size_t i = 0; i < plain->nitems; i++)
        assert_int_equal(bound->items[i].owner, plain->items[i].owner);
    for (int r = 0; r < plain->nranks; r++) {
        for (int list = 0; list < ROUTE_LISTS; list++) {
            if (!muon__route_gathers(list) && has_replicas(plain)) continue;
            assert_int_equal(sum_of(routes[r], list, bound), sum_of(direct[r], list, plain));
        }
    }
    free_routes(direct, plain);
}

static void check_bound(planned *c, int64_t bound, const muon_plan *plain, int64_t direct)
{
    c->config.peers_max = bound;
    muon_plan *plan = planned_make(c);
    int64_t most = most_peers(plan);
    if (most > bound) fail_msg("%lld peers, at most %lld", (long long)most, (long long)bound);
    if (plan->results_once == plain->results_once)
        assert_int_equal(plan->relayed == NULL, bound >= direct);
    route **routes = make_routes(plan);
    check_both_ends(plan, routes);
    check_relays(plan, routes);
    check_taken(plan, routes);
    check_numbers(plan, routes);
    if (plan->nteams == plain->nteams && plan->results_once == plain->results_once)
        check_ends(plan, routes, plain);
    free_routes(routes, plan);
    muon_plan_destroy(plan);
}

TEST(no_rank_has_more_peers_and_every_message_has_two_ends)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        planned c;
        make_case(&c, &cases[i]);
        muon_plan *plain = planned_make(&c);
        int64_t direct = most_peers(plain), least = least_peers(&c);
        assert_true(least < direct);
        const int64_t bounds[] = {least, (least + direct) / 2, direct - 1, direct, 1 << 20};
        for (size_t k = 0; k < COUNT(bounds); k++)
            check_bound(&c, bounds[k], plain, direct);
        c.config.peers_max = least - 1;
        muon_plan *plan = NULL;
        assert_fails(muon_plan_create(&plan, &c.config, c.params, c.nparams), MUON_E_BUDGET,
                     "the smallest possible is ");
        muon_plan_destroy(plain);
        planned_free(&c);
    }
}

/* All ranks hold everything, but no more than one copy of a result goes to a node. */
TEST(a_relay_gets_a_result_once)
{
    planned c;
    make_case(&c, &(relay_case){&gpt2, {12, 1, 1, 1}, 4, MUON_F32, 1});
    c.config.peers_max = least_peers(&c);
    muon_plan *plan = planned_make(&c);
    route **routes = make_routes(plan);
    for (int r = 0; r < 12; r++)
        for (int node = 0; node < 3; node++)
            if (node != r / 4)
                assert_int_equal(results_to(routes[r], node, plan), owned_bytes(plan, r));
    free_routes(routes, plan);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* Node mates, and ranks with the same number on other nodes. */
TEST(relays_bring_many_ranks_down_to_a_row_and_a_column)
{
    planned c;
    planned_init(&c, 1, 512, 1, 1);
    planned_add_model(&c, &llama_8b);
    c.config.team_max = 1;
    assert_true(least_peers(&c) <= 7 + 63);
    c.config.machine.ranks_per_node = 1; /* nobody to relay */
    int64_t direct = least_peers(&c);
    c.config.peers_max = 0;
    muon_plan *plan = planned_make(&c);
    assert_int_equal(direct, most_peers(plan));
    assert_true(direct > 200);
    muon_plan_destroy(plan);
    planned_free(&c);
}

TEST(a_wider_bound_relays_less)
{
    planned c;
    planned_init(&c, 1, 64, 1, 1);
    planned_add_model(&c, &gpt2);
    c.config.team_max = 1;
    int64_t last = INT64_MAX, least = least_peers(&c);
    for (int64_t bound = least; bound < least + 30; bound += 10) {
        c.config.peers_max = bound;
        muon_plan *plan = planned_make(&c);
        int64_t relayed = planned_predict(plan).relayed_bytes;
        assert_true(relayed < last);
        last = relayed;
        muon_plan_destroy(plan);
    }
    planned_free(&c);
}

TEST(a_plan_knows_its_bound)
{
    planned c;
    make_case(&c, &cases[0]);
    muon_plan *plan = NULL, *bound = NULL;
    c.config.peers_max = -1;
    assert_fails(muon_plan_create(&plan, &c.config, c.params, c.nparams), MUON_E_VALUE,
                 "peers_max is -1, must be at least 0 (0: no bound)");
    c.config.peers_max = 0;
    plan = planned_make(&c);
    c.config.peers_max = least_peers(&c);
    bound = planned_make(&c);
    assert_true(muon_plan_get_hash(plan) != muon_plan_get_hash(bound));
    muon_route *made = NULL;
    assert_fails(muon_route_create(&made, bound, 0), MUON_E_ARG,
                 "ranks relay messages in this plan, because config.peers_max is ");
    assert_ok(muon_route_create(&made, plan, 0));
    muon_route_destroy(made);
    muon_plan_destroy(bound);
    c.config.peers_max = 1000; /* nothing to relay */
    bound = planned_make(&c);
    assert_ok(muon_route_create(&made, bound, 0));
    muon_route_destroy(made);
    muon_plan_destroy(bound);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* Teams talk to each other directly: where that is too much, there are none. */
TEST(teams_give_way_to_the_bound)
{
    planned c;
    planned_init(&c, 1, 64, 1, 1);
    planned_add(&c, &(tensor_kind){"w", 1, 1, 8192, 8192}, 0);
    muon_plan *plan = planned_make(&c);
    int64_t teams = planned_predict(plan).teams, peers = most_peers(plan);
    muon_plan_destroy(plan);
    assert_true(teams > 0);
    c.config.peers_max = least_peers(&c);
    assert_true(c.config.peers_max < peers);
    plan = planned_make(&c);
    assert_true(most_peers(plan) <= c.config.peers_max);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* With a bound, some results come through the relay of the owner's number and others through a mate. */
TEST(a_bound_holds_where_results_go_to_a_node_once)
{
    int both = 0;
    for (int replicate = 2; replicate <= 8; replicate++) {
        planned c;
        planned_init(&c, replicate, 3, 1, 1);
        planned_add_model(&c, &gpt2);
        c.config.team_max = 1;
        c.config.machine = slow_between_nodes;
        c.config.machine.ranks_per_node = 6;
        muon_plan *plain = planned_make(&c);
        int64_t direct = most_peers(plain), least = least_peers(&c);
        for (int64_t bound = least; bound <= direct; bound++) {
            c.config.peers_max = bound;
            muon_plan *plan = planned_make(&c);
            both += plan->relayed && plan->results_once;
            muon_plan_destroy(plan);
            check_bound(&c, bound, plain, direct);
        }
        muon_plan_destroy(plain);
        planned_free(&c);
    }
    assert_true(both > 0);
}
