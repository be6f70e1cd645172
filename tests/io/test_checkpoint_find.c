/* Which names are those of checkpoints, which of them are complete, and which one a path means. */
#include "tests/io/checkpoint_roots.h"

TEST(only_names_that_we_write_have_a_step)
{
    assert_string_equal(muon__checkpoint_name(0).text, "step-00000000");
    assert_string_equal(muon__checkpoint_name(1000).text, "step-00001000");
    assert_string_equal(muon__checkpoint_name(INT64_MAX).text, "step-9223372036854775807");
    assert_string_equal(muon__checkpoint_saving(1000).text, ".saving-step-00001000");
    static const struct {
        const char *name;
        int64_t want;
    } cases[] = {
        {"step-00000000", 0},
        {"step-00001000", 1000},
        {"step-99999999", 99999999},
        {"step-100000000", 100000000},
        {"step-9223372036854775807", INT64_MAX},
        {"step-9223372036854775808", -1},
        {"step-99999999999999999999", -1},
        {"step-000000001", -1},
        {"step-1000", -1},
        {"step-0000100", -1},
        {"step-", -1},
        {"step", -1},
        {"", -1},
        {"step--0000001", -1},
        {"step-+0000001", -1},
        {"step- 0000001", -1},
        {"step-0000000x", -1},
        {"step-00000001 ", -1},
        {"Step-00000001", -1},
        {"latest", -1},
        {".saving-step-00000001", -1},
        {"./step-00000001", -1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t got = muon__checkpoint_step_of(cases[i].name);
        if (got != cases[i].want)
            fail_msg("'%s': got %lld, want %lld", cases[i].name, (long long)got,
                     (long long)cases[i].want);
    }
}

TEST(only_what_looks_complete_is_listed)
{
    const char *name = strrchr(root, '/') + 1;
    int64_t *steps = NULL;
    size_t nsteps = 0;
    assert_ok(muon__checkpoint_steps(&steps, &nsteps, root));
    assert_int_equal(nsteps, 0);
    assert_int_equal(mkdir(root, 0777), 0);
    assert_ok(muon__checkpoint_steps(&steps, &nsteps, root));
    assert_int_equal(nsteps, 0);
    assert_null(steps);
    static const int64_t made[] = {1, 2, 3, 4, 5, 9, 20, 300, 100000000};
    for (size_t i = 0; i < COUNT(made); i++)
        assert_ok(save(root, made[i], 'a', 0, 0));
    unlink(in_scratch("%s/step-00000001/COMPLETE", name));
    unlink(in_scratch("%s/step-00000002/small", name));
    assert_int_equal(truncate(in_scratch("%s/step-00000003/large", name), 1), 0);
    assert_int_equal(truncate(in_scratch("%s/step-00000004/COMPLETE", name), 30), 0);
    assert_int_equal(
        rename(in_scratch("%s/step-00000005", name), in_scratch("%s/step-00000006", name)), 0);
    write_whole(in_scratch("%s/step-00000007", name), "x", 1);
    assert_int_equal(symlink("step-00000009", in_scratch("%s/step-00000008", name)), 0);
    assert_int_equal(mkdir(in_scratch("%s/step-00000010", name), 0777), 0);
    assert_int_equal(mkdir(in_scratch("%s/anything", name), 0777), 0);
    assert_string_equal(steps_in(root), "9 20 300 100000000");
}

TEST(a_path_is_a_checkpoint_or_a_root)
{
    const char *name = strrchr(root, '/') + 1;
    assert_ok(save(root, 5, 'a', 0, 0));
    assert_ok(save(root, 12, 'b', 0, 0));
    assert_int_equal(mkdir(in_scratch("%s/empty", name), 0777), 0);
    assert_int_equal(mkdir(in_scratch("%s/renamed", name), 0777), 0);
    write_whole(in_scratch("%s/renamed/COMPLETE", name), "nonsense", 8);
    static const struct {
        const char *path, *want; /* below the root; want NULL: none */
    } cases[] = {
        {"", "/step-00000012"},
        {"/", "/step-00000012"},
        {"///", "/step-00000012"},
        {"/step-00000005", "/step-00000005"},
        {"/step-00000005/", "/step-00000005"},
        {"/latest", "/latest"},
        {"/latest/", "/latest"},
        {"/renamed", "/renamed"},
        {"/step-00000099", "/step-00000099"}, /* opening it says what is wrong */
        {"/empty", NULL},
        {"/missing", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *got = NULL;
        char *path = strdup(in_scratch("%s%s", name, cases[i].path));
        muon_status status = muon__checkpoint_resolve(&got, path);
        if (cases[i].want) {
            assert_int_equal(status, MUON_OK);
            assert_string_equal(got, in_scratch("%s%s", name, cases[i].want));
        } else {
            assert_int_equal(status, MUON_E_NO_CHECKPOINT);
            assert_null(got);
        }
        free(got);
        free(path);
    }
    char *got = NULL;
    assert_fails(muon__checkpoint_resolve(&got, in_scratch("%s/empty", name)), MUON_E_NO_CHECKPOINT,
                 "empty: there is no checkpoint in it");
    /* relative ones, too */
    int here = open(".", O_RDONLY);
    assert_int_equal(chdir(root), 0);
    assert_ok(muon__checkpoint_resolve(&got, "."));
    assert_string_equal(got, "./step-00000012");
    free(got);
    assert_ok(muon__checkpoint_resolve(&got, "step-00000005"));
    assert_string_equal(got, "step-00000005");
    free(got);
    assert_ok(save(".", 13, 'c', 0, 0));
    assert_ok(save("inner", 1, 'c', 0, 0));
    assert_int_equal(fchdir(here), 0);
    close(here);
    assert_string_equal(steps_in(root), "5 12 13");
    assert_string_equal(steps_in(in_scratch("%s/inner", name)), "1");
}

AROUND_ALL(scratch_setup, scratch_teardown)
AROUND_EACH(root_setup, NULL)
