/* Memory for state that cannot be: it is refused by name, before anything changes. */
#include "tests/step/offload_fleet.h"

#include <stddef.h>

enum { Q, K, EMB, OLD, NPARAMS };

/* q and k are Muon's, k with bf16 momentum; emb is AdamW's, old is frozen. */
static void make_fleet(fleet *f)
{
    fleet_init(f);
    f->bind = 1;
    f->groups[OTHERS].momentum_dtype = MUON_BF16;
    fleet_add(f, MUONS, "q", NULL, NULL, SHAPE(16, 8));
    fleet_add(f, OTHERS, "k", NULL, NULL, SHAPE(8, 8))->copy_dtype = MUON_BF16;
    fleet_add(f, ADAMWS, "emb", NULL, NULL, SHAPE(10, 4));
    fleet_add(f, FROZEN, "old", NULL, NULL, SHAPE(12, 2));
}

typedef enum field { MOMENTUM, EXP_AVG, EXP_AVG_SQ, STEP } field;

static char *get(const muon_state_buffers *s, field which)
{
    return which == MOMENTUM  ? s->momentum
           : which == EXP_AVG ? (char *)s->exp_avg
           : which == STEP    ? (char *)s->step
                              : (char *)s->exp_avg_sq;
}

static void set(muon_state_buffers *s, field which, void *data)
{
    if (which == MOMENTUM) s->momentum = data;
    if (which == EXP_AVG) s->exp_avg = data;
    if (which == EXP_AVG_SQ) s->exp_avg_sq = data;
    if (which == STEP) s->step = data;
}

/* A wrong list is refused at creation and between steps. */
static void check_refused(ship *s, const muon_state_buffers *wrong, muon_status status,
                          const char *text)
{
    fleet f = *s->f;
    f.config.state = wrong;
    ship other;
    assert_fails(ship_create(&other, &f, NULL), status, text);
    assert_null(other.opt);
    assert_fails(muon_state_bind(s->opt, wrong), status, text);
    assert_ptr_equal(ship_state(s, Q, "momentum_buffer").data, s->state[Q].momentum);
    assert_ok(ship_step(s));
}

TEST(what_is_missing_or_not_used_is_named)
{
    fleet f;
    make_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    _Alignas(64) static char spare[1024];
    static const struct {
        int param, field, given;
        const char *text;
    } cases[] = {
        {Q, MOMENTUM, 0, "param 'q': state.momentum is NULL"},
        {K, MOMENTUM, 0, "param 'k': state.momentum is NULL"},
        {EMB, EXP_AVG, 0, "param 'emb': state.exp_avg is NULL"},
        {EMB, EXP_AVG_SQ, 0, "param 'emb': state.exp_avg_sq is NULL"},
        {Q, STEP, 0, "param 'q': state.step is NULL"},
        {EMB, STEP, 0, "param 'emb': state.step is NULL"},
        {Q, EXP_AVG, 1, "param 'q': state.exp_avg is given, but a Muon parameter has none"},
        {K, EXP_AVG_SQ, 1, "param 'k': state.exp_avg_sq is given, but a Muon parameter has none"},
        {EMB, MOMENTUM, 1, "param 'emb': state.momentum is given, but an AdamW parameter has none"},
        {OLD, MOMENTUM, 1, "param 'old': state.momentum is given, but a frozen parameter has none"},
        {OLD, EXP_AVG, 1, "param 'old': state.exp_avg is given, but a frozen parameter has none"},
        {OLD, STEP, 1, "param 'old': state.step is given, but a frozen parameter has none"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_state_buffers wrong[FLEET_PARAMS];
        memcpy(wrong, s.state, sizeof wrong);
        set(&wrong[cases[i].param], (field)cases[i].field, cases[i].given ? spare : NULL);
        check_refused(&s, wrong, MUON_E_ARG, cases[i].text);
    }
    ship_destroy(&s);
}

TEST(what_is_not_aligned_is_named)
{
    fleet f;
    make_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    static const struct {
        int param, field, bytes;
        const char *text;
    } cases[] = {
        {Q, MOMENTUM, 2, "param 'q': state.momentum is not aligned to its elements"},
        {K, MOMENTUM, 1, "param 'k': state.momentum is not aligned to its elements"},
        {EMB, EXP_AVG, 2, "param 'emb': state.exp_avg is not aligned to its elements"},
        {EMB, EXP_AVG_SQ, 1, "param 'emb': state.exp_avg_sq is not aligned to its elements"},
        {K, STEP, 4, "param 'k': state.step is not aligned to its elements"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_state_buffers wrong[FLEET_PARAMS];
        memcpy(wrong, s.state, sizeof wrong);
        muon_state_buffers *of = &wrong[cases[i].param];
        set(of, (field)cases[i].field, get(of, (field)cases[i].field) + cases[i].bytes);
        check_refused(&s, wrong, MUON_E_ARG, cases[i].text);
    }
    ship_destroy(&s);
}

/* A step counter that nobody has set is most likely not 0. */
TEST(a_counter_below_zero_is_refused)
{
    fleet f;
    make_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    int64_t counter = -3;
    muon_state_buffers wrong[FLEET_PARAMS];
    memcpy(wrong, s.state, sizeof wrong);
    wrong[EMB].step = &counter;
    check_refused(&s, wrong, MUON_E_VALUE,
                  "param 'emb': the step counter is -3, must be at least 0");
    ship_destroy(&s);
}

TEST(state_that_overlaps_other_state_is_refused)
{
    fleet f;
    make_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    static const struct {
        int param, field, of, at, bytes; /* the one is put so many bytes behind the other */
        const char *text;
    } cases[] = {
        {K, MOMENTUM, Q, MOMENTUM, 8, "the momentum of param 'q' and the momentum of param 'k'"},
        {EMB, EXP_AVG, EMB, EXP_AVG_SQ, 156,
         "the exp_avg_sq of param 'emb' and the exp_avg of param 'emb' overlap"},
        {EMB, EXP_AVG_SQ, Q, MOMENTUM, 508, "the exp_avg_sq of param 'emb' overlap"},
        {K, STEP, Q, STEP, 0, "the step counter of param"},
        {K, STEP, EMB, EXP_AVG, 80, "the exp_avg of param 'emb' and the step counter of param 'k'"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_state_buffers wrong[FLEET_PARAMS];
        memcpy(wrong, s.state, sizeof wrong);
        set(&wrong[cases[i].param], (field)cases[i].field,
            get(&s.state[cases[i].of], (field)cases[i].at) + cases[i].bytes);
        check_refused(&s, wrong, MUON_E_ALIAS, cases[i].text);
    }
    ship_destroy(&s);
}

/* Side by side is fine: one block for all. */
TEST(state_may_lie_side_by_side)
{
    fleet f;
    make_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    _Alignas(64) static char block[16 * 8 * 4 + 8 * 8 * 2 + 2 * 10 * 4 * 4 + 3 * 8];
    char *at = block;
    muon_state_buffers side[FLEET_PARAMS] = {0};
    side[Q].momentum = at;
    side[K].momentum = at += 16 * 8 * 4;
    side[EMB].exp_avg = (float *)(void *)(at += 8 * 8 * 2);
    side[EMB].exp_avg_sq = (float *)(void *)(at += 10 * 4 * 4);
    side[Q].step = (int64_t *)(void *)(at += 10 * 4 * 4);
    side[K].step = side[Q].step + 1;
    side[EMB].step = side[Q].step + 2;
    assert_ok(muon_state_bind(s.opt, side));
    assert_ok(ship_run(&s, 1, 2));
    ship_destroy(&s);
}

/* A step finds it before anything changes, and goes on with other memory. */
TEST(state_that_overlaps_a_buffer_of_the_step_is_refused)
{
    fleet f;
    make_fleet(&f);
    static const struct {
        int param, field, of, bytes;
        int what; /* 0 weight, 1 gradient, 2 copy */
        const char *text;
    } cases[] = {
        {Q, MOMENTUM, Q, 0, 0, "the param of param 'q' and the momentum of param 'q' overlap"},
        {K, MOMENTUM, Q, 384, 1, "the grad of param 'q' and the momentum of param 'k' overlap"},
        {K, MOMENTUM, K, 0, 2, "the copy of param 'k' and the momentum of param 'k' overlap"},
        {EMB, EXP_AVG_SQ, Q, 4, 0, "the param of param 'q' and the exp_avg_sq of param 'emb'"},
        {EMB, STEP, OLD, 88, 0, "the param of param 'old' and the step counter of param 'emb'"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        ship s, want;
        assert_ok(ship_create(&s, &f, NULL));
        fleet_run_whole(&want, &f, 2);
        ship_fill_grads(&s, 1);
        assert_ok(ship_step(&s)); /* the overlap is looked for again, though buffers are the same */
        muon_state_buffers wrong[FLEET_PARAMS];
        memcpy(wrong, s.state, sizeof wrong);
        const muon_buffers *b = &s.buffers[cases[i].of];
        char *target = cases[i].what == 0   ? b->param
                       : cases[i].what == 1 ? s.grads[cases[i].of]
                                            : b->copy;
        memset(s.buffers[OLD].param, 0, (size_t)s.numel[OLD] * sizeof(float));
        set(&wrong[cases[i].param], (field)cases[i].field, target + cases[i].bytes);
        assert_ok(muon_state_bind(s.opt, wrong));
        ship_fill_grads(&s, 2);
        assert_fails(ship_step(&s), MUON_E_ALIAS, cases[i].text);
        assert_fails(ship_step(&s), MUON_E_ALIAS, cases[i].text);
        assert_ok(muon_state_bind(s.opt, s.state));
        assert_ok(ship_step(&s));
        for (size_t p = 0; p < OLD; p++) {
            const char *wrongs = ship_compare_state(&s, p, &want);
            if (wrongs) fail_msg("%s", wrongs);
        }
        ship_destroy(&s);
        ship_destroy(&want);
    }
}

TEST(an_optimizer_that_is_null_is_refused)
{
    muon_state_buffers none = {0};
    assert_fails(muon_state_bind(NULL, &none), MUON_E_ARG, "muon_state_bind: opt must not be NULL");
}
