/* test_dispatch.c - who orthogonalizes what: everything once, evenly, near to where it is, and the same
 * on every rank. */
#include "muon/plan.h"
#include "tests/plan/plan_cases.h"

#include <math.h>

static double largest_of(const double *x, int n)
{
    double largest = 0;
    for (int i = 0; i < n; i++)
        largest = fmax(largest, x[i]);
    return largest;
}

/* ---- everything has one owner ------------------------------------------------------------------ */

TEST(every_matrix_has_one_owner_and_what_is_in_none_has_none)
{
    static const int meshes[][4] = {{1, 1, 1, 1}, {1, 2, 1, 1},   {1, 7, 1, 1}, {2, 3, 2, 1},
                                    {4, 1, 1, 1}, {1, 100, 1, 1}, {3, 5, 2, 2}, {1, 4096, 1, 1}};
    for (size_t i = 0; i < COUNT(meshes); i++) {
        planned c;
        planned_init(&c, meshes[i][0], meshes[i][1], meshes[i][2], meshes[i][3]);
        planned_add(&c, &(tensor_kind){"experts", 1, 13, 10, 24}, 0);
        planned_add(&c, &(tensor_kind){"gaps", 1, 1, 107, 57}, 0)->matrices =
            "rows 3*[20, 12], skip *; cols skip 7, 50";
        planned_add(&c, &(tensor_kind){"row", 1, 1, 1, 777}, 0);
        muon_plan *plan = planned_make(&c);
        free(planned_work(plan)); /* owners in range */
        size_t idle = 0;
        for (size_t k = 0; k < plan->nitems; k++) {
            idle += plan->items[k].class == PLAN_IDLE;
            if ((plan->items[k].owner < 0) != (plan->items[k].class == PLAN_IDLE))
                fail_msg("mesh %zu: item %zu has owner %d", i, k, plan->items[k].owner);
        }
        assert_true(idle > 0);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

TEST(fewer_matrices_than_ranks_go_to_different_ranks)
{
    static const int counts[] = {1, 2, 5, 15, 16, 32, 48};
    for (size_t i = 0; i < COUNT(counts); i++) {
        planned c;
        planned_init(&c, 1, 16, 1, 1);
        for (int layer = 0; layer < counts[i]; layer++)
            planned_add(&c, &(tensor_kind){"w", 1, 1, 64, 96}, layer);
        muon_plan *plan = planned_make(&c);
        double *work = planned_work(plan);
        double one = plan->cost.flops / counts[i];
        int most = (counts[i] + 15) / 16;
        if (fabs(largest_of(work, 16) - one * most) > 1)
            fail_msg("%d matrices: a rank has %g of them", counts[i], largest_of(work, 16) / one);
        free(work);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

TEST(replicas_share_the_work_instead_of_repeating_it)
{
    planned c;
    planned_init(&c, 8, 4, 1, 1);
    planned_add_model(&c, &gpt2);
    muon_plan *plan = planned_make(&c);
    double *work = planned_work(plan);
    for (int r = 0; r < 32; r++)
        if (work[r] > 1.4 * plan->cost.flops / 32 || work[r] < 0.6 * plan->cost.flops / 32)
            fail_msg("rank %d does %g of the work", r, work[r] / plan->cost.flops);
    free(work);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* ---- evenly ------------------------------------------------------------------------------------ */

TEST(work_is_even_on_mixes_of_attention_and_mlp)
{
    static const struct {
        int64_t d, mlp, kv;
        int layers, ranks;
    } cases[] = {{512, 2048, 512, 12, 4},    {512, 2048, 128, 12, 6},   {1024, 4096, 256, 24, 8},
                 {768, 3072, 768, 12, 7},    {1024, 2816, 128, 24, 16}, {2048, 8192, 512, 48, 24},
                 {4096, 14336, 1024, 32, 8}, {1024, 4096, 256, 24, 20}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        planned c;
        planned_init(&c, 1, cases[i].ranks, 1, 1);
        for (int layer = 0; layer < cases[i].layers; layer++) {
            muon_param *qkv = planned_add(
                &c, &(tensor_kind){"qkv", 1, 1, cases[i].d + 2 * cases[i].kv, cases[i].d}, layer);
            char *text = c.matrices[c.nparams - 1];
            snprintf(text, PLANNED_TEXT, "rows %lld, %lld, %lld", (long long)cases[i].d,
                     (long long)cases[i].kv, (long long)cases[i].kv);
            qkv->matrices = text;
            planned_add(&c, &(tensor_kind){"o", 1, 1, cases[i].d, cases[i].d}, layer);
            planned_add(&c, &(tensor_kind){"up", 1, 1, cases[i].mlp, cases[i].d}, layer);
            planned_add(&c, &(tensor_kind){"down", 1, 1, cases[i].d, cases[i].mlp}, layer);
        }
        muon_plan *plan = planned_make(&c);
        double *work = planned_work(plan);
        double imbalance = largest_of(work, cases[i].ranks) * cases[i].ranks / plan->cost.flops;
        testlib_assert_error(imbalance, 1.15, "case %zu: the busiest rank against the mean", i);
        free(work);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

/* The smallest possible largest load, by trying everything. */
static double optimum(const double *cost, int n, double *load, int ranks)
{
    if (n == 0) return largest_of(load, ranks);
    double best = HUGE_VAL;
    for (int r = 0; r < ranks; r++) {
        load[r] += cost[n - 1];
        best = fmin(best, optimum(cost, n - 1, load, ranks));
        load[r] -= cost[n - 1];
    }
    return best;
}

TEST(the_largest_load_is_within_four_thirds_of_the_optimum)
{
    testlib_seed(7);
    for (int i = 0; i < 60; i++) {
        int ranks = 2 + i % 3, n = 3 + (int)(testlib_bits() % 6);
        planned c;
        planned_init(&c, i % 2 ? ranks : 1, i % 2 ? 1 : ranks, 1, 1);
        c.config.machine.bandwidth = c.config.machine.node_bandwidth = 1e30; /* work alone counts */
        for (int k = 0; k < n; k++)
            planned_add(&c,
                        &(tensor_kind){"w", 1, 1, 16 + (int64_t)(testlib_bits() % 200),
                                       16 + (int64_t)(testlib_bits() % 200)},
                        k);
        muon_plan *plan = planned_make(&c);
        double *work = planned_work(plan), cost[16], load[4] = {0};
        for (int k = 0; k < n; k++)
            cost[k] = plan->classes[plan->items[k].class].flops;
        double bound = 4.0 / 3 - 1.0 / (3 * ranks);
        testlib_assert_error(largest_of(work, ranks) / optimum(cost, n, load, ranks), bound + 1e-9,
                             "%d matrices on %d ranks, seed %d: against the optimum", n, ranks, i);
        free(work);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

/* ---- near to where it is ----------------------------------------------------------------------- */

TEST(experts_that_are_whole_on_a_rank_stay_there)
{
    static const struct {
        int replicate, fsdp, ep, experts;
    } cases[] = {{1, 4, 1, 16}, {1, 2, 4, 8}, {1, 8, 8, 64}, {1, 16, 1, 48}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        planned c;
        planned_init(&c, cases[i].replicate, cases[i].fsdp, cases[i].ep, 1);
        for (int layer = 0; layer < 5; layer++)
            planned_add(&c, &(tensor_kind){"w", 1, cases[i].experts, 32, 80}, layer);
        muon_plan *plan = planned_make(&c);
        muon_prediction p = planned_predict(plan);
        if (p.bytes_max != 0 || fabs(p.imbalance - 1) > 1e-9)
            fail_msg("case %zu: %lld bytes, imbalance %g", i, (long long)p.bytes_max, p.imbalance);
        for (size_t k = 0; k < plan->nitems; k++) {
            const plan_item *item = &plan->items[k];
            const layout *l = plan->params[item->param].layout;
            assert_int_equal(muon__layout_nholders(l, 0), 1);
            box b;
            muon__layout_cell(l, muon__layout_cell_of(l, item->owner, 0), &b);
            assert_true(b.begin[0] <= item->rows.start && item->rows.start + 32 <= b.end[0]);
        }
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

/* Two ranks; the first holds 9 of 10 rows of every matrix. */
static int owned_by_second(double bandwidth)
{
    static const muon_box boxes[] = {{.rank = 0, .begin = {0, 0}, .end = {90, 64}},
                                     {.rank = 1, .begin = {90, 0}, .end = {100, 64}}};
    planned c;
    planned_init(&c, 1, 2, 1, 1);
    c.config.machine.bandwidth = c.config.machine.node_bandwidth = bandwidth;
    for (int layer = 0; layer < 8; layer++) {
        muon_param *p = planned_add(&c, &(tensor_kind){"w", 1, 1, 100, 64}, layer);
        p->mesh = p->placement = NULL;
        p->boxes = boxes;
        p->nboxes = COUNT(boxes);
    }
    muon_plan *plan = planned_make(&c);
    int count = 0;
    for (size_t i = 0; i < plan->nitems; i++)
        count += plan->items[i].owner == 1;
    muon_plan_destroy(plan);
    planned_free(&c);
    return count;
}

TEST(slow_messages_keep_matrices_where_most_of_them_is)
{
    assert_int_equal(owned_by_second(1e30), 4);
    assert_int_equal(owned_by_second(1e3), 0);
}

TEST(what_does_not_fit_its_holder_moves_inside_the_node_first)
{
    planned c;
    planned_init(&c, 1, 16, 1, 1);
    static const muon_box all = {.rank = 9, .begin = {0, 0}, .end = {600, 2048}};
    muon_param *p = planned_add(&c, &(tensor_kind){"w", 1, 2, 300, 2048}, 0);
    p->mesh = p->placement = NULL;
    p->boxes = &all;
    p->nboxes = 1;
    muon_plan *plan = planned_make(&c);
    int a = plan->items[0].owner, b = plan->items[1].owner;
    if (!(a == 9 || b == 9) || a == b || a / 8 != 1 || b / 8 != 1) fail_msg("owners %d, %d", a, b);
    muon_plan_destroy(plan);
    planned_free(&c);
}

TEST(large_matrices_are_spread_over_the_nodes)
{
    planned c;
    planned_init(&c, 1, 64, 1, 1); /* 8 nodes */
    c.config.team_max = 1;
    for (int layer = 0; layer < 8; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 512, 512}, layer);
    muon_plan *plan = planned_make(&c);
    int seen[8] = {0};
    for (size_t i = 0; i < plan->nitems; i++)
        if (seen[plan->items[i].owner / 8]++) fail_msg("two on node %d", plan->items[i].owner / 8);
    muon_plan_destroy(plan);
    planned_free(&c);
}

TEST(a_mesh_of_some_ranks_uses_the_others_for_work_too)
{
    planned c;
    planned_init(&c, 1, 4, 1, 1);
    c.config.nranks = 8; /* ranks 4..7 hold nothing */
    for (int layer = 0; layer < 16; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 1024, 1024}, layer);
    muon_plan *plan = planned_make(&c);
    double *work = planned_work(plan);
    for (int r = 0; r < 8; r++)
        assert_true(fabs(work[r] - plan->cost.flops / 8) < 1);
    free(work);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* ---- the same on every rank -------------------------------------------------------------------- */

TEST(owners_and_waves_are_the_same_every_time_and_for_any_threads)
{
    planned c;
    planned_init(&c, 2, 12, 1, 2);
    planned_add_model(&c, &gpt2);
    for (int layer = 0; layer < 12; layer++)
        planned_add(&c, &(tensor_kind){"experts", 1, 10, 100, 300}, layer);
    muon_plan *first = planned_make(&c);
    static const int threads[] = {1, 2, 3, 16, 64};
    for (size_t i = 0; i < COUNT(threads); i++) {
        c.config.threads = threads[i];
        muon_plan *again = planned_make(&c);
        assert_true(muon_plan_get_hash(first) == muon_plan_get_hash(again));
        assert_int_equal(first->wave_floats, again->wave_floats);
        assert_int_equal(first->nwaves, again->nwaves);
        assert_memory_equal(first->items, again->items, first->nitems * sizeof *first->items);
        assert_memory_equal(first->order, again->order, first->nitems * sizeof *first->order);
        muon_plan_destroy(again);
    }
    muon_plan_destroy(first);
    planned_free(&c);
}

TEST(the_machine_changes_owners_and_so_the_hash)
{
    planned c;
    planned_init(&c, 1, 24, 1, 1);
    for (int layer = 0; layer < 12; layer++)
        planned_add(&c, &(tensor_kind){"experts", 1, 10, 100, 300}, layer);
    muon_plan *a = planned_make(&c);
    c.config.machine.bandwidth = c.config.machine.node_bandwidth = 1e3;
    muon_plan *b = planned_make(&c);
    size_t moved = 0;
    for (size_t i = 0; i < a->nitems; i++)
        moved += a->items[i].owner != b->items[i].owner;
    assert_true(moved > 0);
    assert_true(muon_plan_get_hash(a) != muon_plan_get_hash(b));
    muon_plan_destroy(a);
    muon_plan_destroy(b);
    planned_free(&c);
}
