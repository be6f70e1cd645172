/* test_plan_waves.c - the waves of many ranks: what an owner has in one fits its buffer, ranks advance
 * together, local matrices hide the first gather and the last scatter, and budgets are kept. */
#include "muon/plan.h"
#include "tests/plan/plan_cases.h"

#include <math.h>

#include "plan/route/route.h"
#include "plan/route/waves.h"

/* ---- slots and order --------------------------------------------------------------------------- */

static void check_order(const muon_plan *plan)
{
    assert_int_equal(plan->wave[0], 0);
    assert_int_equal(plan->wave[plan->nwaves], plan->nitems);
    assert_int_equal(plan->cost.waves, plan->nwaves);
    for (size_t w = 0; w < plan->nwaves; w++) {
        if (plan->wave[w] >= plan->wave[w + 1]) fail_msg("wave %zu is empty", w);
        for (size_t i = plan->wave[w]; i < plan->wave[w + 1]; i++) {
            assert_int_equal(plan->items[plan->order[i]].wave, w);
            assert_true(i == plan->wave[w] || plan->order[i - 1] < plan->order[i]);
        }
    }
}

/* Slots of an owner in a wave follow each other in the order of items, on cache lines. */
static void check_slots(const muon_plan *plan)
{
    int64_t *end = calloc((size_t)plan->nranks, sizeof *end);
    assert_non_null(end);
    for (size_t w = 0; w < plan->nwaves; w++) {
        memset(end, 0, (size_t)plan->nranks * sizeof *end);
        for (size_t i = plan->wave[w]; i < plan->wave[w + 1]; i++) {
            const plan_item *item = &plan->items[plan->order[i]];
            if (item->class == PLAN_IDLE) continue;
            if (item->slot < end[item->owner] || item->slot % WAVE_LINE)
                fail_msg("wave %zu, item %u: slot %lld after %lld", w, plan->order[i],
                         (long long)item->slot, (long long)end[item->owner]);
            end[item->owner] = item->slot + muon__item_numel(item);
            if (end[item->owner] > plan->wave_floats)
                fail_msg("wave %zu: rank %d has %lld floats of %lld", w, item->owner,
                         (long long)end[item->owner], (long long)plan->wave_floats);
        }
    }
    free(end);
}

static void add_mixture(planned *c)
{
    for (int layer = 0; layer < 3; layer++) {
        planned_add(c, &(tensor_kind){"large", 1, 1, 400, 410}, layer);
        planned_add(c, &(tensor_kind){"experts", 1, 40, 33, 61}, layer);
        planned_add(c, &(tensor_kind){"gaps", 1, 1, 107, 57}, layer)->matrices =
            "rows 3*[20, 12], skip *; cols skip 7, 50";
        planned_add(c, &(tensor_kind){"row", 1, 1, 1, 777}, layer);
    }
}

/* The number that the error names. */
static int64_t least_budget(const planned *c)
{
    muon_config config = c->config;
    muon_plan *plan = NULL;
    long long bytes = 0;
    config.workspace_budget = 1;
    assert_fails(muon_plan_create(&plan, &config, c->params, c->nparams), MUON_E_BUDGET,
                 "workspace_budget is 1 bytes, but ");
    assert_int_equal(sscanf(strstr(muon_last_error(), "needs "), "needs %lld", &bytes), 1);
    return bytes;
}

static const int meshes[][4] = {{1, 2, 1, 1}, {1, 5, 1, 1}, {2, 2, 1, 1},
                                {1, 3, 2, 2}, {3, 1, 1, 1}, {1, 24, 1, 1}};

TEST(waves_keep_their_size_and_order_for_any_budget)
{
    for (size_t i = 0; i < COUNT(meshes); i++) {
        planned c;
        planned_init(&c, meshes[i][0], meshes[i][1], meshes[i][2], meshes[i][3]);
        add_mixture(&c);
        c.config.team_max = 1; /* a budget may do away with teams, and then waves are others */
        int64_t least = least_budget(&c), most = 0;
        size_t fewest = 0;
        for (int k = 0; k <= 12; k++) { /* no limit; then from the least to the most */
            c.config.workspace_budget = k ? least + (most - least) * (k - 1) / 11 : 0;
            muon_plan *plan = planned_make(&c);
            muon_plan_cost cost;
            assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
            check_order(plan);
            check_slots(plan);
            if (k == 0) {
                most = cost.workspace_bytes;
                fewest = plan->nwaves;
            } else if (cost.workspace_bytes > c.config.workspace_budget) {
                fail_msg("mesh %zu: %lld bytes, budget %lld", i, (long long)cost.workspace_bytes,
                         (long long)c.config.workspace_budget);
            }
            assert_true(plan->nwaves >= fewest);
            if (k == 12) assert_int_equal(plan->nwaves, fewest);
            muon_plan_destroy(plan);
        }
        planned_free(&c);
    }
}

TEST(the_budget_that_the_error_names_is_the_least_that_works)
{
    for (size_t i = 0; i < COUNT(meshes); i++) {
        planned c;
        planned_init(&c, meshes[i][0], meshes[i][1], meshes[i][2], meshes[i][3]);
        add_mixture(&c);
        int64_t least = least_budget(&c);
        for (int threads = 1; threads <= 8; threads *= 2) {
            c.config.threads = threads; /* a rank with more threads must not refuse alone */
            assert_int_equal(least_budget(&c), least);
            muon_plan *plan = NULL;
            c.config.workspace_budget = least - 1;
            assert_fails(muon_plan_create(&plan, &c.config, c.params, c.nparams), MUON_E_BUDGET,
                         "bytes, but");
            c.config.workspace_budget = least;
            plan = planned_make(&c);
            muon_plan_cost cost;
            assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
            assert_true(cost.workspace_bytes <= least);
            muon_plan_destroy(plan);
        }
        planned_free(&c);
    }
}

/* Room for fewer waves at once is less memory, and fewer of them never need more. */
TEST(fewer_waves_in_flight_need_less_workspace)
{
    planned c;
    planned_init(&c, 1, 4, 1, 1);
    planned_add_model(&c, &gpt2);
    int64_t bytes[4] = {0};
    for (int n = 1; n <= 3; n++) {
        c.config.in_flight = n;
        muon_plan *plan = planned_make(&c);
        muon_plan_cost cost;
        assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
        bytes[n] = cost.workspace_bytes;
        int64_t ring = plan->wave_floats * (int64_t)sizeof(float);
        if (n > 1) assert_true(bytes[n] - bytes[n - 1] >= ring);
        muon_plan_destroy(plan);
    }
    planned_free(&c);
}

static int64_t in_flight_of(const muon_plan *plan)
{
    muon_plan_cost cost;
    assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
    return cost.in_flight;
}

/* Few waves are in flight where ranks work in step, all of them where one costly matrix takes as long as
 * many others; and as many as were asked for. */
TEST(all_waves_are_in_flight_where_that_is_worth_the_memory)
{
    planned c;
    planned_init(&c, 1, 8, 1, 1);
    planned_add_model(&c, &llama_8b);
    c.config.team_max = 1;
    muon_plan *even = planned_make(&c);
    assert_true(even->nwaves > 3);
    assert_int_equal(in_flight_of(even), 3);
    muon_plan_destroy(even);
    planned_free(&c);

    planned_init(&c, 1, 512, 1, 1);
    planned_add_model(&c, &glm_45);
    muon_plan *uneven = planned_make(&c);
    assert_int_equal(in_flight_of(uneven), uneven->nwaves);
    muon_prediction all = planned_predict(uneven);
    for (int n = 2; n <= 3; n++) {
        c.config.in_flight = n;
        muon_plan *few = planned_make(&c);
        assert_int_equal(in_flight_of(few), n);
        assert_true(planned_predict(few).makespan > all.makespan * 1.02);
        muon_plan_destroy(few);
    }
    c.config.in_flight = 0;
    c.config.workspace_budget = all.workspace_max / 2;
    muon_plan *tight = planned_make(&c);
    assert_int_equal(in_flight_of(tight), 3);
    assert_true(planned_predict(tight).workspace_max <= c.config.workspace_budget);
    muon_plan_destroy(tight);
    muon_plan_destroy(uneven);
    planned_free(&c);
}

/* ---- progress ---------------------------------------------------------------------------------- */

TEST(ranks_advance_together)
{
    static const struct {
        const known_model *model;
        int fsdp;
    } cases[] = {{&gpt2, 2}, {&gpt2, 3}, {&llama_8b, 8}, {&qwen3_30b, 64}, {&qwen3_30b, 100}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        planned c;
        planned_init(&c, 1, cases[i].fsdp, 1, 1);
        planned_add_model(&c, cases[i].model);
        muon_plan *plan = planned_make(&c);
        double *work = planned_work(plan);
        double *done = calloc((size_t)plan->nranks, sizeof *done);
        assert_non_null(done);
        double costliest = 0;
        for (size_t k = 0; k < plan->nclasses; k++)
            costliest = fmax(costliest, plan->classes[k].flops);
        for (size_t w = 0; w < plan->nwaves; w++) {
            double first = 1, last = 0, slack = 0;
            for (size_t k = plan->wave[w]; k < plan->wave[w + 1]; k++) {
                const plan_item *item = &plan->items[plan->order[k]];
                done[item->owner] += plan->classes[item->class].flops;
            }
            for (int r = 0; r < plan->nranks; r++) {
                first = fmin(first, done[r] / work[r]);
                last = fmax(last, done[r] / work[r]);
                slack = fmax(slack, costliest / work[r]);
            }
            /* Half a matrix on either side of the goal, one for the wave's end, and the two ends. */
            double allowed = 2 * slack + 3.0 / (double)plan->nwaves;
            testlib_assert_error(last - first, allowed, "%s on %d ranks, wave %zu: fractions apart",
                                 cases[i].model->name, cases[i].fsdp, w);
        }
        free(work);
        free(done);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

TEST(a_little_work_is_one_wave)
{
    planned c;
    planned_init(&c, 1, 4, 1, 1);
    for (int layer = 0; layer < 40; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 100, 128}, layer);
    muon_plan *plan = planned_make(&c);
    assert_int_equal(plan->nwaves, 1);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* Dense matrices have to be gathered, experts are whole on their ranks. */
TEST(local_matrices_open_and_close_the_step)
{
    planned c;
    planned_init(&c, 1, 8, 1, 1);
    for (int layer = 0; layer < 24; layer++) {
        planned_add(&c, &(tensor_kind){"dense", 1, 1, 1024, 1024}, layer);
        planned_add(&c, &(tensor_kind){"experts", 1, 32, 512, 512}, layer);
    }
    muon_plan *plan = planned_make(&c);
    assert_true(plan->nwaves > 4);
    for (int r = 0; r < plan->nranks; r++) {
        for (size_t w = 0; w < plan->nwaves; w += plan->nwaves - 1) {
            muon_wave_load load;
            assert_ok(muon_plan_get_wave(plan, r, w, &load, sizeof load));
            if (load.matrices == 0 || load.gather_bytes_received || load.scatter_bytes_sent)
                fail_msg("rank %d, wave %zu: %lld matrices, %lld and %lld bytes", r, w,
                         (long long)load.matrices, (long long)load.gather_bytes_received,
                         (long long)load.scatter_bytes_sent);
        }
    }
    muon_prediction p = planned_predict(plan);
    testlib_assert_error(p.makespan / (p.imbalance * p.bound_work), 1 + 1e-9,
                         "nothing is left to wait for");
    muon_plan_destroy(plan);
    planned_free(&c);
}
