#include "io/replace.h"

#include "base/memory.h"
#include "io/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMP_TRIES 1000 /* names left behind by killed processes with our number */

static muon_status check_target(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        REQUIRE(errno == ENOENT, E_IO, "%s: %s", path, strerror(errno));
        return MUON_OK;
    }
    REQUIRE(!S_ISDIR(info.st_mode), E_IO, "%s: is a directory", path);
    REQUIRE(S_ISREG(info.st_mode), E_IO, "%s: is not a regular file", path);
    return MUON_OK;
}

/* "a/b" -> "a/", "b" -> "." */
static muon_status open_directory(int *out, const char *path, const char *base)
{
    char *name = NULL;
    TRY(muon__strdup(&name, base > path ? path : "."));
    if (base > path) name[base - path] = '\0';
    int dir = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = errno;
    free(name);
    REQUIRE(dir >= 0, E_IO, "%s: its directory cannot be opened: %s", path, strerror(error));
    *out = dir;
    return MUON_OK;
}

/* Another thread has another counter, another process another number; whatever is there under the
 * name all the same is not touched. */
static int create_temp(replacement *r)
{
    static atomic_uint counter;
    for (int i = 0; i < TEMP_TRIES; i++) {
        snprintf(r->temp, sizeof r->temp, ".muon-%ld-%u.tmp", (long)getpid(),
                 atomic_fetch_add(&counter, 1));
        int fd = openat(r->dir, r->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

muon_status muon__replace_begin(replacement *r, const char *path)
{
    const char *slash = strrchr(path, '/');
    replacement begun = {.path = path, .base = slash ? slash + 1 : path};
    REQUIRE(begun.base[0] != '\0', E_IO, "'%s': not the name of a file", path);
    TRY(check_target(path));
    TRY(open_directory(&begun.dir, path, begun.base));
    begun.fd = create_temp(&begun);
    if (begun.fd < 0) {
        int error = errno;
        close(begun.dir);
        FAIL(E_IO, "%s: no temporary file can be created beside it: %s", path, strerror(error));
    }
    *r = begun;
    return MUON_OK;
}

muon_status muon__replace_write(replacement *r, const void *data, size_t bytes)
{
    return muon__write_all(r->fd, data, bytes, r->path);
}

muon_status muon__replace_commit(replacement *r)
{
    const char *failed = NULL;
    if (muon__sync_file(r->fd) != 0) failed = "syncing it failed";
    if (!failed) {
        int closed = close(r->fd);
        r->fd = -1;
        if (closed != 0 && errno != EINTR) failed = "closing it failed";
    }
    if (!failed && renameat(r->dir, r->temp, r->dir, r->base) != 0)
        failed = "renaming to it failed";
    if (failed) {
        int error = errno;
        muon__replace_abort(r);
        FAIL(E_IO, "%s: %s: %s", r->path, failed, strerror(error));
    }
    int synced = muon__sync_directory(r->dir) == 0;
    int error = errno;
    close(r->dir);
    REQUIRE(synced, E_IO, "%s: is complete, but syncing its directory failed: %s", r->path,
            strerror(error));
    return MUON_OK;
}

void muon__replace_abort(replacement *r)
{
    if (r->fd >= 0) close(r->fd);
    unlinkat(r->dir, r->temp, 0);
    close(r->dir);
}
