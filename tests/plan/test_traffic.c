/* test_traffic.c - who sends to whom: the messages of every rank's route, by sender and receiver. */
#include "muon/plan.h"
#include "tests/plan/plan_cases.h"

#include "plan/route/route.h"

/* The same from the messages themselves: what rank r sends in one of the lists, to each group. */
static void add_list(int64_t *to, size_t groups, const muon_plan *plan, const route *r, int list)
{
    size_t n = (size_t)plan->nranks, row = (size_t)r->rank * groups / n;
    const route_messages *m = &r->messages[list];
    for (size_t i = 0; i < m->first[plan->nwaves]; i++)
        to[row * groups + (size_t)m->entries[i].peer * groups / n] += m->entries[i].bytes;
}

static int64_t *zeros(size_t groups)
{
    int64_t *list = calloc(groups * groups, sizeof *list);
    assert_non_null(list);
    return list;
}

static void check(const muon_plan *plan, size_t groups, const char *what)
{
    int64_t *want[] = {zeros(groups), zeros(groups)}, *got[] = {zeros(groups), zeros(groups)};
    for (int rank = 0; rank < plan->nranks; rank++) {
        route *r = NULL;
        assert_ok(muon__route_create(&r, plan, rank));
        add_list(want[0], groups, plan, r, GATHER_SEND);
        add_list(want[0], groups, plan, r, RELAY_GATHER_OUT);
        add_list(want[1], groups, plan, r, SCATTER_SEND);
        add_list(want[1], groups, plan, r, RELAY_SCATTER_OUT);
        muon__route_destroy(r);
    }
    assert_ok(muon_plan_get_traffic(plan, groups, got[0], got[1]));
    for (int way = 0; way < 2; way++) {
        for (size_t i = 0; i < groups * groups; i++)
            if (got[way][i] != want[way][i])
                fail_msg("%s, %zu groups, %s: %zu sends %lld bytes to %zu, want %lld", what, groups,
                         way ? "scatter" : "gather", i / groups, (long long)got[way][i], i % groups,
                         (long long)want[way][i]);
        free(want[way]);
        free(got[way]);
    }
}

TEST(groups_send_what_the_messages_of_their_ranks_have)
{
    static const struct {
        const known_model *model;
        int mesh[4];
        muon_dtype wire;
        size_t groups[3];
        int64_t ranks_per_node, peers_max;
    } cases[] = {
        {&gpt2, {1, 1, 1, 1}, MUON_F32, {1, 1, 1}, 8, 0},
        {&gpt2, {1, 7, 1, 1}, MUON_F32, {1, 3, 7}, 8, 0},
        {&gpt2, {2, 3, 1, 2}, MUON_BF16, {12, 5, 2}, 8, 0},
        {&qwen3_30b, {1, 8, 4, 1}, MUON_BF16, {32, 4, 9}, 8, 0},
        {&gpt2, {1, 9, 1, 1}, MUON_F32, {1, 3, 9}, 3, 6},
        {&gpt2, {2, 3, 1, 2}, MUON_BF16, {12, 5, 2}, 4, 5},
        {&qwen3_30b, {1, 8, 4, 1}, MUON_BF16, {32, 4, 9}, 8, 12},
        {&gpt2, {12, 1, 1, 1}, MUON_F32, {12, 3, 5}, 4, 6},
        {&gpt2, {4, 2, 1, 2}, MUON_BF16, {16, 4, 3}, 4, 7},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        planned c;
        const int *size = cases[i].mesh;
        planned_init(&c, size[0], size[1], size[2], size[3]);
        planned_add_model(&c, cases[i].model);
        c.config.wire = cases[i].wire;
        c.config.machine.ranks_per_node = cases[i].ranks_per_node;
        c.config.peers_max = cases[i].peers_max;
        muon_plan *plan = planned_make(&c);
        for (size_t k = 0; k < COUNT(cases[i].groups); k++)
            check(plan, cases[i].groups[k], cases[i].model->name);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

TEST(groups_are_at_least_one_and_at_most_the_ranks)
{
    int64_t bytes[4] = {-1, -1, -1, -1};
    planned c;
    planned_init(&c, 1, 2, 1, 1);
    planned_add(&c, &(tensor_kind){"w", 1, 1, 64, 32}, 0);
    muon_plan *plan = planned_make(&c);
    assert_fails(muon_plan_get_traffic(NULL, 1, bytes, bytes), MUON_E_ARG, "plan must not be NULL");
    assert_fails(muon_plan_get_traffic(plan, 0, bytes, NULL), MUON_E_ARG,
                 "0 groups of 2 ranks: must be 1..2");
    assert_fails(muon_plan_get_traffic(plan, 3, NULL, bytes), MUON_E_ARG, "3 groups of 2 ranks");
    assert_int_equal(bytes[0], -1);
    assert_ok(muon_plan_get_traffic(plan, 2, NULL, NULL));
    assert_ok(muon_plan_get_traffic(plan, 2, bytes, NULL));
    assert_true(bytes[0] == 0 && bytes[3] == 0 && bytes[1] + bytes[2] == 32 * 32 * 4);
    muon_plan_destroy(plan);
    planned_free(&c);
}
