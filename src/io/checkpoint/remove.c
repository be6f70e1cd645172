/* Removing what is no checkpoint any more, or never became one. Who saves holds the lock of the
 * directory, and the lock ends with the process: what can be locked has no owner. */
#include "io/checkpoint/parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Directories */

static muon_status walk(DIR *stream, const char *path, visit_fn *visit, void *user)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry) {
            REQUIRE(errno == 0, E_IO, "%s: reading it failed: %s", path, strerror(errno));
            return MUON_OK;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            TRY(visit(user, dirfd(stream), entry->d_name));
    }
}

muon_status muon__each_name(int dir, const char *path, visit_fn *visit, void *user)
{
    /* A stream keeps the descriptor, and its place in the directory: it gets one of its own. */
    int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = own >= 0 ? fdopendir(own) : NULL;
    if (!stream) {
        int error = errno;
        if (own >= 0) close(own);
        FAIL(E_IO, "%s: %s", path, strerror(error));
    }
    muon_status status = walk(stream, path, visit, user);
    closedir(stream);
    return status;
}

lock_state muon__directory_lock(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return LOCK_OURS;
    return errno == EWOULDBLOCK ? LOCK_OTHERS : LOCK_UNKNOWN;
}

int muon__directory_open(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int muon__directory_is(int fd, int dir, const char *name)
{
    struct stat opened;
    struct stat named;
    return fstat(fd, &opened) == 0 && fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* ---- Removing */

static muon_status visit_removed(void *user, int dir, const char *name)
{
    const char *const *path = user;
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) return MUON_OK;
    int error = errno;
    int inner = error == EISDIR || error == EPERM ? muon__directory_open(dir, name) : -1;
    REQUIRE(inner >= 0, E_IO, "%s/%s: cannot be removed: %s", *path, name, strerror(error));
    return muon__checkpoint_erase(dir, *path, name, inner);
}

static muon_status erase(int root, const char *name, DIR *stream, const char *shown)
{
    TRY(walk(stream, shown, visit_removed, &shown));
    REQUIRE(unlinkat(root, name, AT_REMOVEDIR) == 0 || errno == ENOENT, E_IO,
            "%s: cannot be removed: %s", shown, strerror(errno));
    return MUON_OK;
}

/* Without one more descriptor, so that also a process that has no more leaves nothing. It is closed,
 * and a lock of it ends, when the name is gone. */
muon_status muon__checkpoint_erase(int root, const char *path, const char *name, int dir)
{
    char shown[MUON__MESSAGE_MAX]; /* as much of it as a message holds */
    snprintf(shown, sizeof shown, "%s/%s", path, name);
    DIR *stream = fdopendir(dir);
    if (!stream) {
        int error = errno;
        close(dir);
        FAIL(E_IO, "%s: cannot be removed: %s", shown, strerror(error));
    }
    muon_status status = erase(root, name, stream, shown);
    closedir(stream);
    return status;
}

/* Between opening and locking, its owner may have completed it: then it has another name. */
muon_status muon__checkpoint_remove(int root, const char *path, const char *name, int needs_lock)
{
    int dir = muon__directory_open(root, name);
    if (dir < 0) {
        REQUIRE(errno == ENOENT, E_IO, "%s/%s: cannot be removed: %s", path, name, strerror(errno));
        return MUON_OK;
    }
    lock_state lock = muon__directory_lock(dir);
    int may_go = lock == LOCK_OURS || (lock == LOCK_UNKNOWN && !needs_lock);
    if (may_go && muon__directory_is(dir, root, name))
        return muon__checkpoint_erase(root, path, name, dir);
    close(dir);
    return MUON_OK;
}

/* ---- Cleaning */

/* The step of a name that is this prefix and a checkpoint's name; -1 for any other. */
static int64_t step_behind(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) != 0 ? -1 : muon__checkpoint_step_of(name + length);
}

/* A link has no lock of its own: its owner holds the checkpoint's. */
static int link_has_owner(int root, int64_t step)
{
    int dir = muon__directory_open(root, muon__checkpoint_name(step).text);
    if (dir < 0) return 0;
    int has_owner = muon__directory_lock(dir) != LOCK_OURS;
    close(dir);
    return has_owner;
}

static muon_status visit_leftover(void *user, int root, const char *name)
{
    const char *const *path = user;
    int64_t link = step_behind(name, LINK_PREFIX);
    if (step_behind(name, SAVING_PREFIX) >= 0)
        muon__checkpoint_remove(root, *path, name, 1);
    else if (step_behind(name, REMOVING_PREFIX) >= 0)
        muon__checkpoint_remove(root, *path, name, 0);
    else if (link >= 0 && !link_has_owner(root, link))
        unlinkat(root, name, 0);
    return MUON_OK;
}

void muon__checkpoint_clean(int root, const char *path)
{
    muon__each_name(root, path, visit_leftover, &path);
}
