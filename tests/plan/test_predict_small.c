/* test_predict_small.c - small models on few ranks, where a plan has little to choose from and nothing
 * to hide messages behind: it is never predicted slower than the schemes it is compared with. */
#include "muon/plan.h"
#include "tests/plan/plan_cases.h"

static int pick(int n)
{
    return (int)(testlib_uniform() * n);
}

/* A mesh of 2 to 16 ranks; all axes but replicate. */
static void pick_mesh(planned *c)
{
    int fsdp, ep, tp;
    do {
        fsdp = 1 + pick(8);
        ep = pick(3) ? 1 : 1 + pick(4);
        tp = pick(4) ? 1 : 1 + pick(4);
    } while (fsdp * ep * tp < 2 || fsdp * ep * tp > 16);
    planned_init(c, 1, fsdp, ep, tp);
}

/* The two profiles of muonctl plan, with nodes of 1, 2, 4 or 8 ranks. */
static void pick_machine(planned *c)
{
    static const muon_machine machines[] = {{1.5e12, 20e9, 6e9, 8, 1e-5, 0},
                                            {400e12, 300e9, 40e9, 8, 1e-5, 0}};
    int gpu = pick(2);
    c->config.machine = machines[gpu];
    c->config.machine.ranks_per_node = 1 << pick(4);
    c->config.wire = gpu ? MUON_BF16 : MUON_F32;
}

static void pick_model(planned *c, char *text, size_t size)
{
    static const int64_t dims[] = {8, 16, 48, 64, 100, 128, 256, 384, 512, 768, 1024};
    static const char *const names[] = {"a", "b", "c", "d"};
    int kinds = 1 + pick((int)COUNT(names)), layers = 1 + pick(6);
    size_t used = 0;
    for (int k = 0; k < kinds; k++) {
        int experts = pick(4) ? 1 : 2 + pick(6);
        int64_t rows = dims[pick((int)COUNT(dims))], cols = dims[pick((int)COUNT(dims))];
        for (int layer = 0; layer < layers; layer++)
            planned_add(c, &(tensor_kind){names[k], 1, experts, rows, cols}, layer);
        used += (size_t)snprintf(text + used, size - used, " %d x %d of %lldx%lld", layers, experts,
                                 (long long)rows, (long long)cols);
    }
}

/* More of them: MUON_TEST_CASES=10000. */
static int number_of_cases(void)
{
    const char *text = getenv("MUON_TEST_CASES");
    return text ? atoi(text) : 500;
}

TEST(no_scheme_is_predicted_faster_than_a_small_plan)
{
    testlib_seed(16);
    for (int i = 0; i < number_of_cases(); i++) {
        planned c;
        char model[256];
        pick_mesh(&c);
        pick_machine(&c);
        pick_model(&c, model, sizeof model);
        muon_plan *plan = planned_make(&c);
        muon_prediction p = planned_predict(plan);
        muon_scheme_cost padded = planned_scheme(plan, MUON_SCHEME_PADDED);
        muon_scheme_cost turns = planned_scheme(plan, MUON_SCHEME_ROUND_ROBIN);
        double most = p.makespan * (1 - 1e-8);
        if (turns.makespan < most || padded.makespan < most)
            fail_msg("case %d: %d x %d x %d ranks in nodes of %d,%s: %g s, round robin %g, padded "
                     "%g",
                     i, c.mesh.sizes[1], c.mesh.sizes[2], c.mesh.sizes[3],
                     (int)c.config.machine.ranks_per_node, model, p.makespan, turns.makespan,
                     padded.makespan);
        assert_int_equal(p.padding_bytes, 0);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

/* Seven equal matrices on seven ranks: whoever deals them out, each rank has one. */
TEST(equal_shares_take_equal_times)
{
    planned c;
    planned_init(&c, 1, 7, 1, 1);
    for (int layer = 0; layer < 7; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 70, 64}, layer);
    muon_plan *plan = planned_make(&c);
    muon_prediction p = planned_predict(plan);
    muon_scheme_cost padded = planned_scheme(plan, MUON_SCHEME_PADDED);
    muon_scheme_cost turns = planned_scheme(plan, MUON_SCHEME_ROUND_ROBIN);
    testlib_assert_error(turns.makespan / p.makespan - 1, 1e-12, "round robin");
    testlib_assert_error(1 - turns.makespan / p.makespan, 1e-12, "round robin");
    testlib_assert_error(padded.makespan / p.makespan - 1, 1e-12, "padded");
    testlib_assert_error(1 - padded.makespan / p.makespan, 1e-12, "padded");
    assert_int_equal(turns.bytes_max, p.bytes_max);
    assert_int_equal(padded.bytes_max, p.bytes_max);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* A replica of a group gathers and scatters inside itself, so both take as long as one alone. */
TEST(replicas_of_a_scheme_are_each_for_themselves)
{
    double makespan[2][2];
    for (int replicas = 1; replicas <= 2; replicas++) {
        planned c;
        planned_init(&c, replicas, 3, 1, 1);
        c.config.machine.ranks_per_node = 3;
        for (int layer = 0; layer < 5; layer++)
            planned_add(&c, &(tensor_kind){"w", 1, 1, 48, 64}, layer);
        muon_plan *plan = planned_make(&c);
        muon_scheme_cost padded = planned_scheme(plan, MUON_SCHEME_PADDED);
        muon_scheme_cost turns = planned_scheme(plan, MUON_SCHEME_ROUND_ROBIN);
        makespan[replicas - 1][0] = turns.makespan;
        makespan[replicas - 1][1] = padded.makespan;
        muon_plan_destroy(plan);
        planned_free(&c);
    }
    for (int scheme = 0; scheme < 2; scheme++)
        assert_true(makespan[0][scheme] == makespan[1][scheme]);
}
