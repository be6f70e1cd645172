/* test_safetensors_write.c - what the writer refuses, and that whatever fails harms nothing. */
#include "tests/io/safetensors_files.h"

#include "io/replace.h"
#include "io/safetensors/header.h"

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

TEST(the_writer_refuses_what_a_reader_would)
{
    static const float x[4];
    static const struct {
        muon_st_tensor tensors[2];
        muon_st_entry metadata[2];
        muon_status status;
        const char *message;
    } cases[] = {
        {{{NULL, "F32", 1, {4}, 16, x}}, {{0}}, MUON_E_ARG, "tensor 0 has no name"},
        {{{"a", NULL, 1, {4}, 16, x}}, {{0}}, MUON_E_ARG, "'a': no dtype"},
        {{{"a", "F31", 1, {4}, 16, x}}, {{0}}, MUON_E_DTYPE, "'a': unknown dtype 'F31'"},
        {{{"a", "F32", -1, {4}, 16, x}}, {{0}}, MUON_E_SHAPE, "'a': ndim is -1, must be 0..8"},
        {{{"a", "F32", 9, {4}, 16, x}}, {{0}}, MUON_E_SHAPE, "'a': ndim is 9, must be 0..8"},
        {{{"a", "F32", 1, {-4}, 16, x}}, {{0}}, MUON_E_SHAPE, "'a': dim 0 is -4"},
        {{{"a", "F32", 2, {1LL << 40, 1LL << 40}, 16, x}}, {{0}}, MUON_E_SHAPE, "overflows"},
        {{{"a", "F32", 1, {4}, 17, x}},
         {{0}},
         MUON_E_SHAPE,
         "'a': 17 bytes, but shape and dtype F32 need 16"},
        {{{"a", "F32", 1, {4}, 15, x}},
         {{0}},
         MUON_E_SHAPE,
         "'a': 15 bytes, but shape and dtype F32"},
        {{{"a", "F4", 1, {3}, 1, x}}, {{0}}, MUON_E_SHAPE, "'a': 3 elements of F4 are 12 bits"},
        {{{"a", "F32", 1, {4}, 16, NULL}}, {{0}}, MUON_E_ARG, "'a': no data"},
        {{{"__metadata__", "F32", 1, {4}, 16, x}}, {{0}}, MUON_E_NAME, "reserved"},
        {{{"a\xff", "F32", 1, {4}, 16, x}}, {{0}}, MUON_E_NAME, "a tensor's name is not UTF-8"},
        {{{"\xed\xa0\x80", "F32", 1, {4}, 16, x}}, {{0}}, MUON_E_NAME, "is not UTF-8"},
        {{{"a", "F32", 1, {4}, 16, x}, {"a", "F16", 1, {4}, 8, x}},
         {{0}},
         MUON_E_NAME,
         "two tensors 'a'"},
        {{{0}}, {{"k", NULL}}, MUON_E_ARG, "metadata 0 has no value"},
        {{{0}}, {{NULL, "v"}}, MUON_E_ARG, "metadata 0 has no key"},
        {{{0}}, {{"k", "v"}, {"k", "w"}}, MUON_E_NAME, "metadata: two keys 'k'"},
        {{{0}}, {{"\xff", "v"}}, MUON_E_NAME, "a metadata key is not UTF-8"},
        {{{0}}, {{"k", "\xc3"}}, MUON_E_NAME, "a metadata value is not UTF-8"},
    };
    const char *path = scratch_path("refused.safetensors");
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t count = cases[i].tensors[1].name ? 2 : 1;
        size_t nmetadata = cases[i].metadata[1].key ? 2 : 1;
        if (cases[i].metadata[0].key || cases[i].metadata[0].value)
            count = 0;
        else
            nmetadata = 0;
        assert_fails(muon_st_write(path, cases[i].tensors, count, cases[i].metadata, nmetadata),
                     cases[i].status, cases[i].message);
        assert_int_equal(strncmp(muon_last_error(), path, strlen(path)), 0);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    assert_fails(muon_st_write(NULL, NULL, 0, NULL, 0), MUON_E_ARG, "path is NULL");
    assert_fails(muon_st_write(path, NULL, 1, NULL, 0), MUON_E_ARG, "1 tensors at NULL");
    assert_fails(muon_st_write(path, NULL, 0, NULL, 2), MUON_E_ARG, "2 metadata entries at NULL");
}

/* All characters of one byte but NUL, then some of two, three and four: as jansson writes them, which
 * other readers know. */
TEST(texts_are_escaped_as_by_a_json_library)
{
    char text[160];
    for (int i = 1; i < 0x80; i++)
        text[i - 1] = (char)i;
    strcpy(text + 0x7f, "\xc2\x80\xc3\xa4\xe2\x80\xa8\xef\xbf\xbf\xf0\x9f\x9a\x80 end");
    char *got = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&got, &bytes);
    assert_non_null(out);
    assert_ok(muon__st_put_string(out, text, "a text"));
    fclose(out);
    json_t *string = json_string(text);
    char *want = json_dumps(string, JSON_ENCODE_ANY);
    assert_non_null(want);
    assert_string_equal(got, want);
    json_decref(string);
    free(want);
    free(got);
}

/* No machine has these tensors, so the writer must see it before it looks at their data. */
TEST(tensors_of_more_than_2_to_the_63_bytes_are_refused)
{
    static const char names[][2] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    const int64_t huge = INT64_MAX / 8;
    muon_st_tensor tensors[COUNT(names)];
    for (size_t i = 0; i < COUNT(names); i++)
        tensors[i] = (muon_st_tensor){names[i], "U8", 1, {huge}, (size_t)huge, names};
    assert_fails(muon_st_write(scratch_path("huge"), tensors, COUNT(tensors), NULL, 0),
                 MUON_E_SHAPE,
                 "tensor 'i': the tensors before it and its 1152921504606846975 bytes");
}

static const float old_value[1] = {1};
static const muon_st_tensor old_tensor = {"old", "F32", 1, {1}, 4, old_value};

TEST(a_target_that_cannot_be_written_is_named)
{
    const char *fifo = scratch_path("pipe");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(mkdir(scratch_path("dir"), 0700), 0);
    write_whole(scratch_path("file"), "x", 1);
    static char too_long[300];
    memset(too_long, 'n', sizeof too_long - 1);
    const struct {
        const char *path, *message;
    } cases[] = {
        {"none/x.safetensors", "its directory cannot be opened: No such file"},
        {"file/x.safetensors", "Not a directory"},
        {"dir", "is a directory"},
        {"dir/", "not the name of a file"},
        {"pipe", "is not a regular file"},
        {too_long, "File name too long"},
    };
    int before = scratch_others(NULL, 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_fails(muon_st_write(scratch_path(cases[i].path), &old_tensor, 1, NULL, 0), MUON_E_IO,
                     cases[i].message);
        assert_int_equal(scratch_others(NULL, 0), before);
    }
    assert_fails(muon_st_write("", &old_tensor, 1, NULL, 0), MUON_E_IO, "not the name of a file");
    assert_fails(muon_st_write("/dev/null", &old_tensor, 1, NULL, 0), MUON_E_IO, "not a regular");
    struct stat info;
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    scratch_others(NULL, 1);
}

/* The disk is full in the header, at its end, in a tensor, after the first, at the very end. */
TEST(a_full_disk_leaves_the_old_file_alone)
{
    scratch_others(NULL, 1);
    const char *path = scratch_path("model.safetensors");
    assert_ok(muon_st_write(path, &old_tensor, 1, NULL, 0));
    static char big[100000];
    static const muon_st_tensor tensors[] = {
        {"a", "U8", 1, {50000}, 50000, big},
        {"b", "U8", 1, {100000}, 100000, big},
    };
    static const rlim_t limits[] = {0, 4, 100, 140, 30000, 50136, 60000, 150135};
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < COUNT(limits); i++) {
        struct rlimit before, small;
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        small = before;
        small.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        muon_status status = muon_st_write(path, tensors, COUNT(tensors), NULL, 0);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_fails(status, MUON_E_IO, "model.safetensors: writing failed");
        assert_non_null(strstr(muon_last_error(), "File too large"));
        assert_int_equal(scratch_others("model.safetensors", 0), 0);
        muon_st *file = open_ok(path);
        expect_same(file, &old_tensor);
        muon_st_close(file);
    }
    assert_ok(muon_st_write(path, tensors, COUNT(tensors), NULL, 0));
}

static void interrupted(int signal_number)
{
    (void)signal_number;
}

/* The reader at the other end of a pipe sends signals while the pipe is full, and after each piece:
 * writes stop half way (short) or before their first byte (EINTR). */
TEST(interrupted_and_short_writes_go_on)
{
    enum { BYTES = 1 << 20 };
    static unsigned char sent[BYTES], got[BYTES];
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (unsigned char)(i * 2654435761u >> 13);
    struct sigaction action = {.sa_handler = interrupted}, before; /* no SA_RESTART */
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t parent = getpid(), child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[1]);
        for (int i = 0; i < 20; i++) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            kill(parent, SIGUSR1);
        }
        size_t have = 0;
        for (ssize_t n; (n = read(ends[0], got + have, sizeof got - have)) > 0;) {
            have += (size_t)n;
            kill(parent, SIGUSR1);
        }
        _exit(have == BYTES && memcmp(sent, got, BYTES) == 0 ? 0 : 1);
    }
    close(ends[0]);
    replacement r = {.path = "pipe", .fd = ends[1]};
    assert_ok(muon__replace_write(&r, sent, sizeof sent));
    close(ends[1]);
    int status;
    while (waitpid(child, &status, 0) < 0)
        continue;
    assert_int_equal(status, 0);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

TEST(an_open_file_survives_its_replacement)
{
    static const float new_value[3] = {7, 8, 9};
    static const muon_st_tensor new_tensor = {"new", "F32", 1, {3}, 12, new_value};
    const char *path = scratch_path("open.safetensors");
    assert_ok(muon_st_write(path, &old_tensor, 1, NULL, 0));
    muon_st *file = open_ok(path);
    assert_ok(muon_st_write(path, &new_tensor, 1, NULL, 0));
    expect_same(file, &old_tensor);
    muon_st_close(file);
    file = open_ok(path);
    expect_same(file, &new_tensor);
    muon_st_close(file);
}

TEST(leftovers_of_killed_processes_are_not_touched)
{
    scratch_others(NULL, 1);
    for (int i = 0; i < 200; i++) { /* more than this program has used up so far */
        char name[64];
        snprintf(name, sizeof name, ".muon-%ld-%d.tmp", (long)getpid(), i);
        write_whole(scratch_path(name), "precious", 8);
    }
    assert_ok(muon_st_write(scratch_path("x"), &old_tensor, 1, NULL, 0));
    assert_int_equal(scratch_others("x", 0), 200);
    for (int i = 0; i < 200; i++) {
        char name[64];
        snprintf(name, sizeof name, ".muon-%ld-%d.tmp", (long)getpid(), i);
        size_t bytes;
        char *data = read_whole(scratch_path(name), &bytes);
        assert_int_equal(bytes, 8);
        assert_memory_equal(data, "precious", 8);
        free(data);
    }
    scratch_others(NULL, 1);
}

TEST(a_reader_never_sees_a_part_of_what_processes_write)
{
    enum { WRITERS = 3, WRITES = 20, N = 20000 };
    scratch_others(NULL, 1);
    const char *path = scratch_path("shared.safetensors");
    static int32_t values[N];
    static const muon_st_tensor tensor = {"t", "I32", 1, {N}, sizeof values, values};
    assert_ok(muon_st_write(path, &tensor, 1, NULL, 0));
    pid_t children[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        children[w] = fork();
        assert_true(children[w] >= 0);
        if (children[w] > 0) continue;
        for (int i = 0; i < N; i++)
            values[i] = w + 1;
        for (int i = 0; i < WRITES; i++)
            if (muon_st_write(path, &tensor, 1, NULL, 0) != MUON_OK) _exit(1);
        _exit(0);
    }
    for (int i = 0; i < 100; i++) {
        muon_st *file = open_ok(path);
        assert_ok(muon_st_read(file, 0, values, sizeof values));
        for (int k = 1; k < N; k++)
            assert_int_equal(values[k], values[0]);
        muon_st_close(file);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        assert_int_equal(waitpid(children[w], &status, 0), children[w]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(scratch_others("shared.safetensors", 0), 0);
}

typedef struct writer {
    const char *path;
    int32_t values[5000];
    muon_status status; /* of the first write that failed */
} writer;

static void *write_often(void *arg)
{
    writer *w = arg;
    muon_st_tensor tensor = {"t", "I32", 1, {5000}, sizeof w->values, w->values};
    for (int i = 0; i < 20 && w->status == MUON_OK; i++)
        w->status = muon_st_write(w->path, &tensor, 1, NULL, 0);
    return NULL;
}

TEST(threads_that_write_one_file_all_succeed_and_it_is_whole)
{
    enum { WRITERS = 4 };
    static writer writers[WRITERS];
    pthread_t threads[WRITERS];
    scratch_others(NULL, 1);
    const char *path = scratch_path("shared.safetensors");
    for (int w = 0; w < WRITERS; w++) {
        writers[w].path = path;
        for (int i = 0; i < 5000; i++)
            writers[w].values[i] = w + 1;
        assert_int_equal(pthread_create(&threads[w], NULL, write_often, &writers[w]), 0);
    }
    for (int w = 0; w < WRITERS; w++) {
        assert_int_equal(pthread_join(threads[w], NULL), 0);
        assert_int_equal(writers[w].status, MUON_OK);
    }
    static int32_t got[5000];
    muon_st *file = open_ok(path);
    assert_ok(muon_st_read(file, 0, got, sizeof got));
    muon_st_close(file);
    assert_true(got[0] >= 1 && got[0] <= WRITERS);
    assert_memory_equal(got, writers[got[0] - 1].values, sizeof got);
    assert_int_equal(scratch_others("shared.safetensors", 0), 0);
}

TEST(relative_paths_and_the_root_of_a_path_work)
{
    char *before = getcwd(NULL, 0);
    assert_non_null(before);
    assert_int_equal(chdir(scratch_dir), 0);
    assert_ok(muon_st_write("here", &old_tensor, 1, NULL, 0));
    assert_ok(muon_st_write("./there", &old_tensor, 1, NULL, 0));
    assert_int_equal(access(scratch_path("here"), F_OK), 0);
    assert_int_equal(access(scratch_path("there"), F_OK), 0);
    assert_fails(muon_st_write("/proc", &old_tensor, 1, NULL, 0), MUON_E_IO, "is a directory");
    assert_int_equal(chdir(before), 0);
    free(before);
}

AROUND_ALL(scratch_setup, scratch_teardown)
