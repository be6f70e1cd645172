/* checkpoint_roots.h - for the tests of checkpoint directories: a place of their own, whole saves
 * of two small files, and what is there afterwards. */
#ifndef TESTS_IO_CHECKPOINT_ROOTS_H
#define TESTS_IO_CHECKPOINT_ROOTS_H

#include "tests/support/testlib.h"

#include "base/crc32c.h"
#include "io/checkpoint/dir.h"
#include "io/sync.h"
#include "tests/support/scratch.h"

#include <errno.h>
#include <fcntl.h>

static scratch place;

/* Valid until the next call but seven. */
__attribute__((format(printf, 1, 2))) static inline const char *in_scratch(const char *format, ...)
{
    static char paths[8][768];
    static int next;
    char *path = paths[next++ % 8];
    int used = snprintf(path, sizeof paths[0], "%s/", place.path);
    va_list args;
    va_start(args, format);
    vsnprintf(path + used, sizeof paths[0] - (size_t)used, format, args);
    va_end(args);
    return path;
}

static inline void scratch_setup(void)
{
    place = scratch_make_quick();
}

static inline void scratch_teardown(void)
{
    scratch_remove(&place);
}

static inline int exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* ---- A save as the library does it: a large file whose bytes come later, a small one at once. */

enum { LARGE_BYTES = 5000 };

static inline muon_status fill_large(const char *root, int64_t step, char content)
{
    char path[768];
    char data[LARGE_BYTES];
    snprintf(path, sizeof path, "%s/%s/large", root, muon__checkpoint_saving(step).text);
    memset(data, content, sizeof data);
    int fd = open(path, O_WRONLY);
    REQUIRE(fd >= 0, E_IO, "%s: %s", path, strerror(errno));
    muon_status status = muon__write_all(fd, data, LARGE_BYTES, path);
    if (status == MUON_OK && muon__sync_file(fd) != 0)
        status = muon__fail(MUON_E_IO, "%s: %s", path, strerror(errno));
    close(fd);
    return status;
}

static inline muon_status write_files(checkpoint_dir *dir, const char *root, int64_t step,
                                      char content)
{
    TRY(muon__checkpoint_add(dir, "large", LARGE_BYTES));
    TRY(fill_large(root, step, content));
    return muon__checkpoint_put(dir, "small", &content, 1);
}

static inline muon_status save(const char *root, int64_t step, char content, int keep, int replace)
{
    char names[2][8] = {"large", "small"};
    checkpoint_file files[2] = {{names[0], LARGE_BYTES, 0, 0},
                                {names[1], 1, 1, muon__crc32c(0, &content, 1)}};
    checkpoint_marker marker = {.step = step, .files = files, .nfiles = 2};
    checkpoint_dir *dir;
    TRY(muon__checkpoint_begin(&dir, root, step, replace));
    muon_status status = write_files(dir, root, step, content);
    if (status == MUON_OK) return muon__checkpoint_commit(dir, &marker, keep);
    muon__checkpoint_abort(dir);
    return status;
}

/* The steps of a root's complete checkpoints, with a space between; fails if it cannot be read. */
static inline const char *steps_in(const char *root)
{
    static char list[256];
    int64_t *steps;
    size_t nsteps;
    assert_ok(muon__checkpoint_steps(&steps, &nsteps, root));
    size_t used = 0;
    list[0] = '\0';
    for (size_t i = 0; i < nsteps; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, i > 0 ? " %lld" : "%lld",
                                 (long long)steps[i]);
    free(steps);
    return list;
}

/* What a checkpoint was saved with, after a look at each byte; 0 if it is not there or not
 * complete. */
static inline char content_of(const char *root, int64_t step)
{
    char path[768];
    snprintf(path, sizeof path, "%s/%s", root, muon__checkpoint_name(step).text);
    if (!exists(path)) return 0;
    checkpoint_marker marker = {0};
    if (muon__marker_read(&marker, path) != MUON_OK) return 0;
    muon__marker_destroy(&marker);
    char data[LARGE_BYTES + 1];
    strcat(path, "/large");
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(data, 1, sizeof data, file), LARGE_BYTES);
    fclose(file);
    for (int i = 1; i < LARGE_BYTES; i++)
        assert_int_equal(data[i], data[0]);
    return data[0];
}

/* Where `latest` points. */
static inline const char *latest_of(const char *root)
{
    static char target[256];
    char path[768];
    snprintf(path, sizeof path, "%s/" CHECKPOINT_LATEST, root);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    return target;
}

/* ---- The root of a test */

static const char *root;

/* Each test has a root of its own, which does not exist yet. */
static inline void root_setup(void)
{
    static char path[300];
    static int number;
    snprintf(path, sizeof path, "%s", in_scratch("root%d", number++));
    root = path;
}

#endif
