/* One optimizer step, in the order the data flows. */
#include "base/clock.h"
#include "base/digest.h"
#include "base/mode.h"
#include "step/opt.h"

#include <math.h>
#include <string.h>

void muon__step_clock(muon_opt *opt, muon_phase phase, double *since)
{
    double now = muon__seconds();
    opt->result.phase[phase].seconds += now - *since;
    *since = now;
}

muon_status muon__step_keep(muon_opt *opt, muon_status status)
{
    if (status == MUON_OK || opt->plan->nranks == 1) return status;
    if (opt->kept == MUON_OK) {
        opt->kept = status;
        memcpy(opt->kept_text, muon_last_error(), strlen(muon_last_error()) + 1);
    }
    return MUON_OK;
}

/* Of what Muon has read by a wave, or of everything else. */
static void tell_consumed(const muon_opt *opt, int muon, size_t wave)
{
    const muon_config *config = &opt->plan->config;
    if (!config->grad_consumed) return;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        int is_muon = opt->plan->params[i].rule == MUON_RULE_MUON;
        if (is_muon != muon || !opt->active[i] || !opt->route->numel[i]) continue;
        if (!muon || opt->route->last_wave[i] == wave)
            IN_HOST_MODE(config->grad_consumed(config->user, i));
    }
}

void muon__step_consumed(const muon_opt *opt, size_t wave)
{
    tell_consumed(opt, 1, wave);
}

/* ---- Before anything changes */

enum { NAMED = 8 }; /* what must be the same on every rank besides groups */

/* What is in the caller's memory may be wrong on one rank, and would make the ranks drift apart. */
static double sum_steps(const muon_opt *opt)
{
    double sum = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++)
        if (opt->state[i].step) sum += (double)*opt->state[i].step;
    return sum;
}

static void name_settings(const muon_opt *opt, const muon_step_args *args,
                          step_setting named[NAMED])
{
    const step_setting all[NAMED] = {
        {"grad_scale", args->grad_scale},
        {"grad_norm", isnan(args->grad_norm) ? (double)NAN : args->grad_norm}, /* any NaN is one */
        {"finite", args->finite},
        {"clip_norm", opt->clip_norm},
        {"skip_norm", opt->skip_norm},
        {"qk_threshold", opt->qk_threshold},
        {"qk_log_only", opt->qk_log_only},
        {"the sum of all step counters", opt->plan->nranks > 1 ? sum_steps(opt) : 0}};
    memcpy(named, all, sizeof all);
}

static uint64_t hash_settings(const step_setting named[NAMED])
{
    uint64_t digest = MUON__DIGEST_START;
    for (int i = 0; i < NAMED; i++)
        muon__digest_reals(&digest, &named[i].value, 1);
    return digest;
}

/* Checks this rank's inputs and hears of all others'. Sets *go to 0 if the step must be skipped. */
static muon_status prepare(muon_opt *opt, const muon_step_args *args, muon_status status,
                           step_word *word, int *go)
{
    step_setting named[NAMED];
    memset(opt->flags, 0, opt->plan->nparams);
    if (status == MUON_OK) status = muon__step_inputs(opt, args);
    if (status == MUON_OK) {
        opt->buffers = args->buffers;
        opt->grad_factor = 1 / args->grad_scale;
        if (opt->want_check) status = muon__step_check(opt, word);
    }
    if (status == MUON_OK) {
        name_settings(opt, args, named);
        word->settings = hash_settings(named);
        word->named = named;
        word->nnamed = NAMED;
        word->max_logits = args->max_logits;
    }
    word->groups = opt->groups;
    word->flags = opt->flags;
    TRY(muon__agree_step(opt->step_agree, status, word));
    *go = muon__step_judge(opt, word, args);
    return MUON_OK;
}

muon_status muon__step_norm(muon_opt *opt, const muon_step_args *args, muon_status status)
{
    step_word word = {.call = "muon_grad_norm"};
    int go;
    muon_result_init(&opt->result, sizeof opt->result);
    muon__step_ask(opt, args, 1);
    return muon__opt_settle(opt, prepare(opt, args, status, &word, &go));
}

/* ---- At the end */

/* Root mean square of lr * factor * O over all Muon's elements, from sums that no order can change. */
static double update_rms(const muon_opt *opt)
{
    double sum = 0, elements = 0;
    for (size_t c = 0; c < opt->plan->nclasses; c++) {
        double rate = opt->groups[opt->plan->classes[c].group].lr * opt->factor[c];
        sum += rate * rate * muon__sumsq_value(&opt->class_sum[c]);
    }
    for (size_t i = 0; i < opt->plan->nitems; i++) {
        const plan_item *item = &opt->plan->items[i];
        if (item->class == PLAN_IDLE || !opt->active[item->param]) continue;
        elements += (double)muon__item_numel(item);
    }
    return elements > 0 ? sqrt(sum / elements) : 0;
}

static void copy_phases(double *to, const muon_phase_cost *phases)
{
    for (int i = 0; i < MUON_MAX_PHASES; i++)
        to[i] = phases[i].seconds;
}

/* What all ranks did together, if somebody wants to know, or if one of them may have failed. */
static muon_status conclude(muon_opt *opt, const step_word *word)
{
    muon_result *result = &opt->result;
    size_t nclasses = opt->plan->nclasses;
    for (size_t i = nclasses; i < nclasses * (size_t)opt->plan->threads; i++)
        muon__sumsq_merge(&opt->class_sum[i % nclasses], &opt->class_sum[i]);
    step_sums sums = {.nonfinite_matrices = result->nonfinite_matrices,
                      .matrices = result->matrices,
                      .class_sum = opt->class_sum,
                      .seconds = result->seconds};
    copy_phases(sums.phase, result->phase);
    if (opt->kept != MUON_OK) muon__fail(opt->kept, "%s", opt->kept_text);
    if (word->want_result || opt->plan->config.orthogonalize || opt->offloaded)
        TRY(muon__agree_end(opt->step_agree, opt->kept, &sums));
    result->nonfinite_matrices = sums.nonfinite_matrices;
    result->matrices = sums.matrices;
    result->seconds_max = sums.seconds_max;
    result->seconds_min = sums.seconds_min;
    memcpy(result->phase_max, sums.phase_max, sizeof result->phase_max);
    memcpy(result->phase_min, sums.phase_min, sizeof result->phase_min);
    result->update_rms = update_rms(opt);
    return MUON_OK;
}

static muon_status apply(muon_opt *opt, const step_word *word, double *clock)
{
    memset(opt->class_sum, 0,
           (size_t)opt->plan->threads * opt->plan->nclasses * sizeof *opt->class_sum);
    double start = *clock;
    opt->kept = MUON_OK;
    TRY(opt->plain ? muon__step_reference(opt, clock) : muon__step_pipeline(opt, clock));
    TRY(muon__norms_restore(opt));
    muon__step_clock(opt, MUON_PHASE_UPDATE, clock);
    TRY(muon__step_keep(opt, muon__step_adamw(opt, clock)));
    tell_consumed(opt, 0, 0);
    muon__step_clock(opt, MUON_PHASE_ADAMW, clock);
    muon__step_qk_clip(opt, word->agreed_logits);
    muon__step_clock(opt, MUON_PHASE_QK_CLIP, clock);
    opt->result.seconds = *clock - start + opt->result.phase[MUON_PHASE_CHECK].seconds;
    TRY(conclude(opt, word));
    for (size_t i = 0; i < opt->plan->nparams; i++)
        if (opt->active[i]) ++*opt->state[i].step;
    opt->result.applied = 1;
    return MUON_OK;
}

static void say_skipped(const muon_opt *opt)
{
    const muon_result *result = &opt->result;
    if (result->skip == MUON_SKIP_GRAD_NORM)
        muon__opt_log(opt, MUON_LOG_WARN,
                      "step skipped: the norm of the gradients is %g, skip_norm is %g",
                      result->grad_norm, opt->skip_norm);
    else if (result->skip_param)
        muon__opt_log(opt, MUON_LOG_WARN,
                      "step skipped: param '%s' has a NaN or infinity in its gradient",
                      result->skip_param);
    else
        muon__opt_log(
            opt, MUON_LOG_WARN,
            "step skipped: the caller said that gradients are not finite, although they are");
}

muon_status muon__step_run(muon_opt *opt, const muon_step_args *args, muon_status status,
                           int want_result)
{
    double clock = muon__seconds();
    muon_result_init(&opt->result, sizeof opt->result);
    muon__step_ask(opt, args, want_result);
    /* Where gradients may fail to come, all ranks meet at the end, to hear of it. */
    step_word word = {.want_result = want_result || opt->plan->config.grad_fetch};
    int go = 0;
    status = prepare(opt, args, status, &word, &go);
    muon__step_clock(opt, MUON_PHASE_CHECK, &clock);
    if (status != MUON_OK) {
        if (muon__opt_is_parting(status)) muon__opt_break(opt, status, NULL);
        return status;
    }
    if (!go) {
        opt->result.seconds = opt->result.phase[MUON_PHASE_CHECK].seconds;
        opt->result.skipped_steps = ++opt->skipped_steps;
        say_skipped(opt);
        return MUON_OK;
    }
    opt->result.skipped_steps = opt->skipped_steps;
    TRY(muon__opt_settle(opt, muon__norms_find(opt)));
    muon__step_clock(opt, MUON_PHASE_CHECK, &clock);
    status = apply(opt, &word, &clock);
    if (status != MUON_OK)
        muon__opt_break(opt, status, "an earlier step of this optimizer failed half-way");
    return status;
}
