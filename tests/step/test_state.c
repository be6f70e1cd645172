/* Where the optimizer's state is, what its tensors are called, and how the caller and the rest of the
 * library get at it. */
#include "muon/plan.h"
#include "step/state.h"
#include "tests/step/offload_fleet.h"

static const state_part parts[] = {STATE_MOMENTUM, STATE_EXP_AVG, STATE_EXP_AVG_SQ};

TEST(parts_follow_the_rule)
{
    fleet f;
    offload_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    static const struct {
        int group;
        muon_dtype dtypes[STATE_PARTS];
    } cases[] = {
        {MUONS, {MUON_F32, MUON_NONE, MUON_NONE}},
        {OTHERS, {MUON_BF16, MUON_NONE, MUON_NONE}},
        {ADAMWS, {MUON_NONE, MUON_F32, MUON_F32}},
        {FROZEN, {MUON_NONE, MUON_NONE, MUON_NONE}},
    };
    for (size_t i = 0; i < f.nparams; i++) {
        for (size_t c = 0; c < COUNT(cases); c++) {
            if (cases[c].group != f.params[i].group) continue;
            for (size_t k = 0; k < COUNT(parts); k++) {
                muon_dtype want = cases[c].dtypes[k];
                assert_int_equal(muon__state_dtype(s.opt, i, parts[k]), want);
                char *first = muon__state_at(s.opt, i, parts[k], 0);
                assert_true((first != NULL) == (want != MUON_NONE));
                if (!first) continue;
                assert_true((uintptr_t)first % MUON__ALIGN == 0);
                char *tenth = muon__state_at(s.opt, i, parts[k], 10);
                assert_int_equal(tenth - first, 10 * (int)fleet_bytes(want));
                muon_tensor t = ship_state(&s, i, muon__state_suffix(parts[k]) + 1);
                assert_ptr_equal(t.data, first);
                assert_int_equal(t.dtype, want);
            }
        }
    }
    ship_destroy(&s);
}

static int by_address(const void *a, const void *b)
{
    const muon_tensor *x = a, *y = b;
    return ((uintptr_t)x->data > (uintptr_t)y->data) - ((uintptr_t)x->data < (uintptr_t)y->data);
}

TEST(tensors_do_not_overlap_and_start_as_zeros)
{
    fleet f;
    offload_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    muon_tensor list[4 * FLEET_PARAMS];
    size_t n = muon_state_count(s.opt);
    assert_true(n <= COUNT(list));
    for (size_t k = 0; k < n; k++) {
        assert_ok(muon_state_get(s.opt, k, &list[k], sizeof *list));
        for (size_t b = 0; b < list[k].bytes; b++)
            assert_int_equal(((const char *)list[k].data)[b], 0);
    }
    qsort(list, n, sizeof *list, by_address);
    for (size_t k = 1; k < n; k++)
        if ((char *)list[k - 1].data + list[k - 1].bytes > (char *)list[k].data)
            fail_msg("'%s' and '%s' overlap", list[k - 1].name, list[k].name);
    ship_destroy(&s);
}

/* What a wave needs is together: Muon's state, in the order of the waves, is before AdamW's. */
TEST(state_is_in_the_order_of_the_step)
{
    fleet f;
    offload_fleet(&f);
    f.config.workspace_budget = 0;
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    const char *last = NULL;
    for (size_t i = 0; i < muon_plan_count_matrices(muon_opt_get_plan(s.opt)); i++) {
        muon_matrix m;
        assert_ok(muon_plan_get_matrix(muon_opt_get_plan(s.opt), i, &m, sizeof m));
        const char *at = muon__state_at(s.opt, m.param, STATE_MOMENTUM, 0);
        assert_true(!last || at >= last);
        last = at;
    }
    for (size_t i = 0; i < f.nparams; i++) {
        const char *at = muon__state_at(s.opt, i, STATE_EXP_AVG, 0);
        assert_true(!at || at > last);
    }
    ship_destroy(&s);
}

TEST(elements_are_copied_out_and_in)
{
    fleet f;
    offload_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 1));
    for (size_t i = 0; i < f.nparams; i++) {
        for (size_t k = 0; k < COUNT(parts); k++) {
            muon_dtype dtype = muon__state_dtype(s.opt, i, parts[k]);
            if (dtype == MUON_NONE) continue;
            char got[40], *there = muon__state_at(s.opt, i, parts[k], 7);
            size_t bytes = 9 * fleet_bytes(dtype);
            assert_ok(muon__state_read(s.opt, i, parts[k], 7, 9, got));
            assert_memory_equal(got, there, bytes);
            memset(got, 1, sizeof got);
            assert_ok(muon__state_write(s.opt, i, parts[k], 7, 9, got));
            assert_memory_equal(got, there, bytes);
            assert_ok(muon__state_read(s.opt, i, parts[k], 7, 0, NULL));
            assert_ok(muon__state_write(s.opt, i, parts[k], 7, 0, NULL));
        }
    }
    ship_destroy(&s);
}

TEST(a_range_that_is_not_there_is_refused)
{
    fleet f;
    fleet_init(&f);
    fleet_add(&f, MUONS, "w", NULL, NULL, SHAPE(3, 4));
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    static const struct {
        size_t index;
        int64_t at, count;
        muon_status status;
        const char *text;
    } cases[] = {
        {2, 0, 0, MUON_E_ARG, "state tensor 2 does not exist: there are 2"},
        {0, -1, 1, MUON_E_VALUE, "'w.momentum_buffer', which has 12 here"},
        {0, 0, -1, MUON_E_VALUE, "-1 elements from 0 on"},
        {0, 0, 13, MUON_E_VALUE, "13 elements from 0 on"},
        {0, 12, 1, MUON_E_VALUE, "1 elements from 12 on exceed"},
        {0, 13, 0, MUON_E_VALUE, "0 elements from 13 on"},
        {0, INT64_MAX, INT64_MAX, MUON_E_VALUE, "has 12 here"},
        {0, 1, INT64_MAX, MUON_E_VALUE, "has 12 here"},
        {1, 0, 2, MUON_E_VALUE, "'w.step', which has 1 here"},
    };
    char data[64] = {0};
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_fails(muon_state_read(s.opt, cases[i].index, cases[i].at, cases[i].count, data),
                     cases[i].status, cases[i].text);
        assert_fails(muon_state_write(s.opt, cases[i].index, cases[i].at, cases[i].count, data),
                     cases[i].status, cases[i].text);
    }
    assert_fails(muon_state_read(s.opt, 0, 0, 1, NULL), MUON_E_ARG, "data is NULL");
    assert_fails(muon_state_write(s.opt, 0, 0, 1, NULL), MUON_E_ARG, "data is NULL");
    assert_fails(muon_state_read(NULL, 0, 0, 1, data), MUON_E_ARG, "opt must not be NULL");
    assert_fails(muon_state_write(NULL, 0, 0, 1, data), MUON_E_ARG, "opt must not be NULL");
    assert_ok(muon_state_read(s.opt, 0, 12, 0, NULL));
    assert_ok(muon_state_write(s.opt, 1, 0, 0, NULL));
    int64_t steps = 7;
    assert_ok(muon_state_write(s.opt, 1, 0, 1, &steps));
    steps = 0;
    assert_ok(muon_state_read(s.opt, 1, 0, 1, &steps));
    assert_int_equal(steps, 7);
    ship_destroy(&s);
}
