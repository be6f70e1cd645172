#include "step/opt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static muon_status make_settings(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    opt->clip_norm = plan->config.clip_norm;
    opt->qk_threshold = plan->config.qk_threshold;
    opt->qk_log_only = plan->config.qk_log_only;
    TRY(CALLOC(&opt->groups, plan->ngroups, "groups"));
    for (size_t i = 0; i < plan->ngroups; i++)
        TRY(muon__plan_copy_group(&opt->groups[i], &plan->groups[i], i));
    TRY(CALLOC(&opt->ns, plan->nclasses, "shapes"));
    TRY(CALLOC(&opt->factor, plan->nclasses, "shapes"));
    for (size_t i = 0; i < plan->nclasses; i++) {
        const plan_class *class = &plan->classes[i];
        TRY(muon__plan_class_ns(&opt->ns[i], class, &opt->groups[class->group]));
        opt->factor[i] = muon__plan_class_factor(class, &opt->groups[class->group]);
    }
    return MUON_OK;
}

static void lay_out_workspace(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    int64_t small = plan->scratch_small * plan->threads;
    opt->wave = ARENA_ARRAY(&opt->workspace, float, plan->wave_floats);
    opt->scratch = ARENA_ARRAY(&opt->workspace, float,
                               small > plan->scratch_large ? small : plan->scratch_large);
}

static muon_status make_workspace(muon_opt *opt)
{
    lay_out_workspace(opt);
    TRY(muon__arena_alloc(&opt->workspace, "workspace"));
    lay_out_workspace(opt);
    return MUON_OK;
}

static muon_status make_step_lists(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    TRY(CALLOC(&opt->worker_sum, (size_t)plan->threads, "sums"));
    TRY(CALLOC(&opt->item_sumsq, plan->nitems, "sums"));
    TRY(CALLOC(&opt->ranges, 3 * plan->nparams, "buffers"));
    TRY(CALLOC(&opt->checked, plan->nparams, "buffers"));
    TRY(CALLOC(&opt->active, plan->nparams, "gradients"));
    TRY(CALLOC(&opt->nonfinite, plan->nparams, "gradients"));
    size_t most_q = 0, most_k = 0;
    for (size_t i = 0; i < plan->nattention; i++) {
        size_t nq, nk;
        muon__qk_capacity(&plan->attention[i].settings, &nq, &nk);
        if (nq > most_q) most_q = nq;
        if (nk > most_k) most_k = nk;
    }
    TRY(CALLOC(&opt->qk_tasks, most_q + most_k, "attention heads"));
    TRY(CALLOC(&opt->qk_q, most_q, "attention heads"));
    return CALLOC(&opt->qk_k, most_k, "attention heads");
}

static muon_status make(muon_opt *opt, const muon_config *config, const muon_param *params,
                        size_t nparams)
{
    TRY(muon_plan_create(&opt->plan, config, params, nparams));
    opt->la = opt->plan->la;
    TRY(make_settings(opt));
    TRY(make_step_lists(opt));
    TRY(muon__opt_make_units(opt));
    TRY(muon__opt_make_state(opt));
    TRY(make_workspace(opt));
    TRY(muon__pool_create(&opt->p, opt->plan->threads));
    muon__la_warm_up(opt->la, opt->p);
    return MUON_OK;
}

muon_status muon__opt_create(muon_opt **out, const muon_config *config, const muon_param *params,
                             size_t nparams)
{
    muon_opt *opt = NULL;
    TRY(CALLOC(&opt, 1, "optimizer"));
    muon_status status = make(opt, config, params, nparams);
    if (status != MUON_OK) {
        muon__opt_destroy(opt);
        return status;
    }
    const muon_plan_cost *cost = &opt->plan->cost;
    muon__opt_log(
        opt, MUON_LOG_INFO,
        "created: %zu parameters, %lld matrices, %lld waves, %d threads, backend %s, state "
        "%lld bytes, workspace %lld bytes",
        opt->plan->nparams, (long long)cost->matrices, (long long)cost->waves, opt->plan->threads,
        opt->la->name, (long long)cost->state_bytes, (long long)cost->workspace_bytes);
    *out = opt;
    return MUON_OK;
}

void muon__opt_destroy(muon_opt *opt)
{
    if (!opt) return;
    muon__pool_destroy(opt->p);
    for (size_t i = 0; opt->groups && i < opt->plan->ngroups; i++)
        muon__plan_free_group(&opt->groups[i]);
    muon__arena_free(&opt->state_memory);
    muon__arena_free(&opt->workspace);
    free(opt->groups);
    free(opt->ns);
    free(opt->factor);
    free(opt->state);
    free(opt->tensors);
    free(opt->tensor_names);
    free(opt->check_units);
    free(opt->adamw_units);
    free(opt->row_units);
    free(opt->wave_rows);
    free(opt->worker_sum);
    free(opt->item_sumsq);
    free(opt->qk_tasks);
    free(opt->qk_q);
    free(opt->qk_k);
    free(opt->ranges);
    free(opt->checked);
    free(opt->active);
    free(opt->nonfinite);
    muon_plan_destroy(opt->plan);
    free(opt);
}

void muon__opt_log(const muon_opt *opt, muon_log_level level, const char *format, ...)
{
    muon_log_fn log = opt->plan->config.log;
    if (!log) return;
    char message[MUON__MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    log(opt->plan->config.user, level, message);
}
