/* Rules that look at one element at a time: AdamW, by the formula of torch's AdamW in f32, and Lion. */
#include "base/simd.h"
#include "rule/group.h"
#include "step/elements.h"
#include "step/state.h"

#include <math.h>

typedef struct adamw adamw;
typedef void (*adamw_fn)(float *restrict w, const float *restrict g, float *restrict m,
                         float *restrict v, int64_t n, adamw c);
struct adamw {
    adamw_fn kernel;
    float scale; /* of the gradient */
    float decay; /* of the weight */
    float rest1, beta2, rest2;
    float rate;       /* lr / (1 - beta1^t), raw eps: times sqrt(1 - beta2^t) */
    float correction; /* 1 / sqrt(1 - beta2^t), raw eps: 1; a factor, because a second division per
                         element would keep the loop from the speed of memory */
    float eps;
};

MUON__SIMD static void move(float *restrict w, const float *restrict g, float *restrict m,
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

MUON__SIMD static void move_cautiously(float *restrict w, const float *restrict g,
                                       float *restrict m, float *restrict v, int64_t n, adamw c)
{
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * c.scale;
        float mi = m[i] + c.rest1 * (gi - m[i]);
        float vi = v[i] * c.beta2 + c.rest2 * gi * gi;
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] * cautious_decay(w[i], mi, c.decay) -
               c.rate * mi / (sqrtf(vi) * c.correction + c.eps);
    }
}

/* Lion has no v, and no bias correction. */

static inline float sign_of(float x)
{
    return (float)((x > 0) - (x < 0));
}

MUON__SIMD static void lion(float *restrict w, const float *restrict g, float *restrict m,
                            float *restrict v, int64_t n, adamw c)
{
    (void)v;
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * c.scale, mi = m[i];
        float d = sign_of(mi + c.rest1 * (gi - mi));
        m[i] = mi + c.rest2 * (gi - mi);
        w[i] = w[i] * c.decay - c.rate * d;
    }
}

MUON__SIMD static void lion_cautiously(float *restrict w, const float *restrict g,
                                       float *restrict m, float *restrict v, int64_t n, adamw c)
{
    (void)v;
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * c.scale, mi = m[i];
        float d = sign_of(mi + c.rest1 * (gi - mi));
        m[i] = mi + c.rest2 * (gi - mi);
        w[i] = w[i] * cautious_decay(w[i], d, c.decay) - c.rate * d;
    }
}

static adamw constants_of_lion(const muon_opt *opt, const muon_group *group)
{
    return (adamw){.kernel = group->cautious_decay ? lion_cautiously : lion,
                   .scale = muon__grad_multiplier(opt, group),
                   .decay = (float)(1 - muon__group_decay(group)),
                   .rest1 = (float)(1 - group->beta1),
                   .rest2 = (float)(1 - group->beta2),
                   .rate = (float)group->lr};
}

static adamw constants(const muon_opt *opt, const muon_group *group, int64_t step)
{
    if (group->rule == MUON_RULE_LION) return constants_of_lion(opt, group);
    double t = (double)step;
    double correction1 = 1 - pow(group->beta1, t);
    double correction2 = sqrt(1 - pow(group->beta2, t));
    int raw = group->adam_eps_mode == MUON_ADAM_EPS_RAW;
    return (adamw){
        .kernel = group->cautious_decay ? move_cautiously : move,
        .scale = muon__grad_multiplier(opt, group),
        .decay = (float)(1 - muon__group_decay(group)),
        .rest1 = (float)(1 - group->beta1),
        .beta2 = (float)group->beta2,
        .rest2 = (float)(1 - group->beta2),
        .rate = (float)(group->lr / correction1 * (raw ? correction2 : 1)),
        .correction = (float)(raw ? 1 : 1 / correction2),
        .eps = (float)group->adam_eps,
    };
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
    const muon_group *group = &opt->groups[param->group];
    adamw c = constants(opt, group, *state->step + 1);
    weight target = weight_of(opt, unit->param, STREAM_UPDATE);
    float room[CHUNK], grad_room[CHUNK];
    band bands[2];
    chunks p = chunks_of_patch(&param->fold, &opt->route->patches[unit->patch], unit->batch,
                               unit->begin, unit->end, bands);
    while (chunks_next(&p)) {
        float *w = weight_edit(&target, p.at, p.n, room);
        adamw own = c;
        const float *g = muon__grad_regular(opt, unit->param, p.at, p.n, grad_room, &own.scale);
        float *squares = state->exp_avg_sq ? state->exp_avg_sq + p.at : NULL;
        own.kernel(w, g, state->exp_avg + p.at, squares, p.n, own);
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
        if (param->rule == MUON_RULE_MUON || !opt->active[i]) continue;
        double grad = (double)muon__dtype_bytes(param->grad_dtype);
        double state = 2 * (double)muon__plan_state_bytes(opt->plan, param);
        opt->result.phase[MUON_PHASE_ADAMW].bytes +=
            (double)opt->route->numel[i] * (grad + state + weight_bytes(param));
    }
}

muon_status muon__step_adamw(muon_opt *opt, double *clock)
{
    TRY(opt->offload.t ? run_stages(opt, clock) : run(opt, 0, opt->nadamw_units));
    count_bytes(opt);
    return MUON_OK;
}
