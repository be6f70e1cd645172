/* The weights after a step. One file becomes params.safetensors; several keep their names and what is in
 * which of them, with an index, so that the result can be taken where the input was. */
#include "cli/core/launch.h"
#include "cli/step/data.h"

#include <stdlib.h>
#include <string.h>

static int is_split(const files *f)
{
    return f->count > 1 || f->index;
}

static const char *output_name(const files *f, size_t file)
{
    return is_split(f) ? files_name(f->list[file].path) : "params.safetensors";
}

int step_data_check_names(const step_data *data)
{
    static const char *const taken[] = {STEP_STATE, "copy.safetensors"};
    const files *f = &data->params;
    for (size_t i = 0; is_split(f) && i < f->count; i++) {
        const char *name = output_name(f, i);
        for (size_t k = 0; k < sizeof taken / sizeof taken[0]; k++)
            if (strcmp(name, taken[k]) == 0)
                return cli_fail("%s: a file of weights cannot be called '%s', as a result is",
                                f->list[i].path, name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(name, output_name(f, k)) == 0)
                return cli_fail("%s and %s have the same name, and so would the results",
                                f->list[k].path, f->list[i].path);
    }
    return CLI_DONE;
}

/* ---- tensors ------------------------------------------------------------------------------------- */

/* A file of tensors that all ranks have parts of and rank 0 writes. */
typedef struct step_file {
    muon_st_tensor *tensors; /* their data on rank 0 only */
    void **memory;           /* what was made for them */
    size_t count;
} step_file;

static void start_file(step_file *file, size_t most_tensors)
{
    *file = (step_file){cli_alloc(most_tensors, sizeof *file->tensors),
                        cli_alloc(most_tensors, sizeof *file->memory), 0};
}

static void add(step_file *file, const muon_st_tensor *tensor, const void *data, void *memory)
{
    file->tensors[file->count] = *tensor;
    file->tensors[file->count].data = data;
    file->memory[file->count++] = memory;
}

/* Collective. */
static void add_shards(step_file *file, const step_data *data, const muon_st_tensor *tensor,
                       size_t param, const void *shard)
{
    size_t size = tensor->bytes / (size_t)tensors_elements(tensor->ndim, tensor->shape);
    void *memory = NULL;
    const void *whole = shards_gather(&data->parts, param, shard, size, &memory);
    add(file, tensor, whole, memory);
}

/* What is frozen is written by rank 0 as it was read. */
static int add_frozen(step_file *file, const step_data *data, const muon_st_tensor *tensor,
                      size_t param)
{
    void *memory = NULL;
    if (launch_rank() == 0) DO(files_read(&memory, &data->params, param));
    add(file, tensor, memory, memory);
    return CLI_DONE;
}

/* Collective: writes the file if no rank has failed before (code). `from` is the file of weights whose
 * "format" it takes, the one entry that programs look for; "pt" says how they should read the tensors. */
static int finish_file(step_file *file, int code, const step_data *data, size_t from, outputs *out,
                       const char *name)
{
    muon_st_entry format = {"format", muon_st_get_metadata(data->params.list[from].st, "format")};
    code = launch_agree(code);
    if (code == CLI_DONE && launch_rank() == 0)
        code = outputs_add(out, name, file->tensors, file->count, &format, format.value ? 1 : 0);
    for (size_t i = 0; i < file->count; i++)
        free(file->memory[i]);
    free(file->memory);
    free(file->tensors);
    return launch_agree(code);
}

static int write_file(const step_data *data, size_t index, outputs *out)
{
    const files_one *from = &data->params.list[index];
    size_t count = muon_st_count(from->st);
    step_file file;
    start_file(&file, count);
    int code = CLI_DONE;
    for (size_t i = from->first; i < from->first + count; i++) {
        muon_st_tensor tensor;
        cli_must(files_get(&data->params, i, &tensor));
        if (data->buffers[i].param)
            add_shards(&file, data, &tensor, i, data->buffers[i].param); /* also after a failure */
        else if (code == CLI_DONE)
            code = add_frozen(&file, data, &tensor, i);
    }
    return finish_file(&file, code, data, index, out, output_name(&data->params, index));
}

static int write_copies(const step_data *data, outputs *out)
{
    step_file file;
    start_file(&file, data->cfg.nparams);
    for (size_t i = 0; i < data->cfg.nparams; i++) {
        muon_st_tensor tensor;
        if (!data->buffers[i].copy) continue;
        cli_must(files_get(&data->params, i, &tensor));
        tensor.dtype = "BF16";
        tensor.bytes = (size_t)tensors_elements(tensor.ndim, tensor.shape) * sizeof(uint16_t);
        add_shards(&file, data, &tensor, i, data->buffers[i].copy);
    }
    return finish_file(&file, CLI_DONE, data, 0, out, "copy.safetensors");
}

/* ---- the index ----------------------------------------------------------------------------------- */

/* {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}, with what else the index that was
 * read has. */
static json_t *make_index(const files *f)
{
    json_t *metadata = json_object(), *map = json_object();
    json_t *root = f->index ? json_copy(f->index) : json_object();
    json_int_t bytes = 0;
    for (size_t file = 0; file < f->count; file++) {
        for (size_t k = 0; k < muon_st_count(f->list[file].st); k++) {
            muon_st_tensor tensor;
            cli_must(files_get(f, f->list[file].first + k, &tensor));
            json_object_set_new(map, tensor.name, json_string(output_name(f, file)));
            bytes += (json_int_t)tensor.bytes;
        }
    }
    if (f->index) json_object_update(metadata, json_object_get(f->index, "metadata"));
    json_object_set_new(metadata, "total_size", json_integer(bytes));
    json_object_set_new(root, "metadata", metadata);
    json_object_set_new(root, "weight_map", map);
    return root;
}

static int write_index(const files *f, outputs *out)
{
    json_t *index = make_index(f);
    char *text = json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(index);
    if (!text) return cli_fail("out of memory");
    int code =
        outputs_add_text(out, f->index ? f->index_name : "model.safetensors.index.json", text);
    free(text);
    return code;
}

int step_data_write(const step_data *data, outputs *out)
{
    int copies = 0;
    for (size_t i = 0; i < data->cfg.nparams; i++)
        copies += data->buffers[i].copy != NULL;
    for (size_t file = 0; file < data->params.count; file++)
        DO(write_file(data, file, out));
    if (is_split(&data->params))
        DO(launch_agree(launch_rank() == 0 ? write_index(&data->params, out) : CLI_DONE));
    return copies ? write_copies(data, out) : CLI_DONE;
}
