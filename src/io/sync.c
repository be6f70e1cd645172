#define _GNU_SOURCE /* fallocate, sync_file_range */

#include "io/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define WRITE_MAX ((size_t)1 << 30) /* bytes of one call */

muon_status muon__write_all(int fd, const void *data, size_t bytes, const char *path)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t put = write(fd, from, bytes < WRITE_MAX ? bytes : WRITE_MAX);
        if (put < 0 && errno == EINTR) continue;
        REQUIRE(put >= 0, E_IO, "%s: writing failed with %zu bytes to go: %s", path, bytes,
                strerror(errno));
        REQUIRE(put > 0, E_IO, "%s: writing stopped with %zu bytes to go", path, bytes);
        from += put;
        bytes -= (size_t)put;
    }
    return MUON_OK;
}

int muon__reserve(int fd, int64_t bytes)
{
    int result;
    if (bytes == 0) return 0;
    do
        result = fallocate(fd, 0, 0, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        result = ftruncate(fd, (off_t)bytes);
    return result;
}

void muon__sync_begin(int fd, int64_t offset, int64_t bytes)
{
    if (bytes > 0) (void)sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

int muon__sync_file(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

int muon__sync_directory(int fd)
{
    return muon__sync_file(fd) == 0 || errno == EINVAL ? 0 : -1;
}
