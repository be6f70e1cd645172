#include "save/tensors.h"

#include <stdlib.h>
#include <string.h>

static const char *word_of(muon_dtype dtype)
{
    switch (dtype) {
    case MUON_BF16:
        return "BF16";
    case MUON_F32:
        return "F32";
    case MUON_I8:
        return "I8";
    default:
        return "I64";
    }
}

static muon_status add(saved_tensors *tensors, size_t param, int what, muon_dtype dtype,
                       const char *suffix)
{
    const plan_param *p = &tensors->opt->plan->params[param];
    saved_tensor *t = &tensors->list[tensors->n];
    size_t length = strlen(p->name) + strlen(suffix) + 1;
    int list = what < TENSOR_STEP ? muon__state_list((state_part)what) : -1;
    *t = (saved_tensor){.param = param,
                        .what = what,
                        .dtype = dtype,
                        .numel = what == TENSOR_STEP ? 1
                                 : list >= 0         ? tensors->opt->lists[list].shape[param]
                                                     : p->numel,
                        .element = muon__dtype_bytes(dtype)};
    TRY(CALLOC(&t->name, length, "names of tensors"));
    memcpy(t->name, p->name, strlen(p->name));
    memcpy(t->name + strlen(p->name), suffix, strlen(suffix) + 1);
    tensors->n++;
    return MUON_OK;
}

static muon_status add_param(saved_tensors *tensors, size_t param)
{
    for (int part = 0; part < STATE_PARTS; part++) {
        muon_dtype dtype = muon__state_dtype(tensors->opt, param, (state_part)part);
        if (dtype != MUON_NONE)
            TRY(add(tensors, param, part, dtype, muon__state_suffix((state_part)part)));
    }
    return add(tensors, param, TENSOR_STEP, MUON_I64, ".step");
}

static muon_status check_weight(const saved_tensors *tensors, size_t param)
{
    const muon_opt *opt = tensors->opt;
    const plan_param *p = &opt->plan->params[param];
    if (opt->route->numel[param] == 0) return MUON_OK;
    const muon_buffers *b = &tensors->buffers[param];
    REQUIRE(b->param, E_ARG, "param '%s': the weight is NULL", p->name);
    return MUON_OK;
}

static muon_status fill(saved_tensors *tensors)
{
    const muon_plan *plan = tensors->opt->plan;
    for (size_t i = 0; i < plan->nparams; i++)
        if (plan->params[i].rule != MUON_RULE_FROZEN) TRY(add_param(tensors, i));
    for (size_t i = 0; tensors->buffers && i < plan->nparams; i++) {
        if (plan->params[i].rule == MUON_RULE_FROZEN) continue;
        TRY(check_weight(tensors, i));
        TRY(add(tensors, i, TENSOR_WEIGHT, plan->params[i].dtype, ""));
    }
    return MUON_OK;
}

muon_status muon__tensors_create(saved_tensors *out, muon_opt *opt, const muon_buffers *buffers)
{
    saved_tensors tensors = {.opt = opt, .buffers = buffers};
    TRY(CALLOC(&tensors.list, (STATE_PARTS + 2) * opt->plan->nparams, "list of tensors"));
    muon_status status = fill(&tensors);
    if (status != MUON_OK) {
        muon__tensors_destroy(&tensors);
        return status;
    }
    *out = tensors;
    return MUON_OK;
}

void muon__tensors_destroy(saved_tensors *tensors)
{
    for (size_t i = 0; i < tensors->n; i++)
        free(tensors->list[i].name);
    free(tensors->list);
    *tensors = (saved_tensors){0};
}

muon_checkpoint_tensor muon__tensor_describe(const saved_tensors *tensors, size_t index)
{
    const saved_tensor *t = &tensors->list[index];
    muon_checkpoint_tensor out = {.name = t->name,
                                  .dtype = word_of(t->dtype),
                                  .bytes = t->numel * (int64_t)t->element,
                                  .is_weight = t->what == TENSOR_WEIGHT};
    if (t->what == TENSOR_STEP) return out;
    tensor_layout in = muon__tensor_layout(tensors, index);
    out.ndim = in.ndim;
    memcpy(out.shape, in.shape, (size_t)in.ndim * sizeof *in.shape);
    return out;
}

tensor_layout muon__tensor_layout(const saved_tensors *tensors, size_t index)
{
    const saved_tensor *t = &tensors->list[index];
    const plan_param *p = &tensors->opt->plan->params[t->param];
    if (t->what >= TENSOR_STEP || muon__state_list((state_part)t->what) < 0)
        return (tensor_layout){p->layout, p->ndim, p->shape};
    return (tensor_layout){muon__state_layout(tensors->opt, t->param, (state_part)t->what), 1,
                           &t->numel};
}

void *muon__tensor_at(const saved_tensors *tensors, size_t index, int64_t at)
{
    const saved_tensor *t = &tensors->list[index];
    if (t->what != TENSOR_WEIGHT)
        return muon__state_at(tensors->opt, t->param, (state_part)t->what, at);
    return (char *)tensors->buffers[t->param].param + (size_t)at * t->element;
}

muon_status muon__tensor_read(const saved_tensors *tensors, size_t index, int64_t at, int64_t n,
                              void *data)
{
    const saved_tensor *t = &tensors->list[index];
    if (t->what != TENSOR_WEIGHT)
        return muon__state_read(tensors->opt, t->param, (state_part)t->what, at, n, data);
    memcpy(data, muon__tensor_at(tensors, index, at), (size_t)n * t->element);
    return MUON_OK;
}

muon_status muon__tensor_write(const saved_tensors *tensors, size_t index, int64_t at, int64_t n,
                               const void *data)
{
    const saved_tensor *t = &tensors->list[index];
    if (t->what != TENSOR_WEIGHT)
        return muon__state_write(tensors->opt, t->param, (state_part)t->what, at, n, data);
    memcpy(muon__tensor_at(tensors, index, at), data, (size_t)n * t->element);
    return MUON_OK;
}
