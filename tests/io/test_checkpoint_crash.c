/* What a save leaves when it is cut off before any of its system calls, or killed at any moment:
 * the old checkpoints or the new one, never a half; and the next save finds a clean place. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/io/checkpoint_scenarios.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

TEST(all_goes_well_if_nothing_goes_wrong)
{
    for (size_t i = 0; i < COUNT(scenarios); i++) {
        prepare(&scenarios[i]);
        calls_count();
        muon_status status = run(&scenarios[i]);
        long calls = calls_end();
        assert_ok(status);
        assert_true(calls > 30); /* they do go through here */
        assert_string_equal(steps_in(root), scenarios[i].after);
        assert_true(check_root(&scenarios[i], "after", calls));
        assert_false(has_hidden());
        check_next(&scenarios[i], "after", calls);
    }
}

TEST(dead_before_any_call_there_is_the_old_or_the_new)
{
    for (size_t i = 0; i < COUNT(scenarios); i++) {
        int with_old = 0;
        int with_new = 0;
        for (long k = 1;; k += stride()) {
            prepare(&scenarios[i]);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                calls_die_before(k);
                _exit(run(&scenarios[i]) == MUON_OK ? 0 : 1);
            }
            int end;
            assert_int_equal(waitpid(child, &end, 0), child);
            assert_true(WIFEXITED(end));
            if (WEXITSTATUS(end) == 0) break;
            assert_int_equal(WEXITSTATUS(end), CALLS_DIED);
            int is_new = check_root(&scenarios[i], "dead before", k);
            with_new += is_new;
            with_old += !is_new;
            check_next(&scenarios[i], "dead before", k);
        }
        assert_true(with_old > 3 && with_new > 3);
    }
}

static void rest(uint64_t microseconds)
{
    struct timespec time = {0, (long)(microseconds % 1000000) * 1000};
    nanosleep(&time, NULL);
}

/* Saves first, first + by, ... until it is killed; *done is the last one that was reported
 * complete. */
static void save_until_killed(int64_t first, int64_t by, _Atomic int64_t *done)
{
    for (int64_t step = first;; step += by) {
        if (save(root, step, 'b', 3, 0) != MUON_OK) {
            fprintf(stderr, "step %lld: %s\n", (long long)step, muon_last_error());
            _exit(1);
        }
        *done = step;
    }
}

TEST(killed_at_any_moment_what_was_complete_is_there)
{
    scenario none = {.what = "killed"};
    prepare(&none);
    testlib_seed(11);
    _Atomic int64_t *done =
        mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(done != MAP_FAILED);
    int64_t next = 1;
    for (int round = 0; round < 60; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) save_until_killed(next, 1, done);
        rest(testlib_bits() % 8000);
        assert_int_equal(kill(child, SIGKILL), 0);
        int end;
        assert_int_equal(waitpid(child, &end, 0), child);
        if (!WIFSIGNALED(end)) fail_msg("round %d: a save failed", round);
        if (!exists(root)) continue;
        int64_t *steps;
        size_t nsteps;
        assert_ok(muon__checkpoint_steps(&steps, &nsteps, root));
        int64_t newest = nsteps > 0 ? steps[nsteps - 1] : 0;
        for (size_t i = 0; i < nsteps; i++)
            assert_int_equal(content_of(root, steps[i]), 'b');
        free(steps);
        if (newest < *done)
            fail_msg("step %lld was complete, and the newest is %lld", (long long)*done,
                     (long long)newest);
        next = newest + 1;
    }
    assert_true(next > 1);
    assert_ok(save(root, next, 'b', 3, 0));
    assert_false(has_hidden());
    munmap(done, sizeof *done);
}

TEST(two_processes_with_steps_of_their_own_do_not_disturb_each_other)
{
    scenario none = {.what = "two processes"};
    prepare(&none);
    enum { STEPS = 40 };
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] > 0) continue;
        for (int64_t step = 1 + i; step <= STEPS; step += 2)
            if (save(root, step, 'b', 4, 0) != MUON_OK) {
                fprintf(stderr, "step %lld: %s\n", (long long)step, muon_last_error());
                _exit(1);
            }
        _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        int end;
        assert_int_equal(waitpid(children[i], &end, 0), children[i]);
        assert_true(WIFEXITED(end));
        assert_int_equal(WEXITSTATUS(end), 0);
    }
    assert_ok(save(root, STEPS + 1, 'b', 4, 0));
    assert_int_equal(strlen(steps_in(root)), strlen("37 38 39 41")); /* whichever these are */
    assert_false(has_hidden());
    assert_string_equal(latest_of(root), muon__checkpoint_name(STEPS + 1).text);
}

/* Of four processes that exchange the same step all the time, each succeeds or hears that another one
 * is saving it; and nothing else is left. */
TEST(processes_that_replace_the_same_step_leave_one)
{
    enum { PROCESSES = 4, SAVES = 60 };
    scenario none = {.what = "replacing"};
    prepare(&none);
    assert_ok(save(root, 1, 'a', 0, 0));
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] > 0) continue;
        for (int k = 0; k < SAVES; k++)
            if (save(root, 1, 'b', 0, 1) != MUON_OK &&
                !strstr(muon_last_error(), "another process is saving step 1 right now")) {
                fprintf(stderr, "%s\n", muon_last_error());
                _exit(1);
            }
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int end;
        assert_int_equal(waitpid(children[i], &end, 0), children[i]);
        assert_true(WIFEXITED(end) && WEXITSTATUS(end) == 0);
    }
    assert_int_equal(content_of(root, 1), 'b');
    assert_string_equal(names_in(root), "latest step-00000001");
}

AROUND_ALL(scratch_setup, scratch_teardown)
