/* AdamW, by the formula of torch's AdamW in f32. */
#include "base/simd.h"
#include "step/elements.h"
#include "step/state.h"

#include <math.h>

typedef struct adamw {
    float scale; /* of the gradient */
    float decay; /* of the weight */
    float rest1, beta2, rest2;
    float rate;       /* lr / (1 - beta1^t), raw eps: times sqrt(1 - beta2^t) */
    float correction; /* 1 / sqrt(1 - beta2^t), raw eps: 1; a factor, because a second division per
                         element would keep the loop from the speed of memory */
    float eps;
} adamw;

static adamw constants(const muon_opt *opt, const muon_group *group, int64_t step)
{
    double t = (double)step;
    double correction1 = 1 - pow(group->beta1, t);
    double correction2 = sqrt(1 - pow(group->beta2, t));
    int raw = group->adam_eps_mode == MUON_ADAM_EPS_RAW;
    return (adamw){
        .scale = muon__grad_multiplier(opt, group),
        .decay = (float)(1 - group->lr * group->weight_decay),
        .rest1 = (float)(1 - group->beta1),
        .beta2 = (float)group->beta2,
        .rest2 = (float)(1 - group->beta2),
        .rate = (float)(group->lr / correction1 * (raw ? correction2 : 1)),
        .correction = (float)(raw ? 1 : 1 / correction2),
        .eps = (float)group->adam_eps,
    };
}

MUON__SIMD static void update(float *restrict w, const float *restrict g, float *restrict m,
                              float *restrict v, int64_t n, adamw c)
{
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * c.scale;
        float mi = m[i] + c.rest1 * (gi - m[i]);
        float vi = v[i] * c.beta2 + c.rest2 * gi * gi;
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] * c.decay - c.rate * mi / (sqrtf(vi) * c.correction + c.eps);
    }
}

typedef struct adamw_pass {
    const muon_opt *opt;
    size_t first; /* of its units */
} adamw_pass;

static void adamw_unit(void *arg, int64_t index, int worker)
{
    const adamw_pass *pass = arg;
    const muon_opt *opt = pass->opt;
    (void)worker;
    const patch_unit *unit = &opt->adamw_units[pass->first + (size_t)index];
    if (!opt->active[unit->param]) return;
    const plan_param *param = &opt->plan->params[unit->param];
    const muon_state_buffers *state = &opt->state[unit->param];
    adamw c = constants(opt, &opt->groups[param->group], *state->step + 1);
    weight target = weight_of(opt, unit->param, STREAM_UPDATE);
    float room[CHUNK], grad_room[CHUNK];
    band bands[2];
    chunks p = chunks_of_patch(&param->fold, &opt->route->patches[unit->patch], unit->batch,
                               unit->begin, unit->end, bands);
    while (chunks_next(&p)) {
        float *w = weight_edit(&target, p.at, p.n, room);
        const float *g = grad_read(opt, unit->param, p.at, p.n, grad_room);
        update(w, g, state->exp_avg + p.at, state->exp_avg_sq + p.at, p.n, c);
        weight_commit(&target, w, p.at, p.n, p.index);
    }
}

static muon_status run(muon_opt *opt, size_t first, size_t end)
{
    for (size_t next; first < end; first = next) {
        next = end;
        TRY(muon__fetch_adamw(opt, first, &next));
        adamw_pass pass = {opt, first};
        muon__pool_run(opt->p, (int64_t)(next - first), adamw_unit, &pass);
    }
    return MUON_OK;
}

/* A few units at a time, so that while one stage computes the state of the next is on its way. */
static muon_status run_stages(muon_opt *opt, double *clock)
{
    const offload *o = &opt->offload;
    for (size_t i = 0; i < o->adamw_stages; i++) {
        TRY(muon__offload_enter(opt, o->muon_stages + i, clock));
        muon_status made = run(opt, o->adamw_first[i], o->adamw_first[i + 1]);
        muon__offload_leave(opt, o->muon_stages + i);
        TRY(made);
        muon__step_clock(opt, MUON_PHASE_ADAMW, clock);
    }
    return MUON_OK;
}

static void count_bytes(muon_opt *opt)
{
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *param = &opt->plan->params[i];
        if (param->rule != MUON_RULE_ADAMW || !opt->active[i]) continue;
        double grad = (double)muon__dtype_bytes(param->grad_dtype);
        opt->result.phase[MUON_PHASE_ADAMW].bytes +=
            (double)opt->route->numel[i] * (grad + 16 + weight_bytes(param));
    }
}

muon_status muon__step_adamw(muon_opt *opt, double *clock)
{
    TRY(opt->offload.t ? run_stages(opt, clock) : run(opt, 0, opt->nadamw_units));
    count_bytes(opt);
    return MUON_OK;
}
