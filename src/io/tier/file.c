#define _GNU_SOURCE /* O_TMPFILE, O_DIRECT */
#include "io/tier/parts.h"

#include "io/sync.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL_MAX ((size_t)1 << 30) /* bytes of one call: a multiple of every block */
#define SECTOR   ((size_t)4096)    /* the largest there is */

/* A file without a name, or one that loses it at once where the file system has no other. */
static int open_anonymous(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    size_t bytes = strlen(dir) + sizeof "/.muon-offload-XXXXXX";
    char *path = malloc(bytes);
    if (!path) {
        errno = ENOMEM;
        return -1;
    }
    snprintf(path, bytes, "%s/.muon-offload-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    int error = errno;
    if (fd >= 0) unlink(path);
    free(path);
    errno = error;
    return fd;
}

/* A disk that is too small is noticed now rather than in a stage. Where space cannot be promised the
 * file has the size all the same, so that what was never written reads as zeros. */
static muon_status set_size(const tier_file *f, size_t bytes)
{
    if (bytes == 0) return MUON_OK;
    off_t size = (off_t)bytes;
    REQUIRE(size > 0 && (size_t)size == bytes, E_IO, "%s: no file can have %zu bytes", f->dir,
            bytes);
    REQUIRE(muon__reserve(f->fd, size) == 0, E_IO,
            "%s: no space for an offload file of %zu bytes: %s", f->dir, bytes, strerror(errno));
    return MUON_OK;
}

/* Some file systems take the flag and refuse the first access, so only one that worked counts. What is
 * written is the zeros that are there already. */
static int try_direct(const tier_file *f, char *block, size_t block_bytes)
{
    int flags = fcntl(f->fd, F_GETFL);
    if (flags < 0 || fcntl(f->fd, F_SETFL, flags | O_DIRECT) != 0) return 0;
    if (pwrite(f->fd, block, block_bytes, 0) == (ssize_t)block_bytes &&
        pread(f->fd, block, block_bytes, 0) == (ssize_t)block_bytes)
        return 1;
    (void)fcntl(f->fd, F_SETFL, flags);
    return 0;
}

muon_status muon__tier_file_open(tier_file *f, const char *dir, size_t bytes, int cached,
                                 char *block, size_t block_bytes)
{
    tier_file opened = {.fd = -1};
    TRY(muon__strdup(&opened.dir, dir));
    opened.fd = open_anonymous(dir);
    muon_status status = MUON_OK;
    if (opened.fd < 0)
        status = muon__fail(MUON_E_IO, "%s: no offload file of %zu bytes can be created there: %s",
                            dir, bytes, strerror(errno));
    if (status == MUON_OK) status = set_size(&opened, bytes);
    if (status != MUON_OK) {
        muon__tier_file_close(&opened);
        return status;
    }
    opened.direct = !cached && bytes > 0 && try_direct(&opened, block, block_bytes);
    *f = opened;
    return MUON_OK;
}

void muon__tier_file_close(tier_file *f)
{
    if (f->fd >= 0) close(f->fd);
    free(f->dir);
    *f = (tier_file){.fd = -1};
}

/* O_DIRECT cannot go on in the middle of a sector: the rest of one that was cut is done again. */
static size_t progress(const tier_file *f, ssize_t n)
{
    return f->direct ? (size_t)n / SECTOR * SECTOR : (size_t)n;
}

muon_status muon__tier_file_read(const tier_file *f, void *data, size_t offset, size_t bytes)
{
    char *to = data;
    for (size_t got = 0; got < bytes;) {
        size_t some = bytes - got < CALL_MAX ? bytes - got : CALL_MAX;
        ssize_t n = pread(f->fd, to + got, some, (off_t)(offset + got));
        if (n < 0 && errno == EINTR) continue;
        REQUIRE(n >= 0, E_IO, "%s: reading %zu bytes at %zu of the offload file failed: %s", f->dir,
                bytes - got, offset + got, strerror(errno));
        size_t done = progress(f, n);
        REQUIRE(done > 0, E_IO, "%s: the offload file ends at %zu, with %zu bytes to go", f->dir,
                offset + got, bytes - got);
        got += done;
    }
    return MUON_OK;
}

muon_status muon__tier_file_write(const tier_file *f, const void *data, size_t offset, size_t bytes)
{
    const char *from = data;
    for (size_t put = 0; put < bytes;) {
        size_t some = bytes - put < CALL_MAX ? bytes - put : CALL_MAX;
        ssize_t n = pwrite(f->fd, from + put, some, (off_t)(offset + put));
        if (n < 0 && errno == EINTR) continue;
        REQUIRE(n >= 0, E_IO, "%s: writing %zu bytes at %zu of the offload file failed: %s", f->dir,
                bytes - put, offset + put, strerror(errno));
        size_t done = progress(f, n);
        REQUIRE(done > 0, E_IO, "%s: writing stopped at %zu of the offload file, %zu bytes to go",
                f->dir, offset + put, bytes - put);
        put += done;
    }
    return MUON_OK;
}
