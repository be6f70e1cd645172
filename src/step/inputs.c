/* What the caller hands to a step, checked before anything is touched. */
#include "step/opt.h"
#include "step/state.h"

#include <string.h>

static muon_status check_buffers(muon_opt *opt, size_t index, const muon_buffers *b)
{
    const plan_param *param = &opt->plan->params[index];
    if (param->rule == MUON_RULE_FROZEN) {
        REQUIRE(!b->grad, E_GRAD, "param '%s' is frozen, but has a gradient", param->name);
        REQUIRE(!b->copy, E_ARG, "param '%s' is frozen, but has a copy", param->name);
        return MUON_OK;
    }
    if (opt->route->numel[index] == 0) return MUON_OK; /* nothing of it is here */
    REQUIRE(b->param, E_ARG, "param '%s': the weight is NULL", param->name);
    REQUIRE(b->grad || opt->plan->config.missing_grad == MUON_MISSING_GRAD_SKIP, E_GRAD,
            "param '%s' has no gradient", param->name);
    REQUIRE(!b->copy == (param->copy_dtype == MUON_NONE), E_ARG, "param '%s': copy is %s",
            param->name,
            b->copy ? "given, but copy_dtype is MUON_NONE" : "NULL, but copy_dtype asks for one");
    REQUIRE((uintptr_t)b->param % muon__dtype_bytes(param->dtype) == 0, E_ARG,
            "param '%s': the weight is not aligned to its elements", param->name);
    REQUIRE(opt->fetch.parts || (uintptr_t)b->grad % muon__dtype_bytes(param->grad_dtype) == 0,
            E_ARG, "param '%s': the gradient is not aligned to its elements", param->name);
    REQUIRE((uintptr_t)b->copy % muon__dtype_bytes(MUON_BF16) == 0, E_ARG,
            "param '%s': the copy is not aligned to its elements", param->name);
    return MUON_OK;
}

static void add_range(muon_opt *opt, size_t param, range_what what, const void *data,
                      muon_dtype dtype)
{
    muon__ranges_add(&opt->ranges, param, what, data,
                     (size_t)opt->route->numel[param] * muon__dtype_bytes(dtype));
}

static muon_status check_apart(muon_opt *opt, const muon_buffers *buffers)
{
    opt->ranges.n = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *param = &opt->plan->params[i];
        add_range(opt, i, RANGE_PARAM, buffers[i].param, param->dtype);
        if (!opt->fetch.parts) add_range(opt, i, RANGE_GRAD, buffers[i].grad, param->grad_dtype);
        add_range(opt, i, RANGE_COPY, buffers[i].copy, MUON_BF16);
    }
    muon__ranges_sort(&opt->ranges);
    static const range_list none = {0};
    int in_bound = opt->state == opt->bound;
    return muon__ranges_check(opt->plan, &opt->ranges, in_bound ? &opt->bound_ranges : &none);
}

muon_status muon__step_inputs(muon_opt *opt, const muon_step_args *args)
{
    size_t nparams = opt->plan->nparams;
    for (size_t i = 0; i < nparams; i++) {
        TRY(check_buffers(opt, i, &args->buffers[i]));
        int here = opt->route->numel[i] > 0 && opt->plan->params[i].rule != MUON_RULE_FROZEN;
        opt->active[i] = here && args->buffers[i].grad;
        opt->grads[i] = (grad_view){args->buffers[i].grad, 0};
        opt->flags[i] = (unsigned char)(!here ? 0 : opt->active[i] ? AGREE_PRESENT : AGREE_ABSENT);
    }
    size_t bytes = nparams * sizeof *args->buffers;
    if (opt->checked_valid && memcmp(opt->checked, args->buffers, bytes) == 0) return MUON_OK;
    opt->checked_valid = 0;
    TRY(check_apart(opt, args->buffers));
    memcpy(opt->checked, args->buffers, bytes);
    opt->checked_valid = 1;
    return MUON_OK;
}
