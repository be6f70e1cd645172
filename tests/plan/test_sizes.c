/* test_sizes.c - sizes whose products and sums do not fit: an error at once that names the parameter and
 * the numbers, never a plan with numbers that have wrapped around. What does fit is planned. */
#include "muon/plan.h"
#include "tests/world/fleet.h"

#include <limits.h>

#define TERA(n) ((int64_t)(n) << 40)
enum { ELEMENTS_LOG2 = 48 }; /* what a plan can have */

typedef struct sizes_case {
    int group;
    const char *matrices;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    const char *text;
} sizes_case;

static void make_fleet(fleet *f, const sizes_case *c)
{
    fleet_init(f);
    fleet_add(f, MUONS, "small", NULL, NULL, SHAPE(4, 4));
    fleet_add(f, c->group, "large", c->matrices, NULL, c->shape, c->ndim);
}

TEST(what_does_not_fit_is_refused)
{
    static const sizes_case cases[] = {
        {MUONS, NULL, 2, {1LL << 31, 1LL << 31}, "4611686018427387904 elements, and 16 in"},
        {ADAMWS, NULL, 2, {1LL << 31, 1LL << 31}, "4611686018427387904 elements, and 16 in"},
        {FROZEN, NULL, 2, {1LL << 31, 1LL << 31}, "4611686018427387904 elements, and 16 in"},
        {ADAMWS, NULL, 1, {INT64_MAX}, "9223372036854775807 elements, and 16 in"},
        {ADAMWS, NULL, 1, {1LL << 61}, "2305843009213693952 elements"}, /* 8 bytes each wrap to 0 */
        {MUONS, NULL, 2, {TERA(1), 1 << 20}, "1152921504606846976 elements"},
        {MUONS, NULL, 2, {1, INT64_MAX}, "9223372036854775807 elements"},
        {ADAMWS, NULL, 2, {1LL << 32, 1LL << 32}, "does not fit 64 bits"},
        {MUONS, NULL, 2, {1LL << 24, 1LL << 24}, "281474976710656 elements, and 16 in"},
        {MUONS, "batch 1", 3, {TERA(1), 2, 2}, "1099511627776 batch entries of 1 x 1"},
        {MUONS, "batch 1", 3, {1LL << 30, 1, 1}, "1073741824 batch entries of 1 x 1"},
        {MUONS, "batch 1", 3, {1LL << 24, 1, 1}, "are more than the 16777216 that"},
        {MUONS,
         "rows / 1000000; cols / 1000000",
         2,
         {1000000, 1000000},
         "1 batch entries of 1000000 x"},
        {MUONS,
         "rows 1099511627776*[1, 1]",
         2,
         {TERA(2), 2},
         "the rows are cut 2199023255552 times"},
        {MUONS,
         "cols 4294967296*[1, 1], skip 1",
         2,
         {2, (2LL << 32) + 1},
         "the columns 8589934592 times"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        fleet f;
        make_fleet(&f, &cases[i]);
        muon_plan *plan = NULL;
        assert_fails(fleet_plan(&plan, &f, 1), MUON_E_SHAPE, cases[i].text);
        assert_non_null(strstr(muon_last_error(), "param 'large'"));
        assert_fails(fleet_plan(&plan, &f, 8), MUON_E_SHAPE, cases[i].text);
        ship s;
        assert_fails(ship_create(&s, &f, NULL), MUON_E_SHAPE, cases[i].text);
    }
}

TEST(many_parameters_are_added_up)
{
    fleet f;
    fleet_init(&f);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        fleet_add(&f, i % 2 ? ADAMWS : MUONS, names[i], NULL, NULL, SHAPE(1 << 23, 1 << 23));
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &f, 1)); /* 2^48 elements, and not one more */
    muon_plan_destroy(plan);
    fleet_add(&f, ADAMWS, "one more", NULL, NULL, SHAPE(1));
    assert_fails(fleet_plan(&plan, &f, 1), MUON_E_SHAPE,
                 "param 'one more': 1 elements, and 281474976710656 in the parameters before it");
}

/* The most there can be, on one rank and on very many: every number of the plan is right. */
TEST(what_fits_is_counted_without_wrapping_around)
{
    static const sizes_case cases[] = {
        {MUONS, NULL, 2, {1 << 24, 1 << 24}, NULL},
        {MUONS, NULL, 2, {2, 1LL << 47}, NULL},
        {MUONS, "batch 1", 3, {1 << 10, 1LL << 37, 2}, NULL},
        {MUONS, "transposed; cols 1048576*[1, 3]", 2, {1 << 26, 1 << 22}, NULL},
    };
    static const int nranks[] = {1, 8, 64};
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (size_t r = 0; r < COUNT(nranks); r++) {
            for (int replicated = 0; replicated <= 1; replicated++) {
                fleet f;
                fleet_init(&f);
                f.config.threads = 1024;
                fleet_mesh(&f, "mesh", "fsdp", nranks[r], NULL);
                fleet_add(&f, MUONS, "large", cases[i].matrices, replicated ? NULL : "0: fsdp",
                          cases[i].shape, cases[i].ndim);
                muon_plan *plan = NULL;
                muon_plan_cost cost;
                muon_prediction p;
                assert_ok(fleet_plan(&plan, &f, nranks[r]));
                assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
                assert_int_equal(cost.muon_elements, (int64_t)1 << ELEMENTS_LOG2);
                assert_int_equal(cost.state_bytes, ((int64_t)4 << ELEMENTS_LOG2) + 8);
                /* At least a matrix and its scratch. */
                assert_true(cost.workspace_bytes > ((int64_t)4 << ELEMENTS_LOG2) / cost.matrices);
                assert_ok(muon_plan_predict(plan, &p, sizeof p));
                assert_true(p.bytes_max >= 0 && p.bytes_mean >= 0 && p.padding_bytes >= 0);
                for (int scheme = 0; scheme < 2; scheme++) {
                    muon_scheme_cost other;
                    assert_ok(
                        muon_plan_predict_scheme(plan, (muon_scheme)scheme, &other, sizeof other));
                    assert_true(other.bytes_max >= 0 && other.padding_bytes >= 0);
                }
                assert_true(nranks[r] == 1 || !replicated ||
                            p.bytes_max >= (int64_t)4 << ELEMENTS_LOG2 / 2);
                muon_rank_load load;
                assert_ok(muon_plan_get_rank(plan, nranks[r] - 1, &load, sizeof load));
                assert_true(load.bytes_sent >= 0 && load.bytes_received >= 0);
                assert_true(load.state_bytes >= 0 && load.workspace_bytes >= 0);
                muon_plan_destroy(plan);
            }
        }
    }
}

TEST(replicas_that_do_not_fit_are_refused)
{
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "mesh", "dp", 1 << 20, NULL);
    fleet_add(&f, MUONS, "large", NULL, NULL, SHAPE(1 << 24, 1 << 24));
    muon_plan *plan = NULL;
    assert_fails(fleet_plan(&plan, &f, 1 << 20), MUON_E_LAYOUT,
                 "param 'large': with its replicas all ranks together hold more than");
    /* The same as a list. */
    enum { RANKS = 1 << 16 };
    muon_range *ranges = calloc(RANKS, sizeof *ranges);
    for (int i = 0; i < RANKS; i++)
        ranges[i] = (muon_range){i, 0, (int64_t)1 << ELEMENTS_LOG2};
    f.params[0].ranges = ranges;
    f.params[0].nranges = RANKS;
    assert_fails(fleet_plan(&plan, &f, RANKS * 16), MUON_E_LAYOUT, "with its replicas");
    free(ranges);
}

TEST(places_near_the_end_of_64_bits_are_refused)
{
    fleet f;
    fleet_init(&f);
    muon_param *p = fleet_add(&f, MUONS, "w", NULL, NULL, SHAPE(1 << 20, 1 << 20));
    static const muon_range ranges[][2] = {
        {{0, 0, INT64_MAX}, {0, 0, 0}},
        {{0, 0, 1LL << 40}, {0, INT64_MAX - 1, INT64_MAX}},
        {{0, INT64_MIN, 1LL << 40}, {0, 0, 0}},
        {{0, 0, 1LL << 40}, {0, 1LL << 40, INT64_MIN}},
    };
    muon_plan *plan = NULL;
    p->ranges = ranges[0];
    p->nranges = 2;
    for (size_t i = 0; i < COUNT(ranges); i++) {
        p->ranges = ranges[i];
        assert_fails(fleet_plan(&plan, &f, 1), MUON_E_LAYOUT, "the flattened tensor's dim");
    }
    p->ranges = NULL;
    p->nranges = 0;
    static const muon_box boxes[] = {
        {0, {0, 0}, {INT64_MAX, 1 << 20}},
        {0, {INT64_MIN, 0}, {INT64_MAX, INT64_MAX}},
        {0, {0, INT64_MAX}, {1 << 20, INT64_MAX}},
    };
    p->nboxes = 1;
    for (size_t i = 0; i < COUNT(boxes); i++) {
        p->boxes = &boxes[i];
        assert_fails(fleet_plan(&plan, &f, 1), MUON_E_LAYOUT, "boxes[0] is");
    }
    p->boxes = NULL;
    p->nboxes = 0;
    fleet_mesh(&f, "mesh", "a", 1 << 20, "b", INT_MAX, "c", INT_MAX, NULL);
    assert_fails(fleet_plan(&plan, &f, 1 << 20), MUON_E_LAYOUT, "ranks, but there are 1048576");
}

TEST(heads_that_do_not_fit_are_refused)
{
    fleet f;
    fleet_init(&f);
    fleet_add(&f, MUONS, "qk", NULL, NULL, SHAPE(64, 64));
    muon_attention a;
    muon_attention_init(&a, sizeof a);
    a.q = a.k = "qk";
    f.config.attention = &a;
    f.config.nattention = 1;
    muon_plan *plan = NULL;
    a.heads = a.kv_heads = a.head_dim = INT_MAX;
    assert_int_not_equal(fleet_plan(&plan, &f, 1), MUON_OK);
    a.k_row = INT64_MAX;
    assert_int_not_equal(fleet_plan(&plan, &f, 1), MUON_OK);
    a.kind = MUON_ATTENTION_MLA;
    a.nope_dim = a.rope_dim = a.v_dim = INT_MAX;
    a.k_row = 0;
    assert_int_not_equal(fleet_plan(&plan, &f, 1), MUON_OK);
}

/* Planned, but not on this machine: the state or the workspace is refused before work is spent on it. */
TEST(what_no_memory_holds_is_out_of_memory)
{
    static const sizes_case cases[] = {
        {ADAMWS, NULL, 1, {1LL << 46}, "optimizer state"},
        {ADAMWS, NULL, 2, {1LL << 40, 2}, "optimizer state"},
        {FROZEN, NULL, 1, {1LL << 47}, NULL},
        {MUONS, NULL, 2, {1 << 23, 1 << 23}, "optimizer state"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        fleet f;
        make_fleet(&f, &cases[i]);
        muon_opt *opt = NULL;
        muon_config config = f.config;
        config.groups = f.groups;
        config.ngroups = FLEET_GROUPS;
        muon_status status = muon_create(&opt, &config, f.params, f.nparams);
        if (!cases[i].text) assert_ok(status);
        if (cases[i].text) assert_fails(status, MUON_E_NOMEM, cases[i].text);
        muon_destroy(opt);
    }
    muon_ortho *o = NULL;
    assert_fails(muon_ortho_create(&o, 1, 1LL << 30, 1LL << 30, NULL, 4, NULL), MUON_E_SHAPE,
                 "1 matrices of 1073741824 x 1073741824 have more than 281474976710656 elements");
    assert_fails(muon_ortho_create(&o, 1, 1 << 24, 1 << 24, NULL, 4, NULL), MUON_E_NOMEM, "");
}

TEST(ranks_without_a_communicator_are_an_error)
{
    fleet f;
    fleet_init(&f);
    fleet_add(&f, MUONS, "w", NULL, NULL, SHAPE(8, 8));
    muon_config config = f.config;
    config.groups = f.groups;
    config.ngroups = FLEET_GROUPS;
    muon_opt *opt = NULL;
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        config.path = (muon_path)path;
        config.nranks = 4;
        assert_fails(muon_create(&opt, &config, f.params, f.nparams), MUON_E_ARG,
                     "nranks is 4, but there is no communicator");
        config.nranks = 1;
        assert_ok(muon_create(&opt, &config, f.params, f.nparams));
        muon_destroy(opt);
    }
}
