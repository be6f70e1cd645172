/* test_teams.c - matrices that several ranks share: every tile and every element once, whoever shares, and
 * teams only where they make a step shorter. */
#include "plan/team/shape.h"
#include "tests/plan/plan_cases.h"

#include <math.h>

/* ---- how a matrix is shared -------------------------------------------------------------------- */

static ns_plan make_ns(int64_t rows, int64_t cols, muon_algorithm algorithm)
{
    muon_group group;
    ns_plan ns;
    muon_group_init(&group, sizeof group);
    group.algorithm = algorithm;
    assert_ok(muon__ns_plan_make(&ns, rows, cols, &group));
    return ns;
}

static void check_deal(const tile_deal *d, int size)
{
    int64_t n = muon__la_count_tiles(&d->tiling), floats = 0;
    unsigned char *dealt = calloc((size_t)n, 1);
    assert_non_null(dealt);
    assert_int_equal(d->first[size], n);
    for (int64_t i = 0; i < n; i++) {
        la_tile t = muon__la_get_tile(&d->tiling, d->tiles[i]);
        assert_int_equal(dealt[d->tiles[i]]++, 0);
        assert_int_equal(d->offset[i], floats);
        floats += t.rows * t.cols;
    }
    assert_int_equal(d->offset[n], floats);
    assert_true(floats <= d->tiling.m * d->tiling.m); /* it fits where X is packed */
    free(dealt);
}

/* Strips follow each other along the longer side, begin and end with tiles, and cover the matrix. */
static void check_strips(const team_shape *s, const ns_plan *ns)
{
    int64_t elements = 0, at = 0;
    int rows = ns->rows >= ns->cols;
    for (int k = 0; k < s->size; k++) {
        const rectangle *r = &s->strips[k];
        int64_t begin = rows ? r->row : r->col, length = rows ? r->nrows : r->ncols;
        int64_t edge = rows ? s->apply.height : s->apply.width;
        assert_int_equal(begin, at);
        assert_true(begin % edge == 0 || length == 0);
        at += length;
        elements += r->nrows * r->ncols;
    }
    assert_int_equal(elements, ns->rows * ns->cols);
}

TEST(every_tile_and_every_element_is_dealt_once)
{
    static const int64_t shapes[][2] = {{1, 1},       {1, 900},     {900, 1},
                                        {320, 320},   {321, 700},   {529, 529},
                                        {2048, 2048}, {1000, 4097}, {4097, 1000}};
    static const int sizes[] = {2, 3, 4, 7, 33, TEAM_MAX};
    static const muon_algorithm algorithms[] = {MUON_ALGORITHM_GRAM, MUON_ALGORITHM_SYMMETRIC,
                                                MUON_ALGORITHM_STANDARD};
    for (size_t i = 0; i < COUNT(shapes) * COUNT(sizes) * COUNT(algorithms); i++) {
        ns_plan ns = make_ns(shapes[i % COUNT(shapes)][0], shapes[i % COUNT(shapes)][1],
                             algorithms[i / COUNT(shapes) % COUNT(algorithms)]);
        int size = sizes[i / COUNT(shapes) / COUNT(algorithms)];
        team_shape s;
        assert_ok(muon__team_shape_make(&s, &ns, 0, size));
        check_deal(&s.symmetric, size);
        check_deal(&s.full, size);
        check_strips(&s, &ns);
        double flops = 0, most = 0;
        for (int k = 0; k < size; k++) {
            flops += s.flops[k];
            most = fmax(most, s.flops[k]);
        }
        assert_true(fabs(flops / muon__ns_flops(&ns) - 1) < 1e-9);
        assert_true(most == muon__team_most_flops(&ns, size));
        muon__team_shape_free(&s);
    }
}

TEST(members_share_a_large_matrix_evenly)
{
    static const struct {
        int64_t rows, cols;
        int size;
        double most; /* of the busiest, as a multiple of the mean */
    } cases[] = {{2048, 2048, 2, 1.02}, {2048, 8192, 2, 1.02}, {8192, 28672, 5, 1.02},
                 {8192, 8192, 4, 1.02}, {2048, 2048, 3, 1.08}, {16384, 16384, 24, 1.08}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        ns_plan ns = make_ns(cases[i].rows, cases[i].cols, MUON_ALGORITHM_AUTO);
        double most = muon__team_most_flops(&ns, cases[i].size) * cases[i].size;
        testlib_assert_error(most / muon__ns_flops(&ns), cases[i].most, "%lld x %lld by %d",
                             (long long)cases[i].rows, (long long)cases[i].cols, cases[i].size);
    }
}

/* ---- who shares it ----------------------------------------------------------------------------- */

/* Every matrix has `size` members, or as many as are said to be there; all of them different. */
static void check_members(const muon_plan *plan, int size)
{
    for (size_t i = 0; i < muon_plan_count_matrices(plan); i++) {
        muon_matrix m;
        assert_ok(muon_plan_get_matrix(plan, i, &m, sizeof m));
        if (size) assert_int_equal(m.team, size);
        int last = -1;
        int64_t elements = 0;
        for (int k = 0; k < m.team; k++) {
            muon_member member;
            assert_ok(muon_plan_get_member(plan, i, k, &member, sizeof member));
            if (k == 0) assert_int_equal(member.rank, m.owner);
            assert_true(member.rank > last && member.rank < plan->nranks);
            last = member.rank;
            elements += member.rows * member.cols;
        }
        assert_int_equal(elements, m.rows * m.cols);
    }
}

TEST(teams_can_be_forced_and_have_as_many_members_as_asked_for)
{
    static const int forced[] = {2, 3, 5, TEAM_MAX};
    for (size_t i = 0; i < COUNT(forced); i++) {
        planned c;
        planned_init(&c, 2, 3, 1, 1);
        c.config.team_min = forced[i];
        planned_add(&c, &(tensor_kind){"experts", 1, 13, 10, 24}, 0);
        planned_add(&c, &(tensor_kind){"gaps", 1, 1, 107, 57}, 0)->matrices =
            "rows 3*[20, 12], skip *; cols skip 7, 50";
        planned_add(&c, &(tensor_kind){"large", 1, 1, 700, 1500}, 0);
        muon_plan *plan = planned_make(&c);
        check_members(plan, forced[i] < 6 ? forced[i] : 6);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

static muon_prediction predict(const planned *c, muon_plan **plan)
{
    muon_prediction p;
    assert_ok(muon_plan_create(plan, &c->config, c->params, c->nparams));
    assert_ok(muon_plan_predict(*plan, &p, sizeof p));
    return p;
}

TEST(a_few_large_matrices_on_many_ranks_are_shared_and_the_step_is_shorter)
{
    planned c;
    planned_init(&c, 1, 32, 1, 1);
    for (int layer = 0; layer < 5; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 4096, 4096}, layer);
    muon_plan *teams = NULL, *owners = NULL;
    muon_prediction with = predict(&c, &teams);
    c.config.team_max = 1;
    muon_prediction without = predict(&c, &owners);
    assert_int_equal(with.teams, 5);
    assert_true(with.team_max > 4 && with.team_max <= 16);
    assert_int_equal(without.teams, 0);
    assert_true(with.makespan < 0.3 * without.makespan);
    assert_true(with.lower_bound == with.bound_teams && with.bound_teams > with.bound_work);
    assert_true(without.lower_bound == without.bound_matrix);
    assert_true(muon_plan_get_hash(teams) != muon_plan_get_hash(owners));
    check_members(teams, 0);
    muon_plan_destroy(teams);
    muon_plan_destroy(owners);
    planned_free(&c);
}

TEST(a_team_stays_within_a_node_if_it_can)
{
    planned c;
    planned_init(&c, 1, 32, 1, 1);
    for (int layer = 0; layer < 4; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 4096, 4096}, layer);
    muon_plan *plan = NULL;
    muon_prediction p = predict(&c, &plan);
    assert_int_equal(p.teams, 4);
    for (size_t i = 0; i < 4; i++) {
        muon_matrix m;
        muon_member last;
        assert_ok(muon_plan_get_matrix(plan, i, &m, sizeof m));
        assert_ok(muon_plan_get_member(plan, i, m.team - 1, &last, sizeof last));
        assert_int_equal(m.owner / 8, last.rank / 8);
    }
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* As many equal matrices as ranks, many small ones, tiny ones: one owner each. */
TEST(there_are_no_teams_where_they_do_not_help)
{
    static const struct {
        int count;
        int64_t rows, cols;
    } cases[] = {{8, 2048, 2048}, {80, 1024, 1024}, {3, 64, 96}, {1, 300, 300}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        planned c;
        planned_init(&c, 1, 8, 1, 1);
        for (int layer = 0; layer < cases[i].count; layer++)
            planned_add(&c, &(tensor_kind){"w", 1, 1, cases[i].rows, cases[i].cols}, layer);
        muon_plan *plan = NULL;
        muon_prediction p = predict(&c, &plan);
        if (p.teams)
            fail_msg("%d of %lld x %lld: %lld teams", cases[i].count, (long long)cases[i].rows,
                     (long long)cases[i].cols, (long long)p.teams);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

static int orthogonalize(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    (void)user, (void)x, (void)rows, (void)cols, (void)ld;
    return 0;
}

TEST(a_callback_and_the_reference_path_have_one_owner_each)
{
    for (int reference = 0; reference < 2; reference++) {
        planned c;
        planned_init(&c, 1, 8, 1, 1);
        planned_add(&c, &(tensor_kind){"w", 1, 1, 2048, 2048}, 0);
        c.config.team_min = 4;
        if (reference)
            c.config.path = MUON_PATH_REFERENCE;
        else
            c.config.orthogonalize = orthogonalize;
        muon_plan *plan = NULL;
        assert_int_equal(predict(&c, &plan).teams, 0);
        muon_plan_destroy(plan);
        planned_free(&c);
    }
}

TEST(a_budget_that_is_too_small_for_teams_leaves_one_owner_each)
{
    planned c;
    planned_init(&c, 1, 8, 1, 1);
    planned_add(&c, &(tensor_kind){"w", 1, 1, 2048, 2048}, 0);
    c.config.team_max = 1;
    c.config.in_flight = 1; /* else an owner has three slots, and needs more than a team */
    muon_plan *alone = NULL, *plan = NULL;
    c.config.workspace_budget = predict(&c, &alone).workspace_max;
    c.config.team_max = 0;
    muon_prediction p = predict(&c, &plan);
    assert_int_equal(p.teams, 0);
    assert_true(p.workspace_max <= c.config.workspace_budget);
    muon_plan_destroy(plan);
    c.config.workspace_budget *= 2;
    p = predict(&c, &plan);
    assert_int_equal(p.teams, 1);
    assert_true(p.workspace_max <= c.config.workspace_budget);
    muon_plan_destroy(plan);
    muon_plan_destroy(alone);
    planned_free(&c);
}

TEST(wrong_settings_and_members_are_named)
{
    planned c;
    planned_init(&c, 1, 8, 1, 1);
    planned_add(&c, &(tensor_kind){"w", 1, 1, 64, 64}, 0);
    muon_plan *plan = NULL;
    c.config.team_max = 65;
    assert_fails(muon_plan_create(&plan, &c.config, c.params, c.nparams), MUON_E_VALUE,
                 "team_max is 65, must be 0..64");
    c.config.team_max = 0;
    c.config.team_min = 0;
    assert_fails(muon_plan_create(&plan, &c.config, c.params, c.nparams), MUON_E_VALUE,
                 "team_min is 0, must be 1..64");
    c.config.team_min = 3;
    plan = planned_make(&c);
    muon_member member;
    assert_fails(muon_plan_get_member(plan, 0, 3, &member, sizeof member), MUON_E_ARG,
                 "member 3 does not exist: matrix 0 has 3");
    assert_fails(muon_plan_get_member(plan, 1, 0, &member, sizeof member), MUON_E_ARG,
                 "matrix 1 does not exist");
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* What its members hold besides can then go to others of the node, which is near. */
TEST(teams_spread_over_nodes)
{
    planned c;
    planned_init(&c, 1, 128, 1, 1);
    for (int layer = 0; layer < 12; layer++)
        planned_add(&c, &(tensor_kind){"w", 1, 1, 4096, 4096}, layer);
    c.config.machine = (muon_machine){400e12, 300e9, 40e9, 8, 1e-5, 0};
    c.config.team_max = 4;
    muon_plan *plan = NULL;
    predict(&c, &plan);
    int teams[16] = {0};
    assert_int_equal(plan->nteams, 12);
    for (size_t i = 0; i < plan->nteams; i++)
        teams[plan->items[plan->teams[i].first].owner / 8]++;
    for (int i = 0; i < 16; i++)
        assert_true(teams[i] <= 1);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* Although a wave that has room for the largest matrix has room for several strips. */
TEST(large_strips_of_a_rank_are_in_different_waves)
{
    enum { RANKS = 768, LITTLE = 2 * 1024 * 1024 };
    static const tensor_kind llama_405b[] = {
        {"q", 1, 1, 16384, 16384},   {"k", 1, 1, 1024, 16384},     {"v", 1, 1, 1024, 16384},
        {"o", 1, 1, 16384, 16384},   {"gate", 1, 1, 53248, 16384}, {"up", 1, 1, 53248, 16384},
        {"down", 1, 1, 16384, 53248}};
    planned c;
    planned_init(&c, 1, RANKS, 1, 1);
    for (int layer = 0; layer < 126; layer++)
        for (size_t k = 0; k < COUNT(llama_405b); k++)
            planned_add(&c, &llama_405b[k], layer);
    c.config.machine = (muon_machine){400e12, 300e9, 40e9, 8, 1e-5, 0};
    c.config.wire = MUON_BF16;
    muon_plan *plan = NULL;
    predict(&c, &plan);
    assert_true(plan->nteams > 0);
    int64_t *floats = calloc(plan->nwaves * RANKS, sizeof *floats);
    assert_non_null(floats);
    int several = 0;
    for (size_t i = 0; i < plan->nitems; i++) {
        const plan_item *item = &plan->items[i];
        if (item->team == PLAN_NO_TEAM) continue;
        int64_t *at = &floats[(size_t)item->wave * RANKS + (size_t)item->owner];
        several |= *at > 0 || item->wave > 0;
        assert_true(*at == 0 || *at + muon__item_numel(item) <= LITTLE);
        *at += muon__item_numel(item);
    }
    assert_true(several); /* some rank is in more than one team */
    free(floats);
    muon_plan_destroy(plan);
    planned_free(&c);
}
