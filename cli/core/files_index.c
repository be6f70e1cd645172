/* model.safetensors.index.json, as Hugging Face has it: "weight_map" says in which file of the folder
 * every tensor is. It is written by others, so nothing outside its folder is opened. */
#include "cli/config/node.h"
#include "cli/core/files.h"
#include "cli/core/grow.h"
#include "cli/core/names.h"

#include <stdlib.h>
#include <string.h>

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
        *out = grow(*out, *count, sizeof **out);
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
        int code = files_add(f, full);
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

int files_add_index(files *f, const char *path)
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
