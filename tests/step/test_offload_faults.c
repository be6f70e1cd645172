/* A disk that fails while state is in a file: in mid-step the step fails on all ranks; on the way to the
 * file or back, all is as it was. */
#include "tests/step/offload_fleet.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4 };

/* ---- The disk */

static atomic_llong reads, writes;                                /* so far */
static atomic_llong read_fails, write_fails, read_end, write_end; /* calls from .. to end fail */

static void heal(void)
{
    read_fails = write_fails = INT64_MAX;
    read_end = write_end = INT64_MAX;
}

/* The k-th call from now on fails (0: the next), and `more` behind it. */
static void break_reads(int64_t k, int64_t more)
{
    read_fails = reads + k;
    read_end = more == INT64_MAX ? more : reads + k + 1 + more;
}

static void break_writes(int64_t k, int64_t more)
{
    write_fails = writes + k;
    write_end = more == INT64_MAX ? more : writes + k + 1 + more;
}

ssize_t __real_pread(int fd, void *data, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t offset);
ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset);

ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t offset)
{
    long long call = reads++;
    if (call < read_fails || call >= read_end) return __real_pread(fd, data, bytes, offset);
    errno = EIO;
    return -1;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    long long call = writes++;
    if (call < write_fails || call >= write_end) return __real_pwrite(fd, data, bytes, offset);
    errno = ENOSPC;
    return -1;
}

AROUND_EACH(heal, heal)

/* The least budget of a ship in one process. */
static int64_t least_budget(const ship *s)
{
    assert_fails(muon_offload(s->opt, offload_dir(), 0), MUON_E_BUDGET, "at least ");
    return offload_least();
}

/* ---- In mid-step */

enum { STEPS = 4 };

/* Returns whether it failed. */
static int run_until_broken(const fleet *f, int64_t at, int writing)
{
    ship s;
    assert_ok(ship_create(&s, f, NULL));
    assert_ok(muon_offload(s.opt, offload_dir(), least_budget(&s)));
    (writing ? break_writes : break_reads)(at, INT64_MAX);
    muon_status status = MUON_OK;
    for (int step = 1; step <= STEPS && status == MUON_OK; step++)
        status = ship_run(&s, step, step);
    if (status != MUON_OK) {
        assert_int_equal(status, MUON_E_IO);
        assert_non_null(strstr(muon_last_error(), "offload file"));
        float x;
        assert_fails(muon_state_read(s.opt, 0, 0, 1, &x), MUON_E_IO, "offload file");
        assert_fails(ship_step(&s), MUON_E_BROKEN, "failed half-way");
        assert_fails(muon_offload(s.opt, NULL, 0), MUON_E_BROKEN, "failed half-way");
    }
    heal();
    ship_destroy(&s);
    return status != MUON_OK;
}

TEST(a_failing_disk_ends_the_step)
{
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        for (int writing = 0; writing <= 1; writing++) {
            fleet f;
            offload_fleet(&f);
            f.config.path = (muon_path)path;
            f.config.offload_cached = writing;
            int failed = 0;
            for (int64_t at = 0; at < 500; at = testlib_quick() ? 3 * at + 1 : at + 1 + at / 8)
                failed += run_until_broken(&f, at, writing);
            assert_true(failed > 3);
        }
    }
}

typedef struct rank_task {
    fleet f;
    int64_t at;
    int writing;
    atomic_int failed;
} rank_task;

/* All ranks need another budget; they are told the one of the lowest that has too little. */
static int64_t least_of_all(const ship *s)
{
    int64_t budget = 0;
    while (muon_offload(s->opt, offload_dir(), budget) == MUON_E_BUDGET)
        budget = offload_least();
    rank_ok(muon_offload(s->opt, NULL, 0));
    return budget;
}

static void break_together(int rank, const rank_task *t, int64_t at)
{
    ranks_barrier();
    if (rank == 0) (t->writing ? break_writes : break_reads)(at, 0);
    ranks_barrier();
}

static void heal_together(int rank)
{
    ranks_barrier();
    if (rank == 0) heal();
    ranks_barrier();
}

/* One call fails, on one of the ranks. */
static void break_one(int rank, const muon_comm *comm, void *arg)
{
    rank_task *t = arg;
    ship s;
    rank_ok(ship_create(&s, &t->f, comm));
    rank_ok(muon_offload(s.opt, offload_dir(), least_of_all(&s)));
    break_together(rank, t, t->at);
    muon_status status = MUON_OK;
    for (int step = 1; step <= STEPS && status == MUON_OK; step++) {
        ship_fill_grads(&s, step); /* others hear of it, with or without a result to compare */
        status = t->at % 4 == 3 ? ship_step(&s) : muon_step(s.opt, &s.args, NULL);
    }
    if (status != MUON_OK) {
        rank_check(status == MUON_E_IO, "%s: %s", muon_status_name(status), muon_last_error());
        rank_check(strncmp(muon_last_error(), "rank ", 5) == 0 &&
                       strstr(muon_last_error(), "offload file"),
                   "%s", muon_last_error());
        rank_fails(ship_step(&s), MUON_E_BROKEN, "failed half-way");
        t->failed++;
    }
    ranks_barrier();
    int failed = t->failed;
    rank_check(failed == 0 || failed == RANKS, "%d ranks have failed", failed);
    heal_together(rank);
    ship_destroy(&s);
}

TEST(one_ranks_disk_ends_the_step_on_all)
{
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        int failed = 0;
        for (int64_t at = 0; at < 300; at = testlib_quick() ? 5 * at + 3 : 2 * at + 1) {
            rank_task t = {.at = at, .writing = (int)(at % 2)};
            offload_fleet(&t.f);
            t.f.config.path = (muon_path)path;
            ranks_run(RANKS, break_one, &t);
            failed += t.failed == RANKS;
        }
        assert_true(failed > 0);
    }
}

/* ---- On the way */

static void check_same(ship *s, const ship *want, const char *when)
{
    const char *wrong = offload_compare(s, want);
    if (wrong) fail_msg("%s: not as in memory: %s", when, wrong);
}

static void run_both(ship *a, ship *b, int step)
{
    assert_ok(ship_run(a, step, step));
    assert_ok(ship_run(b, step, step));
}

TEST(a_failure_on_the_way_to_the_file_leaves_state_in_memory)
{
    for (int bind = 0; bind <= 1; bind++) {
        fleet f;
        offload_fleet(&f);
        f.bind = bind;
        ship s, want;
        assert_ok(ship_create(&s, &f, NULL));
        assert_ok(ship_create(&want, &f, NULL));
        int64_t least = least_budget(&s);
        run_both(&s, &want, 1);
        int64_t at = 0;
        for (;; at++) {
            /* All that follow fail, too: else only O_DIRECT is given up. */
            break_writes(at, INT64_MAX);
            muon_status status = muon_offload(s.opt, offload_dir(), least);
            heal();
            if (status == MUON_OK) break;
            assert_int_equal(status, MUON_E_IO);
            assert_true(offload_is_in_memory(&s));
            check_same(&s, &want, "after a failure");
        }
        assert_true(at > 0);
        run_both(&s, &want, 2);
        check_same(&s, &want, "in the file");
        ship_destroy(&s);
        ship_destroy(&want);
    }
}

/* Until nothing is read ahead any more: what fails then is what the test is about. If this machine is so
 * slow that it ends too early, reading ahead fails, which is checked for, too. */
static void wait_for_quiet(void)
{
    const struct timespec a_moment = {.tv_nsec = 2000000};
    long long before;
    do {
        before = reads + writes;
        nanosleep(&a_moment, NULL);
    } while (before != reads + writes);
}

/* Either the file is as good as before, or reading ahead has failed, and then so does the next step. */
static muon_status step_after(ship *s, int step)
{
    muon_status status = ship_run(s, step, step);
    if (status == MUON_E_IO) status = ship_run(s, step, step); /* which has broken it */
    return status;
}

TEST(a_failure_on_the_way_back_leaves_it_in_the_file)
{
    for (int bind = 0; bind <= 1; bind++) {
        int failed = 0;
        for (int at = 0; at < 6; at++) {
            fleet f;
            offload_fleet(&f);
            f.bind = bind;
            ship s, want;
            assert_ok(ship_create(&s, &f, NULL));
            assert_ok(ship_create(&want, &f, NULL));
            int64_t budget = 2 * least_budget(&s);
            assert_ok(muon_offload(s.opt, offload_dir(), budget));
            run_both(&s, &want, 1);
            wait_for_quiet();
            break_reads(at, 0);
            muon_status status = muon_offload(s.opt, NULL, 0);
            heal();
            if (status != MUON_OK) {
                failed++;
                assert_int_equal(status, MUON_E_IO);
                assert_true(offload_info(&s).resident <= budget);
                status = step_after(&s, 2);
                assert_true(status == MUON_OK || status == MUON_E_BROKEN);
                assert_ok(ship_run(&want, 2, 2));
                if (status == MUON_OK) {
                    check_same(&s, &want, "still in the file");
                    assert_ok(muon_offload(s.opt, NULL, 0));
                }
            }
            if (status == MUON_OK) check_same(&s, &want, "in memory");
            ship_destroy(&s);
            ship_destroy(&want);
        }
        assert_true(failed > 0);
    }
}

static void fail_to_come_back(int rank, const muon_comm *comm, void *arg)
{
    rank_task *t = arg;
    ship s, want;
    rank_ok(ship_create(&s, &t->f, comm));
    rank_ok(ship_create(&want, &t->f, comm));
    int64_t budget = 2 * least_of_all(&s);
    rank_ok(muon_offload(s.opt, offload_dir(), budget));
    rank_ok(ship_run(&s, 1, 1));
    rank_ok(ship_run(&want, 1, 2));
    wait_for_quiet();
    break_together(rank, t, t->at);
    muon_status status = muon_offload(s.opt, NULL, 0);
    heal_together(rank);
    rank_check(status == MUON_OK || status == MUON_E_IO, "%s", muon_status_name(status));
    rank_check(status == MUON_OK || offload_info(&s).resident <= budget, "it went to memory");
    if (status != MUON_OK) t->failed++;
    status = step_after(&s, 2);
    rank_check(status == MUON_OK || status == MUON_E_BROKEN, "%s", muon_status_name(status));
    const char *wrong = status == MUON_OK ? offload_compare(&s, &want) : NULL;
    rank_check(!wrong, "%s", wrong);
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(one_rank_that_cannot_come_back_keeps_all_in_their_files)
{
    for (int bind = 0; bind <= 1; bind++) {
        int failed = 0;
        for (int at = 0; at < 8; at++) {
            rank_task t = {.at = at};
            offload_fleet(&t.f);
            t.f.bind = bind;
            ranks_run(RANKS, fail_to_come_back, &t);
            assert_true(t.failed == 0 || t.failed == RANKS);
            failed += t.failed == RANKS;
        }
        assert_true(failed > 0);
    }
}

/* Rank 1 has nowhere to go, and the others' files cannot be read: they cannot come back. */
static void lose_state(int rank, const muon_comm *comm, void *arg)
{
    rank_task *t = arg;
    ship s;
    rank_ok(ship_create(&s, &t->f, comm));
    int64_t least = least_of_all(&s);
    ranks_barrier();
    if (rank == 0) break_reads(0, INT64_MAX);
    ranks_barrier();
    rank_fails(muon_offload(s.opt, rank == 1 ? "/nowhere/at/all" : offload_dir(), least), MUON_E_IO,
               "rank 1: /nowhere/at/all");
    heal_together(rank);
    ship_fill_grads(&s, 1);
    rank_fails(ship_step(&s), MUON_E_BROKEN, "failed half-way");
    ship_destroy(&s);
}

TEST(state_that_is_lost_on_one_rank_breaks_all)
{
    rank_task t = {.at = 0};
    offload_fleet(&t.f);
    ranks_run(RANKS, lose_state, &t);
}

/* The same with bound state: the caller's memory still has all of it. */
static void lose_only_the_file(int rank, const muon_comm *comm, void *arg)
{
    rank_task *t = arg;
    ship s, want;
    rank_ok(ship_create(&s, &t->f, comm));
    rank_ok(ship_create(&want, &t->f, comm));
    int64_t least = least_of_all(&s);
    rank_ok(ship_run(&s, 1, 1));
    rank_ok(ship_run(&want, 1, 2));
    ranks_barrier();
    if (rank == 0) break_reads(0, INT64_MAX);
    ranks_barrier();
    rank_fails(muon_offload(s.opt, rank == 1 ? "/nowhere/at/all" : offload_dir(), least), MUON_E_IO,
               NULL);
    heal_together(rank);
    rank_ok(ship_run(&s, 2, 2));
    const char *wrong = offload_compare(&s, &want);
    rank_check(!wrong, "%s", wrong);
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(bound_state_is_not_lost)
{
    rank_task t = {.at = 0};
    offload_fleet(&t.f);
    t.f.bind = 1;
    ranks_run(RANKS, lose_only_the_file, &t);
}

/* ---- No way back to where it was */

static char said[1024];

static void listen(void *user, muon_log_level level, const char *message)
{
    (void)user;
    if (level == MUON_LOG_WARN) snprintf(said, sizeof said, "%s", message);
}

TEST(without_its_old_place_state_is_in_memory)
{
    for (int bind = 0; bind <= 1; bind++) {
        char dir[512];
        snprintf(dir, sizeof dir, "%s/muon-test-XXXXXX", offload_dir());
        assert_non_null(mkdtemp(dir));
        fleet f;
        offload_fleet(&f);
        f.bind = bind;
        f.config.log = listen;
        ship s, want;
        assert_ok(ship_create(&s, &f, NULL));
        assert_ok(ship_create(&want, &f, NULL));
        assert_ok(muon_offload(s.opt, dir, least_budget(&s)));
        assert_int_equal(rmdir(dir), 0); /* the file has no name */
        run_both(&s, &want, 1);
        assert_fails(muon_offload(s.opt, "/nowhere/at/all", 1 << 30), MUON_E_IO, "/nowhere/at/all");
        assert_non_null(strstr(said, "state is in memory"));
        assert_true(offload_info(&s).resident == offload_info(&s).state_bytes);
        run_both(&s, &want, 2);
        check_same(&s, &want, "in memory");
        assert_ok(muon_offload(s.opt, offload_dir(), 1 << 30));
        run_both(&s, &want, 3);
        check_same(&s, &want, "in a file again");
        assert_ok(muon_offload(s.opt, NULL, 0));
        check_same(&s, &want, "back");
        if (bind) assert_ptr_equal(ship_state(&s, 0, "step").data, s.state[0].step);
        ship_destroy(&s);
        ship_destroy(&want);
    }
}

/* ---- Memory */

TEST(an_allocation_that_fails_leaves_all_as_it_was)
{
    for (int bind = 0; bind <= 1; bind++) {
        fleet f;
        offload_fleet(&f);
        f.bind = bind;
        ship s, want;
        assert_ok(ship_create(&s, &f, NULL));
        assert_ok(ship_create(&want, &f, NULL));
        int64_t least = least_budget(&s);
        for (int turn = 0; turn < 2; turn++) { /* from memory, and from another file */
            int64_t k = 1;
            for (;; k++) {
                testlib_fail_allocation(k);
                muon_status status = muon_offload(s.opt, offload_dir(), least * (2 - turn));
                int done = testlib_allocations_to_fail() > 0;
                testlib_fail_allocation(0);
                if (status == MUON_OK) assert_true(done);
                if (status == MUON_OK) break;
                assert_int_equal(status, MUON_E_NOMEM);
                if (turn == 0) assert_true(offload_is_in_memory(&s));
                check_same(&s, &want, "after a failure");
            }
            assert_true(k > 5);
            run_both(&s, &want, turn + 1);
            check_same(&s, &want, "in the file");
        }
        ship_destroy(&s);
        ship_destroy(&want);
    }
}
