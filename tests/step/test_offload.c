/* State in a file, in one process: whatever the budget, and whenever it goes there and comes back, the
 * bits are those of state in memory. */
#include "tests/step/offload_fleet.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

/* The least budget of this ship, whose state is in memory and stays there. */
static int64_t least_budget(ship *s)
{
    assert_fails(muon_offload(s->opt, offload_dir(), 0), MUON_E_BUDGET, "at least ");
    assert_true(offload_is_in_memory(s));
    int64_t least = offload_least();
    assert_true(least > 0);
    return least;
}

static void assert_same(ship *s, const ship *want, const char *when)
{
    const char *wrong = offload_compare(s, want);
    if (wrong) fail_msg("%s: not as in memory: %s", when, wrong);
}

/* ---- Bits */

/* Steps with all gradients, with some missing, and with a NaN. */
static void run_steps(ship *s, int first, int last)
{
    for (int step = first; step <= last; step++) {
        ship_fill_grads(s, step);
        for (size_t i = 0; i < s->f->nparams; i++)
            s->buffers[i].grad = step % 3 == 2 && i % 4 == 1 ? NULL : s->grads[i];
        if (step == 3) ((float *)s->grads[0])[5] = NAN;
        assert_ok(ship_step(s));
        assert_true(s->result.applied == (step != 3));
    }
}

static void check_budget(const fleet *f, const ship *want, int64_t budget, int steps)
{
    ship s;
    assert_ok(ship_create(&s, f, NULL));
    assert_ok(muon_offload(s.opt, offload_dir(), budget));
    run_steps(&s, 1, steps);
    muon_offload_info info = offload_info(&s);
    if (info.resident > budget || info.resident_most > budget)
        fail_msg("%lld bytes in memory, the budget is %lld", (long long)info.resident_most,
                 (long long)budget);
    char when[64];
    snprintf(when, sizeof when, "with %lld bytes", (long long)budget);
    assert_same(&s, want, when);
    assert_ok(muon_offload(s.opt, NULL, 0));
    assert_same(&s, want, "back in memory");
    ship_destroy(&s);
}

TEST(every_budget_from_the_least_gives_the_bits_of_memory)
{
    static const muon_path paths[] = {MUON_PATH_PIPELINE, MUON_PATH_REFERENCE};
    enum { STEPS = 5 };
    for (size_t p = 0; p < COUNT(paths); p++) {
        for (int cached = 0; cached <= 1; cached++) {
            fleet f;
            offload_fleet(&f);
            f.config.path = paths[p];
            f.config.offload_cached = cached;
            f.config.threads = 1 + cached;
            ship want;
            assert_ok(ship_create(&want, &f, NULL));
            int64_t least = least_budget(&want), all = offload_info(&want).state_bytes;
            assert_true(least < all);
            run_steps(&want, 1, STEPS);
            int64_t apart = testlib_quick() ? all / 2 : all / 5;
            for (int64_t budget = least; budget < all + apart; budget += apart)
                check_budget(&f, &want, budget, STEPS);
            check_budget(&f, &want, INT64_MAX, STEPS);
            ship_destroy(&want);
        }
    }
}

TEST(state_goes_and_comes_between_any_two_steps)
{
    fleet f;
    offload_fleet(&f);
    ship want, s;
    assert_ok(ship_create(&want, &f, NULL));
    assert_ok(ship_create(&s, &f, NULL));
    int64_t least = least_budget(&s);
    /* 0: to memory; n: to a file with n times the least. Twice in a row, too. */
    static const int places[][2] = {{0, 0}, {1, 1}, {3, 1}, {0, 2}, {2, 0}, {1, 2}, {0, 1}, {5, 5}};
    for (int step = 1; step <= (int)COUNT(places); step++) {
        for (int k = 0; k < 2; k++) {
            int times = places[step - 1][k];
            assert_ok(muon_offload(s.opt, times ? offload_dir() : NULL, times * least));
            assert_true(offload_info(&s).resident <=
                        (times ? times * least : offload_info(&s).state_bytes));
        }
        run_steps(&want, step, step);
        run_steps(&s, step, step);
        assert_same(&s, &want, "after a change");
    }
    ship_destroy(&want);
    ship_destroy(&s);
}

TEST(state_may_start_in_a_file)
{
    fleet f;
    offload_fleet(&f);
    ship want, s;
    assert_ok(ship_create(&want, &f, NULL));
    f.config.offload_dir = offload_dir();
    f.config.offload_budget = 1;
    assert_fails(ship_create(&s, &f, NULL), MUON_E_BUDGET, "at least ");
    f.config.offload_budget = offload_least();
    char dir[512];
    snprintf(dir, sizeof dir, "%s", offload_dir());
    f.config.offload_dir = dir;
    assert_ok(ship_create(&s, &f, NULL));
    memset(dir, 'x', sizeof dir - 1); /* it has a copy */
    assert_true(offload_info(&s).resident_most <= f.config.offload_budget);
    assert_same(&s, &want, "zeros");
    run_steps(&s, 1, 4);
    run_steps(&want, 1, 4);
    assert_same(&s, &want, "from the start");
    assert_fails(muon_offload(s.opt, "/nowhere/at/all", 1 << 30), MUON_E_IO, "/nowhere/at/all");
    assert_true(offload_info(&s).resident <= f.config.offload_budget);
    assert_ok(muon_offload(s.opt, NULL, 0));
    assert_same(&s, &want, "back in memory");
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(the_way_back_does_not_depend_on_where_the_process_is)
{
    fleet f;
    offload_fleet(&f);
    ship s, want;
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_create(&want, &f, NULL));
    int64_t least = least_budget(&s);
    char dir[512];
    snprintf(dir, sizeof dir, "%s/muon-test-XXXXXX", offload_dir());
    assert_non_null(mkdtemp(dir));
    int here = open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(offload_dir()), 0);
    assert_ok(muon_offload(s.opt, strrchr(dir, '/') + 1, least));
    assert_int_equal(chdir("/"), 0);
    run_steps(&s, 1, 2);
    assert_fails(muon_offload(s.opt, "/nowhere/at/all", 1 << 30), MUON_E_IO, "/nowhere/at/all");
    assert_true(offload_info(&s).resident <= least);
    run_steps(&s, 3, 3);
    run_steps(&want, 1, 3);
    assert_same(&s, &want, "back in the file");
    assert_int_equal(fchdir(here), 0);
    close(here);
    assert_int_equal(rmdir(dir), 0);
    ship_destroy(&s);
    ship_destroy(&want);
}

/* ---- What the caller sees */

static size_t find_tensor(const ship *s, const char *name, muon_tensor *t)
{
    size_t k = 0;
    do {
        assert_ok(muon_state_get(s->opt, k, t, sizeof *t));
    } while (strcmp(t->name, name) != 0 && ++k < muon_state_count(s->opt));
    assert_true(k < muon_state_count(s->opt));
    return k;
}

TEST(state_is_read_and_written_wherever_it_is)
{
    fleet f;
    offload_fleet(&f);
    ship want, s;
    assert_ok(ship_create(&want, &f, NULL));
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(muon_offload(s.opt, offload_dir(), least_budget(&s)));
    run_steps(&want, 1, 2);
    run_steps(&s, 1, 2);
    ship *ships[] = {&want, &s};
    static const struct {
        const char *name;
        int64_t at, count;
    } writes[] = {{"embedding.exp_avg", 1000, 3000},  {"embedding.exp_avg", 0, 1},
                  {"embedding.exp_avg_sq", 77999, 1}, {"a.momentum_buffer", 17, 2500},
                  {"b.momentum_buffer", 0, 7810},     {"norm.exp_avg", 5, 0},
                  {"norm.exp_avg_sq", 76, 1},         {"f.momentum_buffer", 8000, 250}};
    static char data[40000]; /* of any tensor */
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i % 32); /* no NaN, and no negative square */
    for (size_t i = 0; i < COUNT(writes); i++) {
        for (int k = 0; k < 2; k++) {
            muon_tensor t;
            size_t index = find_tensor(ships[k], writes[i].name, &t);
            assert_true((t.data != NULL) == (k == 0));
            assert_ok(muon_state_write(ships[k]->opt, index, writes[i].at, writes[i].count, data));
        }
        assert_same(&s, &want, writes[i].name);
    }
    int64_t steps = 41;
    for (int k = 0; k < 2; k++) {
        muon_tensor t;
        size_t index = find_tensor(ships[k], "c.step", &t);
        assert_true(t.data && *(const int64_t *)t.data == 2);
        assert_ok(muon_state_write(ships[k]->opt, index, 0, 1, &steps));
        assert_true(*(const int64_t *)t.data == 41);
        run_steps(ships[k], 4, 5);
    }
    assert_same(&s, &want, "after writing");
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(a_step_that_is_skipped_writes_nothing)
{
    fleet f;
    offload_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(muon_offload(s.opt, offload_dir(), least_budget(&s)));
    run_steps(&s, 3, 3); /* has a NaN */
    assert_true(offload_info(&s).bytes_written == 0);
    run_steps(&s, 4, 5);
    muon_offload_info info = offload_info(&s);
    assert_true(info.bytes_written > 0 && info.bytes_read > 0);
    assert_true(s.result.phase[MUON_PHASE_OFFLOAD].seconds >= 0);
    ship_destroy(&s);
}

TEST(what_is_in_memory_is_said)
{
    fleet f;
    offload_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    int64_t all = 0;
    for (size_t k = 0; k < muon_state_count(s.opt); k++) {
        muon_tensor t;
        assert_ok(muon_state_get(s.opt, k, &t, sizeof t));
        if (t.dtype != MUON_I64) all += (int64_t)t.bytes;
    }
    for (int turn = 0; turn < 2; turn++) {
        muon_offload_info info = offload_info(&s);
        assert_true(info.state_bytes == all && info.resident == all);
        assert_true(!info.resident_most && !info.bytes_read && !info.bytes_written && !info.direct);
        run_steps(&s, 1, 1);
        assert_true(s.result.phase[MUON_PHASE_OFFLOAD].seconds == 0);
        assert_ok(muon_offload(s.opt, offload_dir(), 1 << 20));
        info = offload_info(&s);
        assert_true(info.state_bytes == all && info.resident <= 1 << 20);
        assert_ok(muon_offload(s.opt, NULL, 0));
    }
    assert_string_equal(muon_phase_name(MUON_PHASE_OFFLOAD), "offload");
    ship_destroy(&s);
}

/* ---- Mistakes */

TEST(the_least_budget_that_is_named_is_enough_and_no_less)
{
    fleet f;
    offload_fleet(&f);
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        f.config.path = (muon_path)path;
        ship s;
        assert_ok(ship_create(&s, &f, NULL));
        int64_t least = least_budget(&s);
        assert_fails(muon_offload(s.opt, offload_dir(), least - 1), MUON_E_BUDGET, "at least ");
        assert_true(offload_least() == least);
        assert_ok(muon_offload(s.opt, offload_dir(), least));
        assert_fails(muon_offload(s.opt, offload_dir(), least - 1), MUON_E_BUDGET, "at least ");
        assert_true(offload_info(&s).resident <= least); /* still there */
        run_steps(&s, 1, 2);
        ship_destroy(&s);
    }
}

TEST(a_place_that_is_none_leaves_all_as_it_was)
{
    fleet f;
    offload_fleet(&f);
    ship s, want;
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_create(&want, &f, NULL));
    static const char *const places[] = {"/nowhere/at/all", "/dev/null", "/proc"};
    for (size_t i = 0; i < COUNT(places); i++) {
        assert_fails(muon_offload(s.opt, places[i], 1 << 30), MUON_E_IO, places[i]);
        run_steps(&s, (int)i + 4, (int)i + 4);
        run_steps(&want, (int)i + 4, (int)i + 4);
        assert_same(&s, &want, places[i]);
        assert_true(offload_is_in_memory(&s));
    }
    assert_fails(muon_offload(s.opt, "", 1 << 30), MUON_E_ARG, "dir is empty");
    assert_fails(muon_offload(s.opt, "/tmp", -1), MUON_E_VALUE, "ram_budget is -1");
    assert_fails(muon_offload(NULL, "/tmp", 1), MUON_E_ARG, "opt must not be NULL");
    muon_offload_info info;
    assert_fails(muon_opt_get_offload(NULL, &info, sizeof info), MUON_E_ARG, "must not be NULL");
    assert_fails(muon_opt_get_offload(s.opt, NULL, sizeof info), MUON_E_ARG, "must not be NULL");
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(a_config_that_makes_no_sense_is_refused)
{
    static const struct {
        const char *dir;
        int64_t budget, cached;
        muon_status status;
        const char *text;
    } cases[] = {
        {"/tmp", -5, 0, MUON_E_VALUE, "offload_budget is -5"},
        {NULL, 5, 0, MUON_E_VALUE, "offload_budget is 5, but offload_dir is NULL"},
        {NULL, 0, 2, MUON_E_VALUE, "offload_cached is 2"},
        {"", 5, 0, MUON_E_ARG, "offload_dir is empty"},
        {"/nowhere/at/all", 1 << 30, 0, MUON_E_IO, "/nowhere/at/all"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        fleet f;
        offload_fleet(&f);
        f.config.offload_dir = cases[i].dir;
        f.config.offload_budget = cases[i].budget;
        f.config.offload_cached = cases[i].cached;
        ship s;
        assert_fails(ship_create(&s, &f, NULL), cases[i].status, cases[i].text);
        assert_null(s.opt);
    }
}

/* ---- Memory */

TEST(a_step_allocates_nothing)
{
    fleet f;
    offload_fleet(&f);
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        f.config.path = (muon_path)path;
        ship s;
        assert_ok(ship_create(&s, &f, NULL));
        assert_ok(muon_offload(s.opt, offload_dir(), least_budget(&s)));
        int64_t before = testlib_allocations();
        run_steps(&s, 1, 6);
        assert_int_equal(testlib_allocations() - before, 0);
        ship_destroy(&s);
    }
}

static int64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long long all, resident = 0;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld %lld", &all, &resident), 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* 64 MiB of AdamW's state. */
static void large_fleet(fleet *f)
{
    fleet_init(f);
    fleet_add(f, MUONS, "w", NULL, NULL, SHAPE(64, 64));
    fleet_add(f, ADAMWS, "embedding", NULL, NULL, SHAPE(4096, 2048));
}

/* What the process has, and not what the library believes it has. */
TEST(memory_is_given_back_and_does_not_grow)
{
    if (testlib_quick()) skip(); /* a sanitizer has memory of its own */
    enum { MIB = 1 << 20, STATE = 64 * MIB, BUDGET = 8 * MIB, NOISE = 2 * MIB };
    fleet f;
    large_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    ship_fill_grads(&s, 1);
    assert_ok(ship_step(&s));
    int64_t whole = resident_bytes();
    assert_ok(muon_offload(s.opt, offload_dir(), BUDGET));
    assert_ok(ship_step(&s));
    int64_t first = resident_bytes();
    if (first > whole - STATE + BUDGET + NOISE)
        fail_msg("%lld bytes with state in memory, %lld with %d of it", (long long)whole,
                 (long long)first, BUDGET);
    for (int i = 0; i < 20; i++)
        assert_ok(ship_step(&s));
    int64_t last = resident_bytes();
    if (last > first + BUDGET / 2)
        fail_msg("%lld bytes after one step, %lld after 21", (long long)first, (long long)last);
    for (int i = 0; i < 4; i++) { /* on and off: never two of it */
        assert_ok(muon_offload(s.opt, NULL, 0));
        assert_ok(ship_step(&s));
        assert_true(resident_bytes() <= whole + NOISE);
        assert_ok(muon_offload(s.opt, offload_dir(), BUDGET));
        assert_true(resident_bytes() <= whole - STATE + BUDGET + NOISE);
    }
    ship_destroy(&s);
}

TEST(state_that_starts_in_a_file_never_takes_its_memory)
{
    if (testlib_quick()) skip();
    enum { MIB = 1 << 20, STATE = 64 * MIB, BUDGET = 8 * MIB, NOISE = 2 * MIB };
    fleet f;
    large_fleet(&f);
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    ship_fill_grads(&s, 1);
    assert_ok(ship_step(&s));
    int64_t whole = resident_bytes();
    ship_destroy(&s);
    f.config.offload_dir = offload_dir();
    f.config.offload_budget = BUDGET;
    assert_ok(ship_create(&s, &f, NULL));
    ship_fill_grads(&s, 1);
    for (int i = 0; i < 3; i++)
        assert_ok(ship_step(&s));
    int64_t now = resident_bytes();
    if (now > whole - STATE + BUDGET + NOISE)
        fail_msg("%lld bytes with state in memory, %lld with %d of it", (long long)whole,
                 (long long)now, BUDGET);
    ship_destroy(&s);
}

/* The most since it was last asked for; -1: this system does not say. */
static int64_t resident_most(void)
{
    char line[256];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lld", &kib) == 1) break;
    fclose(file);
    file = fopen("/proc/self/clear_refs", "w");
    int is_reset = file && fputs("5", file) >= 0;
    if (file && fclose(file) != 0) is_reset = 0;
    return is_reset && kib >= 0 ? kib * 1024 : -1;
}

/* Neither on the way to the file nor on the way back, and the caller may free his memory meanwhile. */
TEST(bound_state_is_never_in_memory_twice)
{
    if (testlib_quick()) skip();
    enum { MIB = 1 << 20, STATE = 64 * MIB, BUDGET = 8 * MIB, NOISE = 6 * MIB };
    fleet f;
    large_fleet(&f);
    f.bind = 1;
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    ship_fill_grads(&s, 1);
    assert_ok(ship_step(&s));
    if (resident_most() < 0) skip();
    int64_t whole = resident_bytes();
    for (int i = 0; i < 2; i++) {
        assert_ok(muon_offload(s.opt, offload_dir(), BUDGET));
        assert_in_range(resident_most(), 0, whole + BUDGET + NOISE);
        state_free(s.state, &f);
        assert_ok(ship_step(&s));
        assert_in_range(resident_bytes(), 0, whole - STATE + BUDGET + NOISE);
        state_allocate(s.state, &f, muon_opt_get_plan(s.opt), 0);
        assert_ok(muon_state_bind(s.opt, s.state));
        assert_ok(muon_offload(s.opt, NULL, 0));
        assert_in_range(resident_most(), 0, whole + BUDGET + NOISE);
        assert_in_range(resident_bytes(), 0, whole + NOISE);
    }
    ship_destroy(&s);
}
