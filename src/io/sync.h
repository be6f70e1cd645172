/* sync.h - writing all bytes to a file, and syncing them to the disk. */
#ifndef IO_SYNC_H
#define IO_SYNC_H

#include "base/status.h"

/* All bytes, in as many calls as that takes. path is for the message. */
muon_status muon__write_all(int fd, const void *data, size_t bytes, const char *path);

/* Gives the file this size and, as far as the file system can promise it, the room on the disk. 0,
 * or -1 and errno. */
int muon__reserve(int fd, int64_t bytes);

/* The system begins to write these bytes to the disk, so that less is left for the sync. A hint:
 * whether it can be followed does not matter. */
void muon__sync_begin(int fd, int64_t offset, int64_t bytes);

/* 0, or -1 and errno. */
int muon__sync_file(int fd);
/* The names in it. A file system that does not know of syncing directories is no failure. */
int muon__sync_directory(int fd);

#endif
