/* One optimizer step, in the order the data flows. */
#include "base/clock.h"
#include "step/opt.h"

#include <math.h>

static void add_seconds(muon_opt *opt, muon_phase phase, double *since)
{
    double now = muon__seconds();
    opt->result.phase[phase].seconds += now - *since;
    *since = now;
}

static void tell_consumed(const muon_opt *opt, muon_rule rule, size_t wave)
{
    const muon_config *config = &opt->plan->config;
    if (!config->grad_consumed) return;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *param = &opt->plan->params[i];
        if (param->rule != rule || !opt->active[i]) continue;
        if (rule == MUON_RULE_ADAMW || param->last_wave == wave)
            config->grad_consumed(config->user, i);
    }
}

static muon_status run_waves(muon_opt *opt, double *clock)
{
    for (size_t w = 0; w < opt->plan->nwaves; w++) {
        muon__step_momentum(opt, w);
        tell_consumed(opt, MUON_RULE_MUON, w);
        add_seconds(opt, MUON_PHASE_MOMENTUM, clock);
        TRY(muon__step_ortho(opt, w));
        add_seconds(opt, MUON_PHASE_ORTHO, clock);
        muon__step_update(opt, w);
        add_seconds(opt, MUON_PHASE_UPDATE, clock);
    }
    return MUON_OK;
}

/* Root mean square of lr * factor * O; summed in the order of items, so that waves do not matter. */
static double update_rms(const muon_opt *opt)
{
    double sum = 0, elements = 0;
    for (size_t i = 0; i < opt->plan->nitems; i++) {
        const plan_item *item = &opt->plan->items[i];
        if (item->class == PLAN_IDLE || !opt->active[item->param]) continue;
        const plan_class *class = &opt->plan->classes[item->class];
        double rate = opt->groups[class->group].lr * opt->factor[item->class];
        sum += rate * rate * opt->item_sumsq[i];
        elements += (double)class->rows * (double)class->cols;
    }
    return elements > 0 ? sqrt(sum / elements) : 0;
}

muon_status muon__step_run(muon_opt *opt, const muon_step_args *args)
{
    double start = muon__seconds();
    double clock = start;
    muon_result_init(&opt->result, sizeof opt->result);
    TRY(muon__step_inputs(opt, args));
    opt->buffers = args->buffers;
    int go = muon__step_check(opt, args->grad_scale);
    add_seconds(opt, MUON_PHASE_CHECK, &clock);
    if (!go) {
        opt->result.seconds = clock - start;
        muon__opt_log(opt, MUON_LOG_WARN,
                      "step skipped: param '%s' has a NaN or infinity in its gradient",
                      opt->result.skip_param);
        return MUON_OK;
    }

    muon_status status = run_waves(opt, &clock);
    if (status != MUON_OK) {
        opt->broken = 1;
        return status;
    }
    muon__step_adamw(opt);
    tell_consumed(opt, MUON_RULE_ADAMW, 0);
    add_seconds(opt, MUON_PHASE_ADAMW, &clock);
    muon__step_qk_clip(opt, args->max_logits);
    add_seconds(opt, MUON_PHASE_QK_CLIP, &clock);

    for (size_t i = 0; i < opt->plan->nparams; i++)
        if (opt->active[i]) ++*opt->state[i].step;
    opt->result.update_rms = update_rms(opt);
    opt->result.applied = 1;
    opt->result.seconds = clock - start;
    return MUON_OK;
}
