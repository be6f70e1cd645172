#include "cli/core/files.h"

#include "cli/core/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- tensors of all files ---------------------------------------------------------------------- */

static const files_one *file_of(const files *f, size_t index)
{
    size_t low = 0, high = f->count; /* the last file whose first is not behind it, and not empty */
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(f->list[middle].first <= index ? &low : &high) = middle;
    }
    return &f->list[low];
}

int files_get(const files *f, size_t index, muon_st_tensor *out)
{
    const files_one *one = file_of(f, index);
    return tensors_get(one->st, index - one->first, out);
}

int files_read(void **out, const files *f, size_t index)
{
    const files_one *one = file_of(f, index);
    return tensors_read(out, one->st, index - one->first);
}

int files_read_part(const files *f, size_t index, size_t offset, void *data, size_t bytes)
{
    const files_one *one = file_of(f, index);
    return muon_st_read_part(one->st, index - one->first, (int64_t)offset, data, bytes) == MUON_OK
               ? CLI_DONE
               : cli_fail_library();
}

static const char *name_at(const files *f, size_t index)
{
    muon_st_tensor tensor;
    cli_must(files_get(f, index, &tensor));
    return tensor.name;
}

int64_t files_find(const files *f, const char *name)
{
    size_t low = 0, high = f->ntensors;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name_at(f, f->by_name[middle]), name);
        if (order == 0) return (int64_t)f->by_name[middle];
        *(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
    }
    return -1;
}

typedef struct named {
    const char *name;
    size_t index;
} named;

static int by_name(const void *a, const void *b)
{
    const named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Sorts the names, of which none may be there twice. */
static int sort_names(files *f)
{
    named *sorted = cli_alloc(f->ntensors, sizeof *sorted);
    int code = CLI_DONE;
    for (size_t i = 0; i < f->ntensors; i++)
        sorted[i] = (named){name_at(f, i), i};
    if (f->ntensors) qsort(sorted, f->ntensors, sizeof *sorted, by_name);
    f->by_name = cli_alloc(f->ntensors, sizeof *f->by_name);
    for (size_t i = 0; i < f->ntensors && code == CLI_DONE; i++) {
        f->by_name[i] = sorted[i].index;
        if (i > 0 && strcmp(sorted[i - 1].name, sorted[i].name) == 0)
            code =
                cli_fail("tensor '%s' is in %s and in %s", sorted[i].name,
                         file_of(f, sorted[i - 1].index)->path, file_of(f, sorted[i].index)->path);
    }
    free(sorted);
    return code;
}

/* ---- opening ----------------------------------------------------------------------------------- */

const char *files_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

int files_add(files *f, const char *path)
{
    muon_st *st = NULL;
    DO(tensors_open(&st, path));
    f->list = grow(f->list, f->count, sizeof *f->list);
    f->list[f->count++] = (files_one){st, cli_format("%s", path), f->ntensors};
    f->ntensors += muon_st_count(st);
    return CLI_DONE;
}

static int is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);
    return length >= n && strcmp(text + length - n, end) == 0;
}

/* By the names that the ecosystem has agreed on. */
static int add_folder(files *f, const char *folder)
{
    char *index = cli_format("%s/model.safetensors.index.json", folder);
    char *single = cli_format("%s/model.safetensors", folder);
    int code;
    if (access(index, F_OK) == 0)
        code = files_add_index(f, index);
    else if (access(single, F_OK) == 0)
        code = files_add(f, single);
    else
        code =
            cli_fail("%s: has neither model.safetensors.index.json nor model.safetensors", folder);
    free(index);
    free(single);
    return code;
}

static int add(files *f, const char *path)
{
    if (is_folder(path)) return add_folder(f, path);
    return ends_with(path, ".json") ? files_add_index(f, path) : files_add(f, path);
}

static void forget_index(files *f)
{
    json_decref(f->index);
    free(f->index_name);
    f->index = NULL;
    f->index_name = NULL;
}

int files_open_all(files *out, char **paths, size_t npaths)
{
    *out = (files){.count = 0};
    int code = CLI_DONE;
    for (size_t i = 0; i < npaths && code == CLI_DONE; i++)
        code = add(out, paths[i]);
    if (npaths > 1) forget_index(out);
    if (code == CLI_DONE) code = sort_names(out);
    if (code != CLI_DONE) files_close(out);
    return code;
}

/* A name that exists is one name, whatever commas it has. */
int files_open(files *out, const char *text)
{
    char *copy = cli_format("%s", text), **paths = NULL;
    size_t count = 0;
    int one = access(text, F_OK) == 0;
    for (char *path = copy, *comma; path; path = comma) {
        comma = one ? NULL : strchr(path, ',');
        if (comma) *comma++ = '\0';
        paths = grow(paths, count, sizeof *paths);
        paths[count++] = path;
    }
    int code = files_open_all(out, paths, count);
    free(paths);
    free(copy);
    return code;
}

void files_close(files *f)
{
    for (size_t i = 0; i < f->count; i++) {
        muon_st_close(f->list[i].st);
        free(f->list[i].path);
    }
    free(f->list);
    free(f->by_name);
    forget_index(f);
    *f = (files){.count = 0};
}
