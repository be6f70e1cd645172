/* scratch.h - a directory for a test's files, removed with all that is in it, and whole files. */
#ifndef TESTS_SUPPORT_SCRATCH_H
#define TESTS_SUPPORT_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct scratch {
    char path[512];
} scratch;

static inline int scratch_try(scratch *s, const char *base)
{
    if (!base || !*base) return 0;
    snprintf(s->path, sizeof s->path, "%s/muon-test-XXXXXX", base);
    return mkdtemp(s->path) != NULL;
}

/* Under $TMPDIR, or /tmp. */
static inline scratch scratch_make(void)
{
    scratch s;
    if (!scratch_try(&s, getenv("TMPDIR")) && !scratch_try(&s, "/tmp")) abort();
    return s;
}

/* In memory if there is such a place: thousands of small saves wear out nobody's patience there. */
static inline scratch scratch_make_quick(void)
{
    scratch s;
    if (!scratch_try(&s, getenv("TMPDIR")) && !scratch_try(&s, "/dev/shm")) return scratch_make();
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

static inline int scratch_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* All names in a directory, ordered, with a space between; "" if there are none, or no directory. */
static inline const char *names_in(const char *path)
{
    enum { MOST = 64, LENGTH = 128 };
    static char list[4096];
    char names[MOST][LENGTH];
    size_t n = 0, used = 0;
    DIR *dir = opendir(path);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (n == MOST || strlen(entry->d_name) >= LENGTH) abort();
        memcpy(names[n++], entry->d_name, strlen(entry->d_name) + 1);
    }
    if (dir) closedir(dir);
    qsort(names, n, LENGTH, scratch_compare);
    list[0] = '\0';
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, i ? " %s" : "%s", names[i]);
    if (used >= sizeof list) abort();
    return list;
}

/* How many names there are; -1: no directory. */
static inline int count_names(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) return -1;
    int count = -2; /* . and .. */
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* A file's bytes, a NUL behind them; NULL if it cannot be read. The caller frees it. */
static inline char *read_whole(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    *bytes = 0;
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = calloc(1, *bytes + 1);
    if (!data || fread(data, 1, *bytes, file) != *bytes) abort();
    fclose(file);
    return data;
}

static inline void write_whole(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) abort();
}

#endif
