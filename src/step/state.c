/* The state: one block of memory, and the list of its tensors under the names others know. */
#include "base/versioned.h"
#include "step/opt.h"

#include <string.h>

static void lay_out(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    for (size_t i = 0; i < plan->nparams; i++) {
        const plan_param *param = &plan->params[i];
        param_state *state = &opt->state[i];
        if (param->rule == MUON_RULE_FROZEN) continue;
        if (param->rule == MUON_RULE_MUON) {
            int bf16 = plan->groups[param->group].momentum_dtype == MUON_BF16;
            state->momentum = muon__arena_take(&opt->state_memory, param->numel, bf16 ? 2 : 4);
        } else {
            state->exp_avg = ARENA_ARRAY(&opt->state_memory, float, param->numel);
            state->exp_avg_sq = ARENA_ARRAY(&opt->state_memory, float, param->numel);
        }
        state->step = ARENA_ARRAY(&opt->state_memory, int64_t, 1);
    }
}

/* Adds "<param><suffix>" to the list; with no list yet, only counts. */
static void name_tensor(muon_opt *opt, char **names, const plan_param *param, const char *suffix,
                        muon_dtype dtype, void *data)
{
    size_t length = strlen(param->name) + strlen(suffix) + 1;
    if (opt->tensors) {
        muon_tensor *t = &opt->tensors[opt->ntensors];
        *t = (muon_tensor){.name = *names, .dtype = dtype, .data = data};
        memcpy(*names, param->name, strlen(param->name));
        memcpy(*names + strlen(param->name), suffix, strlen(suffix) + 1);
        size_t element = dtype == MUON_BF16 ? 2 : dtype == MUON_F32 ? 4 : 8;
        if (dtype != MUON_I64) {
            t->ndim = param->ndim;
            memcpy(t->shape, param->shape, sizeof t->shape);
        }
        t->bytes = element * (dtype == MUON_I64 ? 1 : (size_t)param->numel);
    }
    opt->ntensors++;
    *names += length;
}

/* Returns the bytes of all names. */
static size_t name_tensors(muon_opt *opt)
{
    char *names = opt->tensor_names;
    opt->ntensors = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *param = &opt->plan->params[i];
        const param_state *state = &opt->state[i];
        if (param->rule == MUON_RULE_FROZEN) continue;
        if (param->rule == MUON_RULE_MUON) {
            muon_dtype dtype = opt->plan->groups[param->group].momentum_dtype;
            name_tensor(opt, &names, param, ".momentum_buffer", dtype, state->momentum);
        } else {
            name_tensor(opt, &names, param, ".exp_avg", MUON_F32, state->exp_avg);
            name_tensor(opt, &names, param, ".exp_avg_sq", MUON_F32, state->exp_avg_sq);
        }
        name_tensor(opt, &names, param, ".step", MUON_I64, state->step);
    }
    return (size_t)(names - opt->tensor_names);
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
