/* test_bounds.c - the lower bounds: by hand, and no plan beats them, whoever the owners are. */
#include "muon/plan.h"
#include "tests/plan/plan_cases.h"

#include <math.h>

#include "plan/dispatch/makespan.h"

static int pick(int n)
{
    return (int)(testlib_uniform() * n);
}

static void pick_case(planned *c)
{
    static const int64_t dims[] = {8, 48, 100, 256, 512, 1024, 2048};
    planned_init(c, 1 + pick(3), pick(3) ? 1 + pick(24) : 1 + pick(3), 1 + pick(3) / 2,
                 1 + pick(4) / 3);
    int kinds = 1 + pick(4), layers = 1 + pick(3);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int k = 0; k < kinds; k++) {
        int experts = pick(3) ? 1 : 2 + pick(6);
        int64_t rows = dims[pick((int)COUNT(dims))], cols = dims[pick((int)COUNT(dims))];
        for (int layer = 0; layer < layers; layer++)
            planned_add(c, &(tensor_kind){names[k], 1, experts, rows, cols}, layer);
    }
    static const muon_machine machines[] = {{1.5e12, 20e9, 6e9, 8, 1e-5, 0},
                                            {400e12, 300e9, 40e9, 8, 1e-5, 0},
                                            {1e12, 1e9, 2e9, 8, 0, 0}, /* nodes are slow */
                                            {1e15, 1e12, 1e8, 8, 1e-7, 0}};
    c->config.machine = machines[pick((int)COUNT(machines))];
    c->config.machine.ranks_per_node = 1 << pick(4);
    c->config.wire = pick(2) ? MUON_BF16 : MUON_F32;
    if (pick(3) == 0) c->config.team_max = 1 + pick(6);
    if (pick(3) == 0) c->config.team_min = 1 + pick(4);
    if (c->config.team_max && c->config.team_min > c->config.team_max)
        c->config.team_min = c->config.team_max;
}

static void assert_not_beaten(const muon_prediction *p, double makespan, int number, const char *by)
{
    if (makespan < p->lower_bound * (1 - 1e-9))
        fail_msg("case %d: %s take %g s, the bound is %g (work %g, matrix %g, bytes %g)", number,
                 by, makespan, p->lower_bound, p->bound_work, p->bound_matrix, p->bound_bytes);
}

/* Any owners, from all on one rank to each matrix where most of it is. */
static void try_owners(const muon_plan *plan, const muon_prediction *p, int number)
{
    muon_plan whole;
    patterns found = {0};
    muon_scheme_cost cost;
    assert_ok(muon__plan_without_teams(&whole, plan));
    assert_ok(muon__patterns_create(&found, &whole));
    int32_t *owner = calloc(whole.nitems, sizeof *owner);
    assert_non_null(owner);
    for (int some = 1; some <= plan->nranks; some = some * 2 + pick(2)) {
        for (size_t i = 0; i < whole.nitems; i++)
            owner[i] = (int32_t)((pick(some) + (int)i) % plan->nranks);
        assert_ok(muon__makespan_of_owners(&cost, &whole, &found, owner));
        assert_not_beaten(p, cost.makespan, number, "other owners");
    }
    free(owner);
    muon__patterns_destroy(&found);
    muon__plan_free_items(&whole);
}

TEST(no_plan_beats_the_bounds)
{
    testlib_seed(41);
    for (int i = 0; i < 300; i++) {
        planned c;
        pick_case(&c);
        muon_plan *plan = planned_make(&c);
        muon_prediction p = planned_predict(plan);
        assert_not_beaten(&p, p.makespan, i, "its own owners");
        assert_true(p.lower_bound ==
                    fmax(fmax(p.bound_work, p.bound_matrix), fmax(p.bound_bytes, p.bound_teams)));
        try_owners(plan, &p, i);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

/* Teams compute every tile once, so a bound on work counts for them as well. */
TEST(members_work_as_long_as_one_owner_would)
{
    for (int size = 2; size <= 12; size += 5) {
        planned c;
        planned_init(&c, 1, 16, 1, 1);
        planned_add(&c, &(tensor_kind){"w", 1, 1, 1500, 4096}, 0);
        planned_add(&c, &(tensor_kind){"v", 1, 1, 3000, 1000}, 0);
        c.config.team_min = c.config.team_max = size;
        muon_plan *plan = planned_make(&c);
        double flops = 0;
        for (size_t i = 0; i < plan->nitems; i++)
            flops += plan->items[i].flops;
        assert_int_equal(plan->nteams, 2);
        assert_true(flops >= plan->cost.flops * (1 - 1e-9));
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

static void assert_close(double got, double want, const char *what)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("%s: %.17g, not %.17g", what, got, want);
}

/* One matrix of 64 rows on ranks in nodes of 4. */
static muon_plan *plan_one_matrix(planned *c, int replicate, int fsdp)
{
    planned_init(c, replicate, fsdp, 1, 1);
    planned_add(c, &(tensor_kind){"w", 1, 1, 64, 100}, 0);
    c->config.machine =
        (muon_machine){.flops = 1e12, .node_bandwidth = 1e6, .bandwidth = 1e3, .ranks_per_node = 4};
    c->config.team_max = 1;
    return planned_make(c);
}

/* On 8 ranks: an owner has 8 rows, its node 32. */
TEST(what_crosses_nodes_takes_longer)
{
    planned c;
    muon_plan *plan = plan_one_matrix(&c, 1, 8);
    muon_prediction p = planned_predict(plan);
    double work = plan->classes[0].flops / 1e12, messages = 8 * (2400 / 1e6 + 3200 / 1e3);
    assert_close(p.bound_work, work / 8, "work");
    assert_close(p.bound_matrix, messages + work, "matrix");
    testlib_assert_error(fabs(1 - p.bound_bytes / (messages / 8)), 0.004, "bytes");
    assert_true(p.lower_bound == p.bound_matrix && p.makespan >= p.lower_bound * (1 - 1e-12));
    testlib_assert_error(p.makespan / p.lower_bound, 1 + 1e-12,
                         "one matrix is as fast as it can be");
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* All of 8 ranks hold all of it: the other node needs one copy, and all others can come from near. */
TEST(a_result_need_only_cross_once_for_a_node)
{
    planned c;
    muon_plan *plan = plan_one_matrix(&c, 8, 1);
    muon_prediction p = planned_predict(plan);
    double work = plan->classes[0].flops / 1e12, copy = 6400 * 4;
    assert_close(p.bound_matrix, copy * (3 / 1e6 + 1 / 1e3) + work, "matrix");
    testlib_assert_error(fabs(1 - p.bound_bytes / (copy * (6 / 1e6 + 1 / 1e3) / 8)), 0.004,
                         "bytes");
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* Ranks that only wait for messages, and have equally many of them. */
TEST(equal_messages_reach_the_bound)
{
    planned c;
    planned_init(&c, 1, 4, 1, 1);
    for (int layer = 0; layer < 64; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 64, 64}, layer);
    c.config.machine = (muon_machine){1e18, 1e9, 1e9, 1, 0, 0};
    c.config.team_max = 1;
    muon_plan *plan = planned_make(&c);
    muon_prediction p = planned_predict(plan);
    assert_true(p.lower_bound == p.bound_bytes && p.makespan >= p.bound_bytes);
    testlib_assert_error(p.makespan / p.bound_bytes, 1.01, "messages");
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* A step is as slow as its slowest matrix with the best team, however many ranks there are. */
TEST(more_ranks_than_a_team_can_use_do_not_lower_the_bound)
{
    double bound[2];
    for (int i = 0; i < 2; i++) {
        planned c;
        planned_init(&c, 1, i ? 512 : 64, 1, 1);
        planned_add(&c, &(tensor_kind){"w", 1, 1, 4096, 4096}, 0);
        c.config.machine = (muon_machine){400e12, 300e9, 40e9, 8, 1e-5, 0};
        muon_plan *plan = planned_make(&c);
        muon_prediction p = planned_predict(plan);
        assert_true(p.lower_bound == p.bound_matrix && p.bound_matrix > 8 * p.bound_work);
        bound[i] = p.lower_bound;
        muon_plan_destroy(plan);
        planned_free(&c);
    }
    assert_true(bound[1] > bound[0]); /* less of the matrix is in one node */
}

/* Ranks that compute so fast that messages count as much as work. */
TEST(makespans_are_near_the_bound_on_accelerators)
{
    static const struct {
        const known_model *model;
        int ranks;
        double ratio;
    } cases[] = {{&gpt2, 512, 1.15},       {&gpt2, 2048, 1.15},        {&llama_8b, 2048, 1.2},
                 {&llama_8b, 512, 1.3},    {&llama_70b, 512, 1.31},    {&qwen3_30b, 512, 1.3},
                 {&qwen3_30b, 2048, 1.31}, {&llama_70b, 2048, 1.3},    {&glm_45, 512, 1.25},
                 {&qwen35_397b, 512, 1.2}, {&qwen35_397b, 2048, 1.45}, {&kimi_k2, 512, 1.05},
                 {&kimi_k2, 2048, 1.2}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        planned c;
        planned_init(&c, 1, cases[i].ranks, 1, 1);
        planned_add_model(&c, cases[i].model);
        c.config.machine = (muon_machine){400e12, 300e9, 40e9, 8, 1e-5, 0};
        c.config.wire = MUON_BF16;
        muon_plan *plan = planned_make(&c);
        muon_prediction p = planned_predict(plan);
        testlib_assert_error(p.makespan / p.lower_bound, cases[i].ratio, "%s on %d ranks",
                             cases[i].model->name, cases[i].ranks);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}
