/* test_checkpoint_read.c - looking into a checkpoint: what it has, and its bytes. */
#include "tests/io/checkpoint_case.h"

#include "io/checkpoint/opened.h"

#include <sys/resource.h>

static void fresh_case(void)
{
    case_setup();
    case_write(46);
}

static muon_checkpoint *open_ok(const char *path)
{
    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, path));
    return cp;
}

/* ---- What there is */

TEST(tensors_come_state_first_in_the_order_of_their_bytes)
{
    muon_checkpoint *cp = open_ok(case_root);
    static const struct {
        const char *name, *file;
        size_t given;
    } want[] = {
        {"w.momentum_buffer", "optimizer-00001-of-00002.safetensors", 0},
        {"w.step", "optimizer-00002-of-00002.safetensors", 2},
        {"e.exp_avg", "optimizer-00002-of-00002.safetensors", 3},
        {"none.momentum_buffer", "optimizer-00002-of-00002.safetensors", 5},
        {"e", "model.safetensors", 4},
        {"w", "model.safetensors", 1},
    };
    assert_int_equal(muon_checkpoint_count(cp), COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++) {
        muon_checkpoint_tensor t;
        assert_ok(muon_checkpoint_get(cp, i, &t, sizeof t));
        assert_string_equal(t.name, want[i].name);
        assert_string_equal(t.file, want[i].file);
        assert_int_equal(t.is_weight, i >= 4);
        assert_int_equal(muon_checkpoint_find(cp, t.name), i);

        /* The place is right for whoever reads the file without us. */
        size_t bytes = 0;
        char *file = read_whole(case_file(t.file), &bytes);
        assert_true(t.offset + t.bytes <= (int64_t)bytes);
        for (int64_t k = 0; k < t.bytes; k++)
            assert_int_equal((unsigned char)file[t.offset + k], case_byte(want[i].given, k));
        free(file);
    }
    static const char *const none[] = {"", "w.", "w.momentum_buffe", "zzz", "muon.step"};
    for (size_t i = 0; i < COUNT(none); i++)
        assert_int_equal(muon_checkpoint_find(cp, none[i]), -1);
    muon_checkpoint_close(cp);
}

TEST(metadata_are_found_and_listed_but_for_what_the_files_add)
{
    muon_checkpoint *cp = open_ok(case_root);
    assert_string_equal(muon_checkpoint_get_metadata(cp, "muon.step"), "1000");
    assert_string_equal(muon_checkpoint_get_metadata(cp, "note"), case_metadata[2].value);
    assert_non_null(muon_checkpoint_get_metadata(cp, "muon.crc32c.w.momentum_buffer"));
    assert_null(muon_checkpoint_get_metadata(cp, "absent"));
    assert_string_equal(muon_checkpoint_get_key(cp, 0), "data.position");
    assert_string_equal(muon_checkpoint_get_key(cp, 1), "muon.version");
    assert_string_equal(muon_checkpoint_get_key(cp, 2), "note");
    assert_null(muon_checkpoint_get_key(cp, 3));
    assert_null(muon_checkpoint_get_key(cp, SIZE_MAX));
    muon_checkpoint_close(cp);
}

TEST(a_root_stands_for_its_newest_and_a_directory_for_itself_under_any_name)
{
    muon_checkpoint_plan plan = case_plan(1000);
    plan.step = 5;
    assert_ok(muon_checkpoint_write(case_root, &plan));
    muon_checkpoint *cp = open_ok(case_root);
    assert_int_equal(muon_checkpoint_get_step(cp), 5);
    assert_string_equal(muon_checkpoint_get_path(cp), case_path("step-00000005"));
    muon_checkpoint_close(cp);
    cp = open_ok(case_path(CASE_DIR));
    assert_int_equal(muon_checkpoint_get_step(cp), CASE_STEP);
    muon_checkpoint_close(cp);
    assert_int_equal(rename(case_path(CASE_DIR), case_path("best")), 0);
    case_check(case_path("best"));

    int64_t *steps = NULL;
    size_t nsteps = 0;
    assert_ok(muon_checkpoint_list(&steps, &nsteps, case_root));
    assert_int_equal(nsteps, 1);
    assert_int_equal(steps[0], 5);
    free(steps);
    scratch_remove_tree(case_path("step-00000005"));
    assert_ok(muon_checkpoint_list(&steps, &nsteps, case_root));
    assert_int_equal(nsteps, 0);
    assert_null(steps);
    assert_fails(muon_checkpoint_open(&cp, case_root), MUON_E_NO_CHECKPOINT,
                 "there is no checkpoint in it");
    assert_fails(muon_checkpoint_open(&cp, case_path("none")), MUON_E_NO_CHECKPOINT,
                 "none: there is no checkpoint");
    assert_ok(muon_checkpoint_list(&steps, &nsteps, case_path("none")));
    assert_int_equal(nsteps, 0);
    assert_null(steps);
    /* What is there and cannot be read is another thing. */
    case_put(case_path("file"), "x", 1);
    assert_fails(muon_checkpoint_open(&cp, case_path("file")), MUON_E_IO, "file: Not a directory");
    assert_fails(muon_checkpoint_list(&steps, &nsteps, case_path("file")), MUON_E_IO, "file");
    assert_int_equal(mkdir(case_path("step-00000007"), 0777), 0);
    assert_fails(muon_checkpoint_open(&cp, case_root), MUON_E_FORMAT,
                 "step-00000007: is not complete: it has no COMPLETE");
}

/* ---- Its bytes */

TEST(every_part_of_a_tensor_can_be_read_and_nothing_beyond)
{
    muon_checkpoint *cp = open_ok(case_root);
    for (size_t i = 0; i < COUNT(case_tensors); i++) {
        size_t index = (size_t)muon_checkpoint_find(cp, case_tensors[i].name);
        int64_t size = case_bytes[i];
        unsigned char data[64];
        for (int64_t from = 0; from <= size; from++) {
            for (int64_t to = from; to <= size; to++) {
                data[to - from] = 'x';
                assert_ok(muon_checkpoint_read(cp, index, from, data, (size_t)(to - from)));
                for (int64_t k = from; k < to; k++)
                    assert_int_equal(data[k - from], case_byte(i, k));
                assert_int_equal(data[to - from], 'x');
            }
            assert_fails(muon_checkpoint_read(cp, index, from, data, (size_t)(size - from) + 1),
                         MUON_E_ARG, case_tensors[i].name);
        }
        static const int64_t offsets[] = {-1, INT64_MIN, INT64_MAX, 61};
        for (size_t k = 0; k < COUNT(offsets); k++)
            assert_fails(muon_checkpoint_read(cp, index, offsets[k], data, 0), MUON_E_ARG,
                         "at byte");
        assert_fails(muon_checkpoint_read(cp, index, 0, data, SIZE_MAX), MUON_E_ARG, "at byte");
        assert_ok(muon_checkpoint_read(cp, index, 0, NULL, 0));
        if (size) assert_fails(muon_checkpoint_read(cp, index, 0, NULL, 1), MUON_E_ARG, "NULL");
    }
    muon_checkpoint_close(cp);
}

TEST(the_library_reads_by_descriptor_and_compares_checksums_itself)
{
    muon_checkpoint *cp = open_ok(case_root);
    for (size_t i = 0; i < muon_checkpoint_count(cp); i++) {
        muon_checkpoint_tensor t;
        assert_ok(muon_checkpoint_get(cp, i, &t, sizeof t));
        int fd = -1;
        int64_t offset = 0;
        assert_ok(muon__checkpoint_place(cp, i, &fd, &offset));
        assert_int_equal(offset, t.offset);
        unsigned char data[64];
        assert_int_equal(pread(fd, data, (size_t)t.bytes, (off_t)offset), t.bytes);
        assert_ok(muon__checkpoint_compare(cp, i, muon__crc32c(0, data, (size_t)t.bytes)));
        char want[80];
        snprintf(want, sizeof want, "its checksum is %08x, saved as %08x: the file is damaged",
                 (unsigned)(t.crc32c ^ 1), (unsigned)t.crc32c);
        assert_fails(muon__checkpoint_compare(cp, i, t.crc32c ^ 1), MUON_E_FORMAT, want);
        assert_fails(muon__checkpoint_compare(cp, i, t.crc32c ^ 1), MUON_E_FORMAT, t.name);
        assert_fails(muon__checkpoint_compare(cp, i, t.crc32c ^ 1), MUON_E_FORMAT, t.file);
    }
    int fd = -1;
    int64_t offset = 0;
    assert_fails(muon__checkpoint_place(cp, 6, &fd, &offset), MUON_E_ARG, "tensor index 6");
    assert_fails(muon__checkpoint_compare(cp, 6, 0), MUON_E_ARG, "tensor index 6");
    muon_checkpoint_close(cp);
}

/* ---- What goes wrong */

TEST(wrong_arguments_are_refused)
{
    muon_checkpoint *cp = NULL;
    int64_t *steps = NULL;
    size_t nsteps = 0;
    assert_fails(muon_checkpoint_open(NULL, case_root), MUON_E_ARG, "out is NULL");
    assert_fails(muon_checkpoint_open(&cp, NULL), MUON_E_ARG, "path is NULL");
    assert_fails(muon_checkpoint_list(NULL, &nsteps, case_root), MUON_E_ARG, "steps is NULL");
    assert_fails(muon_checkpoint_list(&steps, NULL, case_root), MUON_E_ARG, "nsteps is NULL");
    assert_fails(muon_checkpoint_list(&steps, &nsteps, NULL), MUON_E_ARG, "root is NULL");
    cp = open_ok(case_root);
    muon_checkpoint_tensor t;
    assert_fails(muon_checkpoint_get(cp, 6, &t, sizeof t), MUON_E_ARG, "there are 6 tensors");
    assert_fails(muon_checkpoint_get(NULL, 0, &t, sizeof t), MUON_E_ARG, "NULL");
    assert_fails(muon_checkpoint_read(cp, 6, 0, &t, 0), MUON_E_ARG, "tensor index 6");
    assert_fails(muon_checkpoint_verify(cp, SIZE_MAX), MUON_E_ARG, "tensor index");
    assert_fails(muon_checkpoint_verify(NULL, 0), MUON_E_ARG, "NULL");
    muon_checkpoint_close(cp);
    muon_checkpoint_close(NULL);
}

TEST(a_file_that_is_cut_while_it_is_open_is_named)
{
    muon_checkpoint *cp = open_ok(case_root);
    assert_int_equal(truncate(case_file("optimizer-00001-of-00002.safetensors"), 100), 0);
    char data[60];
    static const char want[] = "optimizer-00001-of-00002.safetensors: tensor 'w.momentum_buffer': "
                               "ends at byte";
    assert_fails(muon_checkpoint_read(cp, 0, 0, data, 60), MUON_E_IO, want);
    assert_fails(muon_checkpoint_verify(cp, 0), MUON_E_IO, want);
    assert_ok(muon_checkpoint_verify(cp, 1));
    muon_checkpoint_close(cp);
}

TEST(a_read_that_fails_is_named)
{
    muon_checkpoint *cp = open_ok(case_root);
    int fd = -1, unreadable = open("/dev/null", O_WRONLY);
    int64_t offset = 0;
    assert_ok(muon__checkpoint_place(cp, 0, &fd, &offset));
    assert_int_equal(dup2(unreadable, fd), fd); /* as a disk that fails from now on */
    close(unreadable);
    char data[60];
    static const char want[] = "optimizer-00001-of-00002.safetensors: tensor 'w.momentum_buffer': "
                               "reading 60 bytes at byte ";
    assert_fails(muon_checkpoint_read(cp, 0, 0, data, 60), MUON_E_IO, want);
    assert_fails(muon_checkpoint_verify(cp, 0), MUON_E_IO, want);
    assert_ok(muon_checkpoint_verify(cp, 1));
    muon_checkpoint_close(cp);
}

TEST(every_allocation_may_fail_and_no_file_stays_open)
{
    int before = count_names("/proc/self/fd");
    int64_t k = 0;
    for (;; k++) {
        muon_checkpoint *cp = NULL;
        testlib_allow_allocations(k);
        muon_status status = muon_checkpoint_open(&cp, case_path(CASE_DIR));
        testlib_allow_allocations(-1);
        if (status == MUON_OK) {
            testlib_allow_allocations(0);
            status = muon_checkpoint_verify(cp, 0);
            testlib_allow_allocations(-1);
            assert_int_equal(status, MUON_E_NOMEM);
            muon_checkpoint_close(cp);
            break;
        }
        testlib_assert_status(status, MUON_E_NOMEM, NULL, "muon_checkpoint_open", __FILE__, (int)k);
        assert_null(cp);
    }
    assert_true(k > 50);
    assert_int_equal(count_names("/proc/self/fd"), before);
}

TEST(too_few_descriptors_are_no_damage)
{
    int held[1024], count = 0, before = count_names("/proc/self/fd");
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    limit = old;
    limit.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (count < 64 && (held[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    /* With one more free descriptor each time it gets further, and never takes it for damage. */
    muon_checkpoint *cp = NULL;
    muon_status status = MUON_E_IO;
    int tries = 0;
    for (; count > 0 && status != MUON_OK; tries++) {
        status = muon_checkpoint_open(&cp, case_path(CASE_DIR));
        if (status != MUON_OK && status != MUON_E_IO) break;
        close(held[--count]);
    }
    while (count > 0)
        close(held[--count]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_ok(status);
    assert_true(tries >= 3);
    muon_checkpoint_close(cp);
    assert_int_equal(count_names("/proc/self/fd"), before);
}

/* ---- Indices */

TEST(indices_are_read_in_any_order_and_spacing)
{
    static const char *const texts[] = {
        "{\"weight_map\":{\"b\":\"2\",\"a\":\"1\"},\"metadata\":{\"total_size\":7}}",
        " {\n\"metadata\" : { \"total_size\" : 7 } ,\t\"weight_map\" : { \"a\" : \"1\" , "
        "\"\\u0062\" : \"2\" } } \n",
    };
    for (size_t k = 0; k < COUNT(texts); k++) {
        checkpoint_index index = {0};
        assert_ok(muon__index_parse(&index, texts[k], strlen(texts[k])));
        assert_int_equal(index.total_size, 7);
        assert_int_equal(index.count, 2);
        assert_string_equal(index.entries[0].tensor, "a");
        assert_string_equal(index.entries[0].file, "1");
        assert_string_equal(index.entries[1].tensor, "b");
        assert_string_equal(index.entries[1].file, "2");
        muon__index_destroy(&index);
    }
}

TEST(wrong_indices_are_refused_with_the_reason)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "index ends at byte 0"},
        {"[]", "index byte 0 is 0x5b"},
        {"{", "index ends at byte 1"},
        {"{}", "no metadata"},
        {"{\"metadata\":{\"total_size\":7}}", "no weight_map"},
        {"{\"weight_map\":{}}", "no metadata"},
        {"{\"weight_map\":{},\"metadata\":{}}", "metadata: no total_size"},
        {"{\"weight_map\":{},\"metadata\":{\"total_size\":-1}}", "total_size is -1"},
        {"{\"weight_map\":{},\"metadata\":{\"total_size\":1.5}}", "not an integer"},
        {"{\"weight_map\":{},\"metadata\":{\"total_size\":9223372036854775808}}", "beyond 2^63"},
        {"{\"weight_map\":{},\"metadata\":{\"total_size\":\"7\"}}", "not an integer"},
        {"{\"weight_map\":{},\"metadata\":{\"size\":7}}", "metadata: unknown key 'size'"},
        {"{\"metadata\":{\"total_size\":7,\"total_size\":7}",
         "index byte 27 is 0x2c, expected '}'"},
        {"{\"metadata\":{\"total_size\":7},\"x\":1}", "unknown key 'x'"},
        {"{\"metadata\":{\"total_size\":7},\"metadata\":{}}", "metadata appears twice"},
        {"{\"weight_map\":{},\"weight_map\":{}}", "weight_map appears twice"},
        {"{\"weight_map\":[]}", "weight_map: index byte 14"},
        {"{\"weight_map\":{\"a\":1}}", "weight_map: tensor 'a': index byte 19"},
        {"{\"weight_map\":{\"a\":\"1\",}}", "weight_map: index byte 23"},
        {"{\"weight_map\":{\"a\":\"1\",\"a\":\"2\"},\"metadata\":{\"total_size\":7}}",
         "two tensors 'a'"},
        {"{\"weight_map\":{},\"metadata\":{\"total_size\":7}}x", "text after the closing"},
        {"{\"weight_map\":{\"\xff\":\"1\"}}", "index byte 16 is 0xff: not UTF-8"},
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        checkpoint_index index = {0};
        assert_fails(muon__index_parse(&index, cases[k].text, strlen(cases[k].text)), MUON_E_FORMAT,
                     cases[k].message);
        assert_int_equal(index.count, 0);
        assert_null(index.entries);
    }
}

AROUND_EACH(fresh_case, case_teardown)
