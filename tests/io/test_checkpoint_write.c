/* test_checkpoint_write.c - a checkpoint out of a callback: all of it, or nothing. */
#include "tests/io/checkpoint_case.h"

#include "io/checkpoint/files.h"

#include <signal.h>
#include <sys/resource.h>

TEST(what_is_written_is_read_back_however_many_files_there_are)
{
    static const struct {
        int64_t file_bytes;
        int files; /* with indices and marker */
    } cases[] = {{5000000000, 3}, {84, 3}, {83, 5}, {68, 5}, {46, 5}, {45, 7}, {1, 8}};
    for (size_t k = 0; k < COUNT(cases); k++) {
        case_write(cases[k].file_bytes);
        case_check(case_root);
        case_check(case_path(CASE_DIR));
        case_check(case_path("latest"));
        int count = count_names(case_path(CASE_DIR));
        if (count != cases[k].files)
            fail_msg("%d bytes a file: %d files, not %d", (int)cases[k].file_bytes, count,
                     cases[k].files);
    }
    assert_int_equal(count_names(case_root), 2);
}

TEST(any_reader_of_safetensors_reads_the_files)
{
    case_write(1000);
    muon_st *file = NULL;
    assert_ok(muon_st_open(&file, case_file("optimizer.safetensors")));
    assert_int_equal(muon_st_count(file), 4);
    assert_string_equal(muon_st_get_metadata(file, "format"), "pt");
    assert_string_equal(muon_st_get_metadata(file, "muon.step"), "1000");
    assert_string_equal(muon_st_get_metadata(file, "data.position"), "12345");
    unsigned char data[60];
    assert_ok(muon_st_read(file, (size_t)muon_st_find(file, "w.momentum_buffer"), data, 60));
    for (int64_t i = 0; i < 60; i++)
        assert_int_equal(data[i], case_byte(0, i));
    muon_st_close(file);
    assert_ok(muon_st_open(&file, case_file("model.safetensors")));
    assert_int_equal(muon_st_count(file), 2);
    assert_string_equal(muon_st_get_metadata(file, "format"), "pt");
    assert_null(muon_st_get_metadata(file, "muon.step"));
    muon_st_close(file);
}

TEST(the_same_plan_gives_the_same_bytes)
{
    static const char *const names[] = {"optimizer-00001-of-00002.safetensors",
                                        "optimizer.safetensors.index.json", "COMPLETE"};
    char *before[COUNT(names)];
    size_t bytes[COUNT(names)];
    case_write(68);
    for (size_t i = 0; i < COUNT(names); i++)
        before[i] = read_whole(case_file(names[i]), &bytes[i]);
    case_write(68);
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t again = 0;
        char *after = read_whole(case_file(names[i]), &again);
        assert_int_equal(again, bytes[i]);
        assert_memory_equal(after, before[i], again);
        free(after);
        free(before[i]);
    }
}

TEST(a_checkpoint_without_tensors_has_its_metadata)
{
    muon_checkpoint_plan plan = case_plan(1);
    plan.ntensors = 0;
    plan.tensors = NULL;
    plan.source = NULL;
    plan.step = 0;
    assert_ok(muon_checkpoint_write(case_root, &plan));
    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, case_path("step-00000000")));
    assert_int_equal(muon_checkpoint_count(cp), 0);
    assert_int_equal(muon_checkpoint_find(cp, "w"), -1);
    assert_int_equal(muon_checkpoint_get_step(cp), 0);
    assert_string_equal(muon_checkpoint_get_metadata(cp, "note"), case_metadata[2].value);
    muon_checkpoint_close(cp);
}

/* ---- What the source sees */

#define LARGE_BYTES ((int64_t)24 * 208334) /* whole elements of 6 bits and of 64 */

typedef struct asked {
    int64_t next[2];
    size_t largest;
    int element_bits[2];
} asked;

static muon_status asked_source(void *user, size_t index, int64_t offset, void *data, size_t bytes)
{
    asked *a = user;
    assert_true(index < 2 && bytes > 0);
    assert_int_equal(offset, a->next[index]);
    assert_int_equal(8 * offset % a->element_bits[index], 0);
    a->next[index] += (int64_t)bytes;
    if (bytes > a->largest) a->largest = bytes;
    return case_source(NULL, index, offset, data, bytes);
}

TEST(the_source_is_asked_for_each_byte_once_in_order_in_small_whole_pieces)
{
    const muon_checkpoint_tensor tensors[] = {
        {.name = "six", .dtype = "F6_E2M3", .ndim = 1, .shape = {LARGE_BYTES / 3 * 4}},
        {.name = "wide", .dtype = "C64", .ndim = 1, .shape = {LARGE_BYTES / 8}},
    };
    asked a = {.element_bits = {6, 64}};
    muon_checkpoint_plan plan = case_plan(5000000000);
    plan.tensors = tensors;
    plan.ntensors = 2;
    plan.source = asked_source;
    plan.user = &a;
    assert_ok(muon_checkpoint_write(case_root, &plan));
    assert_int_equal(a.next[0], LARGE_BYTES);
    assert_int_equal(a.next[1], LARGE_BYTES);
    assert_true(a.largest <= (size_t)1 << 21); /* a few MB of memory */

    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, case_root));
    for (size_t i = 0; i < 2; i++) {
        assert_ok(muon_checkpoint_verify(cp, i));
        size_t asked_as = i == 0 ? 1 : 0; /* the wider one comes first */
        for (int64_t at = 0; at < LARGE_BYTES - 1000; at += 99991) {
            unsigned char data[999];
            assert_ok(muon_checkpoint_read(cp, i, at, data, sizeof data));
            for (int64_t k = 0; k < (int64_t)sizeof data; k++)
                if (data[k] != case_byte(asked_as, at + k))
                    fail_msg("tensor %zu, byte %ld", i, (long)(at + k));
        }
    }
    muon_checkpoint_close(cp);
}

/* ---- Nothing is left of what failed */

static muon_status failing_source(void *user, size_t index, int64_t offset, void *data,
                                  size_t bytes)
{
    int *left = user;
    if ((*left)-- == 0) return MUON_E_DTYPE;
    return case_source(NULL, index, offset, data, bytes);
}

TEST(a_source_that_fails_leaves_the_older_checkpoint_and_nothing_else)
{
    case_write(1);
    for (int allowed = 0; allowed < 5; allowed++) { /* five tensors have bytes */
        int left = allowed;
        muon_checkpoint_plan plan = case_plan(68);
        plan.source = failing_source;
        plan.user = &left;
        plan.replace = 1;
        plan.step = CASE_STEP + allowed % 2; /* the one that exists, and another one */
        assert_int_equal(muon_checkpoint_write(case_root, &plan), MUON_E_DTYPE);
        assert_int_equal(count_names(case_root), 2);
        case_check(case_root);
    }
    int left = 5;
    muon_checkpoint_plan plan = case_plan(68);
    plan.source = failing_source;
    plan.user = &left;
    plan.replace = 1;
    assert_ok(muon_checkpoint_write(case_root, &plan));
}

TEST(every_allocation_may_fail)
{
    case_write(1);
    muon_checkpoint_plan plan = case_plan(1);
    plan.step = CASE_STEP + 1;
    int64_t k = 0;
    for (;; k++) {
        testlib_allow_allocations(k);
        muon_status status = muon_checkpoint_write(case_root, &plan);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) break;
        testlib_assert_status(status, MUON_E_NOMEM, NULL, "muon_checkpoint_write", __FILE__,
                              (int)k);
        /* After the rename only what is said to be optional may fail. */
        if (access(case_path("step-00001001"), F_OK) == 0) break;
        assert_int_equal(count_names(case_root), 2);
        case_check(case_path(CASE_DIR));
    }
    assert_true(k > 100);
    case_check(case_path(CASE_DIR));
}

TEST(a_full_disk_leaves_the_older_checkpoint_and_nothing_else)
{
    case_write(1);
    signal(SIGXFSZ,
           SIG_IGN); /* a limit on the size of files, as a disk that is full at some byte */
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    muon_checkpoint_plan plan = case_plan(5000000000);
    plan.step = CASE_STEP + 1;
    static const rlim_t sizes[] = {0, 1, 100, 500};
    for (size_t k = 0; k < COUNT(sizes); k++) {
        limit = before;
        limit.rlim_cur = sizes[k];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        muon_status status = muon_checkpoint_write(case_root, &plan);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        testlib_assert_status(status, MUON_E_IO, "File too large", "muon_checkpoint_write",
                              __FILE__, (int)k);
        assert_int_equal(count_names(case_root), 2);
        case_check(case_root);
    }
    assert_ok(muon_checkpoint_write(case_root, &plan));
}

/* ---- The directory */

TEST(a_checkpoint_that_exists_is_exchanged_only_if_asked)
{
    muon_checkpoint_plan plan = case_plan(1);
    assert_ok(muon_checkpoint_write(case_root, &plan));
    plan.ntensors = 1;
    plan.file_bytes = 1000;
    assert_fails(muon_checkpoint_write(case_root, &plan), MUON_E_IO, CASE_DIR);
    case_check(case_root);
    plan.replace = 1;
    assert_ok(muon_checkpoint_write(case_root, &plan));
    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, case_root));
    assert_int_equal(muon_checkpoint_count(cp), 1);
    muon_checkpoint_close(cp);
    assert_int_not_equal(access(case_file("optimizer.safetensors.index.json"), F_OK), 0);
}

TEST(so_many_are_kept)
{
    muon_checkpoint_plan plan = case_plan(1000);
    int64_t *steps = NULL;
    size_t nsteps = 0;
    for (plan.step = 1; plan.step <= 4; plan.step++)
        assert_ok(muon_checkpoint_write(case_root, &plan));
    assert_ok(muon_checkpoint_list(&steps, &nsteps, case_root));
    assert_int_equal(nsteps, 4);
    free(steps);
    plan.keep = 2;
    assert_ok(muon_checkpoint_write(case_root, &plan));
    assert_ok(muon_checkpoint_list(&steps, &nsteps, case_root));
    assert_int_equal(nsteps, 2);
    assert_int_equal(steps[0], 4);
    assert_int_equal(steps[1], 5);
    free(steps);
}

/* ---- What is refused */

TEST(wrong_plans_are_refused_before_anything_is_made)
{
    static const muon_st_entry step[] = {{"muon.step", "1"}}, own[] = {{"format", "pt"}};
    static const muon_checkpoint_tensor twice[] = {{.name = "a", .dtype = "F32"},
                                                   {.name = "a", .dtype = "F32", .is_weight = 1}};
    muon_checkpoint_plan plan = case_plan(1);
#define REFUSED(change, status, message)                                                           \
    do {                                                                                           \
        plan = case_plan(1);                                                                       \
        change;                                                                                    \
        assert_fails(muon_checkpoint_write(case_root, &plan), status, message);                    \
        assert_int_equal(count_names(case_root), 0);                                               \
    } while (0)
    REFUSED(plan.source = NULL, MUON_E_ARG, "6 tensors, but no source");
    REFUSED(plan.tensors = NULL, MUON_E_ARG, "6 tensors at NULL");
    REFUSED(plan.metadata = NULL, MUON_E_ARG, "3 metadata entries at NULL");
    REFUSED(plan.step = -1, MUON_E_VALUE, "step is -1");
    REFUSED(plan.keep = -1, MUON_E_VALUE, "keep is -1");
    REFUSED(plan.replace = 2, MUON_E_VALUE, "replace is 2");
    REFUSED(plan.file_bytes = 0, MUON_E_VALUE, "file_bytes is 0");
    REFUSED(plan.struct_size = 8, MUON_E_VERSION, "muon_checkpoint_plan");
    REFUSED((plan.metadata = step, plan.nmetadata = 1), MUON_E_NAME, "muon.step");
    REFUSED((plan.metadata = own, plan.nmetadata = 1), MUON_E_NAME, "'format'");
    REFUSED((plan.tensors = twice, plan.ntensors = 2), MUON_E_NAME, "two tensors 'a'");
#undef REFUSED
    assert_fails(muon_checkpoint_write(NULL, &plan), MUON_E_ARG, "root is NULL");
    assert_fails(muon_checkpoint_write(case_root, NULL), MUON_E_ARG, "plan is NULL");
}

TEST(a_root_that_cannot_be_is_named)
{
    muon_checkpoint_plan plan = case_plan(1);
    assert_fails(muon_checkpoint_write(case_path("no/such"), &plan), MUON_E_IO, "no/such");
    case_put(case_path("file"), "x", 1);
    assert_fails(muon_checkpoint_write(case_path("file"), &plan), MUON_E_IO, "file");
    assert_ok(muon_checkpoint_write(case_path("new"), &plan));
    case_check(case_path("new"));
    assert_ok(muon_checkpoint_write(case_path("slashes//"), &plan));
    case_check(case_path("slashes/"));
}

TEST(the_defaults_are_as_documented)
{
    muon_checkpoint_plan plan;
    memset(&plan, 0xff, sizeof plan);
    muon_checkpoint_plan_init(&plan, sizeof plan);
    assert_int_equal(plan.struct_size, sizeof plan);
    assert_int_equal(plan.file_bytes, 5000000000);
    assert_int_equal(plan.step + (int64_t)plan.ntensors + plan.keep + plan.replace, 0);
    assert_true(!plan.tensors && !plan.metadata && !plan.source && !plan.user);
}

AROUND_EACH(case_setup, case_teardown)
