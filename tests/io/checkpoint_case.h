/* checkpoint_case.h - for the tests of checkpoints' files: a directory of their own, and a small
 * checkpoint in it whose every byte is known. */
#ifndef TESTS_IO_CHECKPOINT_CASE_H
#define TESTS_IO_CHECKPOINT_CASE_H

#include "tests/support/testlib.h"

#include "base/crc32c.h"
#include "io/checkpoint/dir.h"
#include "muon/checkpoint.h"
#include "tests/support/scratch.h"

#include <fcntl.h>

#define CASE_STEP 1000
#define CASE_DIR  "step-00001000"

/* ---- Files */

static char case_root[sizeof(scratch)];

static inline void case_setup(void)
{
    snprintf(case_root, sizeof case_root, "%s", scratch_make().path);
}

static inline void case_teardown(void)
{
    scratch_remove_tree(case_root);
}

/* A path below the root; valid until the next call but seven. */
static inline const char *case_path(const char *name)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", case_root, name);
    return path;
}

static inline const char *case_file(const char *name)
{
    char inner[256];
    snprintf(inner, sizeof inner, CASE_DIR "/%s", name);
    return case_path(inner);
}

/* Some file systems sync a file that was emptied and written anew: it is never empty in between. */
static inline void case_put(const char *path, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, bytes, 0), bytes);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(close(fd), 0);
}

/* ---- The checkpoint */

/* State of 60 + 8 + 16 + 0 bytes, weights of 30 + 16. */
static const muon_checkpoint_tensor case_tensors[] = {
    {.name = "w.momentum_buffer", .dtype = "F32", .ndim = 2, .shape = {3, 5}},
    {.name = "w", .dtype = "BF16", .ndim = 2, .shape = {3, 5}, .is_weight = 1},
    {.name = "w.step", .dtype = "I64"},
    {.name = "e.exp_avg", .dtype = "F32", .ndim = 1, .shape = {4}},
    {.name = "e", .dtype = "F32", .ndim = 1, .shape = {4}, .is_weight = 1},
    {.name = "none.momentum_buffer", .dtype = "F32", .ndim = 2, .shape = {0, 5}},
};
static const int64_t case_bytes[] = {60, 30, 8, 16, 16, 0};

static const muon_st_entry case_metadata[] = {
    {"muon.version", "0.1.0"}, {"data.position", "12345"}, {"note", "a \"b\" \xe2\x82\xac"}};

/* Byte `at` of tensor `index`. */
static inline unsigned char case_byte(size_t index, int64_t at)
{
    return (unsigned char)(37 * index + 11 * (size_t)at + ((size_t)at >> 8) + 1);
}

static inline muon_status case_source(void *user, size_t index, int64_t offset, void *data,
                                      size_t bytes)
{
    (void)user;
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)data)[i] = case_byte(index, offset + (int64_t)i);
    return MUON_OK;
}

static inline muon_checkpoint_plan case_plan(int64_t file_bytes)
{
    muon_checkpoint_plan plan;
    muon_checkpoint_plan_init(&plan, sizeof plan);
    plan.step = CASE_STEP;
    plan.tensors = case_tensors;
    plan.ntensors = COUNT(case_tensors);
    plan.metadata = case_metadata;
    plan.nmetadata = COUNT(case_metadata);
    plan.file_bytes = file_bytes;
    plan.source = case_source;
    return plan;
}

static inline void case_write(int64_t file_bytes)
{
    muon_checkpoint_plan plan = case_plan(file_bytes);
    plan.replace = 1;
    assert_ok(muon_checkpoint_write(case_root, &plan));
}

/* All of the checkpoint at path is as case_write made it. */
static inline void case_check(const char *path)
{
    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, path));
    assert_int_equal(muon_checkpoint_count(cp), COUNT(case_tensors));
    assert_int_equal(muon_checkpoint_get_step(cp), CASE_STEP);
    for (size_t i = 0; i < COUNT(case_tensors); i++) {
        const muon_checkpoint_tensor *want = &case_tensors[i];
        int64_t at = muon_checkpoint_find(cp, want->name);
        assert_true(at >= 0);
        muon_checkpoint_tensor got;
        assert_ok(muon_checkpoint_get(cp, (size_t)at, &got, sizeof got));
        assert_string_equal(got.name, want->name);
        assert_string_equal(got.dtype, want->dtype);
        assert_int_equal(got.ndim, want->ndim);
        assert_memory_equal(got.shape, want->shape, sizeof got.shape);
        assert_int_equal(got.bytes, case_bytes[i]);
        assert_int_equal(got.is_weight, want->is_weight);
        unsigned char data[64];
        assert_ok(muon_checkpoint_read(cp, (size_t)at, 0, data, (size_t)got.bytes));
        for (int64_t k = 0; k < got.bytes; k++)
            assert_int_equal(data[k], case_byte(i, k));
        assert_int_equal(got.crc32c, muon__crc32c(0, data, (size_t)got.bytes));
        assert_ok(muon_checkpoint_verify(cp, (size_t)at));
    }
    muon_checkpoint_close(cp);
}

#endif
