#include "base/mode.h"
#include "plan/route/waves.h"
#include "rule/config.h"
#include "step/background.h"
#include "step/opt.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static muon_status make_settings(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    opt->clip_norm = plan->config.clip_norm;
    opt->skip_norm = plan->config.skip_norm;
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
    for (int k = 0; k < ROUTE_BUFFERS; k++) {
        int list = muon__wave_buffers[k], n = muon__rings_of_list(opt->rings, list);
        for (int i = 0; i < n; i++)
            opt->wave_buffers[list][i] = ARENA_ARRAY(
                &opt->workspace, char, muon__route_buffer_bytes(opt->route, plan, list, i));
    }
    opt->wave_buffers[RELAY_GATHER_OUT] = opt->wave_buffers[RELAY_GATHER_IN];
    opt->wave_buffers[RELAY_SCATTER_IN] = opt->wave_buffers[RELAY_SCATTER_OUT] =
        opt->wave_buffers[SCATTER_RECEIVE];
    opt->scratch =
        ARENA_ARRAY(&opt->workspace, float, muon__scratch_floats(plan) - plan->scratch_team);
    if (plan->nteams == 0) return;
    opt->team_scratch = ARENA_ARRAY(&opt->workspace, float, plan->scratch_team);
    if (opt->team_scratch) opt->team_verdicts = opt->team_scratch + plan->scratch_team - TEAM_MAX;
}

static muon_status make_workspace(muon_opt *opt)
{
    for (int k = 0; k < ROUTE_BUFFERS; k++) {
        int list = muon__wave_buffers[k];
        TRY(CALLOC(&opt->wave_buffers[list], (size_t)muon__rings_of_list(opt->rings, list),
                   "workspace"));
    }
    lay_out_workspace(opt);
    TRY(muon__arena_alloc(&opt->workspace, "workspace"));
    lay_out_workspace(opt);
    return MUON_OK;
}

static muon_status make_step_lists(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    TRY(CALLOC(&opt->worker_sum, (size_t)plan->threads, "sums"));
    TRY(CALLOC(&opt->class_sum, (size_t)plan->threads * plan->nclasses, "sums"));
    TRY(muon__ranges_create(&opt->ranges, 4 * plan->nparams));
    TRY(muon__ranges_create(&opt->bound_ranges, 4 * plan->nparams));
    TRY(CALLOC(&opt->checked, plan->nparams, "buffers"));
    TRY(CALLOC(&opt->active, plan->nparams, "gradients"));
    TRY(CALLOC(&opt->flags, plan->nparams, "gradients"));
    TRY(CALLOC(&opt->nonfinite, plan->nparams, "gradients"));
    TRY(CALLOC(&opt->stuck, plan->nitems, "matrices"));
    TRY(muon__fetch_create(opt));
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

/* Everything that is this rank's own. */
static muon_status make(muon_opt *opt, const muon_config *config)
{
    opt->la = opt->plan->la;
    int plain = opt->plan->config.path == MUON_PATH_REFERENCE;
    if (!plain) opt->rings = muon__route_rings(opt->plan); /* else no waves, and no room for them */
    TRY(muon__route_create(&opt->route, opt->plan, opt->comm.rank));
    TRY(make_settings(opt));
    TRY(make_step_lists(opt));
    /* The largest first: what this machine cannot hold is known before work is spent on it. */
    TRY(muon__opt_make_state(opt, config->state));
    if (!config->offload_dir) TRY(muon__region_touch(&opt->memory, "optimizer state"));
    TRY(make_workspace(opt));
    TRY(muon__opt_make_units(opt));
    TRY(muon__step_agree_create(&opt->step_agree, &opt->comm, opt->plan, opt->number, &opt->agree));
    TRY(plain ? muon__reference_create(opt) : muon__exchange_create(opt));
    if (opt->plan->nteams > 0) TRY(muon__teams_create(opt));
    TRY(muon__norms_create(opt));
    TRY(muon__pool_create(&opt->p, opt->plan->threads));
    TRY(muon__la_warm_up(opt->la, opt->p, &opt->la_reserved));
    if (!plain) muon__exchange_look_after(opt);
    if (!config->background) return MUON_OK;
    REQUIRE(!opt->comm.one_thread, E_ARG,
            "background is 1, but the transport '%s' may be called from one thread only (MPI: "
            "initialise it with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE)",
            opt->comm.ops->name);
    return muon__background_create(&opt->background);
}

/* What this rank's failure must not keep from the others: a config with a mistake in it may still say
 * who they are. */
static muon_status load_comm(muon_comm *comm, const muon_config *config, double *timeout)
{
    muon_config known;
    muon_config_init(&known, sizeof known);
    *timeout = known.timeout;
    *comm = (muon_comm){.struct_size = sizeof *comm, .size = 1};
    if (config->struct_size < offsetof(muon_config, offload_dir)) return MUON_OK;
    if (config->timeout > 0 && isfinite(config->timeout)) *timeout = config->timeout;
    return config->comm ? muon__comm_load(comm, config->comm) : MUON_OK;
}

/* *out is NULL only if there is no memory even for the struct, which the others hear of too. */
static muon_status make_together(muon_opt **out, const muon_config *config,
                                 const muon_param *params, size_t nparams, muon_status status)
{
    double timeout;
    muon_comm comm;
    agree all = {0};
    int64_t number;
    TRY(load_comm(&comm, config, &timeout));
    TRY(muon__agree_open(&all, &comm, CHANNEL_AGREE, timeout));
    if (status == MUON_OK) status = CALLOC(out, 1, "optimizer");
    muon_opt *opt = *out;
    if (opt) {
        opt->comm = comm;
        opt->agree = all;
        status = muon_plan_create(&opt->plan, config, params, nparams);
        if (status == MUON_OK && opt->plan->nranks != comm.size)
            status = muon__fail(MUON_E_ARG,
                                "nranks is %d, but there is no communicator: only a plan can be "
                                "made for other ranks",
                                opt->plan->nranks);
    }
    status = muon__agree_on_plan(&all, status, opt ? opt->plan : NULL, &number);
    if (!opt) {
        assert(status != MUON_OK); /* and all have heard of it */
        muon__agree_close(&all);
        return status;
    }
    TRY(status);
    opt->number = number;
    muon__tree_set_object(all.t, number);
    muon_config known;
    status = muon__config_load(&known, config); /* as it was for the plan */
    if (status == MUON_OK) status = make(opt, &known);
    TRY(muon__agree_status(&opt->agree, "muon_create", status));
    TRY(muon__opt_connect(opt));
    return muon__offload_create(opt, known.offload_dir);
}

static void say_created(const muon_opt *opt)
{
    const muon_plan_cost *cost = &opt->plan->cost;
    muon__opt_log(
        opt, MUON_LOG_INFO,
        "created: %zu parameters, %lld matrices, %lld waves, %d threads, backend %s, state "
        "%lld bytes%s, workspace %zu bytes",
        opt->plan->nparams, (long long)cost->matrices, (long long)cost->waves, opt->plan->threads,
        opt->la->name, (long long)opt->state_bytes, opt->offloaded ? " in a file" : "",
        opt->workspace.size);
    muon_backend_info info;
    muon__la_describe(opt->la, &info);
    if (info.warning[0]) muon__opt_log(opt, MUON_LOG_WARN, "%s", info.warning);
}

muon_status muon__opt_create(muon_opt **out, const muon_config *config, const muon_param *params,
                             size_t nparams, muon_status status)
{
    muon_opt *opt = NULL;
    status = make_together(&opt, config, params, nparams, status);
    if (status != MUON_OK) {
        muon__opt_destroy(opt);
        return status;
    }
    say_created(opt);
    *out = opt;
    return MUON_OK;
}

static void free_units(part_units *units)
{
    free(units->units);
    free(units->first);
}

void muon__opt_destroy(muon_opt *opt)
{
    if (!opt) return;
    muon__background_destroy(opt->background);
    muon__pool_destroy(opt->p);
    muon__la_release(opt->la, opt->la_reserved);
    muon__exchange_destroy(opt);
    muon__teams_destroy(opt);
    size_t kept = muon__reference_destroy(opt);
    kept += muon__step_agree_destroy(opt->step_agree);
    kept += muon__norms_destroy(opt);
    kept += muon__agree_close(&opt->agree);
    kept += muon__comm_free(&opt->comm, opt->workspace.base, opt->workspace.size);
    if (opt->plan) { /* before it there is nothing that needs it */
        muon__opt_say_kept(opt, "muon_destroy", kept);
        for (size_t i = 0; opt->groups && i < opt->plan->ngroups; i++)
            muon__plan_free_group(&opt->groups[i]);
    }
    if (opt->plan) muon__owned_destroy(opt);
    muon__offload_destroy(opt);
    muon__region_release(&opt->memory);
    free(opt->groups);
    free(opt->ns);
    free(opt->factor);
    free(opt->own);
    free(opt->bound);
    free(opt->steps);
    free(opt->tensors);
    free(opt->tensor_names);
    free(opt->check_units);
    free(opt->adamw_units);
    free_units(&opt->piece_units);
    free_units(&opt->copy_units[UNPACK]);
    free_units(&opt->copy_units[PACK]);
    free(opt->worker_sum);
    free(opt->class_sum);
    free(opt->qk_tasks);
    free(opt->qk_q);
    free(opt->qk_k);
    muon__ranges_destroy(&opt->ranges);
    muon__ranges_destroy(&opt->bound_ranges);
    muon__fetch_destroy(opt);
    free(opt->checked);
    free(opt->active);
    free(opt->flags);
    free(opt->nonfinite);
    free(opt->stuck);
    for (int k = 0; k < ROUTE_BUFFERS; k++)
        free(opt->wave_buffers[muon__wave_buffers[k]]);
    muon__route_destroy(opt->route);
    muon_plan_destroy(opt->plan);
    free(opt);
}

void muon__opt_say_kept(const muon_opt *opt, const char *call, size_t bytes)
{
    if (bytes > 0)
        muon__opt_log(opt, MUON_LOG_WARN,
                      "%s: %zu bytes stay allocated until messages that other ranks have not "
                      "matched are done, or forever if they never are",
                      call, bytes);
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
    IN_HOST_MODE(log(opt->plan->config.user, level, message));
}
