#include "cli/step/data.h"
#include "muon/plan.h"

#include "cli/core/launch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int is_frozen(const config *cfg, size_t i)
{
    return cfg->groups[cfg->params[i].group].rule == MUON_RULE_FROZEN;
}

/* ---- gradients ------------------------------------------------------------------------------ */

static int find_grad(step_data *data, size_t at, size_t i)
{
    muon_st_tensor grad;
    muon_param *param = &data->cfg.params[i];
    tensors_shape got, want;
    DO(files_get(&data->gradients, at, &grad));
    int scalar = grad.ndim == 0 && param->ndim == 1 && param->shape[0] == 1;
    if (!scalar && !tensors_same_shape(&grad, param->ndim, param->shape))
        return cli_fail("gradient '%s': shape is %s, the parameter's is %s", grad.name,
                        tensors_shape_text(&got, grad.ndim, grad.shape),
                        tensors_shape_text(&want, param->ndim, param->shape));
    if (strcmp(grad.dtype, "F32") == 0)
        param->grad_dtype = MUON_F32;
    else if (strcmp(grad.dtype, "BF16") == 0)
        param->grad_dtype = MUON_BF16;
    else if (strcmp(grad.dtype, "F16") == 0)
        param->grad_dtype = MUON_F16;
    else
        return cli_fail("gradient '%s': dtype is %s, must be F32, BF16 or F16; convert the file "
                        "first",
                        grad.name, grad.dtype);
    data->grad_at[i] = (int64_t)at;
    return CLI_DONE;
}

/* Each gradient belongs to a trainable parameter, and each such parameter has one. */
static int find_grads(step_data *data)
{
    names_list strange = {0}, frozen = {0}, absent = {0};
    const config *cfg = &data->cfg;
    for (size_t at = 0; at < data->gradients.ntensors; at++) {
        muon_st_tensor grad;
        DO(files_get(&data->gradients, at, &grad));
        int64_t i = files_find(&data->params, grad.name); /* the parameter's index too */
        if (i < 0)
            names_add(&strange, grad.name);
        else if (is_frozen(cfg, (size_t)i))
            names_add(&frozen, grad.name);
        else
            DO(find_grad(data, at, (size_t)i));
    }
    for (size_t i = 0; i < cfg->nparams; i++)
        if (data->grad_at[i] < 0 && !is_frozen(cfg, i)) names_add(&absent, cfg->params[i].name);
    if (strange.count) return cli_fail("gradients without a parameter: %s", names_text(&strange));
    if (frozen.count) return cli_fail("gradients of frozen parameters: %s", names_text(&frozen));
    if (absent.count && cfg->muon.missing_grad == MUON_MISSING_GRAD_ERROR)
        return cli_fail(
            "parameters without a gradient: %s; \"missing_grad\": \"skip\" in the config "
            "allows it",
            names_text(&absent));
    return CLI_DONE;
}

/* ---- all inputs ------------------------------------------------------------------------------- */

/* To nearest, ties to even: what a copy holds until a step writes it, and after a skipped one. */
static void round_to_bf16(uint16_t *out, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        uint32_t quiet = isnan(x[i]) ? bits | 0x400000 : bits + 0x7FFF + ((bits >> 16) & 1);
        out[i] = (uint16_t)(quiet >> 16);
    }
}

static void make_copy(step_data *data, size_t i)
{
    const muon_param *param = &data->cfg.params[i];
    if (param->copy_dtype != MUON_BF16 || param->dtype != MUON_F32) return;
    int64_t n = muon_plan_count_elements(data->parts.plan, i, data->parts.rank);
    data->buffers[i].copy = tensors_alloc((size_t)n * sizeof(uint16_t));
    round_to_bf16(data->buffers[i].copy, data->buffers[i].param, n);
}

int step_data_read(step_data *data, const muon_plan *plan)
{
    data->parts = (shards){plan, data->cfg.params, launch_rank()};
    for (size_t i = 0; i < data->cfg.nparams; i++) {
        if (is_frozen(&data->cfg, i)) continue;
        int64_t at = data->grad_at[i];
        void *grad = NULL;
        DO(shards_read(&data->buffers[i].param, &data->parts, i, &data->params, i));
        if (at >= 0) DO(shards_read(&grad, &data->parts, i, &data->gradients, (size_t)at));
        data->buffers[i].grad = grad;
        make_copy(data, i);
    }
    files_close(&data->gradients);
    return CLI_DONE;
}

int step_data_open(step_data *data, const char *config_path, const char *params_path,
                   const char *grads_path)
{
    *data = (step_data){.buffers = NULL};
    DO(files_open(&data->params, params_path));
    DO(step_data_check_names(data));
    DO(config_load(&data->cfg, config_path, &data->params));
    DO(config_place(&data->cfg, launch_size()));
    size_t n = data->cfg.nparams;
    data->buffers = cli_alloc(n, sizeof *data->buffers);
    data->grad_at = cli_alloc(n, sizeof *data->grad_at);
    for (size_t i = 0; i < n; i++)
        data->grad_at[i] = -1;
    DO(files_open(&data->gradients, grads_path));
    return find_grads(data);
}

static int read_layer_logits(step_data *data, muon_st *file, size_t layer)
{
    const muon_attention *attention = &data->cfg.attention[layer];
    int64_t at = muon_st_find(file, attention->name), heads = attention->heads;
    muon_st_tensor tensor;
    if (at < 0) return cli_fail("max-logits: there is no tensor '%s'", attention->name);
    DO(tensors_get(file, (size_t)at, &tensor));
    if (!tensors_same_shape(&tensor, 1, &heads) || strcmp(tensor.dtype, "F32") != 0) {
        tensors_shape got;
        return cli_fail("max-logits: '%s' is %s %s, must be F32 %d", tensor.name, tensor.dtype,
                        tensors_shape_text(&got, tensor.ndim, tensor.shape), attention->heads);
    }
    void *values = NULL;
    DO(tensors_read(&values, file, (size_t)at));
    data->logits[layer] = values;
    return CLI_DONE;
}

static int read_all_logits(step_data *data, muon_st *file)
{
    names_list strange = {0};
    size_t layers = data->cfg.muon.nattention;
    for (size_t at = 0; at < muon_st_count(file); at++) {
        muon_st_tensor tensor;
        size_t k = 0;
        DO(tensors_get(file, at, &tensor));
        while (k < layers && strcmp(data->cfg.attention[k].name, tensor.name) != 0)
            k++;
        if (k == layers) names_add(&strange, tensor.name);
    }
    if (strange.count)
        return cli_fail("max-logits: tensors without an attention layer in the config: %s",
                        names_text(&strange));
    for (size_t k = 0; k < layers; k++)
        DO(read_layer_logits(data, file, k));
    return CLI_DONE;
}

int step_data_read_logits(step_data *data, const char *path)
{
    muon_st *file = NULL;
    DO(tensors_open(&file, path));
    data->logits = cli_alloc(data->cfg.muon.nattention, sizeof *data->logits);
    int code = read_all_logits(data, file);
    muon_st_close(file);
    return code;
}

void step_data_close(step_data *data)
{
    for (size_t i = 0; data->buffers && i < data->cfg.nparams; i++) {
        free(data->buffers[i].param);
        free((void *)(uintptr_t)data->buffers[i].grad);
        free(data->buffers[i].copy);
    }
    for (size_t k = 0; data->logits && k < data->cfg.muon.nattention; k++)
        free(data->logits[k]);
    free(data->logits);
    free(data->buffers);
    free(data->grad_at);
    config_destroy(&data->cfg);
    files_close(&data->gradients);
    files_close(&data->params);
    *data = (step_data){.buffers = NULL};
}
