/* The directory of a checkpoint: which names there are before, during and after a save, and who may
 * save. Failing system calls and crashes are in test_checkpoint_crash.c. */
#include "tests/io/checkpoint_roots.h"

#include <signal.h>
#include <sys/wait.h>

static void assert_root(const char *want)
{
    const char *got = names_in(root);
    if (strcmp(got, want) != 0) fail_msg("in the root: got '%s', want '%s'", got, want);
}

/* ---- Saving */

TEST(a_save_makes_the_root_and_leaves_only_the_checkpoint)
{
    assert_ok(save(root, 7, 'a', 0, 0));
    assert_root("latest step-00000007");
    assert_string_equal(names_in(in_scratch("%s/step-00000007", strrchr(root, '/') + 1)),
                        "COMPLETE large small");
    assert_string_equal(latest_of(root), "step-00000007");
    assert_int_equal(content_of(root, 7), 'a');
    assert_ok(save(root, 12, 'b', 0, 0));
    assert_root("latest step-00000007 step-00000012");
    assert_string_equal(latest_of(root), "step-00000012");
    assert_string_equal(steps_in(root), "7 12");
}

TEST(only_the_last_component_of_a_root_is_made)
{
    const char *deep = in_scratch("nowhere/root");
    assert_fails(save(deep, 1, 'a', 0, 0), MUON_E_IO,
                 "nowhere/root: cannot be created: No such file");
    write_whole(root, "x", 1);
    assert_fails(save(root, 1, 'a', 0, 0), MUON_E_IO, "Not a directory");
}

TEST(a_step_below_zero_is_an_error)
{
    checkpoint_dir *dir;
    assert_fails(muon__checkpoint_begin(&dir, root, -1, 0), MUON_E_ARG, "step -1");
    assert_false(exists(root));
}

TEST(while_it_is_written_it_is_not_found)
{
    checkpoint_dir *dir;
    assert_ok(muon__checkpoint_begin(&dir, root, 7, 0));
    assert_ok(muon__checkpoint_add(dir, "large", 5));
    assert_root(".saving-step-00000007");
    assert_string_equal(steps_in(root), "");
    char *path;
    assert_fails(muon__checkpoint_resolve(&path, root), MUON_E_NO_CHECKPOINT,
                 "there is no checkpoint in it");
    muon__checkpoint_abort(dir);
    assert_root("");
}

TEST(an_abort_removes_everything_and_keeps_the_message)
{
    assert_ok(save(root, 1, 'a', 0, 0));
    checkpoint_dir *dir;
    int before = count_names("/proc/self/fd");
    assert_ok(muon__checkpoint_begin(&dir, root, 2, 0));
    assert_ok(muon__checkpoint_add(dir, "x", 100));
    muon__fail(MUON_E_ARG, "why it was given up");
    muon__checkpoint_abort(dir);
    assert_string_equal(muon_last_error(), "why it was given up");
    assert_root("latest step-00000001");
    assert_int_equal(count_names("/proc/self/fd"), before);
    muon__checkpoint_abort(NULL);
}

TEST(one_that_exists_stays_unless_it_is_to_be_replaced)
{
    assert_ok(save(root, 7, 'a', 0, 0));
    assert_fails(save(root, 7, 'b', 0, 0), MUON_E_IO, "step-00000007: exists already");
    assert_int_equal(content_of(root, 7), 'a');
    assert_root("latest step-00000007");
    int before = count_names("/proc/self/fd");
    assert_ok(save(root, 7, 'b', 0, 1));
    assert_int_equal(count_names("/proc/self/fd"), before);
    assert_int_equal(content_of(root, 7), 'b');
    assert_root("latest step-00000007");
    assert_ok(save(root, 8, 'c', 0, 1)); /* to be replaced, but not there */
    assert_root("latest step-00000007 step-00000008");
}

TEST(one_that_appears_meanwhile_is_not_overwritten)
{
    checkpoint_dir *dir;
    assert_ok(muon__checkpoint_begin(&dir, root, 7, 0));
    const char *name = strrchr(root, '/') + 1;
    assert_int_equal(mkdir(in_scratch("%s/step-00000007", name), 0777), 0);
    write_whole(in_scratch("%s/step-00000007/precious", name), "x", 1);
    checkpoint_marker marker = {.step = 7};
    assert_fails(muon__checkpoint_commit(dir, &marker, 0), MUON_E_IO, "exists already");
    assert_root("step-00000007");
    assert_true(exists(in_scratch("%s/step-00000007/precious", name)));
}

TEST(what_is_no_directory_is_not_replaced)
{
    assert_int_equal(mkdir(root, 0777), 0);
    write_whole(in_scratch("%s/step-00000007", strrchr(root, '/') + 1), "x", 1);
    assert_fails(save(root, 7, 'a', 0, 1), MUON_E_IO, "step-00000007: is not a directory");
    assert_fails(save(root, 7, 'a', 0, 0), MUON_E_IO, "step-00000007: exists already");
    assert_root("step-00000007");
}

TEST(files_have_their_size_and_a_good_name)
{
    checkpoint_dir *dir;
    assert_ok(muon__checkpoint_begin(&dir, root, 7, 0));
    assert_ok(muon__checkpoint_add(dir, "a", 123456));
    assert_ok(muon__checkpoint_add(dir, "empty", 0));
    struct stat info;
    const char *name = strrchr(root, '/') + 1;
    assert_int_equal(stat(in_scratch("%s/.saving-step-00000007/a", name), &info), 0);
    assert_int_equal(info.st_size, 123456);
    assert_int_equal(stat(in_scratch("%s/.saving-step-00000007/empty", name), &info), 0);
    assert_int_equal(info.st_size, 0);
    static const char *const bad[] = {"", ".", "..", "a/b", "/a", "COMPLETE", "a\nb"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_fails(muon__checkpoint_add(dir, bad[i], 1), MUON_E_ARG, "is not a valid file name");
        assert_fails(muon__checkpoint_put(dir, bad[i], "", 0), MUON_E_ARG,
                     "is not a valid file name");
    }
    assert_fails(muon__checkpoint_add(dir, "b", -1), MUON_E_ARG, "b: a file of -1 bytes");
    assert_fails(muon__checkpoint_add(dir, "a", 1), MUON_E_IO, "a: cannot be created: File exists");
    assert_fails(muon__checkpoint_put(dir, "a", "", 0), MUON_E_IO,
                 "a: cannot be created: File exists");
    assert_fails(muon__checkpoint_add(dir, "huge", INT64_MAX), MUON_E_IO,
                 "huge: no room for its 9223372036854775807 bytes");
    muon__checkpoint_abort(dir);
    assert_root("");
}

TEST(a_marker_that_does_not_fit_its_files_is_not_committed)
{
    assert_ok(save(root, 1, 'a', 0, 0));
    char name[] = "a";
    char slash[] = "a/b";
    static const struct {
        int64_t step, bytes;
        int has_slash;
        muon_status status;
        const char *message;
    } cases[] = {
        {8, 5, 0, MUON_E_ARG, "a marker of step 8"},
        {7, 6, 0, MUON_E_FORMAT, "step-00000007/a: has 5 bytes instead of 6"},
        {7, 5, 1, MUON_E_ARG, "'a/b' cannot be the name"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        checkpoint_file file = {cases[i].has_slash ? slash : name, cases[i].bytes, 0, 0};
        checkpoint_marker marker = {.step = cases[i].step, .files = &file, .nfiles = 1};
        checkpoint_dir *dir;
        assert_ok(muon__checkpoint_begin(&dir, root, 7, 0));
        assert_ok(muon__checkpoint_put(dir, "a", "12345", 5));
        assert_fails(muon__checkpoint_commit(dir, &marker, 1), cases[i].status, cases[i].message);
        assert_root("latest step-00000001");
    }
}

TEST(what_is_no_link_is_not_made_latest)
{
    const char *name = strrchr(root, '/') + 1;
    assert_int_equal(mkdir(root, 0777), 0);
    assert_int_equal(mkdir(in_scratch("%s/latest", name), 0777), 0);
    assert_fails(save(root, 7, 'a', 0, 0), MUON_E_IO, "step-00000007: is complete, but: ");
    assert_non_null(strstr(muon_last_error(), "/latest: renaming to it failed: Is a directory"));
    assert_root("latest step-00000007");
    assert_int_equal(content_of(root, 7), 'a');
}

/* ---- Keeping */

TEST(the_oldest_go_until_so_many_are_left)
{
    static const struct {
        int64_t before[4];
        int nbefore;
        int64_t step;
        int keep, replace;
        const char *left, *latest;
    } cases[] = {
        {{10, 20, 30}, 3, 40, 0, 0, "10 20 30 40", "step-00000040"},
        {{10, 20, 30}, 3, 40, -1, 0, "10 20 30 40", "step-00000040"},
        {{10, 20, 30}, 3, 40, 5, 0, "10 20 30 40", "step-00000040"},
        {{10, 20, 30}, 3, 40, 4, 0, "10 20 30 40", "step-00000040"},
        {{10, 20, 30}, 3, 40, 3, 0, "20 30 40", "step-00000040"},
        {{10, 20, 30}, 3, 40, 1, 0, "40", "step-00000040"},
        {{9, 10, 100}, 3, 99999999, 2, 0, "100 99999999", "step-99999999"},
        {{99999999}, 1, 100000000, 1, 0, "100000000", "step-100000000"},
        /* after going back: what was abandoned is first, and goes first; the new one is the newest */
        {{10, 20, 30}, 3, 15, 0, 0, "20 30 10 15", "step-00000015"},
        {{10, 20, 30}, 3, 15, 3, 0, "30 10 15", "step-00000015"},
        {{10, 20, 30}, 3, 15, 2, 0, "10 15", "step-00000015"},
        {{10, 20, 30}, 3, 5, 2, 0, "30 5", "step-00000005"},
        {{10, 20, 30}, 3, 5, 1, 0, "5", "step-00000005"},
        {{10, 20, 30}, 3, 20, 0, 1, "30 10 20", "step-00000020"},
        {{10, 30, 20}, 3, 40, 0, 0, "30 10 20 40", "step-00000040"},
        {{10, 30, 20}, 3, 40, 3, 0, "10 20 40", "step-00000040"},
        {{10, 30, 20}, 3, 30, 0, 1, "10 20 30", "step-00000030"},
        {{10, 30, 20}, 3, 15, 0, 0, "30 20 10 15", "step-00000015"},
        {{10, 30, 20}, 3, 15, 2, 0, "10 15", "step-00000015"},
        {{40, 30, 20}, 3, 10, 2, 0, "20 10", "step-00000010"},
        {{10, 20, 30}, 3, 10, 1, 1, "10", "step-00000010"},
        {{10, 20, 30}, 3, 30, 2, 1, "20 30", "step-00000030"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        scratch_remove_tree(root);
        for (int j = 0; j < cases[i].nbefore; j++)
            assert_ok(save(root, cases[i].before[j], 'a', 0, 0));
        assert_ok(save(root, cases[i].step, 'b', cases[i].keep, cases[i].replace));
        assert_string_equal(steps_in(root), cases[i].left);
        assert_string_equal(latest_of(root), cases[i].latest);
        assert_int_equal(content_of(root, cases[i].step), 'b');
        char *newest;
        assert_ok(muon__checkpoint_resolve(&newest, root));
        assert_string_equal(strrchr(newest, '/') + 1, cases[i].latest);
        free(newest);
        for (const char *names = names_in(root); *names != '\0'; names++)
            assert_int_not_equal(*names, '.');
    }
}

TEST(damaged_ones_do_not_count_and_stay)
{
    const char *name = strrchr(root, '/') + 1;
    for (int64_t step = 1; step <= 3; step++)
        assert_ok(save(root, step, 'a', 0, 0));
    assert_int_equal(truncate(in_scratch("%s/step-00000003/large", name), 17), 0);
    assert_ok(save(root, 4, 'b', 2, 0));
    assert_string_equal(steps_in(root), "2 4");
    assert_root("latest step-00000002 step-00000003 step-00000004");
}

TEST(what_users_put_into_an_old_one_goes_with_it)
{
    const char *name = strrchr(root, '/') + 1;
    assert_ok(save(root, 1, 'a', 0, 0));
    assert_int_equal(mkdir(in_scratch("%s/step-00000001/notes", name), 0777), 0);
    assert_int_equal(mkdir(in_scratch("%s/step-00000001/notes/more", name), 0777), 0);
    write_whole(in_scratch("%s/step-00000001/notes/more/x", name), "x", 1);
    write_whole(in_scratch("%s/outside", name), "x", 1);
    assert_int_equal(symlink("../outside", in_scratch("%s/step-00000001/link", name)), 0);
    assert_int_equal(symlink("..", in_scratch("%s/step-00000001/up", name)), 0);
    assert_ok(save(root, 2, 'a', 1, 0));
    assert_root("latest outside step-00000002");
}

/* ---- What killed processes left */

static void make_leftover(const char *kind)
{
    const char *name = strrchr(root, '/') + 1;
    assert_int_equal(mkdir(in_scratch("%s/%s", name, kind), 0777), 0);
    write_whole(in_scratch("%s/%s/large", name, kind), "x", 1);
}

TEST(leftovers_go_and_what_others_own_stays)
{
    const char *name = strrchr(root, '/') + 1;
    assert_ok(save(root, 1, 'a', 0, 0));
    static const char *const ours[] = {".saving-step-00000002", ".saving-step-00000003",
                                       ".removing-step-00000009"};
    for (size_t i = 0; i < COUNT(ours); i++)
        make_leftover(ours[i]);
    assert_int_equal(symlink("step-00000001", in_scratch("%s/.latest-step-00000001", name)), 0);
    assert_int_equal(symlink("step-00000005", in_scratch("%s/.latest-step-00000005", name)), 0);
    static const char *const others[] = {".saving-mine", ".removing-step-1",
                                         "saving-step-00000002"};
    for (size_t i = 0; i < COUNT(others); i++)
        make_leftover(others[i]);
    write_whole(in_scratch("%s/.saving-step-00000004", name), "x", 1); /* a file: not from us */
    assert_ok(save(root, 2, 'b', 0, 0));
    assert_root(".removing-step-1 .saving-mine .saving-step-00000004 latest saving-step-00000002 "
                "step-00000001 step-00000002");
    assert_fails(save(root, 4, 'c', 0, 0), MUON_E_IO,
                 ".saving-step-00000004: cannot be opened: Not a directory");
}

TEST(a_link_called_like_a_leftover_leads_nowhere)
{
    const char *name = strrchr(root, '/') + 1;
    assert_ok(save(root, 1, 'a', 0, 0));
    assert_int_equal(symlink("step-00000001", in_scratch("%s/.saving-step-00000002", name)), 0);
    assert_int_equal(symlink("step-00000001", in_scratch("%s/.removing-step-00000003", name)), 0);
    assert_ok(save(root, 4, 'b', 0, 0));
    assert_int_equal(content_of(root, 1), 'a');
}

/* ---- Who may save */

/* Starts a save of step 7 in another process, which then waits for its end. */
static pid_t start_other(void)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        alarm(60); /* should the test fail before it ends us */
        checkpoint_dir *dir;
        muon_status status = muon__checkpoint_begin(&dir, root, 7, 0);
        if (status == MUON_OK) status = muon__checkpoint_add(dir, "large", 10);
        char byte = status == MUON_OK ? 'y' : 'n';
        if (write(ready[1], &byte, 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    char byte = 0;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(byte, 'y');
    return other;
}

TEST(only_one_process_saves_a_step)
{
    assert_ok(save(root, 1, 'a', 0, 0));
    pid_t other = start_other();
    int before = count_names("/proc/self/fd");
    assert_fails(save(root, 7, 'b', 0, 0), MUON_E_IO, "another process is saving step 7 right now");
    assert_int_equal(count_names("/proc/self/fd"), before);
    assert_ok(save(root, 8, 'c', 0, 0)); /* another step; it does not clean the first one away */
    assert_root(".saving-step-00000007 latest step-00000001 step-00000008");
    assert_string_equal(names_in(in_scratch("%s/.saving-step-00000007", strrchr(root, '/') + 1)),
                        "large");
    assert_int_equal(kill(other, SIGKILL), 0);
    assert_int_equal(waitpid(other, NULL, 0), other);
    assert_ok(save(root, 7, 'd', 0, 0));
    assert_root("latest step-00000001 step-00000007 step-00000008");
    assert_int_equal(content_of(root, 7), 'd');
}

TEST(two_saves_of_one_step_in_one_process_are_refused)
{
    checkpoint_dir *dir;
    checkpoint_dir *again;
    assert_ok(muon__checkpoint_begin(&dir, root, 7, 0));
    assert_fails(muon__checkpoint_begin(&again, root, 7, 0), MUON_E_IO,
                 "another process is saving");
    checkpoint_marker marker = {.step = 7};
    assert_ok(muon__checkpoint_commit(dir, &marker, 0));
    assert_root("latest step-00000007");
}

TEST(a_root_that_is_moved_meanwhile_gets_its_checkpoint)
{
    checkpoint_dir *dir;
    assert_ok(muon__checkpoint_begin(&dir, root, 7, 0));
    assert_ok(muon__checkpoint_put(dir, "a", "12345", 5));
    const char *moved = in_scratch("moved");
    assert_int_equal(rename(root, moved), 0);
    char name[] = "a";
    checkpoint_file file = {name, 5, 0, 0};
    checkpoint_marker marker = {.step = 7, .files = &file, .nfiles = 1};
    assert_ok(muon__checkpoint_commit(dir, &marker, 0));
    assert_string_equal(names_in(in_scratch("moved")), "latest step-00000007");
    assert_string_equal(steps_in(in_scratch("moved")), "7");
    assert_false(exists(root));
}

TEST(failing_allocations_leave_nothing)
{
    assert_ok(save(root, 1, 'a', 0, 0));
    int before = count_names("/proc/self/fd");
    int complete = 0;
    int none = 0;
    muon_status status = MUON_E_NOMEM;
    for (int64_t k = 0; status != MUON_OK; k++) {
        testlib_allow_allocations(k);
        status = save(root, 2, 'b', 1, 0);
        testlib_allow_allocations(-1);
        assert_int_equal(count_names("/proc/self/fd"), before);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        int is_complete = strstr(muon_last_error(), "is complete, but") != NULL;
        complete += is_complete;
        none += !is_complete;
        assert_int_equal(content_of(root, 1), 'a');
        assert_int_equal(content_of(root, 2), is_complete ? 'b' : 0);
        if (!is_complete) assert_root("latest step-00000001");
        scratch_remove_tree(in_scratch("%s/step-00000002", strrchr(root, '/') + 1));
    }
    assert_root("latest step-00000002");
    assert_true(none >= 4 && complete >= 4);
}

AROUND_ALL(scratch_setup, scratch_teardown)
AROUND_EACH(root_setup, NULL)
