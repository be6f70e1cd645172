/* file_calls.h - the system calls that change files, between the library and the system (--wrap):
 * the process dies before one of them, one fails, or all are recorded. */
#ifndef TESTS_IO_FILE_CALLS_H
#define TESTS_IO_FILE_CALLS_H

#include <stddef.h>
#include <sys/types.h>

/* From now on, and only until calls_end: */
void calls_count(void);                                   /* nothing but counting */
void calls_die_before(long k);                            /* the k-th: _exit(CALLS_DIED) */
void calls_fail(long k, int error);                       /* the k-th fails */
void calls_fail_always(const char *call, int error);      /* each of this name fails */
void calls_fail_directories(const char *call, int error); /* only if it is about a directory */
void calls_write_bytes(size_t most); /* each write takes so many bytes at most */
void calls_meanwhile(const char *call, int k, void (*other)(void)); /* before the k-th of a name */
void calls_record(void);

/* How many there were; and of the one that failed, the name, or "". */
long calls_end(void);
const char *calls_failed(void);

enum { CALLS_DIED = 77 };

/* What was recorded: calls that changed something and succeeded, and fsync. */
typedef struct file_call {
    const char *call;
    ino_t file;            /* of a descriptor: what it is open on, or the directory of `name` */
    char name[64], to[64]; /* of a name in a directory; of renames, what it became */
} file_call;

size_t calls_recorded(const file_call **calls);

#endif
