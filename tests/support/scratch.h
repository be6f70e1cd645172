/* scratch.h - a directory for a test's files, removed with all that is in it. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct scratch {
    char path[512];
} scratch;

/* Under $TMPDIR, or /tmp. */
static inline scratch scratch_make(void)
{
    scratch s;
    const char *base = getenv("TMPDIR");
    snprintf(s.path, sizeof s.path, "%s/muon-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(s.path)) abort();
    return s;
}

static inline void scratch_remove_tree(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0) return;
    if (!S_ISDIR(info.st_mode)) {
        unlink(path);
        return;
    }
    DIR *dir = opendir(path);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        char child[1024];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        int n = snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (n > 0 && (size_t)n < sizeof child) scratch_remove_tree(child);
    }
    if (dir) closedir(dir);
    rmdir(path);
}

static inline void scratch_remove(const scratch *s)
{
    scratch_remove_tree(s->path);
}

#endif
