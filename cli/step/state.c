/* The state of an optimizer in a file: <param>.momentum_buffer, .exp_avg, .exp_avg_sq, .step. */
#include "cli/core/launch.h"
#include "cli/core/names.h"
#include "cli/step/data.h"
#include "cli/step/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char format_name[] = "muon-state", format_version[] = "1";

static const char *dtype_word(muon_dtype dtype)
{
    switch (dtype) {
    case MUON_F32:
        return "F32";
    case MUON_BF16:
        return "BF16";
    case MUON_I64:
        return "I64";
    case MUON_NONE:
        break;
    }
    return "none";
}

/* A tensor of the state, and what it is as a whole: a rank may have a part of it only. */
typedef struct state_tensor {
    muon_tensor mine;
    size_t param;
    muon_st_tensor whole; /* without data */
} state_tensor;

static state_tensor get(muon_opt *opt, const step_data *data, size_t index)
{
    state_tensor t = {.param = 0};
    if (muon_state_get(opt, index, &t.mine, sizeof t.mine) != MUON_OK) cli_must(cli_fail_library());
    const char *name = t.mine.name;
    char *param = cli_format("%.*s", (int)(strrchr(name, '.') - name), name);
    t.param = (size_t)files_find(&data->params, param); /* the parameter's index too */
    free(param);

    const muon_param *p = &data->cfg.params[t.param];
    t.whole = (muon_st_tensor){.name = name, .dtype = dtype_word(t.mine.dtype)};
    if (t.mine.dtype != MUON_I64) { /* the counter of steps is a scalar */
        t.whole.ndim = p->ndim;
        memcpy(t.whole.shape, p->shape, sizeof t.whole.shape);
    }
    size_t size = t.mine.dtype == MUON_BF16 ? 2 : t.mine.dtype == MUON_F32 ? 4 : 8;
    t.whole.bytes = (size_t)tensors_elements(&t.whole) * size;
    return t;
}

static int check_format(const muon_st *file, const char *path)
{
    const char *name = muon_st_get_metadata(file, "format");
    const char *version = muon_st_get_metadata(file, "format_version");
    if (!name || strcmp(name, format_name) != 0)
        return CLI_DONE; /* somebody else's: by its names */
    if (version && strcmp(version, format_version) == 0) return CLI_DONE;
    return cli_fail("%s: state format %s, this muonctl reads %s", path,
                    version ? version : "unknown", format_version);
}

/* Finds a tensor in the file, or notes what is wrong with it. */
static int match(const muon_st_tensor *want, const muon_st *file, names_list *absent,
                 names_list *different)
{
    muon_st_tensor got;
    int64_t at = muon_st_find(file, want->name);
    if (at < 0) {
        names_add(absent, want->name);
        return CLI_DONE;
    }
    DO(tensors_get(file, (size_t)at, &got));
    if (tensors_same_shape(&got, want->ndim, want->shape) && strcmp(got.dtype, want->dtype) == 0)
        return CLI_DONE;
    tensors_shape a, b;
    char *text = cli_format("%s (%s %s, the optimizer has %s %s)", want->name, got.dtype,
                            tensors_shape_text(&a, got.ndim, got.shape), want->dtype,
                            tensors_shape_text(&b, want->ndim, want->shape));
    names_add(different, text);
    free(text);
    return CLI_DONE;
}

static int is_state(muon_opt *opt, const char *name)
{
    muon_tensor tensor;
    for (size_t i = 0; i < muon_state_count(opt); i++)
        if (muon_state_get(opt, i, &tensor, sizeof tensor) == MUON_OK &&
            strcmp(tensor.name, name) == 0)
            return 1;
    return 0;
}

static int check_names(muon_opt *opt, const step_data *data, const muon_st *file, const char *path)
{
    names_list absent = {0}, different = {0}, strange = {0};
    for (size_t i = 0; i < muon_state_count(opt); i++) {
        state_tensor t = get(opt, data, i);
        DO(match(&t.whole, file, &absent, &different));
    }
    /* Only where the numbers already say that somebody is too many. */
    size_t found = muon_state_count(opt) - absent.count;
    for (size_t at = 0; muon_st_count(file) > found && at < muon_st_count(file); at++) {
        muon_st_tensor tensor;
        DO(tensors_get(file, at, &tensor));
        if (!is_state(opt, tensor.name)) names_add(&strange, tensor.name);
    }
    if (different.count)
        return cli_fail("%s: tensors unlike the optimizer's: %s", path, names_text(&different));
    if (absent.count) return cli_fail("%s: missing tensors: %s", path, names_text(&absent));
    if (strange.count)
        return cli_fail("%s: tensors without a parameter: %s", path, names_text(&strange));
    return CLI_DONE;
}

/* The optimizer trusts its own memory; a file is not to be trusted. */
static int check_values(const muon_tensor *tensor, const char *path)
{
    const int64_t most = (int64_t)1 << 53; /* steps; beyond that a double cannot count */
    const int64_t *steps = tensor->data;
    const uint16_t *halves = tensor->data;
    const float *floats = tensor->data;
    int is_square = strcmp(strrchr(tensor->name, '.'), ".exp_avg_sq") == 0;
    if (tensor->dtype == MUON_I64 && (steps[0] < 0 || steps[0] > most))
        return cli_fail("%s: '%s' is %lld, no number of steps", path, tensor->name,
                        (long long)steps[0]);
    for (size_t i = 0; tensor->dtype == MUON_BF16 && i < tensor->bytes / sizeof *halves; i++)
        if ((halves[i] & 0x7F80) == 0x7F80)
            return cli_fail("%s: '%s' has a NaN or infinity", path, tensor->name);
    for (size_t i = 0; tensor->dtype == MUON_F32 && i < tensor->bytes / sizeof *floats; i++) {
        if (!isfinite(floats[i]))
            return cli_fail("%s: '%s' has a NaN or infinity", path, tensor->name);
        if (is_square && floats[i] < 0)
            return cli_fail("%s: '%s' has %g, a mean of squares cannot be negative", path,
                            tensor->name, (double)floats[i]);
    }
    return CLI_DONE;
}

/* Where all of the tensor is this rank's, straight into the optimizer's memory. */
static int read_tensor(const state_tensor *t, const step_data *data, muon_st *file)
{
    size_t at = (size_t)muon_st_find(file, t->whole.name);
    const muon_tensor *mine = &t->mine;
    if (mine->dtype == MUON_I64 || shards_is_whole(&data->parts, t->param))
        return muon_st_read(file, at, mine->data, mine->bytes) == MUON_OK ? CLI_DONE
                                                                          : cli_fail_library();
    if (mine->bytes == 0) return CLI_DONE;
    void *whole = NULL;
    DO(tensors_read(&whole, file, at));
    size_t size = mine->dtype == MUON_BF16 ? 2 : 4;
    shards_cut(&data->parts, t->param, mine->data, whole, size);
    free(whole);
    return CLI_DONE;
}

static int read_all(muon_opt *opt, const step_data *data, muon_st *file, const char *path)
{
    for (size_t i = 0; i < muon_state_count(opt); i++) {
        state_tensor t = get(opt, data, i);
        DO(read_tensor(&t, data, file));
        DO(check_values(&t.mine, path));
    }
    return CLI_DONE;
}

int step_state_read(muon_opt *opt, const step_data *data, const char *path)
{
    muon_st *file = NULL;
    DO(tensors_open(&file, path));
    int code = check_format(file, path);
    if (code == CLI_DONE) code = check_names(opt, data, file, path);
    if (code == CLI_DONE) code = read_all(opt, data, file, path);
    muon_st_close(file);
    return code;
}

int step_state_write(muon_opt *opt, const step_data *data, outputs *out)
{
    size_t count = muon_state_count(opt);
    step_output file;
    step_output_start(&file, &data->parts, count);
    for (size_t i = 0; i < count; i++) {
        state_tensor t = get(opt, data, i);
        if (t.mine.dtype == MUON_I64) /* every rank counts */
            step_output_add(&file, &t.whole, t.mine.data, NULL);
        else
            step_output_gather(&file, &t.whole, t.param, t.mine.data);
    }
    const muon_st_entry metadata[] = {{"format", format_name},
                                      {"format_version", format_version},
                                      {"muon_version", muon_version()},
                                      {"rules", data->cfg.rules}};
    return step_output_finish(&file, CLI_DONE, out, "state.safetensors", metadata,
                              sizeof metadata / sizeof metadata[0]);
}
