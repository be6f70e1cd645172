#define _GNU_SOURCE /* madvise */
#include "cli/core/files.h"

#include "cli/config/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one tensor --------------------------------------------------------------------------------- */

int tensors_open(muon_st **out, const char *path)
{
    return muon_st_open(out, path) == MUON_OK ? CLI_DONE : cli_fail_library();
}

int tensors_get(const muon_st *file, size_t index, muon_st_tensor *out)
{
    return muon_st_get(file, index, out, sizeof *out) == MUON_OK ? CLI_DONE : cli_fail_library();
}

int64_t tensors_elements(int ndim, const int64_t *shape)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    return count;
}

json_t *tensors_json(int ndim, const int64_t *shape)
{
    json_t *list = json_array();
    for (int d = 0; d < ndim; d++)
        json_array_append_new(list, json_integer(shape[d]));
    return list;
}

int tensors_same_shape(const muon_st_tensor *tensor, int ndim, const int64_t *shape)
{
    if (tensor->ndim != ndim) return 0;
    for (int d = 0; d < ndim; d++)
        if (tensor->shape[d] != shape[d]) return 0;
    return 1;
}

const char *tensors_shape_text(tensors_shape *out, int ndim, const int64_t *shape)
{
    size_t used = 0;
    snprintf(out->text, sizeof out->text, "scalar");
    for (int d = 0; d < ndim && used < sizeof out->text; d++)
        used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%lld", d ? "x" : "",
                                 (long long)shape[d]);
    return out->text;
}

/* Large blocks are huge pages where the system has them: a pass over memory then misses fewer
 * translations. */
void *tensors_alloc(size_t bytes)
{
    const size_t line = 64, page = (size_t)2 << 20, align = bytes < 2 * page ? line : page;
    size_t rounded = bytes <= SIZE_MAX - align ? (bytes / align + 1) * align : 0;
    void *memory = rounded ? aligned_alloc(align, rounded) : NULL;
    if (!memory) {
        cli_fail("out of memory: %zu bytes", bytes);
        exit(CLI_FAILED);
    }
    if (align == page) (void)madvise(memory, rounded, MADV_HUGEPAGE);
    return memory;
}

int tensors_read(void **out, muon_st *file, size_t index)
{
    muon_st_tensor tensor;
    DO(tensors_get(file, index, &tensor));
    void *data = tensors_alloc(tensor.bytes);
    if (muon_st_read(file, index, data, tensor.bytes) != MUON_OK) {
        free(data);
        return cli_fail_library();
    }
    *out = data;
    return CLI_DONE;
}

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

static int add_file(files *f, const char *path)
{
    muon_st *st = NULL;
    DO(tensors_open(&st, path));
    f->list = cli_grow(f->list, f->count, sizeof *f->list);
    f->list[f->count++] = (files_one){st, cli_format("%s", path), f->ntensors};
    f->ntensors += muon_st_count(st);
    return CLI_DONE;
}

/* ---- an index ----------------------------------------------------------------------------------- */

/* model.safetensors.index.json, as Hugging Face has it: "weight_map" says in which file of the folder
 * every tensor is. It is written by others, so nothing outside its folder is opened. */

/* Every tensor of the index must be in its file, and every other one in the index. */
static int check_tensors(const files *f, const char *path, json_t *map, size_t first)
{
    names_list absent = {0}, extra = {0};
    const char *name;
    json_t *file;
    json_object_foreach(map, name, file)
    {
        for (size_t i = first; i < f->count; i++) {
            if (strcmp(files_name(f->list[i].path), json_string_value(file)) != 0) continue;
            if (muon_st_find(f->list[i].st, name) < 0) {
                char *text = cli_format("%s (%s)", name, json_string_value(file));
                names_add(&absent, text);
                free(text);
            }
        }
    }
    for (size_t i = first; i < f->count; i++) {
        for (size_t k = 0; k < muon_st_count(f->list[i].st); k++) {
            muon_st_tensor tensor;
            DO(tensors_get(f->list[i].st, k, &tensor));
            const char *where = json_string_value(json_object_get(map, tensor.name));
            if (where && strcmp(where, files_name(f->list[i].path)) == 0) continue;
            char *text = cli_format("%s (%s)", tensor.name, files_name(f->list[i].path));
            names_add(&extra, text);
            free(text);
        }
    }
    if (absent.count)
        return cli_fail("%s: tensors that are not in their files: %s", path, names_text(&absent));
    if (extra.count)
        return cli_fail("%s: tensors in files that it does not name: %s", path, names_text(&extra));
    return CLI_DONE;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of the files, each once, sorted. */
static int list_files(const node *map, const char ***out, size_t *count)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map->value, tensor, value)
    {
        node at = {value, map, tensor, 0};
        if (!json_is_string(value)) return node_fail_type(&at, "a string");
        const char *name = json_string_value(value);
        if (!*name || strchr(name, '/') || name[0] == '.')
            return node_fail(&at, "'%s' is not the name of a file beside the index", name);
        *out = cli_grow(*out, *count, sizeof **out);
        (*out)[(*count)++] = name;
    }
    if (!*count) return node_fail(map, "is empty");
    qsort(*out, *count, sizeof **out, by_text);
    size_t kept = 1;
    for (size_t i = 1; i < *count; i++)
        if (strcmp((*out)[i], (*out)[kept - 1]) != 0) (*out)[kept++] = (*out)[i];
    *count = kept;
    return CLI_DONE;
}

static int add_all(files *f, const char *path, const char **names, size_t count)
{
    int folder = (int)(files_name(path) - path);
    for (size_t i = 0; i < count; i++) {
        char *full = cli_format("%.*s%s", folder, path, names[i]);
        int code = add_file(f, full);
        free(full);
        DO(code);
    }
    return CLI_DONE;
}

/* Keys that are not known here are somebody else's business. */
static int read_index(files *f, const char *path, json_t *root)
{
    node at = {root, NULL, path, 0};
    node metadata = {json_object_get(root, "metadata"), &at, "metadata", 0};
    node map = {json_object_get(root, "weight_map"), &at, "weight_map", 0};
    if (!json_is_object(root)) return node_fail_type(&at, "an object");
    if (!map.value) return node_fail(&at, "the key 'weight_map' is missing");
    if (!json_is_object(map.value)) return node_fail_type(&map, "an object");
    if (metadata.value && !json_is_object(metadata.value))
        return node_fail_type(&metadata, "an object");
    const char **names = NULL;
    size_t count = 0, first = f->count;
    int code = list_files(&map, &names, &count);
    if (code == CLI_DONE) code = add_all(f, path, names, count);
    if (code == CLI_DONE) code = check_tensors(f, path, map.value, first);
    free(names);
    return code;
}

static int add_index(files *f, const char *path)
{
    json_t *root = NULL;
    DO(node_load(&root, path));
    int code = read_index(f, path, root);
    if (code != CLI_DONE || f->index) {
        json_decref(root);
        return code;
    }
    f->index = root;
    f->index_name = cli_format("%s", files_name(path));
    return CLI_DONE;
}

/* ---- all kinds of names ------------------------------------------------------------------------- */

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
        code = add_index(f, index);
    else if (access(single, F_OK) == 0)
        code = add_file(f, single);
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
    return ends_with(path, ".json") ? add_index(f, path) : add_file(f, path);
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
        paths = cli_grow(paths, count, sizeof *paths);
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
