/* How a checkpoint comes into being. The order is the whole point: files, the names of files, the
 * marker, the name of the directory, each on the disk before the next; only then does anything old
 * go. */
#define _GNU_SOURCE /* renameat2 */
#include "io/checkpoint/dir.h"

#include "base/memory.h"
#include "io/checkpoint/parts.h"
#include "io/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SAVING_TRIES = 10 }; /* to get the name from others that clean the root: a second in all */
/* Descriptors that are kept for the end: what looks at the other checkpoints needs three. The first is
 * for the directory itself, so that one that is made can also be opened. */
enum { SPARE = 3 };

struct checkpoint_dir {
    char *root;
    int root_fd;
    int fd;  /* of the directory that is written; it holds the lock */
    int old; /* of the one that is exchanged for it; -1: none */
    int spare[SPARE];
    int64_t step;
    int replace;
    checkpoint_name saving, name;
};

static void drop(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void use_spares(checkpoint_dir *dir)
{
    for (int i = 0; i < SPARE; i++)
        drop(&dir->spare[i]);
}

static void release(checkpoint_dir *dir)
{
    use_spares(dir);
    drop(&dir->fd);
    drop(&dir->old);
    if (dir->root_fd >= 0) close(dir->root_fd);
    free(dir->root);
    free(dir);
}

/* ---- Begin */

static muon_status open_root(checkpoint_dir *dir)
{
    int is_new = mkdir(dir->root, 0777) == 0;
    REQUIRE(is_new || errno == EEXIST, E_IO, "%s: cannot be created: %s", dir->root,
            strerror(errno));
    dir->root_fd = open(dir->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(dir->root_fd >= 0, E_IO, "%s: %s", dir->root, strerror(errno));
    if (!is_new) return MUON_OK;
    int above = openat(dir->root_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int synced = above >= 0 && muon__sync_directory(above) == 0;
    int error = errno;
    if (above >= 0) close(above);
    REQUIRE(synced, E_IO, "%s: syncing the directory above it failed: %s", dir->root,
            strerror(error));
    return MUON_OK;
}

static muon_status take_spares(checkpoint_dir *dir)
{
    for (int i = 0; i < SPARE; i++) {
        dir->spare[i] = fcntl(dir->root_fd, F_DUPFD_CLOEXEC, 0);
        REQUIRE(dir->spare[i] >= 0, E_IO, "%s: no file descriptors to save there: %s", dir->root,
                strerror(errno));
    }
    return MUON_OK;
}

static muon_status check_existing(const checkpoint_dir *dir)
{
    struct stat info;
    if (fstatat(dir->root_fd, dir->name.text, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        REQUIRE(errno == ENOENT, E_IO, "%s/%s: %s", dir->root, dir->name.text, strerror(errno));
        return MUON_OK;
    }
    REQUIRE(dir->replace, E_IO, "%s/%s: exists already", dir->root, dir->name.text);
    REQUIRE(S_ISDIR(info.st_mode), E_IO, "%s/%s: is not a directory", dir->root, dir->name.text);
    return MUON_OK;
}

/* 1: ours from now on, and locked if there are locks. 0: another process took it for a leftover in
 * the moment before. */
static int hold_saving(checkpoint_dir *dir)
{
    int fd = muon__directory_open(dir->root_fd, dir->saving.text);
    if (fd < 0) return 0;
    if (muon__directory_lock(fd) == LOCK_OTHERS ||
        !muon__directory_is(fd, dir->root_fd, dir->saving.text)) {
        close(fd);
        return 0;
    }
    dir->fd = fd;
    return 1;
}

/* Why something keeps the name that we want. */
static muon_status name_owner(const checkpoint_dir *dir)
{
    int fd = muon__directory_open(dir->root_fd, dir->saving.text);
    REQUIRE(fd >= 0, E_IO, "%s/%s: cannot be opened: %s", dir->root, dir->saving.text,
            strerror(errno));
    lock_state lock = muon__directory_lock(fd);
    close(fd);
    REQUIRE(lock != LOCK_OTHERS, E_IO, "%s: another process is saving step %" PRId64 " right now",
            dir->root, dir->step);
    REQUIRE(lock != LOCK_UNKNOWN, E_IO,
            "%s/%s: exists, and this file system has no locks to tell whether a process is saving "
            "there; if none is, remove it",
            dir->root, dir->saving.text);
    FAIL(E_IO, "%s/%s: is in the way and cannot be removed", dir->root, dir->saving.text);
}

static void rest(int try)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000L << try}, NULL);
}

/* Who cleans the root meanwhile may take the new directory for a leftover, in the moment before it
 * is locked. That is soon over; an owner, however, stays. */
static muon_status make_saving(checkpoint_dir *dir)
{
    for (int i = 0; i < SAVING_TRIES; i++) {
        if (mkdirat(dir->root_fd, dir->saving.text, 0777) == 0) {
            if (hold_saving(dir)) return MUON_OK;
        } else {
            REQUIRE(errno == EEXIST, E_IO, "%s/%s: cannot be created: %s", dir->root,
                    dir->saving.text, strerror(errno));
        }
        muon__checkpoint_remove(dir->root_fd, dir->root, dir->saving.text, 1);
        rest(i);
    }
    return name_owner(dir);
}

static muon_status begin(checkpoint_dir *dir, const char *root)
{
    TRY(muon__strdup(&dir->root, root));
    TRY(open_root(dir));
    muon__checkpoint_clean(dir->root_fd, root);
    TRY(check_existing(dir));
    TRY(take_spares(dir));
    drop(&dir->spare[0]);
    TRY(make_saving(dir));
    dir->spare[0] = fcntl(dir->root_fd, F_DUPFD_CLOEXEC, 0); /* or not: then there is one less */
    return MUON_OK;
}

muon_status muon__checkpoint_begin(checkpoint_dir **out, const char *root, int64_t step,
                                   int replace)
{
    REQUIRE(step >= 0, E_ARG, "a checkpoint of step %" PRId64, step);
    checkpoint_dir *dir;
    TRY(CALLOC(&dir, 1, "a checkpoint that is written"));
    *dir = (checkpoint_dir){.root_fd = -1,
                            .fd = -1,
                            .old = -1,
                            .spare = {-1, -1, -1},
                            .step = step,
                            .replace = replace,
                            .saving = muon__checkpoint_saving(step),
                            .name = muon__checkpoint_name(step)};
    muon_status status = begin(dir, root);
    if (status != MUON_OK) {
        release(dir);
        return status;
    }
    *out = dir;
    return MUON_OK;
}

/* ---- Files */

/* What messages call a file. */
typedef struct shown_path {
    char text[MUON__MESSAGE_MAX];
} shown_path;

static shown_path path_of(const checkpoint_dir *dir, const char *name)
{
    shown_path path;
    snprintf(path.text, sizeof path.text, "%s/%s/%s", dir->root, dir->saving.text, name);
    return path;
}

static muon_status create(int *fd, const checkpoint_dir *dir, const char *name, const char *path)
{
    *fd = openat(dir->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    REQUIRE(*fd >= 0, E_IO, "%s: cannot be created: %s", path, strerror(errno));
    return MUON_OK;
}

/* Closing may tell of a failure that is older. */
static muon_status finish(muon_status status, int fd, const char *path)
{
    int closed = close(fd) == 0 || errno == EINTR;
    if (status != MUON_OK) return status;
    REQUIRE(closed, E_IO, "%s: closing it failed: %s", path, strerror(errno));
    return MUON_OK;
}

static muon_status reserve(int fd, int64_t bytes, const char *path)
{
    REQUIRE(muon__reserve(fd, bytes) == 0, E_IO, "%s: no room for its %" PRId64 " bytes: %s", path,
            bytes, strerror(errno));
    return MUON_OK;
}

muon_status muon__checkpoint_add(checkpoint_dir *dir, const char *name, int64_t bytes)
{
    shown_path path = path_of(dir, name);
    REQUIRE(muon__marker_holds_name(name), E_ARG, "%s: is not a valid file name", path.text);
    REQUIRE(bytes >= 0, E_ARG, "%s: a file of %" PRId64 " bytes", path.text, bytes);
    int fd;
    TRY(create(&fd, dir, name, path.text));
    return finish(reserve(fd, bytes, path.text), fd, path.text);
}

static muon_status write_synced(int fd, const void *data, size_t bytes, const char *path)
{
    TRY(muon__write_all(fd, data, bytes, path));
    REQUIRE(muon__sync_file(fd) == 0, E_IO, "%s: syncing it failed: %s", path, strerror(errno));
    return MUON_OK;
}

static muon_status put(checkpoint_dir *dir, const char *name, const void *data, size_t bytes)
{
    shown_path path = path_of(dir, name);
    int fd;
    TRY(create(&fd, dir, name, path.text));
    return finish(write_synced(fd, data, bytes, path.text), fd, path.text);
}

muon_status muon__checkpoint_put(checkpoint_dir *dir, const char *name, const void *data,
                                 size_t bytes)
{
    REQUIRE(muon__marker_holds_name(name), E_ARG, "%s: is not a valid file name",
            path_of(dir, name).text);
    return put(dir, name, data, bytes);
}

int muon__checkpoint_open_file(const checkpoint_dir *dir, const char *name)
{
    int fd = openat(dir->fd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        muon__fail(MUON_E_IO, "%s: cannot be opened: %s", path_of(dir, name).text, strerror(errno));
    return fd;
}

/* ---- Commit */

static muon_status put_marker(checkpoint_dir *dir, const checkpoint_marker *marker)
{
    REQUIRE(marker->step == dir->step, E_ARG, "a marker of step %" PRId64 " in %s/%s", marker->step,
            dir->root, dir->saving.text);
    checkpoint_marker placed = *marker;
    TRY(muon__checkpoint_branch_at(&placed.branch, dir->root_fd, dir->root, dir->step));
    char *text;
    size_t bytes;
    TRY(muon__marker_write(&text, &bytes, &placed));
    shown_path path;
    snprintf(path.text, sizeof path.text, "%s/%s", dir->root, dir->saving.text);
    muon_status status = muon__marker_check_files(marker, dir->fd, path.text);
    if (status == MUON_OK) status = put(dir, CHECKPOINT_MARKER, text, bytes);
    free(text);
    return status;
}

static muon_status take_name(checkpoint_dir *dir, int *is_exchanged)
{
    const char *from = dir->saving.text;
    const char *to = dir->name.text;
    *is_exchanged = 0;
    if (renameat(dir->root_fd, from, dir->root_fd, to) == 0) return MUON_OK;
    REQUIRE(errno == EEXIST || errno == ENOTEMPTY, E_IO, "%s/%s: renaming to it failed: %s",
            dir->root, to, strerror(errno));
    REQUIRE(dir->replace, E_IO, "%s/%s: exists already", dir->root, to);
    dir->old = muon__directory_open(dir->root_fd, to);
    *is_exchanged = renameat2(dir->root_fd, from, dir->root_fd, to, RENAME_EXCHANGE) == 0;
    REQUIRE(*is_exchanged || (errno != EINVAL && errno != ENOSYS), E_IO,
            "%s/%s: exists, and this file system cannot exchange two directories at once",
            dir->root, to);
    REQUIRE(*is_exchanged, E_IO, "%s/%s: exchanging it failed: %s", dir->root, to, strerror(errno));
    return MUON_OK;
}

static muon_status sync_root(const checkpoint_dir *dir)
{
    REQUIRE(muon__sync_directory(dir->root_fd) == 0, E_IO, "syncing %s failed: %s", dir->root,
            strerror(errno));
    return MUON_OK;
}

/* EPERM: a file system without links has no `latest`. It is for people; only of
 * damaged ones does it say which was the newest. */
static muon_status point_latest(const checkpoint_dir *dir, int64_t step)
{
    checkpoint_name link = muon__checkpoint_link(dir->step);
    int root = dir->root_fd;
    unlinkat(root, link.text, 0);
    if (symlinkat(muon__checkpoint_name(step).text, root, link.text) != 0) {
        REQUIRE(errno == EPERM, E_IO, "%s/%s: cannot be created: %s", dir->root, link.text,
                strerror(errno));
        return MUON_OK;
    }
    if (renameat(root, link.text, root, CHECKPOINT_LATEST) == 0) return MUON_OK;
    int error = errno;
    if (error == ENOENT)
        return MUON_OK; /* one that has removed this step by now points it elsewhere */
    unlinkat(root, link.text, 0);
    FAIL(E_IO, "%s/" CHECKPOINT_LATEST ": renaming to it failed: %s", dir->root, strerror(error));
}

/* Of the complete ones, the newest last: moves those that are to go to the front, and says how many
 * they are; *newest is the last of the others. */
static size_t choose_old(const checkpoint_dir *dir, int64_t *steps, size_t nsteps, int keep,
                         int64_t *newest)
{
    size_t chosen = 0;
    *newest = dir->step;
    for (size_t i = 0; i < nsteps; i++) {
        if (keep > 0 && nsteps - chosen > (size_t)keep && steps[i] != dir->step)
            steps[chosen++] = steps[i];
        else
            *newest = steps[i];
    }
    return chosen;
}

/* Each gets a name that nobody takes for a checkpoint, these names are put on the disk, and only
 * then do files go: a half of one is never seen. ENOENT: another process was faster. */
static muon_status remove_old(const checkpoint_dir *dir, const int64_t *steps, size_t nsteps)
{
    for (size_t i = 0; i < nsteps; i++) {
        checkpoint_name from = muon__checkpoint_name(steps[i]);
        checkpoint_name to = muon__checkpoint_removing(steps[i]);
        int gone = renameat(dir->root_fd, from.text, dir->root_fd, to.text) == 0 || errno == ENOENT;
        REQUIRE(gone, E_IO, "%s/%s: cannot be removed: %s", dir->root, from.text, strerror(errno));
    }
    TRY(sync_root(dir));
    for (size_t i = 0; i < nsteps; i++)
        TRY(muon__checkpoint_remove(dir->root_fd, dir->root,
                                    muon__checkpoint_removing(steps[i]).text, 0));
    return MUON_OK;
}

/* Who saved it may not be quite done, and hold its lock: that is soon over. Others may remove it first,
 * because it looks like a leftover: so only who has the lock does. */
static muon_status remove_exchanged(checkpoint_dir *dir)
{
    int old = dir->old;
    if (old < 0) return muon__checkpoint_remove(dir->root_fd, dir->root, dir->saving.text, 0);
    lock_state lock = muon__directory_lock(old);
    for (int i = 0; i < SAVING_TRIES && lock == LOCK_OTHERS; i++) {
        rest(i);
        lock = muon__directory_lock(old);
    }
    int is_there = muon__directory_is(old, dir->root_fd, dir->saving.text);
    if (lock == LOCK_OTHERS || !is_there) return MUON_OK; /* the next save, or another one has */
    dir->old = -1;
    return muon__checkpoint_erase(dir->root_fd, dir->root, dir->saving.text, old);
}

/* The checkpoint is there, whatever goes wrong from here on. */
static muon_status settle(checkpoint_dir *dir, int is_exchanged, int keep)
{
    TRY(sync_root(dir));
    if (is_exchanged) TRY(remove_exchanged(dir));
    int64_t *steps = NULL;
    size_t nsteps = 0;
    TRY(muon__checkpoint_steps_at(&steps, &nsteps, dir->root_fd, dir->root, 1, NULL, NULL));
    int64_t newest;
    size_t nold = choose_old(dir, steps, nsteps, keep, &newest);
    muon_status status = point_latest(dir, newest);
    if (status == MUON_OK) status = remove_old(dir, steps, nold);
    free(steps);
    return status;
}

static muon_status commit(checkpoint_dir *dir, const checkpoint_marker *marker, int *is_exchanged)
{
    TRY(put_marker(dir, marker));
    REQUIRE(muon__sync_directory(dir->fd) == 0, E_IO, "%s/%s: syncing it failed: %s", dir->root,
            dir->saving.text, strerror(errno));
    return take_name(dir, is_exchanged);
}

muon_status muon__checkpoint_commit(checkpoint_dir *dir, const checkpoint_marker *marker, int keep)
{
    int is_exchanged;
    use_spares(dir);
    muon_status status = commit(dir, marker, &is_exchanged);
    if (status != MUON_OK) {
        muon__checkpoint_abort(dir);
        return status;
    }
    status = settle(dir, is_exchanged, keep);
    if (status != MUON_OK)
        muon__fail_in(status, "%s/%s: is complete, but", dir->root, dir->name.text);
    release(dir);
    return status;
}

/* Called on the way out of a failure, whose message is to stay. */
void muon__checkpoint_abort(checkpoint_dir *dir)
{
    if (!dir) return;
    shown_path message;
    snprintf(message.text, sizeof message.text, "%s", muon_last_error());
    use_spares(dir);
    if (muon__checkpoint_erase(dir->root_fd, dir->root, dir->saving.text, dir->fd) != MUON_OK)
        muon__fail(MUON_E_IO, "%s", message.text);
    dir->fd = -1;
    release(dir);
}
