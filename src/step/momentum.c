/* Momentum: M from G, and U, the matrix to orthogonalize, into the wave's buffer. */
#include "base/simd.h"
#include "step/elements.h"

MUON__SIMD static void heavy_ball(const float *restrict g, float *restrict m, float *restrict u,
                                  int64_t n, float scale, float mu, int nesterov)
{
    if (nesterov) {
        for (int64_t i = 0; i < n; i++) {
            float gi = g[i] * scale;
            float mi = mu * m[i] + gi;
            m[i] = mi;
            u[i] = gi + mu * mi;
        }
    } else {
        for (int64_t i = 0; i < n; i++)
            u[i] = m[i] = mu * m[i] + g[i] * scale;
    }
}

MUON__SIMD static void ema(const float *restrict g, float *restrict m, float *restrict u, int64_t n,
                           float scale, float mu, float rest, int nesterov)
{
    if (nesterov) {
        for (int64_t i = 0; i < n; i++) {
            float gi = g[i] * scale;
            float mi = m[i] + rest * (gi - m[i]);
            m[i] = mi;
            u[i] = gi + mu * (mi - gi);
        }
    } else {
        for (int64_t i = 0; i < n; i++)
            u[i] = m[i] = m[i] + rest * (g[i] * scale - m[i]);
    }
}

static void momentum_unit(void *arg, int64_t index, int worker)
{
    const wave_pass *pass = arg;
    const muon_opt *opt = pass->opt;
    (void)worker;
    const row_unit *unit = &opt->row_units[pass->first + (size_t)index];
    const plan_item *item = &opt->plan->items[unit->item];
    if (!opt->active[item->param]) return;
    const plan_param *param = &opt->plan->params[item->param];
    const muon_group *group = &opt->groups[param->group];
    float scale = muon__grad_multiplier(opt, group);
    float mu = (float)group->momentum, rest = (float)(1 - group->momentum);
    void *state = opt->state[item->param].momentum;
    int bf16 = group->momentum_dtype == MUON_BF16;
    float grad_room[PIECE], state_room[PIECE], u_room[PIECE];
    for (pieces p = pieces_of(opt, item, unit->begin, unit->end); pieces_next(&p);) {
        const float *g =
            elements_read(opt->buffers[item->param].grad, param->grad_dtype, p.at, p.n, grad_room);
        float *m = bf16 ? state_room : (float *)state + p.at;
        if (bf16) muon__bf16_load(m, (const uint16_t *)state + p.at, p.n);
        float *u = item->class == PLAN_IDLE ? u_room : opt->wave + item->slot + p.slot;
        if (group->momentum_form == MUON_HEAVY_BALL)
            heavy_ball(g, m, u, p.n, scale, mu, group->nesterov);
        else
            ema(g, m, u, p.n, scale, mu, rest, group->nesterov);
        if (bf16) muon__bf16_store((uint16_t *)state + p.at, m, p.n);
        if (opt->plan->config.wire == MUON_BF16) muon__bf16_round(u, u, p.n);
    }
}

static void count_bytes(muon_opt *opt, size_t wave)
{
    double bytes = 0;
    for (size_t i = opt->plan->wave[wave]; i < opt->plan->wave[wave + 1]; i++) {
        const plan_item *item = &opt->plan->items[i];
        if (!opt->active[item->param]) continue;
        const plan_param *param = &opt->plan->params[item->param];
        double state = opt->groups[param->group].momentum_dtype == MUON_BF16 ? 2 : 4;
        double u = item->class == PLAN_IDLE ? 0 : 4;
        bytes += (double)(muon__item_rows(item) * muon__item_cols(item)) *
                 ((param->grad_dtype == MUON_BF16 ? 2 : 4) + 2 * state + u);
    }
    opt->result.phase[MUON_PHASE_MOMENTUM].bytes += bytes;
}

void muon__step_momentum(muon_opt *opt, size_t wave)
{
    size_t first = opt->wave_rows[wave];
    wave_pass pass = {opt, first};
    muon__pool_run(opt->p, (int64_t)(opt->wave_rows[wave + 1] - first), momentum_unit, &pass);
    count_bytes(opt, wave);
}
