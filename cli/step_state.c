/* The state of an optimizer in a file: <param>.momentum_buffer, .exp_avg, .exp_avg_sq, .step. */
#include "names.h"
#include "step_data.h"

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

static int get(muon_opt *opt, size_t index, muon_tensor *out)
{
    return muon_state_get(opt, index, out, sizeof *out) == MUON_OK ? CLI_DONE : cli_fail_library();
}

static int check_format(const muon_st *file, const char *path)
{
    const char *name = muon_st_metadata(file, "format");
    const char *version = muon_st_metadata(file, "format_version");
    if (!name || strcmp(name, format_name) != 0)
        return CLI_DONE; /* somebody else's: by its names */
    if (version && strcmp(version, format_version) == 0) return CLI_DONE;
    return cli_fail("%s: state format %s, this muonctl reads %s", path,
                    version ? version : "unknown", format_version);
}

/* Finds state tensor `index` in the file, or notes what is wrong with it. */
static int match(muon_opt *opt, const muon_st *file, size_t index, names_list *absent,
                 names_list *different)
{
    muon_tensor want;
    muon_st_tensor got;
    DO(get(opt, index, &want));
    int64_t at = muon_st_find(file, want.name);
    if (at < 0) {
        names_add(absent, want.name);
        return CLI_DONE;
    }
    DO(tensors_get(file, (size_t)at, &got));
    if (tensors_same_shape(&got, want.ndim, want.shape) &&
        strcmp(got.dtype, dtype_word(want.dtype)) == 0)
        return CLI_DONE;
    tensors_shape a, b;
    char *text = cli_format("%s (%s %s, the optimizer has %s %s)", want.name, got.dtype,
                            tensors_shape_text(&a, got.ndim, got.shape), dtype_word(want.dtype),
                            tensors_shape_text(&b, want.ndim, want.shape));
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

static int check_names(muon_opt *opt, const muon_st *file, const char *path)
{
    names_list absent = {0}, different = {0}, strange = {0};
    for (size_t i = 0; i < muon_state_count(opt); i++)
        DO(match(opt, file, i, &absent, &different));
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

static int64_t count_of(const muon_tensor *tensor)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->ndim; d++)
        count *= tensor->shape[d];
    return count;
}

/* The optimizer trusts its own memory; a file is not to be trusted. */
static int check_values(const muon_tensor *tensor, const char *path)
{
    const int64_t most = (int64_t)1 << 53; /* steps; beyond that a double cannot count */
    const int64_t *steps = tensor->data;
    const uint16_t *halves = tensor->data;
    const float *floats = tensor->data;
    const char *dot = strrchr(tensor->name, '.');
    int is_square = dot && strcmp(dot, ".exp_avg_sq") == 0;
    for (int64_t i = 0; i < count_of(tensor); i++) {
        if (tensor->dtype == MUON_I64 && (steps[i] < 0 || steps[i] > most))
            return cli_fail("%s: '%s' is %lld, no number of steps", path, tensor->name,
                            (long long)steps[i]);
        if ((tensor->dtype == MUON_F32 && !isfinite(floats[i])) ||
            (tensor->dtype == MUON_BF16 && (halves[i] & 0x7F80) == 0x7F80))
            return cli_fail("%s: '%s' has a NaN or infinity", path, tensor->name);
        if (is_square && floats[i] < 0)
            return cli_fail("%s: '%s' has %g, a mean of squares cannot be negative", path,
                            tensor->name, (double)floats[i]);
    }
    return CLI_DONE;
}

static int read_all(muon_opt *opt, muon_st *file, const char *path)
{
    for (size_t i = 0; i < muon_state_count(opt); i++) {
        muon_tensor tensor;
        DO(get(opt, i, &tensor));
        size_t at = (size_t)muon_st_find(file, tensor.name);
        if (muon_st_read(file, at, tensor.data, tensor.bytes) != MUON_OK) return cli_fail_library();
        DO(check_values(&tensor, path));
    }
    return CLI_DONE;
}

int step_state_read(muon_opt *opt, const char *path)
{
    muon_st *file = NULL;
    DO(tensors_open(&file, path));
    int code = check_format(file, path);
    if (code == CLI_DONE) code = check_names(opt, file, path);
    if (code == CLI_DONE) code = read_all(opt, file, path);
    muon_st_close(file);
    return code;
}

int step_state_write(muon_opt *opt, const config *cfg, outputs *out)
{
    size_t count = muon_state_count(opt);
    muon_st_tensor *tensors = cli_alloc(count, sizeof *tensors);
    int code = CLI_DONE;
    for (size_t i = 0; i < count && code == CLI_DONE; i++) {
        muon_tensor state;
        code = get(opt, i, &state);
        if (code != CLI_DONE) break;
        tensors[i] = (muon_st_tensor){.name = state.name,
                                      .dtype = dtype_word(state.dtype),
                                      .ndim = state.ndim,
                                      .bytes = state.bytes,
                                      .data = state.data};
        memcpy(tensors[i].shape, state.shape, sizeof tensors[i].shape);
    }
    const muon_st_entry metadata[] = {{"format", format_name},
                                      {"format_version", format_version},
                                      {"muon_version", muon_version()},
                                      {"rules", cfg->rules}};
    if (code == CLI_DONE)
        code = outputs_add(out, "state.safetensors", tensors, count, metadata,
                           sizeof metadata / sizeof metadata[0]);
    free(tensors);
    return code;
}
