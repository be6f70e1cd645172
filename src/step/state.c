/* The state of this rank's shards: one block of memory, and the list of its tensors under the names
 * others know. */
#include "base/versioned.h"
#include "step/opt.h"

#include <string.h>

static void lay_out(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    for (size_t i = 0; i < plan->nparams; i++) {
        const plan_param *param = &plan->params[i];
        param_state *state = &opt->state[i];
        int64_t numel = opt->route->numel[i];
        if (param->rule == MUON_RULE_FROZEN) continue;
        if (param->rule == MUON_RULE_MUON) {
            int bf16 = plan->groups[param->group].momentum_dtype == MUON_BF16;
            state->momentum = muon__arena_take(&opt->state_memory, numel, bf16 ? 2 : 4);
        } else {
            state->exp_avg = ARENA_ARRAY(&opt->state_memory, float, numel);
            state->exp_avg_sq = ARENA_ARRAY(&opt->state_memory, float, numel);
        }
        state->step = ARENA_ARRAY(&opt->state_memory, int64_t, 1);
    }
}

/* A shard that is the whole tensor, in its own order, has its shape; else it is a list of elements. */
static void set_shape(const muon_opt *opt, muon_tensor *t, const plan_param *param, int64_t numel)
{
    int parts = (int)muon__layout_ncells_of(param->layout, opt->route->rank);
    if (numel == param->numel && parts == 1) {
        t->ndim = param->ndim;
        memcpy(t->shape, param->shape, sizeof t->shape);
    } else {
        t->ndim = 1;
        t->shape[0] = numel;
    }
}

/* Adds "<param><suffix>" to the list, its name `*used` bytes into all names; with no list yet, only
 * counts. */
static void name_tensor(muon_opt *opt, size_t *used, size_t index, const char *suffix,
                        muon_dtype dtype, void *data)
{
    const plan_param *param = &opt->plan->params[index];
    int64_t numel = opt->route->numel[index];
    size_t length = strlen(param->name) + strlen(suffix) + 1;
    if (opt->tensors) {
        muon_tensor *t = &opt->tensors[opt->ntensors];
        char *name = opt->tensor_names + *used;
        *t = (muon_tensor){.name = name, .dtype = dtype, .data = data};
        memcpy(name, param->name, strlen(param->name));
        memcpy(name + strlen(param->name), suffix, strlen(suffix) + 1);
        size_t element = dtype == MUON_BF16 ? 2 : dtype == MUON_F32 ? 4 : 8;
        if (dtype != MUON_I64) set_shape(opt, t, param, numel);
        t->bytes = element * (dtype == MUON_I64 ? 1 : (size_t)numel);
    }
    opt->ntensors++;
    *used += length;
}

/* Returns the bytes of all names. */
static size_t name_tensors(muon_opt *opt)
{
    size_t used = 0;
    opt->ntensors = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *param = &opt->plan->params[i];
        const param_state *state = &opt->state[i];
        if (param->rule == MUON_RULE_FROZEN) continue;
        if (param->rule == MUON_RULE_MUON) {
            muon_dtype dtype = opt->plan->groups[param->group].momentum_dtype;
            name_tensor(opt, &used, i, ".momentum_buffer", dtype, state->momentum);
        } else {
            name_tensor(opt, &used, i, ".exp_avg", MUON_F32, state->exp_avg);
            name_tensor(opt, &used, i, ".exp_avg_sq", MUON_F32, state->exp_avg_sq);
        }
        name_tensor(opt, &used, i, ".step", MUON_I64, state->step);
    }
    return used;
}

muon_status muon__opt_make_state(muon_opt *opt)
{
    TRY(CALLOC(&opt->state, opt->plan->nparams, "state"));
    lay_out(opt);
    TRY(muon__arena_alloc(&opt->state_memory, "optimizer state"));
    lay_out(opt);
    TRY(CALLOC(&opt->tensor_names, name_tensors(opt), "state names"));
    TRY(CALLOC(&opt->tensors, opt->ntensors, "state list"));
    name_tensors(opt);
    return MUON_OK;
}

size_t muon_state_count(const muon_opt *opt)
{
    return opt ? opt->ntensors : 0;
}

muon_status muon_state_get(muon_opt *opt, size_t index, muon_tensor *tensor, size_t tensor_size)
{
    REQUIRE(opt && tensor, E_ARG, "muon_state_get: opt and tensor must not be NULL");
    REQUIRE(index < opt->ntensors, E_ARG, "state tensor %zu does not exist: there are %zu", index,
            opt->ntensors);
    return muon__struct_store(tensor, tensor_size, &opt->tensors[index], sizeof *tensor,
                              "muon_tensor");
}
