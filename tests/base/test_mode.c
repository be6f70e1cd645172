/* test_mode.c - whatever floating-point mode and locale the host has set, before creation, after it or
 * between two steps: the same bits, and the host finds its mode as it was. */
#define _GNU_SOURCE /* feenableexcept */
#include "muon/plan.h"
#include "tests/save/save_fleet.h"

#include <fenv.h>
#include <math.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { STEPS = 3, FLUSH = 0x8000, DENORMALS_ARE_ZERO = 0x0040 }; /* bits of MXCSR */

/* ---- The host's mode */

typedef struct mode {
    const char *name;
    int round, traps;
    unsigned flush;
} mode;

static const mode modes[] = {
    {"default", FE_TONEAREST, 0, 0},
    {"flush to zero", FE_TONEAREST, 0, FLUSH},
    {"denormals are zero", FE_TONEAREST, 0, DENORMALS_ARE_ZERO},
    {"both", FE_TONEAREST, 0, FLUSH | DENORMALS_ARE_ZERO},
    {"upward", FE_UPWARD, 0, 0},
    {"downward", FE_DOWNWARD, 0, 0},
    {"toward zero, flushed", FE_TOWARDZERO, 0, FLUSH | DENORMALS_ARE_ZERO},
    {"traps", FE_TONEAREST, FE_ALL_EXCEPT, 0},
};

static unsigned flushing(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & (FLUSH | DENORMALS_ARE_ZERO);
#else
    return 0;
#endif
}

/* A flag is up, so that one sees whether flags come back. */
static void set(const mode *m)
{
    fesetenv(FE_DFL_ENV);
    if (!m->traps) feraiseexcept(FE_DIVBYZERO);
    fesetround(m->round);
    if (m->traps) feenableexcept(m->traps);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | m->flush);
#endif
}

static int is_set(const mode *m)
{
#if defined(__x86_64__)
    if (flushing() != m->flush) return 0;
#endif
    return fegetround() == m->round && fegetexcept() == m->traps &&
           fetestexcept(FE_ALL_EXCEPT) == (m->traps ? 0 : FE_DIVBYZERO);
}

/* Runs a call in a mode, and takes care that nothing else does. */
#define IN(m, result, call)                                                                        \
    do {                                                                                           \
        set(m);                                                                                    \
        (result) = (call);                                                                         \
        int as_it_was_ = is_set(m);                                                                \
        fesetenv(FE_DFL_ENV);                                                                      \
        if (!as_it_was_) fail_msg("%s: the mode is another one after %s", (m)->name, #call);       \
    } while (0)

/* ---- The model: numbers that need every bit of the mode */

static void make_fleet(fleet *f, int nranks)
{
    fleet_fsdp(f, nranks);
    f->config.clip_norm = 1;
    f->groups[OTHERS].coefficients = MUON_COEFFICIENTS_POLAR_EXPRESS;
    f->groups[OTHERS].momentum_dtype = MUON_BF16;
    fleet_add(f, MUONS, "tiny", "batch 1", "1: fsdp", SHAPE(7, 20, 33));
    fleet_add(f, OTHERS, "wide", NULL, "0: fsdp", SHAPE(40, 90))->copy_dtype = MUON_BF16;
    fleet_add(f, ADAMWS, "tiny too", NULL, "0: fsdp", SHAPE(300, 170));
    fleet_add(f, ADAMWS, "bias", NULL, "0: fsdp", SHAPE(500))->dtype = MUON_BF16;
}

/* Subnormal gradients where the name says so, made of bits: this may run in any mode. */
static void fill(ship *s, int step)
{
    ship_fill_grads(s, step);
    for (size_t i = 0; i < s->f->nparams; i++) {
        if (strncmp(s->f->params[i].name, "tiny", 4) != 0) continue;
        for (int64_t e = 0; e < s->numel[i]; e++) {
            uint32_t bits;
            memcpy(&bits, (float *)s->grads[i] + e, sizeof bits);
            bits &= 0x807fffff;
            memcpy((float *)s->grads[i] + e, &bits, sizeof bits);
        }
    }
}

static void run_default(ship *s, const fleet *f)
{
    assert_ok(ship_create(s, f, NULL));
    for (int step = 1; step <= STEPS; step++) {
        fill(s, step);
        assert_ok(ship_step(s));
    }
}

/* ---- Steps */

typedef enum when { AROUND_ALL, AFTER_CREATION, ANOTHER_EACH_STEP, NWHENS } when;

static void check_steps(const ship *want, const fleet *f, size_t m, when w)
{
    ship s;
    muon_status status;
    IN(&modes[w == AROUND_ALL ? m : 0], status, ship_create(&s, f, NULL));
    assert_ok(status);
    for (int step = 1; step <= STEPS; step++) {
        fill(&s, step);
        const mode *now = &modes[w == ANOTHER_EACH_STEP ? (m + (size_t)step) % COUNT(modes) : m];
        IN(now, status, ship_step(&s));
        assert_ok(status);
    }
    const char *wrong = ship_compare(&s, want);
    if (wrong) fail_msg("%s, %d threads, %d: %s", modes[m].name, f->config.threads, w, wrong);
    ship_destroy(&s);
}

TEST(no_mode_of_the_host_changes_a_bit_of_a_step)
{
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        fleet f;
        make_fleet(&f, 1);
        f.config.path = (muon_path)path;
        ship want;
        run_default(&want, &f);
        for (int threads = 1; threads <= 4; threads++) {
            f.config.threads = threads;
            for (size_t m = 0; m < COUNT(modes); m++)
                for (int w = 0; w < NWHENS; w++)
                    check_steps(&want, &f, m, (when)w);
        }
        ship_destroy(&want);
    }
}

static void step_in_another_mode(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    const mode *m = &modes[(size_t)(rank + t->steps) % COUNT(modes)];
    ship s;
    set(m);
    rank_ok(ship_create(&s, t->f, comm));
    for (int step = 1; step <= STEPS; step++) {
        fill(&s, step);
        set(m);
        rank_ok(ship_step(&s));
        rank_check(is_set(m), "%s: the mode is another one after the step", m->name);
    }
    fesetenv(FE_DFL_ENV);
    const char *wrong = ship_compare(&s, t->whole);
    rank_check(!wrong, "%s: %s", m->name, wrong);
    ship_destroy(&s);
}

TEST(every_rank_may_have_its_own)
{
    fleet f;
    make_fleet(&f, 3);
    ship want;
    run_default(&want, &f);
    for (int turn = 0; turn < (int)COUNT(modes); turn++) {
        f.config.threads = 1 + turn % 2;
        fleet_task t = {&f, &want, turn};
        ranks_run(3, step_in_another_mode, &t);
    }
    ship_destroy(&want);
}

/* ---- Errors */

TEST(errors_give_the_mode_back)
{
    fleet f;
    make_fleet(&f, 1);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    muon_step_args none;
    muon_step_args_init(&none, sizeof none);
    muon_group wrong;
    muon_group_init(&wrong, sizeof wrong);
    wrong.lr = (double)NAN;
    fleet bad = f;
    bad.config.clip_norm = (double)NAN;
    for (size_t m = 0; m < COUNT(modes); m++) {
        muon_status status;
        ship none_at_all;
        muon_plan *plan;
        IN(&modes[m], status, muon_step(s.opt, &none, NULL));
        assert_int_equal(status, MUON_E_ARG);
        IN(&modes[m], status, muon_opt_set_lr(s.opt, 0, (double)NAN));
        assert_int_equal(status, MUON_E_VALUE);
        IN(&modes[m], status, muon_opt_set_group(s.opt, 0, &wrong));
        assert_int_equal(status, MUON_E_VALUE);
        IN(&modes[m], status, muon_opt_set_clip_norm(s.opt, (double)NAN));
        assert_int_equal(status, MUON_E_VALUE);
        IN(&modes[m], status, muon_opt_set_qk_clip(s.opt, (double)NAN, 0));
        assert_int_equal(status, MUON_E_VALUE);
        IN(&modes[m], status, ship_create(&none_at_all, &bad, NULL));
        assert_int_equal(status, MUON_E_VALUE);
        IN(&modes[m], status, fleet_plan(&plan, &bad, 1));
        assert_int_equal(status, MUON_E_VALUE);
        IN(&modes[m], status, muon_group_set(&wrong, "lr", "nan"));
        assert_int_equal(status, MUON_E_VALUE);
        IN(&modes[m], status, muon_load(s.opt, "/there/is/nothing", NULL, NULL));
        assert_int_not_equal(status, MUON_OK);
        IN(&modes[m], status, muon_save(s.opt, "/proc/no", NULL));
        assert_int_not_equal(status, MUON_OK);
    }
    ship_destroy(&s);
}

/* A NaN skips the step; where it traps, no signal must come of it. */
TEST(a_nan_is_skipped_where_it_would_trap)
{
    fleet f;
    make_fleet(&f, 1);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    for (size_t m = 0; m < COUNT(modes); m++) {
        muon_status status;
        fill(&s, 1);
        fleet_put(s.grads[1], MUON_F32, 5, NAN);
        IN(&modes[m], status, ship_step(&s));
        assert_ok(status);
        assert_false(s.result.applied);
    }
    ship_destroy(&s);
}

/* ---- Callbacks */

typedef struct heard {
    const mode *m;
    int calls[4]; /* log, orthogonalize, grad_consumed, grad_fetch */
    const ship *s;
    int wrong;
    int change; /* 1: the callback sets another mode */
    muon_ortho *ortho;
} heard;

static void hear(heard *h, int which)
{
    h->calls[which]++;
    if (!is_set(h->m)) h->wrong++;
}

static void on_log(void *user, muon_log_level level, const char *message)
{
    (void)level, (void)message;
    hear(user, 0);
}

/* Calls the library in its turn. */
static int on_orthogonalize(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    (void)rows, (void)cols, (void)ld;
    heard *h = user;
    hear(h, 1);
    int failed = rows == 40 && muon_ortho_run(h->ortho, x, x) != MUON_OK;
    if (!is_set(h->m)) h->wrong++;
    return failed;
}

static void on_consumed(void *user, size_t index)
{
    heard *h = user;
    (void)index;
    hear(h, 2);
    if (!h->change) return;
    h->m = &modes[4];
    set(h->m);
}

static int on_fetch(void *user, muon_grad_part *parts, size_t nparts)
{
    heard *h = user;
    hear(h, 3);
    for (size_t i = 0; i < nparts; i++) {
        size_t element = fleet_bytes(h->s->f->params[parts[i].param].grad_dtype);
        parts[i].data =
            (const char *)h->s->grads[parts[i].param] + (size_t)parts[i].begin * element;
    }
    return 0;
}

TEST(callbacks_run_in_the_mode_of_the_host)
{
    heard h = {.m = &modes[0]};
    assert_ok(muon_ortho_create(&h.ortho, 1, 40, 90, NULL, 1, NULL));
    fleet f;
    make_fleet(&f, 1);
    f.config.log = on_log;
    f.config.orthogonalize = on_orthogonalize;
    f.config.grad_consumed = on_consumed;
    f.config.grad_fetch = on_fetch;
    f.config.user = &h;
    ship want;
    h.s = &want;
    set(&modes[0]); /* which the callbacks look for */
    run_default(&want, &f);
    fesetenv(FE_DFL_ENV);
    for (int change = 0; change <= 1; change++) {
        for (size_t m = 0; m < COUNT(modes); m++) {
            ship s;
            h = (heard){.m = &modes[m], .ortho = h.ortho, .change = change, .s = &s};
            set(h.m);
            assert_ok(ship_create(&s, &f, NULL));
            for (int step = 1; step <= STEPS; step++) {
                fill(&s, step);
                set(h.m);
                assert_ok(ship_step(&s));
                assert_true(is_set(h.m));
            }
            fesetenv(FE_DFL_ENV);
            assert_true(h.calls[0] >= 1 && h.calls[1] == 8 * STEPS && h.calls[2] == 4 * STEPS);
            assert_true(h.calls[3] >= 2 * STEPS);
            assert_int_equal(h.wrong, 0);
            const char *wrong = ship_compare(&s, &want);
            if (wrong) fail_msg("%s: %s", modes[m].name, wrong);
            ship_destroy(&s);
        }
    }
    ship_destroy(&want);
    muon_ortho_destroy(h.ortho);
}

/* ---- Everything else that computes, reads or prints numbers */

static void append(void *user, const char *text, size_t length)
{
    char *to = user;
    strncat(to, text, length);
}

static muon_status print_plan(char *to, const muon_plan *plan)
{
    *to = 0;
    muon_plan_print(plan, append, to);
    return MUON_OK;
}

TEST(plans_and_settings_are_the_same)
{
    fleet f;
    make_fleet(&f, 64);
    muon_plan *want = NULL;
    assert_ok(fleet_plan(&want, &f, 64));
    static char want_text[8192], text[8192];
    print_plan(want_text, want);
    for (size_t m = 0; m < COUNT(modes); m++) {
        muon_status status;
        muon_plan *plan = NULL;
        IN(&modes[m], status, fleet_plan(&plan, &f, 64));
        assert_ok(status);
        assert_int_equal(muon_plan_get_hash(plan), muon_plan_get_hash(want));
        IN(&modes[m], status, print_plan(text, plan));
        assert_string_equal(text, want_text);
        muon_plan_destroy(plan);
        muon_group group;
        muon_group_init(&group, sizeof group);
        IN(&modes[m], status, muon_group_set(&group, "lr", "0.1"));
        assert_ok(status);
        assert_true(group.lr == 0.1);
    }
    muon_plan_destroy(want);
}

TEST(orthogonalization_alone_is_the_same)
{
    enum { BATCH = 5, ROWS = 60, COLS = 90, N = BATCH * ROWS * COLS };
    static float x[N], want[N], got[N];
    testlib_seed(3);
    testlib_fill_gauss(x, N, 1e-40);
    for (int threads = 1; threads <= 3; threads++) {
        muon_ortho *o = NULL;
        assert_ok(muon_ortho_create(&o, BATCH, ROWS, COLS, NULL, threads, NULL));
        assert_ok(muon_ortho_run(o, want, x));
        for (size_t m = 0; m < COUNT(modes); m++) {
            muon_status status;
            IN(&modes[m], status, muon_ortho_run(o, got, x));
            assert_ok(status);
            assert_memory_equal(got, want, sizeof got);
        }
        muon_ortho_destroy(o);
    }
}

TEST(a_checkpoint_is_the_same_and_loads_the_same)
{
    fleet f;
    make_fleet(&f, 1);
    f.groups[MUONS].lr = 0.1;
    scratch dir = scratch_make();
    ship want;
    run_default(&want, &f);
    for (size_t m = 0; m < COUNT(modes); m++) {
        muon_status status;
        int64_t step;
        IN(&modes[m], status, ship_save(&want, dir.path, (int64_t)m));
        assert_ok(status);
        muon_checkpoint *c = NULL;
        assert_ok(muon_checkpoint_open(&c, dir.path));
        assert_string_equal(muon_checkpoint_get_metadata(c, "muon.group.0.lr"), "0.1");
        muon_checkpoint_close(c);
        ship s;
        assert_ok(ship_create(&s, &f, NULL));
        assert_ok(muon_opt_set_lr(s.opt, MUONS, 0.3));
        muon_load_args args = load_args(&s);
        args.restore_settings = 1;
        IN(&modes[m], status, muon_load(s.opt, dir.path, &args, &step));
        assert_ok(status);
        const char *wrong = ship_compare_tensors(&s, &want);
        if (wrong) fail_msg("%s: %s", modes[m].name, wrong);
        muon_group group;
        muon_group_init(&group, sizeof group);
        assert_ok(muon_opt_get_group(s.opt, MUONS, &group));
        assert_true(group.lr == 0.1);
        ship_destroy(&s);
    }
    ship_destroy(&want);
    scratch_remove(&dir);
}
