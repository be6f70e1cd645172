/* The norm of all gradients, and whether every one of them is finite: what the caller knows of it, or
 * else what this rank finds in its own, then all ranks together. Nothing has changed yet when this
 * says no. */
#include "step/opt.h"
#include "step/state.h"

#include <float.h>
#include <math.h>
#include <string.h>

static int is_norm_given(const muon_step_args *args)
{
    return !(args->grad_norm < 0); /* a NaN is one, too */
}

/* By the caller: 1, 0 or MUON_UNKNOWN. A norm has it in itself. */
static int told_finite(const muon_step_args *args)
{
    if (args->finite == 0 || !is_norm_given(args)) return args->finite;
    return isfinite(args->grad_norm) != 0;
}

/* Gradients that are known not to be finite are read to say which of them it is. */
void muon__step_ask(muon_opt *opt, const muon_step_args *args, int want_result)
{
    int finite = told_finite(args), is_limited = opt->clip_norm > 0 || opt->skip_norm > 0;
    int is_seen = finite == MUON_UNKNOWN && (want_result || opt->plan->nranks > 1);
    opt->want_norm = !is_norm_given(args) && finite != 0 && (is_limited || is_seen);
    opt->want_check = finite != 1 || opt->want_norm;
}

/* Finite, and still so after unscaling. */
static int is_usable(const muon_opt *opt, const sumsq *sum)
{
    float largest;
    memcpy(&largest, &sum->largest, sizeof largest);
    return (double)largest * opt->grad_factor <= (double)FLT_MAX;
}

typedef struct check_pass {
    muon_opt *opt;
    size_t first; /* of its units */
} check_pass;

static void check_unit(void *arg, int64_t index, int worker)
{
    const check_pass *pass = arg;
    muon_opt *opt = pass->opt;
    const flat_unit *unit = &opt->check_units[pass->first + (size_t)index];
    if (!opt->active[unit->param]) return;
    const plan_param *param = &opt->plan->params[unit->param];
    const grad_view *grad = &opt->grads[unit->param];
    const char *at = (const char *)grad->data +
                     (size_t)(unit->begin - grad->begin) * muon__dtype_bytes(param->grad_dtype);
    sumsq sum = {0};
    const sumsq_reader *reader = muon__sumsq_reader(param->grad_dtype);
    if (opt->want_norm && unit->counts)
        reader->add(&sum, at, unit->end - unit->begin);
    else
        reader->see(&sum, at, unit->end - unit->begin);
    if (!is_usable(opt, &sum)) atomic_store(&opt->nonfinite[unit->param], 1);
    muon__sumsq_merge(&opt->worker_sum[worker], &sum);
}

muon_status muon__step_check(muon_opt *opt, step_word *word)
{
    const muon_plan *plan = opt->plan;
    for (size_t i = 0; i < plan->nparams; i++)
        atomic_store(&opt->nonfinite[i], 0);
    memset(opt->worker_sum, 0, (size_t)plan->threads * sizeof *opt->worker_sum);
    for (size_t first = 0, next; first < opt->ncheck_units; first = next) {
        next = opt->ncheck_units;
        TRY(muon__fetch_check(opt, first, &next));
        check_pass pass = {opt, first};
        muon__pool_run(opt->p, (int64_t)(next - first), check_unit, &pass);
    }
    for (int i = 0; i < plan->threads; i++)
        muon__sumsq_merge(&word->sum, &opt->worker_sum[i]);
    for (size_t i = 0; i < plan->nparams; i++) {
        const plan_param *param = &plan->params[i];
        if (atomic_load(&opt->nonfinite[i])) opt->flags[i] |= AGREE_NONFINITE;
        if (opt->active[i])
            opt->result.phase[MUON_PHASE_CHECK].bytes +=
                (double)opt->route->numel[i] * (double)muon__dtype_bytes(param->grad_dtype);
    }
    return MUON_OK;
}

static double norm_of(const muon_opt *opt, const step_word *word, const muon_step_args *args)
{
    if (is_norm_given(args)) return args->grad_norm;
    return opt->want_norm ? sqrt(muon__sumsq_value(&word->sum)) / args->grad_scale : (double)NAN;
}

int muon__step_judge(muon_opt *opt, const step_word *word, const muon_step_args *args)
{
    muon_result *result = &opt->result;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *param = &opt->plan->params[i];
        if (param->rule == MUON_RULE_FROZEN) continue;
        opt->active[i] = (opt->flags[i] & AGREE_PRESENT) != 0;
        result->missing_params += !opt->active[i];
        if (!(opt->flags[i] & AGREE_NONFINITE)) continue;
        if (!result->skip_param) result->skip_param = param->name;
        result->nonfinite_params++;
    }
    result->grad_norm = norm_of(opt, word, args);
    opt->clip_coef = 1;
    if (result->nonfinite_params > 0 || told_finite(args) == 0)
        result->skip = MUON_SKIP_NONFINITE_GRAD;
    else if (opt->skip_norm > 0 && result->grad_norm > opt->skip_norm)
        result->skip = MUON_SKIP_GRAD_NORM;
    else if (opt->clip_norm > 0 && result->grad_norm > opt->clip_norm)
        opt->clip_coef = opt->clip_norm / result->grad_norm;
    result->clip_coef = opt->clip_coef;
    return result->skip == MUON_SKIP_NONE;
}

float muon__grad_multiplier(const muon_opt *opt, const muon_group *group)
{
    return (float)(group->clip ? opt->grad_factor * opt->clip_coef : opt->grad_factor);
}
