/* The directory of checkpoints: their names, how many files, which ones stay, `latest`, and what cannot
 * be saved. */
#include "tests/save/save_fleet.h"

#include <errno.h>
#include <fcntl.h>

static struct { /* one ship in one process, and a root */
    fleet f;
    ship s;
    scratch root;
} h;

static void open_harbour(void)
{
    save_fleet(&h.f, 1);
    h.root = scratch_make();
    fleet_run_whole(&h.s, &h.f, 1);
}

static void close_harbour(void)
{
    ship_destroy(&h.s);
    scratch_remove(&h.root);
}

AROUND_EACH(open_harbour, close_harbour)

static const char *latest_of(const char *root)
{
    static char target[256];
    ssize_t length = readlink(path_of("%s/latest", root), target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    return target;
}

/* ---- Names */

TEST(steps_have_at_least_eight_digits)
{
    static const struct {
        int64_t step;
        const char *name;
    } cases[] = {{0, "step-00000000"},
                 {7, "step-00000007"},
                 {99999999, "step-99999999"},
                 {100000000, "step-100000000"},
                 {INT64_MAX, "step-9223372036854775807"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t step = -1;
        assert_ok(ship_save(&h.s, h.root.path, cases[i].step));
        assert_string_equal(latest_of(h.root.path), cases[i].name);
        assert_ok(ship_load(&h.s, h.root.path, &step)); /* the newest by number, not by name */
        assert_int_equal(step, cases[i].step);
        assert_ok(ship_load(&h.s, path_of("%s/%s", h.root.path, cases[i].name), &step));
        assert_int_equal(step, cases[i].step);
    }
}

TEST(a_path_may_be_a_root_a_checkpoint_or_latest)
{
    static const char *const paths[] = {
        "", "/", "/latest", "/latest/", "/step-00000003", "/step-00000003/", "/./step-00000003//"};
    assert_ok(ship_save(&h.s, h.root.path, 2));
    assert_ok(ship_save(&h.s, h.root.path, 3));
    for (size_t i = 0; i < COUNT(paths); i++) {
        int64_t step = -1;
        assert_ok(ship_load(&h.s, path_of("%s%s", h.root.path, paths[i]), &step));
        assert_int_equal(step, 3);
    }
    /* A copy under any name is a checkpoint as long as it has its marker. */
    assert_int_equal(
        rename(path_of("%s/step-00000002", h.root.path), path_of("%s/best", h.root.path)), 0);
    int64_t step = -1;
    assert_ok(ship_load(&h.s, path_of("%s/best", h.root.path), &step));
    assert_int_equal(step, 2);
}

TEST(a_root_is_made_but_not_what_is_above_it)
{
    assert_ok(ship_save(&h.s, path_of("%s/new", h.root.path), 1));
    assert_string_equal(names_in(path_of("%s/new", h.root.path)), "latest step-00000001");
    assert_fails(ship_save(&h.s, path_of("%s/a/b", h.root.path), 1), MUON_E_IO, "a/b");
    write_whole(path_of("%s/file", h.root.path), "x", 1);
    assert_fails(ship_save(&h.s, path_of("%s/file", h.root.path), 1), MUON_E_IO, "/file");
    assert_string_equal(names_in(h.root.path), "file new");
}

/* ---- Arguments */

TEST(arguments_that_make_no_sense)
{
    muon_save_args good = save_args(&h.s, 1), args = good;
    assert_fails(muon_save(NULL, h.root.path, &args), MUON_E_ARG, "opt must not be NULL");
    assert_fails(muon_save(h.s.opt, NULL, &args), MUON_E_ARG, "root");
    assert_fails(muon_save(h.s.opt, "", &args), MUON_E_ARG, "root");
    args.step = -1;
    assert_fails(muon_save(h.s.opt, h.root.path, &args), MUON_E_VALUE, "step is -1");
    args = good;
    args.file_bytes = 0;
    assert_fails(muon_save(h.s.opt, h.root.path, &args), MUON_E_VALUE, "file_bytes is 0");
    args = good;
    args.keep = -1;
    assert_fails(muon_save(h.s.opt, h.root.path, &args), MUON_E_VALUE, "keep is -1");
    args = good;
    args.struct_size = 0;
    assert_fails(muon_save(h.s.opt, h.root.path, &args), MUON_E_VERSION, "muon_save_args");
    muon_buffers none[FLEET_PARAMS] = {{0}};
    args = good;
    args.buffers = none;
    assert_fails(muon_save(h.s.opt, h.root.path, &args), MUON_E_ARG, "'tall'");
    assert_string_equal(names_in(h.root.path), "");
    muon_load_args load = load_args(&h.s);
    assert_fails(muon_load(NULL, h.root.path, &load, NULL), MUON_E_ARG, "opt must not be NULL");
    assert_fails(muon_load(h.s.opt, NULL, &load, NULL), MUON_E_ARG, "path");
    assert_fails(muon_load(h.s.opt, "", &load, NULL), MUON_E_ARG, "path");
    load.struct_size = 0;
    assert_fails(muon_load(h.s.opt, h.root.path, &load, NULL), MUON_E_VERSION, "muon_load_args");
    assert_ok(muon_save(h.s.opt, h.root.path, NULL)); /* the defaults: state alone, step 0 */
    assert_string_equal(names_in(h.root.path), "latest step-00000000");
    assert_ok(muon_load(h.s.opt, h.root.path, NULL, NULL));
}

TEST(paths_too_long_for_the_system_are_refused)
{
    static const int lengths[] = {4000, 4080, 4095, 5000, 20000};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        char *path = calloc(1, (size_t)lengths[i] + 1);
        assert_non_null(path);
        for (int k = 0; k < lengths[i]; k++)
            path[k] = k % 100 == 99 ? '/' : 'x';
        assert_fails(ship_save(&h.s, path, 1), MUON_E_IO, "xxx");
        /* Those that the system takes are just not there. */
        assert_fails(ship_load(&h.s, path, NULL),
                     lengths[i] < 4096 ? MUON_E_NO_CHECKPOINT : MUON_E_IO, "xxx");
        free(path);
    }
}

/* ---- Which ones stay */

TEST(a_checkpoint_of_the_same_step_is_not_overwritten)
{
    ship old;
    fleet_run_whole(&old, &h.f, 1);
    assert_ok(ship_save(&h.s, h.root.path, 1));
    assert_ok(ship_run(&h.s, 2, 2));
    assert_fails(ship_save(&h.s, h.root.path, 1), MUON_E_IO, "step-00000001: exists already");
    assert_string_equal(names_in(h.root.path), "latest step-00000001");
    assert_ok(ship_load(&h.s, h.root.path, NULL));
    const char *wrong = ship_compare_tensors(&h.s, &old);
    if (wrong) fail_msg("%s", wrong);
    ship_destroy(&old);
}

TEST(replace_exchanges_it)
{
    ship new;
    fleet_run_whole(&new, &h.f, 2);
    assert_ok(ship_save(&h.s, h.root.path, 1));
    assert_ok(ship_run(&h.s, 2, 2));
    muon_save_args args = save_args(&h.s, 1);
    args.replace = 1;
    args.file_bytes = 5000; /* other files: none of the old ones may remain */
    assert_ok(muon_save(h.s.opt, h.root.path, &args));
    assert_string_equal(names_in(h.root.path), "latest step-00000001");
    assert_false(strstr(names_in(path_of("%s/step-00000001", h.root.path)), "model.safetensors "));
    assert_ok(ship_run(&h.s, 3, 3));
    assert_ok(ship_load(&h.s, h.root.path, NULL));
    const char *wrong = ship_compare_tensors(&h.s, &new);
    if (wrong) fail_msg("%s", wrong);
    args.step = 9; /* one that is not there is fine, too */
    assert_ok(muon_save(h.s.opt, h.root.path, &args));
    ship_destroy(&new);
}

TEST(old_ones_go_when_the_new_one_is_complete)
{
    static const struct {
        int64_t step;
        int keep;
        const char *names, *latest;
    } cases[] = {
        {1, 0, "latest step-00000001", "step-00000001"},
        {2, 0, "latest step-00000001 step-00000002", "step-00000002"},
        {3, 3, "latest step-00000001 step-00000002 step-00000003", "step-00000003"},
        {4, 2, "latest step-00000003 step-00000004", "step-00000004"},
        {5, 1, "latest step-00000005", "step-00000005"},
        {2, 2, "latest step-00000002 step-00000005", "step-00000002"}, /* the run went back */
        {3, 1, "latest step-00000003", "step-00000003"},               /* this one stays */
        {9, 100, "latest step-00000003 step-00000009", "step-00000009"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_save_args args = save_args(&h.s, cases[i].step);
        args.keep = cases[i].keep;
        assert_ok(muon_save(h.s.opt, h.root.path, &args));
        assert_string_equal(names_in(h.root.path), cases[i].names);
        assert_string_equal(latest_of(h.root.path), cases[i].latest);
    }
}

/* What others have put there is nobody's business. */
TEST(strange_things_in_the_root_stay)
{
    assert_int_equal(mkdir(path_of("%s/step-1", h.root.path), 0777), 0);
    assert_int_equal(mkdir(path_of("%s/step-000000003", h.root.path), 0777), 0);
    assert_int_equal(mkdir(path_of("%s/.saving-mine", h.root.path), 0777), 0);
    write_whole(path_of("%s/step-99999999.txt", h.root.path), "x", 1);
    muon_save_args args = save_args(&h.s, 5);
    args.keep = 1;
    assert_ok(muon_save(h.s.opt, h.root.path, &args));
    assert_string_equal(names_in(h.root.path), ".saving-mine latest step-000000003 step-00000005 "
                                               "step-1 step-99999999.txt");
    int64_t step = -1;
    assert_ok(ship_load(&h.s, h.root.path, &step));
    assert_int_equal(step, 5);
}

/* A killed process leaves a directory nobody has a lock on. */
TEST(what_a_killed_process_left_is_removed)
{
    static const char *const left[] = {".saving-step-00000004", ".saving-step-00000005",
                                       ".removing-step-00000001"};
    for (size_t i = 0; i < COUNT(left); i++) {
        assert_int_equal(mkdir(path_of("%s/%s", h.root.path, left[i]), 0777), 0);
        write_whole(path_of("%s/%s/optimizer.safetensors", h.root.path, left[i]), "x", 1);
    }
    assert_ok(ship_save(&h.s, h.root.path, 5));
    assert_string_equal(names_in(h.root.path), "latest step-00000005");
}

/* ---- Shards */

static void check_shards(const char *dir, const char *kind, int64_t file_bytes)
{
    muon_checkpoint *cp = NULL;
    size_t bytes = 0;
    assert_ok(muon_checkpoint_open(&cp, dir));
    char *index = read_whole(path_of("%s/%s.safetensors.index.json", dir, kind), &bytes);
    if (!index) fail_msg("%s has no index", kind);
    int64_t total = 0, in_file = 0;
    const char *file = "";
    for (size_t i = 0; i < muon_checkpoint_count(cp); i++) {
        muon_checkpoint_tensor t;
        assert_ok(muon_checkpoint_get(cp, i, &t, sizeof t));
        if (strncmp(t.file, kind, strlen(kind)) != 0) continue;
        in_file = strcmp(file, t.file) == 0 ? in_file + t.bytes : t.bytes;
        file = t.file;
        total += t.bytes;
        if (in_file > file_bytes && in_file != t.bytes)
            fail_msg("%s has %lld bytes of tensors", file, (long long)in_file);
        if (!strstr(index, path_of("\"%s\": \"%s\"", t.name, t.file)))
            fail_msg("the index does not have %s in %s:\n%s", t.name, t.file, index);
    }
    if (!strstr(index, path_of("\"total_size\": %lld", (long long)total)))
        fail_msg("the index does not have %lld:\n%s", (long long)total, index);
    free(index);
    muon_checkpoint_close(cp);
}

TEST(above_a_size_there_are_several_files_and_an_index)
{
    static const int64_t sizes[] = {1, 100, 5000, 12000, 40000};
    ship again;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        muon_save_args args = save_args(&h.s, (int64_t)i);
        args.file_bytes = sizes[i];
        assert_ok(muon_save(h.s.opt, h.root.path, &args));
        const char *dir = path_of("%s/step-%08zu", h.root.path, i);
        check_shards(dir, "optimizer", sizes[i]);
        if (sizes[i] < 40000) check_shards(dir, "model", sizes[i]);
        assert_ok(ship_create(&again, &h.f, NULL));
        assert_ok(ship_load(&again, dir, NULL));
        const char *wrong = ship_compare_tensors(&again, &h.s);
        if (wrong) fail_msg("%s", wrong);
        ship_destroy(&again);
    }
}

/* All of a kind just fit, or do not by one byte. */
TEST(the_limit_is_exact)
{
    muon_checkpoint *cp = NULL;
    assert_ok(muon_save(h.s.opt, h.root.path, NULL));
    assert_ok(muon_checkpoint_open(&cp, h.root.path));
    int64_t total = 0;
    for (size_t i = 0; i < muon_checkpoint_count(cp); i++) {
        muon_checkpoint_tensor t;
        assert_ok(muon_checkpoint_get(cp, i, &t, sizeof t));
        total += t.bytes;
    }
    muon_checkpoint_close(cp);
    muon_save_args args = save_args(&h.s, 1);
    args.buffers = NULL;
    args.file_bytes = total;
    assert_ok(muon_save(h.s.opt, h.root.path, &args));
    assert_string_equal(names_in(path_of("%s/step-00000001", h.root.path)),
                        "COMPLETE optimizer.safetensors");
    args.step = 2;
    args.file_bytes = total - 1;
    assert_ok(muon_save(h.s.opt, h.root.path, &args));
    assert_string_equal(names_in(path_of("%s/step-00000002", h.root.path)),
                        "COMPLETE optimizer-00001-of-00002.safetensors "
                        "optimizer-00002-of-00002.safetensors optimizer.safetensors.index.json");
}
