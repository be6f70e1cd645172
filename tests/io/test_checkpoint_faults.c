/* What a save leaves and says when any of its system calls fails, when the file system lacks
 * something, or when another process acts at the worst moment; and in which order things reach the
 * disk. */
#include "tests/io/checkpoint_scenarios.h"

#include <sys/resource.h>

/* One failure and, for the status, one of three meanings. */
static void check_failure(const scenario *s, long k, int error)
{
    prepare(s);
    int before = count_names("/proc/self/fd");
    calls_fail(k, error);
    muon_status status = run(s);
    calls_end();
    char message[MUON__MESSAGE_MAX];
    snprintf(message, sizeof message, "%s", muon_last_error());
    const char *call = calls_failed();
    assert_int_equal(count_names("/proc/self/fd"), before);
    int is_new = check_root(s, call, k);
    int says_complete = status != MUON_OK && strstr(message, "is complete, but") != NULL;
    if (is_new != (status == MUON_OK || says_complete))
        fail_msg("%s, %s (call %ld) failed: %s, '%s', but it is %s", s->what, call, k,
                 muon_status_name(status), message, is_new ? "there" : "not there");
    if (status != MUON_OK) {
        assert_int_equal(status, MUON_E_IO);
        if (!strstr(message, root) || !strstr(message, strerror(error)))
            fail_msg("%s, %s (call %ld) failed: '%s' does not name the place and '%s'", s->what,
                     call, k, message, strerror(error));
    }
    /* A leftover that could not be removed at the start may stay; ours may not. */
    if (!is_new && s->leftover == 0 && exists(root) && has_hidden())
        fail_msg("%s, %s (call %ld) failed: left in the root: %s", s->what, call, k,
                 names_in(root));
    check_next(s, call, k);
}

TEST(whatever_call_fails_the_message_is_true_and_nothing_is_lost)
{
    static const int errors[] = {EIO, ENOSPC};
    for (size_t i = 0; i < COUNT(scenarios); i++) {
        prepare(&scenarios[i]);
        calls_count();
        assert_ok(run(&scenarios[i]));
        long calls = calls_end();
        for (long k = 1; k <= calls; k += stride())
            check_failure(&scenarios[i], k, errors[(size_t)k % COUNT(errors)]);
    }
}

TEST(a_full_disk_is_named_with_file_and_bytes)
{
    const scenario *s = &scenarios[1];
    static const struct {
        const char *call, *message;
    } cases[] = {
        {"fallocate",
         "root/.saving-step-00000003/large: no room for its 5000 bytes: No space left"},
        {"write",
         "root/.saving-step-00000003/large: writing failed with 5000 bytes to go: No space"},
        {"mkdirat", "root/.saving-step-00000003: cannot be created: No space left"},
        {"symlinkat", "step-00000003: is complete, but: "},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        prepare(s);
        calls_fail_always(cases[i].call, ENOSPC);
        muon_status status = run(s);
        calls_end();
        assert_fails(status, MUON_E_IO, cases[i].message);
        check_root(s, cases[i].call, 0);
        assert_false(has_hidden());
    }
}

TEST(writes_that_take_one_byte_are_continued)
{
    prepare(&scenarios[1]);
    calls_write_bytes(1);
    muon_status status = run(&scenarios[1]);
    long calls = calls_end();
    assert_ok(status);
    assert_true(calls > LARGE_BYTES);
    assert_true(check_root(&scenarios[1], "short", 0));
}

TEST(calls_that_are_interrupted_are_repeated)
{
    const scenario *s = &scenarios[1];
    prepare(s);
    calls_count();
    assert_ok(run(s));
    long calls = calls_end();
    int repeated = 0;
    for (long k = 1; k <= calls; k++) {
        prepare(s);
        calls_fail(k, EINTR);
        muon_status status = run(s);
        calls_end();
        static const char *const repeat[] = {"write", "fsync", "fallocate", "read", "close"};
        for (size_t i = 0; i < COUNT(repeat); i++)
            if (!strcmp(calls_failed(), repeat[i])) {
                assert_ok(status);
                assert_true(check_root(s, "interrupted", k));
                repeated++;
            }
    }
    assert_true(repeated > 10);
}

/* ---- File systems that lack something */

static muon_status run_without(const scenario *s, const char *call, int error)
{
    prepare(s);
    calls_fail_always(call, error);
    muon_status status = run(s);
    calls_end();
    return status;
}

TEST(a_file_system_may_lack_room_directory_syncs_and_links)
{
    const scenario *s = &scenarios[4];
    assert_ok(run_without(s, "fallocate", EOPNOTSUPP));
    assert_string_equal(steps_in(root), s->after);
    prepare(s);
    calls_fail_directories("fsync", EINVAL);
    muon_status status = run(s);
    calls_end();
    assert_ok(status);
    assert_string_equal(calls_failed(), "fsync");
    assert_string_equal(steps_in(root), s->after);
    assert_ok(run_without(s, "symlinkat", EPERM));
    assert_string_equal(steps_in(root), s->after);
    assert_false(has_hidden());
}

TEST(without_exchange_nothing_is_replaced)
{
    static const int errors[] = {EINVAL, ENOSYS};
    for (size_t i = 0; i < COUNT(errors); i++) {
        assert_fails(run_without(&scenarios[5], "renameat2", errors[i]), MUON_E_IO,
                     "step-00000002: exists, and this file system cannot exchange");
        assert_int_equal(content_of(root, 2), 'a');
        assert_string_equal(names_in(root), "latest step-00000001 step-00000002");
    }
}

TEST(without_locks_only_a_leftover_of_the_same_step_is_in_the_way)
{
    for (size_t i = 0; i < COUNT(scenarios); i++) {
        const scenario *s = &scenarios[i];
        muon_status status = run_without(s, "flock", ENOSYS);
        if (s->leftover == s->step) {
            assert_fails(status, MUON_E_IO,
                         ".saving-step-00000003: exists, and this file system has");
            assert_true(exists(in_scratch("root/.saving-step-00000003/large")));
            continue;
        }
        assert_ok(status);
        assert_string_equal(steps_in(root), s->after);
        assert_int_equal(has_hidden(), s->leftover != 0);
    }
}

/* ---- Other processes, at the worst moment */

static void complete_step_2(void)
{
    assert_int_equal(
        rename(in_scratch("root/.saving-step-00000002"), in_scratch("root/step-00000002")), 0);
}

static void remove_step_1(void)
{
    scratch_remove_tree(in_scratch("root/step-00000001"));
}

static void remove_step_3_and_link(void)
{
    scratch_remove_tree(in_scratch("root/step-00000003"));
    assert_int_equal(unlink(in_scratch("root/.latest-step-00000003")), 0);
}

static void clean_step_3(void)
{
    scratch_remove_tree(in_scratch("root/.saving-step-00000003"));
}

static muon_status run_while(const char *call, int k, void (*other)(void))
{
    calls_meanwhile(call, k, other);
    muon_status status = save(root, 3, 'b', 1, 0);
    calls_end();
    return status;
}

TEST(what_its_owner_completes_is_not_cleaned_away)
{
    prepare(&scenarios[1]);
    assert_int_equal(
        rename(in_scratch("root/step-00000002"), in_scratch("root/.saving-step-00000002")), 0);
    calls_meanwhile("flock", 1, complete_step_2);
    muon_status status = save(root, 3, 'b', 0, 0);
    calls_end();
    assert_ok(status);
    assert_int_equal(content_of(root, 2), 'a');
    assert_string_equal(steps_in(root), "1 2 3");
}

TEST(what_others_remove_first_is_no_failure)
{
    prepare(&scenarios[1]);
    assert_ok(run_while("symlinkat", 1, remove_step_1));
    assert_string_equal(names_in(root), "latest step-00000003");
    /* by a process that is so far ahead that this one's is old already */
    prepare(&scenarios[1]);
    assert_ok(run_while("renameat", 2, remove_step_3_and_link)); /* the first one names the step */
    assert_string_equal(latest_of(root), "step-00000002");
}

TEST(a_new_directory_that_others_clean_away_is_made_again)
{
    prepare(&scenarios[1]);
    assert_ok(run_while("flock", 1, clean_step_3));
    assert_string_equal(names_in(root), "latest step-00000003");
}

/* ---- The order on the disk */

static size_t find_call(const file_call *calls, size_t n, size_t from, const char *call,
                        const char *name)
{
    while (from < n && (strcmp(calls[from].call, call) != 0 || strcmp(calls[from].name, name) != 0))
        from++;
    return from;
}

static int is_synced(const file_call *calls, size_t from, size_t to, ino_t file)
{
    for (size_t i = from; i < to; i++)
        if (!strcmp(calls[i].call, "fsync") && calls[i].file == file) return 1;
    return 0;
}

/* Everything in [from, to) that changed a file or a directory is followed by its sync before `to`.
 * */
static void assert_all_synced(const file_call *calls, size_t from, size_t to, const char *what)
{
    static const char *const changes[] = {"write",    "fallocate", "ftruncate", "create",
                                          "renameat", "renameat2", "symlinkat"};
    int found = 0;
    for (size_t i = from; i < to; i++)
        for (size_t j = 0; j < COUNT(changes); j++) {
            if (strcmp(calls[i].call, changes[j]) != 0) continue;
            found++;
            if (!is_synced(calls, i + 1, to, calls[i].file))
                fail_msg("%s: %s of '%s' (call %zu) is not synced before call %zu", what,
                         calls[i].call, calls[i].name, i, to);
        }
    assert_true(found > 0);
}

TEST(each_thing_is_on_the_disk_before_the_next_depends_on_it)
{
    for (size_t i = 0; i < COUNT(scenarios); i++) {
        const scenario *s = &scenarios[i];
        prepare(s);
        calls_record();
        muon_status status = run(s);
        calls_end();
        assert_ok(status);
        const file_call *calls;
        size_t n = calls_recorded(&calls);
        checkpoint_name saving = muon__checkpoint_saving(s->step);
        /* files and their names before the directory has its name: the marker is the last file */
        size_t marker = find_call(calls, n, 0, "create", CHECKPOINT_MARKER);
        size_t named = find_call(calls, n, 0, s->replace ? "renameat2" : "renameat", saving.text);
        assert_true(marker < named && named < n);
        assert_string_equal(calls[named].to, muon__checkpoint_name(s->step).text);
        size_t made = find_call(calls, n, 0, "mkdirat", saving.text);
        assert_all_synced(calls, made, named, s->what);
        for (size_t j = marker + 1; j < n; j++)
            assert_string_not_equal(calls[j].call, "create");
        /* that name before anything else changes */
        size_t next = named + 1;
        while (next < n && strcmp(calls[next].call, "unlinkat") != 0 &&
               strcmp(calls[next].call, "symlinkat") != 0)
            next++;
        assert_true(next < n);
        if (!is_synced(calls, named + 1, next, calls[named].file))
            fail_msg("%s: %s '%s' before the root is synced", s->what, calls[next].call,
                     calls[next].name);
        /* `latest` and the names of those that go before their files go */
        size_t last = n;
        for (size_t j = named + 1; j < n; j++)
            if (!strcmp(calls[j].call, "renameat")) last = j;
        assert_true(last < n);
        size_t removal = last + 1;
        while (removal < n && strcmp(calls[removal].call, "unlinkat") != 0)
            removal++;
        assert_all_synced(calls, named, removal, s->what);
    }
}

/* So many more files may be open, and not for one call but all the time. */
static struct rlimit allow_files(int more)
{
    struct rlimit before, now;
    int next = open("/", O_RDONLY);
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = (rlim_t)(next + more);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    return before;
}

TEST(without_descriptors_nothing_is_left)
{
    for (size_t i = 0; i < COUNT(scenarios); i++) {
        int failed = 0, done = 0;
        for (int more = 0; !done; more++) {
            char before[8192];
            scenario s = scenarios[i];
            s.leftover = 0; /* it would stay, and go with the next save */
            prepare(&s);
            snprintf(before, sizeof before, "%s", names_in(root));
            struct rlimit limit = allow_files(more);
            muon_status status = run(&s);
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
            done = status == MUON_OK;
            failed += !done;
            if (done)
                assert_string_equal(steps_in(root), scenarios[i].after);
            else if (strcmp(names_in(root), before) != 0)
                fail_msg("%s, with %d descriptors: there is %s: %s", scenarios[i].what, more,
                         names_in(root), muon_last_error());
            assert_false(has_hidden());
        }
        assert_true(failed > 3);
    }
}

AROUND_ALL(scratch_setup, scratch_teardown)
