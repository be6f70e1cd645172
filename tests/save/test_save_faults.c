/* System calls that fail, each in turn, in one process and on one of several ranks. A save that fails
 * says so on every rank, leaves nothing behind, and the next one works; a load that fails half-way is
 * put right by another one. */
#define _GNU_SOURCE /* fallocate */
#include "tests/save/save_fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/types.h>

/* ---- The fault: the k-th call of one kind, by whichever thread */

typedef enum call { NO_CALL, PWRITE, PREAD, WRITE, READ, FSYNC, OPEN, FALLOCATE, RENAME } call;

enum { SHORT = -1, NOTHING = -2 }; /* in place of an errno: half of the bytes; 0 of them */

static _Atomic int fault_call, fault_left, fault_error;

static void arm(call c, int k, int error)
{
    fault_error = error;
    fault_left = k;
    fault_call = c;
}

/* Has it happened? */
static int disarm(void)
{
    fault_call = NO_CALL;
    return fault_left <= 0;
}

/* The errno of this call, SHORT or NOTHING; 0: it works. */
static int strike(call c)
{
    if (fault_call != (int)c || atomic_fetch_sub(&fault_left, 1) != 1) return 0;
    return fault_error;
}

#define FAIL_IF_STRUCK(c)                                                                          \
    int struck = strike(c);                                                                        \
    if (struck > 0) {                                                                              \
        errno = struck;                                                                            \
        return -1;                                                                                 \
    }                                                                                              \
    if (struck == NOTHING) return 0

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __real_pread(int fd, void *data, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t offset);
ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __real_read(int fd, void *data, size_t bytes);
ssize_t __wrap_read(int fd, void *data, size_t bytes);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);

static size_t some_of(size_t bytes, int struck)
{
    return struck == SHORT ? (bytes + 1) / 2 : bytes;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    FAIL_IF_STRUCK(PWRITE);
    return __real_pwrite(fd, data, some_of(bytes, struck), offset);
}

ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t offset)
{
    FAIL_IF_STRUCK(PREAD);
    return __real_pread(fd, data, some_of(bytes, struck), offset);
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    FAIL_IF_STRUCK(WRITE);
    return __real_write(fd, data, some_of(bytes, struck));
}

ssize_t __wrap_read(int fd, void *data, size_t bytes)
{
    FAIL_IF_STRUCK(READ);
    return __real_read(fd, data, some_of(bytes, struck));
}

int __wrap_fsync(int fd)
{
    FAIL_IF_STRUCK(FSYNC);
    return __real_fsync(fd);
}

static unsigned mode_of(int flags, va_list args)
{
    return flags & O_CREAT ? va_arg(args, unsigned) : 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    FAIL_IF_STRUCK(OPEN);
    va_list args;
    va_start(args, flags);
    unsigned mode = mode_of(flags, args);
    va_end(args);
    return __real_open(path, flags, mode);
}

static const char *unreadable; /* what begins like this cannot be opened in any directory */

int __wrap_openat(int dir, const char *path, int flags, ...)
{
    FAIL_IF_STRUCK(OPEN);
    if (unreadable && strncmp(path, unreadable, strlen(unreadable)) == 0) {
        errno = EIO;
        return -1;
    }
    va_list args;
    va_start(args, flags);
    unsigned mode = mode_of(flags, args);
    va_end(args);
    return __real_openat(dir, path, flags, mode);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    FAIL_IF_STRUCK(FALLOCATE);
    return __real_fallocate(fd, mode, offset, bytes);
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    FAIL_IF_STRUCK(RENAME);
    return __real_renameat(from_dir, from, to_dir, to);
}

/* ---- Saving while it happens */

typedef struct trial {
    const char *name;
    call c;
    int error;
    int works; /* 1: nobody may notice */
} trial;

typedef struct stage { /* ships, and what one process has after one step and after two */
    fleet f;
    squadron q;
    ship first, second;
    scratch root;
} stage;

static void set_stage(stage *s, int nranks, int large)
{
    (large ? save_fleet_large : save_fleet_small)(&s->f, nranks);
    fleet_run_whole(&s->first, &s->f, 1);
    fleet_run_whole(&s->second, &s->f, 2);
    squadron_create(&s->q, &s->f, nranks);
    s->root = scratch_make();
}

static void clear_stage(stage *s)
{
    squadron_destroy(&s->q);
    ship_destroy(&s->first);
    ship_destroy(&s->second);
    scratch_remove(&s->root);
}

static char *path_in(const stage *s, const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s%s", s->root.path, name);
    return path;
}

static void check_message(const stage *s, const trial *t, int k)
{
    const char *text = s->q.text[0];
    if (s->q.status[0] != MUON_E_IO)
        fail_msg("%s %d: %s: %s", t->name, k, muon_status_name(s->q.status[0]), text);
    if (s->q.n > 1 && strncmp(text, "rank ", 5) != 0)
        fail_msg("%s %d: no rank in: %s", t->name, k, text);
    if (!strstr(text, s->root.path) && !strstr(text, ".safetensors"))
        fail_msg("%s %d: no file in: %s", t->name, k, text);
    if (t->error > 0 && !strstr(text, strerror(t->error)))
        fail_msg("%s %d: no reason in: %s", t->name, k, text);
}

/* The k-th call fails while step 2 is saved beside step 1. Returns 0 if there were fewer calls: then it
 * is saved. */
static int save_with_fault(stage *s, const trial *t, int k, int beside)
{
    save_order order = {s->root.path, 2, beside};
    squadron_step(&s->q, 2);
    arm(t->c, k, t->error);
    muon_status status = squadron_do(&s->q, act_save, &order);
    int struck = disarm();
    int complete = status == MUON_OK || strstr(s->q.text[0], "is complete, but");
    if (complete) {
        /* What looks for leftovers does not mind if it cannot look. */
        if (struck && status == MUON_OK && !t->works && t->c != OPEN)
            fail_msg("%s %d: nobody has noticed", t->name, k);
        squadron_ok(&s->q, act_load, path_in(s, "/step-00000002"));
        squadron_compare(&s->q, &s->second, t->name);
        if (struck) scratch_remove_tree(path_in(s, "/step-00000002"));
    } else {
        if (t->works) fail_msg("%s %d: %s", t->name, k, s->q.text[0]);
        check_message(s, t, k);
        if (strcmp(names_in(s->root.path), "latest step-00000001") != 0)
            fail_msg("%s %d: there is %s", t->name, k, names_in(s->root.path));
    }
    squadron_ok(&s->q, act_load, path_in(s, "/step-00000001"));
    squadron_compare(&s->q, &s->first, t->name);
    return struck;
}

static void save_with_faults(const trial *t, int nranks, int beside, int large)
{
    stage s;
    set_stage(&s, nranks, large);
    save_order order = {s.root.path, 1, 0};
    squadron_step(&s.q, 1);
    squadron_ok(&s.q, act_save, &order);
    int k = 1;
    while (save_with_fault(&s, t, k, beside))
        k++;
    if (k < 2) fail_msg("%s: there is no such call", t->name);
    /* It works, and nothing is left of all that has failed. */
    assert_string_equal(names_in(s.root.path), "latest step-00000001 step-00000002");
    clear_stage(&s);
}

static const trial saves[] = {
    {"pwrite, disk full", PWRITE, ENOSPC, 0},
    {"pwrite, bad disk", PWRITE, EIO, 0},
    {"pwrite of nothing", PWRITE, NOTHING, 0},
    {"pwrite of a part", PWRITE, SHORT, 1},
    {"pwrite, a signal", PWRITE, EINTR, 1},
    {"write, disk full", WRITE, ENOSPC, 0},
    {"write of a part", WRITE, SHORT, 1},
    {"write, a signal", WRITE, EINTR, 1},
    {"fsync, bad disk", FSYNC, EIO, 0},
    {"fsync, over quota", FSYNC, EDQUOT, 0},
    {"fallocate, disk full", FALLOCATE, ENOSPC, 0},
    {"no fallocate", FALLOCATE, EOPNOTSUPP, 1},
    {"open, too many files", OPEN, EMFILE, 0},
    {"rename, bad disk", RENAME, EIO, 0},
};

TEST(a_save_that_fails_leaves_nothing_in_one_process)
{
    for (size_t i = 0; i < COUNT(saves); i++)
        for (int beside = 0; beside < 2; beside++)
            save_with_faults(&saves[i], 1, beside, 0);
}

TEST(nor_on_ranks_that_all_hear_of_it)
{
    size_t stride = testlib_quick() ? 3 : 1;
    for (size_t i = 0; i < COUNT(saves); i += stride)
        save_with_faults(&saves[i], 3, (int)i % 2, 0);
}

TEST(nor_if_it_happens_on_another_thread)
{
    save_with_faults(&saves[0], 1, 0, 1);
    if (!testlib_quick()) save_with_faults(&saves[3], 2, 0, 1);
}

/* ---- Loading while it happens */

static int load_with_fault(stage *s, const trial *t, int k)
{
    uint64_t before[SQUADRON_MOST] = {0};
    squadron_step(&s->q, 3);
    for (int i = 0; i < s->q.n; i++)
        before[i] = ship_digest(&s->q.ships[i]);
    arm(t->c, k, t->error);
    muon_status status = squadron_do(&s->q, act_load, path_in(s, ""));
    int struck = disarm();
    if (status == MUON_OK) {
        if (struck && !t->works) fail_msg("%s %d: nobody has noticed", t->name, k);
    } else {
        if (t->works || (status != MUON_E_IO && status != MUON_E_FORMAT))
            fail_msg("%s %d: %s: %s", t->name, k, muon_status_name(status), s->q.text[0]);
        if (!strstr(s->q.text[0], s->root.path))
            fail_msg("%s %d: no file in: %s", t->name, k, s->q.text[0]);
        int same = 1, step = 4;
        for (int i = 0; i < s->q.n; i++)
            same = same && ship_digest(&s->q.ships[i]) == before[i];
        if (squadron_do(&s->q, act_step, &step) == MUON_OK) {
            if (!same) fail_msg("%s %d: something has changed", t->name, k);
        } else {
            save_order order = {s->root.path, 9, 0};
            assert_int_equal(s->q.status[0], MUON_E_BROKEN);
            squadron_fails(&s->q, act_save, &order, MUON_E_BROKEN, "the last muon_load failed");
            order.beside = 1;
            squadron_fails(&s->q, act_save, &order, MUON_E_BROKEN, "the last muon_load failed");
        }
        squadron_ok(&s->q, act_load, path_in(s, ""));
    }
    squadron_compare(&s->q, &s->second, t->name);
    return struck;
}

static void load_with_faults(const trial *t, int nranks, int large)
{
    stage s;
    set_stage(&s, nranks, large);
    save_order order = {s.root.path, 2, 0};
    squadron_step(&s.q, 1);
    squadron_step(&s.q, 2);
    squadron_ok(&s.q, act_save, &order);
    int k = 1;
    while (load_with_fault(&s, t, k))
        k++;
    if (k < 2) fail_msg("%s: there is no such call", t->name);
    clear_stage(&s);
}

static const trial loads[] = {
    {"pread, bad disk", PREAD, EIO, 0},        {"pread beyond the end", PREAD, NOTHING, 0},
    {"pread of a part", PREAD, SHORT, 1},      {"pread, a signal", PREAD, EINTR, 1},
    {"read, bad disk", READ, EIO, 0},          {"read of a part", READ, SHORT, 1},
    {"open, too many files", OPEN, EMFILE, 0},
};

TEST(a_load_that_fails_is_put_right_by_another)
{
    for (size_t i = 0; i < COUNT(loads); i++) {
        load_with_faults(&loads[i], 1, 0);
        load_with_faults(&loads[i], 3, 0);
    }
    load_with_faults(&loads[0], 1, 1);
    if (!testlib_quick()) load_with_faults(&loads[1], 2, 1);
}

/* ---- One of several that cannot be read: nobody knows whether it is the newest */

static muon_status act_load_back(ship *s, void *arg)
{
    muon_load_args args = load_args(s);
    args.fall_back = 1;
    return muon_load(s->opt, arg, &args, NULL);
}

TEST(a_load_does_not_take_another_for_the_newest)
{
    for (int nranks = 1; nranks <= 3; nranks += 2) {
        stage s;
        notes said;
        set_stage(&s, nranks, 0);
        squadron_destroy(&s.q);
        listen(&s.f, &said);
        squadron_create(&s.q, &s.f, nranks);
        for (int step = 1; step <= 2; step++) {
            save_order order = {s.root.path, step, 0};
            squadron_step(&s.q, step);
            squadron_ok(&s.q, act_save, &order);
        }
        for (int bad = 1; bad <= 2; bad++) {
            const ship *other = bad == 1 ? &s.second : &s.first;
            unreadable = path_of("step-%08d", bad);
            squadron_fails(&s.q, act_load, s.root.path, MUON_E_IO, strerror(EIO));
            assert_non_null(strstr(s.q.text[0], unreadable));
            forget(&said);
            squadron_ok(&s.q, act_load_back, s.root.path);
            squadron_compare(&s.q, other, unreadable);
            assert_int_equal(count_notes(&said, "; ignoring it"), 1);
            assert_int_equal(count_notes(&said, unreadable), 1);
        }
        unreadable = "step-";
        squadron_fails(&s.q, act_load_back, s.root.path, MUON_E_IO, strerror(EIO));
        unreadable = NULL;
        squadron_ok(&s.q, act_load, s.root.path);
        squadron_compare(&s.q, &s.second, "readable again");
        clear_stage(&s);
    }
}

/* Back from 300 to 100, and from there to 10, which cannot be read while 150 is saved. */
TEST(a_save_is_the_newest_whatever_it_cannot_read)
{
    static const int64_t steps[] = {300, 100, 10, 150, 160};
    fleet f;
    ship s;
    scratch root = scratch_make();
    save_fleet_small(&f, 1);
    fleet_run_whole(&s, &f, 1);
    for (size_t i = 0; i < COUNT(steps); i++) {
        muon_save_args args = save_args(&s, steps[i]);
        int64_t newest = -1;
        unreadable = steps[i] == 150 ? "step-00000010" : NULL;
        muon_status status = muon_save(s.opt, root.path, &args);
        assert_int_equal(status, unreadable ? MUON_E_IO : MUON_OK);
        if (unreadable) assert_non_null(strstr(muon_last_error(), "is complete, but"));
        unreadable = NULL;
        assert_ok(ship_load(&s, root.path, &newest));
        assert_int_equal(newest, steps[i]);
    }
    ship_destroy(&s);
    scratch_remove(&root);
}
