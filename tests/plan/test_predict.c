/* test_predict.c - the prediction: bounds and ratios, bytes that are those of the messages, and other
 * schemes by hand. */
#include "muon/plan.h"
#include "tests/plan/plan_cases.h"

#include <math.h>

#include "plan/route/route.h"

/* ---- what the dispatcher reaches --------------------------------------------------------------- */

static const known_model *const moe[] = {&qwen3_30b, &qwen35_397b, &glm_45};

/* With sanitizers a part of the many cases is enough. */
static size_t stride(void)
{
    return testlib_quick() ? 5 : 1;
}

/* With replicas, messages take nearly as long as work. */
TEST(makespans_are_near_the_bound_for_mixtures_of_experts)
{
    static const struct {
        int replicate, fsdp, ep;
        double ratio;
    } cases[] = {{1, 8, 1, 1.05},   {1, 16, 1, 1.05},   {1, 24, 1, 1.05},  {1, 32, 1, 1.05},
                 {1, 64, 1, 1.05},  {1, 96, 1, 1.05},   {1, 100, 1, 1.05}, {1, 128, 1, 1.05},
                 {1, 256, 1, 1.05}, {1, 384, 1, 1.05},  {1, 512, 1, 1.05}, {1, 64, 8, 1.05},
                 {8, 8, 8, 1.30},   {1, 2048, 1, 1.12}, {1, 256, 8, 1.15}};
    for (size_t i = 0; i < COUNT(cases); i += stride()) {
        for (size_t k = 0; k < COUNT(moe); k++) {
            planned c;
            planned_init(&c, cases[i].replicate, cases[i].fsdp, cases[i].ep, 1);
            planned_add_model(&c, moe[k]);
            muon_plan *plan = planned_make(&c);
            muon_prediction p = planned_predict(plan);
            assert_int_equal(p.padding_bytes, 0);
            assert_true(p.lower_bound > 0 && p.makespan >= p.lower_bound * (1 - 1e-9));
            testlib_assert_error(p.makespan / p.bound_work, cases[i].ratio,
                                 "%s on %d x %d x %d ranks: makespan %g s against %g s",
                                 moe[k]->name, cases[i].replicate, cases[i].fsdp, cases[i].ep,
                                 p.makespan, p.bound_work);
            muon_plan_destroy(plan);
            planned_free(&c);
        }
    }
}

TEST(no_rank_moves_more_bytes_than_with_padding)
{
    static const known_model *const models[] = {&gpt2,      &llama_8b, &llama_70b,
                                                &qwen3_30b, &glm_45,   &kimi_k2};
    static const int meshes[][4] = {
        {1, 2, 1, 1},  {1, 8, 1, 1},   {1, 24, 1, 1},  {1, 48, 1, 1},  {1, 64, 1, 1},
        {1, 96, 1, 1}, {1, 100, 1, 1}, {1, 128, 1, 1}, {1, 512, 1, 1}, {8, 8, 1, 1},
        {4, 24, 1, 1}, {1, 16, 8, 1},  {1, 8, 1, 8},   {2, 12, 2, 2},
    };
    for (size_t k = 0; k < COUNT(models); k++) {
        for (size_t i = 0; i < COUNT(meshes); i += stride()) {
            for (int wire = 0; wire < 2; wire++) {
                planned c;
                planned_init(&c, meshes[i][0], meshes[i][1], meshes[i][2], meshes[i][3]);
                planned_add_model(&c, models[k]);
                c.config.wire = wire ? MUON_BF16 : MUON_F32;
                c.config.team_max = 1; /* teams are faster by sending more */
                muon_plan *plan = planned_make(&c);
                muon_prediction p = planned_predict(plan);
                muon_scheme_cost padded = planned_scheme(plan, MUON_SCHEME_PADDED);
                assert_int_equal(p.padding_bytes, 0);
                if (p.bytes_max > padded.bytes_max)
                    fail_msg("%s on mesh %zu: %lld bytes, %lld with padding", models[k]->name, i,
                             (long long)p.bytes_max, (long long)padded.bytes_max);
                muon_plan_destroy(plan);
                planned_free(&c);
            }
        }
    }
}

/* Where another one happens to divide without a rest, it may be within the percent that moving fewer
 * bytes is worth. */
TEST(other_schemes_are_never_faster_on_mixtures_of_experts)
{
    static const int ranks[] = {24, 64, 128, 512};
    for (size_t k = 0; k < COUNT(moe); k++) {
        for (size_t i = 0; i < COUNT(ranks); i += stride()) {
            planned c;
            planned_init(&c, 1, ranks[i], 1, 1);
            planned_add_model(&c, moe[k]);
            muon_plan *plan = planned_make(&c);
            muon_prediction p = planned_predict(plan);
            muon_scheme_cost padded = planned_scheme(plan, MUON_SCHEME_PADDED);
            muon_scheme_cost turns = planned_scheme(plan, MUON_SCHEME_ROUND_ROBIN);
            if (p.makespan > 1.01 * padded.makespan || p.makespan > 1.01 * turns.makespan)
                fail_msg("%s on %d ranks: %g s, padded %g, round robin %g", moe[k]->name, ranks[i],
                         p.makespan, padded.makespan, turns.makespan);
            muon_plan_destroy(plan);
            planned_free(&c);
        }
    }
}

TEST(a_trillion_parameters_on_4096_ranks)
{
    planned c;
    planned_init(&c, 1, 512, 8, 1);
    planned_add_model(&c, &kimi_k2);
    muon_plan *plan = planned_make(&c);
    muon_prediction p = planned_predict(plan);
    assert_int_equal(p.ranks, 4096);
    assert_int_equal(p.matrices, 69668);
    assert_true(plan->cost.muon_elements + plan->cost.expert_elements > INT64_C(1000000000000));
    testlib_assert_error(p.makespan / p.bound_work, 1.10,
                         "makespan against all work shared evenly");
    assert_true(p.bound_work <= p.lower_bound && p.teams > 0);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* ---- bytes are those of the messages ----------------------------------------------------------- */

/* Tensors cut in every way there is. */
static void add_zoo(planned *c, muon_box *boxes, muon_range *ranges)
{
    for (int layer = 0; layer < 3; layer++) {
        planned_add(c, &(tensor_kind){"dense", 1, 1, 97, 130}, layer)->placement = "0: tp, fsdp";
        planned_add(c, &(tensor_kind){"rowwise", 1, 1, 64, 90}, layer)->placement =
            "0: fsdp; 1: tp, ep";
        planned_add(c, &(tensor_kind){"experts", 1, 13, 21, 40}, layer);
        planned_add(c, &(tensor_kind){"qkv", 1, 1, 96, 50}, layer)->matrices =
            "rows 4*[12, 4, 4], skip *";
        planned_add(c, &(tensor_kind){"thin", 1, 1, 2, 300}, layer);
        planned_add(c, &(tensor_kind){"whole", 1, 1, 33, 20}, layer)->placement = NULL;
        planned_add(c, &(tensor_kind){"wide", 1, 1, 400, 512}, layer); /* parts that travel alone */
    }
    muon_param *p = planned_add(c, &(tensor_kind){"boxes", 1, 3, 10, 16}, 0);
    boxes[0] = (muon_box){.rank = 1, .begin = {0, 0}, .end = {13, 16}};
    boxes[1] = (muon_box){.rank = 0, .begin = {13, 0}, .end = {30, 7}};
    boxes[2] = (muon_box){.rank = 1, .begin = {13, 7}, .end = {30, 16}};
    boxes[3] = (muon_box){.rank = 0, .begin = {13, 7}, .end = {30, 16}}; /* a replica */
    p->mesh = p->placement = NULL;
    p->boxes = boxes;
    p->nboxes = 4;
    p = planned_add(c, &(tensor_kind){"ranges", 1, 2, 11, 14}, 0);
    ranges[0] = (muon_range){.rank = 0, .begin = 0, .end = 101};
    ranges[1] = (muon_range){.rank = 1, .begin = 101, .end = 308};
    p->mesh = p->placement = NULL;
    p->ranges = ranges;
    p->nranges = 2;
}

/* Members of all teams. */
static int64_t strips_of(const muon_plan *plan)
{
    int64_t strips = 0;
    for (size_t i = 0; i < plan->nitems; i++)
        strips += plan->items[i].team != PLAN_NO_TEAM;
    return strips;
}

TEST(predictions_are_the_sums_of_what_the_ranks_do)
{
    static const int meshes[][4] = {{1, 2, 1, 1}, {2, 1, 1, 1}, {1, 3, 1, 2}, {2, 2, 1, 1},
                                    {1, 2, 2, 2}, {3, 4, 1, 1}, {1, 9, 2, 1}};
    for (size_t i = 0; i < COUNT(meshes); i++) {
        static const int depths[] = {3, 1, 2, 3, 5, 0};
        for (size_t variant = 0; variant < COUNT(depths); variant++) {
            planned c;
            muon_box boxes[4];
            muon_range ranges[2];
            planned_init(&c, meshes[i][0], meshes[i][1], meshes[i][2], meshes[i][3]);
            add_zoo(&c, boxes, ranges);
            c.config.wire = variant % 2 ? MUON_BF16 : MUON_F32;
            c.config.machine.ranks_per_node = 2;
            c.config.in_flight = depths[variant];
            if (variant == 2) c.config.workspace_budget = INT64_C(16) << 20;
            muon_plan *plan = planned_make(&c);
            muon_prediction p = planned_predict(plan);
            int64_t sent = 0, received = 0, most = 0, workspace = 0, matrices = 0, busiest = 0;
            double messages = 0, work = 0;
            for (int r = 0; r < plan->nranks; r++) {
                muon_rank_load load;
                assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
                sent += load.bytes_sent;
                received += load.bytes_received;
                matrices += load.matrices;
                int64_t bytes = load.bytes_sent + load.bytes_received;
                if (bytes > most) most = bytes;
                if (load.workspace_bytes > workspace) workspace = load.workspace_bytes;
                if (load.matrices > busiest) busiest = load.matrices;
                messages = fmax(messages, load.message_seconds);
                work = fmax(work, load.work_seconds);
            }
            assert_int_equal(sent, received);
            assert_int_equal(p.bytes_max, most);
            assert_int_equal(p.bytes_mean, (sent + received) / plan->nranks);
            assert_int_equal(p.workspace_max, workspace);
            assert_int_equal(p.matrices_max, busiest);
            assert_int_equal(p.matrices, matrices - strips_of(plan) + p.teams);
            assert_int_equal(p.waves, plan->nwaves);
            assert_int_equal(p.padding_bytes, 0);
            testlib_assert_error(fabs(p.imbalance * p.bound_work - work) / work, 1e-12,
                                 "mesh %zu: the busiest rank", i);
            if (p.makespan < fmax(work, messages) * (1 - 1e-12))
                fail_msg("mesh %zu: makespan %g, but %g of work and %g of messages", i, p.makespan,
                         work, messages);
            muon_plan_destroy(plan);
            planned_free(&c);
        }
    }
}

/* ---- by hand ----------------------------------------------------------------------------------- */

static void assert_close(double got, double want, const char *what)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("%s: %.17g, not %.17g", what, got, want);
}

/* Three 8 x 8 matrices on two ranks, half a matrix on each: 32 elements, 128 bytes. */
TEST(three_matrices_on_two_ranks_by_hand)
{
    planned c;
    planned_init(&c, 1, 2, 1, 1);
    c.config.team_max = 1;
    c.config.machine =
        (muon_machine){.flops = 1e9, .node_bandwidth = 1e6, .bandwidth = 1e3, .ranks_per_node = 2};
    for (int layer = 0; layer < 3; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 8, 8}, layer);
    muon_plan *plan = planned_make(&c);
    muon_prediction p = planned_predict(plan);
    muon_scheme_cost padded = planned_scheme(plan, MUON_SCHEME_PADDED);
    muon_scheme_cost turns = planned_scheme(plan, MUON_SCHEME_ROUND_ROBIN);
    double work = plan->classes[0].flops / 1e9;
    assert_int_equal(p.waves, 1);
    assert_close(p.bound_work, 1.5 * work, "work");
    assert_close(p.bound_matrix, work + 256 / 1e6, "matrix");
    assert_close(p.imbalance, 2 / 1.5, "imbalance");
    /* Every matrix: half goes there, half comes back. Both ranks: 3 x 256 bytes in all. */
    assert_int_equal(p.bytes_max, 768);
    assert_int_equal(p.bytes_mean, 768);
    /* The rank with two gathers 256 bytes, works, and scatters 256: one wave, nothing overlaps. */
    assert_close(p.makespan, 2 * work + 512 / 1e6, "makespan");
    /* One wave is not hidden by anybody. Two batches of two: 128 bytes there and 128 back each, sent and
     * received. */
    assert_int_equal(padded.bytes_max, 2 * 512);
    assert_int_equal(padded.padding_bytes, 256);
    assert_close(padded.makespan, 2 * work + 512 / 1e6, "padded");
    assert_int_equal(turns.bytes_max, 768);
    assert_int_equal(turns.padding_bytes, 0);
    assert_close(turns.makespan, 2 * work + 512 / 1e6, "round robin");
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* Replica groups do everything again in the other schemes: four ranks, two groups of two. */
TEST(replicas_are_repeated_by_the_other_schemes_only)
{
    planned c;
    planned_init(&c, 2, 2, 1, 1);
    for (int layer = 0; layer < 4; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 512, 512}, layer);
    muon_plan *plan = planned_make(&c);
    muon_prediction p = planned_predict(plan);
    muon_scheme_cost padded = planned_scheme(plan, MUON_SCHEME_PADDED);
    muon_scheme_cost turns = planned_scheme(plan, MUON_SCHEME_ROUND_ROBIN);
    double work = plan->classes[0].flops / c.config.machine.flops;
    assert_close(p.imbalance * p.bound_work, work, "one matrix each");
    assert_true(padded.makespan >= 2 * work && turns.makespan >= 2 * work);
    assert_int_equal(padded.padding_bytes, 0);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* 7 rows on 4 ranks are 2, 2, 2 and 1: a padded shard is one row of 10 too long. */
TEST(uneven_shards_are_padded_to_the_largest)
{
    planned c;
    planned_init(&c, 1, 4, 1, 1);
    for (int layer = 0; layer < 4; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 7, 10}, layer);
    muon_plan *plan = planned_make(&c);
    muon_prediction p = planned_predict(plan);
    muon_scheme_cost padded = planned_scheme(plan, MUON_SCHEME_PADDED);
    /* One batch; each rank sends 3 shards of 20 elements, of which the last rank's have 10. */
    assert_int_equal(padded.bytes_max, 2 * 3 * 20 * 8);
    assert_int_equal(padded.padding_bytes, (4 * 3 * 20 - 4 * 70 + (20 + 20 + 20 + 10)) * 8);
    assert_int_equal(p.padding_bytes, 0);
    muon_plan_destroy(plan);
    planned_free(&c);
}

TEST(one_process_sends_nothing)
{
    planned c;
    planned_init(&c, 1, 1, 1, 1);
    planned_add_model(&c, &gpt2);
    muon_plan *plan = planned_make(&c);
    muon_prediction p = planned_predict(plan);
    muon_scheme_cost padded = planned_scheme(plan, MUON_SCHEME_PADDED);
    muon_scheme_cost turns = planned_scheme(plan, MUON_SCHEME_ROUND_ROBIN);
    assert_int_equal(p.ranks, 1);
    assert_int_equal(p.bytes_max, 0);
    assert_int_equal(p.workspace_max, plan->cost.workspace_bytes);
    assert_close(p.makespan, p.bound_work, "makespan");
    assert_close(padded.makespan, p.bound_work, "padded");
    assert_close(turns.makespan, p.bound_work, "round robin");
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* ---- arguments, memory, text ------------------------------------------------------------------- */

TEST(arguments_are_checked_and_short_structs_are_served)
{
    planned c;
    planned_init(&c, 1, 2, 1, 1);
    planned_add(&c, &(tensor_kind){"w", 1, 1, 8, 8}, 0);
    muon_plan *plan = planned_make(&c);
    muon_prediction p;
    assert_fails(muon_plan_predict(NULL, &p, sizeof p), MUON_E_ARG, "muon_plan_predict");
    assert_fails(muon_plan_predict(plan, NULL, sizeof p), MUON_E_ARG, "muon_plan_predict");
    muon_scheme_cost cost;
    assert_fails(muon_plan_predict_scheme(NULL, MUON_SCHEME_PADDED, &cost, sizeof cost), MUON_E_ARG,
                 "muon_plan_predict_scheme");
    assert_fails(muon_plan_predict_scheme(plan, MUON_SCHEME_PADDED, NULL, sizeof cost), MUON_E_ARG,
                 "muon_plan_predict_scheme");
    assert_fails(muon_plan_predict_scheme(plan, (muon_scheme)7, &cost, sizeof cost), MUON_E_ARG,
                 "muon_plan_predict_scheme: 7 is not a scheme");
    memset(&p, 0x5a, sizeof p);
    assert_ok(muon_plan_predict(plan, &p, offsetof(muon_prediction, makespan)));
    assert_int_equal(p.ranks, 2);
    double untouched;
    memset(&untouched, 0x5a, sizeof untouched);
    assert_memory_equal(&p.makespan, &untouched, sizeof untouched);
    muon_plan_destroy(plan);
    planned_free(&c);
}

TEST(every_failing_allocation_is_an_error)
{
    planned c;
    muon_box boxes[4];
    muon_range ranges[2];
    planned_init(&c, 2, 2, 1, 1);
    add_zoo(&c, boxes, ranges);
    for (int budget = 0; budget < 2; budget++) {
        c.config.workspace_budget = budget ? INT64_C(16) << 20 : 0;
        int done = 0;
        for (int64_t k = 0; !done; k++) {
            muon_plan *plan = NULL;
            muon_prediction p;
            muon_scheme_cost cost;
            testlib_allow_allocations(k);
            muon_status status = muon_plan_create(&plan, &c.config, c.params, c.nparams);
            if (status == MUON_OK) status = muon_plan_predict(plan, &p, sizeof p);
            for (int scheme = 0; scheme < 2 && status == MUON_OK; scheme++)
                status = muon_plan_predict_scheme(plan, (muon_scheme)scheme, &cost, sizeof cost);
            testlib_allow_allocations(-1);
            done = status == MUON_OK;
            if (!done) assert_int_equal(status, MUON_E_NOMEM);
            muon_plan_destroy(plan);
        }
    }
    planned_free(&c);
}

static void append(void *user, const char *text, size_t length)
{
    strncat(user, text, length);
}

TEST(the_text_has_owners_and_the_comparison)
{
    planned c;
    planned_init(&c, 1, 8, 1, 1);
    planned_add(&c, &(tensor_kind){"dense", 1, 1, 256, 256}, 0);
    planned_add(&c, &(tensor_kind){"experts", 1, 16, 32, 64}, 0);
    planned_add(&c, &(tensor_kind){"pair", 1, 2, 16, 16}, 0);
    muon_plan *plan = planned_make(&c);
    char text[4096] = "";
    muon_plan_print(plan, append, text);
    int a = plan->items[17].owner, b = plan->items[18].owner;
    char pair[32], dense[32];
    snprintf(dense, sizeof dense, "  %d\n", plan->items[0].owner);
    snprintf(pair, sizeof pair, a == b ? "  %d\n" : "  %d, %d\n", a, b);
    const char *const wanted[] = {
        "8 ranks: makespan ", "padded all-to-all: ", "round robin: ", "  0..7\n", dense, pair};
    for (size_t i = 0; i < COUNT(wanted); i++)
        if (!strstr(text, wanted[i])) fail_msg("'%s' is not in:\n%s", wanted[i], text);
    muon_plan_destroy(plan);
    planned_free(&c);
}
