#define _GNU_SOURCE /* renameat2, fallocate */
#include "tests/io/file_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORDS = 1000 };

static struct {
    int is_on, dies, only_directories, records;
    long made, chosen;
    int error;
    const char *always; /* a name */
    size_t write_most;  /* 0: any */
    const char *before; /* a name */
    int before_left;
    void (*other)(void);
} now;

static const char *failed = "";
static file_call recorded[RECORDS];
static size_t nrecorded;

#define START(...)                                                                                 \
    do {                                                                                           \
        memset(&now, 0, sizeof now);                                                               \
        failed = "";                                                                               \
        __VA_ARGS__;                                                                               \
        now.is_on = 1;                                                                             \
    } while (0)

void calls_count(void)
{
    START();
}

void calls_die_before(long k)
{
    START(now.dies = 1, now.chosen = k);
}

void calls_fail(long k, int error)
{
    START(now.chosen = k, now.error = error);
}

void calls_fail_always(const char *call, int error)
{
    START(now.always = call, now.error = error);
}

void calls_fail_directories(const char *call, int error)
{
    START(now.always = call, now.error = error, now.only_directories = 1);
}

void calls_write_bytes(size_t most)
{
    START(now.write_most = most);
}

void calls_meanwhile(const char *call, int k, void (*other)(void))
{
    START(now.before = call, now.before_left = k, now.other = other);
}

void calls_record(void)
{
    START(now.records = 1);
    nrecorded = 0;
}

long calls_end(void)
{
    now.is_on = 0;
    return now.made;
}

const char *calls_failed(void)
{
    return failed;
}

size_t calls_recorded(const file_call **calls)
{
    *calls = recorded;
    return nrecorded;
}

int __real_fstat(int fd, struct stat *info);

/* fd: the one that the call is about, or -1. */
static int fails(const char *call, int fd)
{
    if (!now.is_on) return 0;
    now.made++;
    if (now.before && !strcmp(call, now.before) && --now.before_left == 0) {
        now.is_on = 0;
        now.other();
        now.is_on = 1;
    }
    int is_it = now.chosen > 0 ? now.made == now.chosen : now.always && !strcmp(call, now.always);
    if (is_it && now.only_directories) {
        struct stat info;
        is_it = __real_fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
    }
    if (!is_it) return 0;
    if (now.dies) _exit(CALLS_DIED);
    failed = call;
    errno = now.error;
    return 1;
}

static void record(const char *call, int fd, const char *name, const char *to)
{
    if (!now.is_on || !now.records || nrecorded == RECORDS) return;
    int error = errno;
    struct stat info = {0};
    __real_fstat(fd, &info);
    file_call *r = &recorded[nrecorded++];
    r->call = call;
    r->file = info.st_ino;
    snprintf(r->name, sizeof r->name, "%s", name ? name : "");
    snprintf(r->to, sizeof r->to, "%s", to ? to : "");
    errno = error;
}

/* A call that returns 0, or -1 and errno. */
#define WRAP(name, parameters, arguments, fd, from, to)                                            \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        int result = fails(#name, fd) ? -1 : __real_##name arguments;                              \
        if (result == 0) record(#name, fd, from, to);                                              \
        return result;                                                                             \
    }

WRAP(mkdir, (const char *path, mode_t mode), (path, mode), -1, path, NULL)
WRAP(mkdirat, (int dir, const char *name, mode_t mode), (dir, name, mode), dir, name, NULL)
WRAP(fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes), fd, NULL, NULL)
WRAP(ftruncate, (int fd, off_t bytes), (fd, bytes), fd, NULL, NULL)
WRAP(flock, (int fd, int how), (fd, how), fd, NULL, NULL)
WRAP(renameat, (int dir, const char *from, int dir2, const char *to), (dir, from, dir2, to), dir,
     from, to)
WRAP(renameat2, (int dir, const char *from, int dir2, const char *to, unsigned flags),
     (dir, from, dir2, to, flags), dir, from, to)
WRAP(symlinkat, (const char *target, int dir, const char *name), (target, dir, name), dir, name,
     target)
WRAP(unlinkat, (int dir, const char *name, int flags), (dir, name, flags), dir, name, NULL)
WRAP(fstatat, (int dir, const char *name, struct stat *info, int flags), (dir, name, info, flags),
     dir, name, NULL)

/* Nothing is synced: a process that dies takes nothing with it that the system already has, and
 * disks are slow. */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    if (fails("fsync", fd)) return -1;
    record("fsync", fd, NULL, NULL);
    return 0;
}

/* The recorder itself uses it: no record. */
int __wrap_fstat(int fd, struct stat *info);
int __wrap_fstat(int fd, struct stat *info)
{
    return fails("fstat", fd) ? -1 : __real_fstat(fd, info);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    return fails("open", -1) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    int fd = fails("openat", dir) ? -1 : __real_openat(dir, name, flags, mode);
    if (fd >= 0 && flags & O_CREAT) record("create", dir, name, NULL);
    return fd;
}

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    if (fails("write", fd)) return -1;
    if (now.is_on && now.write_most > 0 && bytes > now.write_most) bytes = now.write_most;
    ssize_t put = __real_write(fd, data, bytes);
    if (put >= 0) record("write", fd, NULL, NULL);
    return put;
}

ssize_t __real_read(int fd, void *data, size_t bytes);
ssize_t __wrap_read(int fd, void *data, size_t bytes);
ssize_t __wrap_read(int fd, void *data, size_t bytes)
{
    return fails("read", fd) ? -1 : __real_read(fd, data, bytes);
}

/* Closes all the same, as Linux does. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    int is_failing = fails("close", fd);
    int error = errno;
    int result = __real_close(fd);
    if (!is_failing) return result;
    errno = error;
    return -1;
}

DIR *__real_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd)
{
    return fails("fdopendir", fd) ? NULL : __real_fdopendir(fd);
}

struct dirent *__real_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir)
{
    return fails("readdir", -1) ? NULL : __real_readdir(dir);
}
