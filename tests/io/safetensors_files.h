/* safetensors_files.h - for the tests of safetensors: a directory of their own, and raw files in it. */
#ifndef TESTS_IO_SAFETENSORS_FILES_H
#define TESTS_IO_SAFETENSORS_FILES_H

#include "tests/support/testlib.h"

#include "muon/safetensors.h"
#include "tests/support/scratch.h"

#include <fcntl.h>

static char scratch_dir[sizeof(scratch)];

static inline void scratch_setup(void)
{
    snprintf(scratch_dir, sizeof scratch_dir, "%s", scratch_make().path);
}

/* How many files there are besides `known`; removes them all if asked to. */
static inline int scratch_others(const char *known, int remove_them)
{
    DIR *dir = opendir(scratch_dir);
    assert_non_null(dir);
    int others = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (known && strcmp(entry->d_name, known) == 0) continue;
        others++;
        if (remove_them && unlinkat(dirfd(dir), entry->d_name, 0) != 0)
            unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
    return others;
}

static inline void scratch_teardown(void)
{
    scratch_remove_tree(scratch_dir);
}

/* Valid until the next call but three. */
static inline const char *scratch_path(const char *name)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_dir, name);
    return path;
}

/* Length, header, and `data_bytes` bytes of data. */
static inline void put_safetensors(const char *path, const void *header, size_t length,
                                   size_t data_bytes)
{
    char *bytes = calloc(1, 8 + length + data_bytes + 1);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(length >> (8 * i) & 0xff);
    memcpy(bytes + 8, header, length);
    write_whole(path, bytes, 8 + length + data_bytes);
    free(bytes);
}

static inline muon_st *open_ok(const char *path)
{
    muon_st *file = NULL;
    assert_ok(muon_st_open(&file, path));
    return file;
}

/* The tensor in the file is the one that was written, and its bytes are. */
static inline void expect_same(muon_st *file, const muon_st_tensor *want)
{
    int64_t index = muon_st_find(file, want->name);
    assert_true(index >= 0);
    muon_st_tensor got;
    assert_ok(muon_st_get(file, (size_t)index, &got, sizeof got));
    assert_string_equal(got.name, want->name);
    assert_string_equal(got.dtype, want->dtype);
    assert_int_equal(got.ndim, want->ndim);
    for (int i = 0; i < got.ndim; i++)
        assert_int_equal(got.shape[i], want->shape[i]);
    assert_int_equal(got.bytes, want->bytes);
    assert_null(got.data);
    char *bytes = malloc(got.bytes + 1);
    assert_non_null(bytes);
    bytes[got.bytes] = 'x';
    assert_ok(muon_st_read(file, (size_t)index, bytes, got.bytes));
    if (got.bytes) assert_memory_equal(bytes, want->data, got.bytes);
    assert_int_equal(bytes[got.bytes], 'x');
    free(bytes);
}

#endif
