/* Momentum: M from G, and U, the matrix to orthogonalize, into its slot or on its way to the owner. */
#include "base/simd.h"
#include "step/elements.h"
#include "step/state.h"

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

void muon__momentum_stretch(const muon_opt *opt, size_t index, int64_t at, int64_t n, float *u)
{
    const plan_param *param = &opt->plan->params[index];
    const muon_group *group = &opt->groups[param->group];
    float scale = muon__grad_multiplier(opt, group);
    float mu = (float)group->momentum, rest = (float)(1 - group->momentum);
    void *state = opt->state[index].momentum;
    int bf16 = group->momentum_dtype == MUON_BF16;
    float grad_room[CHUNK], state_room[CHUNK];
    const float *g = grad_read(opt, index, at, n, grad_room);
    float *m = bf16 ? state_room : (float *)state + at;
    if (bf16) muon__bf16_load(m, (const uint16_t *)state + at, n);
    if (group->momentum_form == MUON_HEAVY_BALL)
        heavy_ball(g, m, u, n, scale, mu, group->nesterov);
    else
        ema(g, m, u, n, scale, mu, rest, group->nesterov);
    if (bf16) muon__bf16_store((uint16_t *)state + at, m, n);
    if (opt->plan->config.wire == MUON_BF16) muon__bf16_round(u, u, n);
}

/* Where the unit's U goes: floats in a slot or a message, bf16 in a message, or nowhere. */
typedef struct target {
    float *wide;
    uint16_t *narrow;
} target;

static target target_of(const wave_pass *pass, const route_piece *piece, int64_t begin, int64_t *ld)
{
    const muon_opt *opt = pass->opt;
    *ld = piece->part.ncols;
    if (piece->send == ROUTE_NOWHERE) return (target){NULL, NULL};
    const plan_item *item = &opt->plan->items[piece->item];
    int64_t at = place_of(item, piece, piece->send, begin, ld);
    if (piece->send == ROUTE_SLOT)
        return (target){.wide = opt->wave[pass->wave % (size_t)opt->rings.waves] + at};
    char *transit = opt->transit[GATHER_SEND][pass->wave % (size_t)opt->rings.shards];
    if (opt->plan->config.wire == MUON_BF16)
        return (target){.narrow = (uint16_t *)(void *)transit + at};
    return (target){.wide = (float *)(void *)transit + at};
}

static void momentum_unit(void *arg, int64_t index, int worker)
{
    const wave_pass *pass = arg;
    const muon_opt *opt = pass->opt;
    (void)worker;
    const part_unit *unit = &opt->piece_units.units[pass->first + (size_t)index];
    const route_piece *piece = &opt->route->pieces[unit->index];
    const plan_item *item = &opt->plan->items[piece->item];
    if (!opt->active[item->param]) return;
    float u_room[CHUNK];
    int64_t ld;
    target to = target_of(pass, piece, unit->begin, &ld);
    for (chunks p = chunks_of_unit(opt, unit, ld); chunks_next(&p);) {
        float *u = to.wide ? to.wide + p.place : u_room;
        muon__momentum_stretch(opt, item->param, p.at, p.n, u);
        if (to.narrow) muon__bf16_store(to.narrow + p.place, u, p.n);
    }
}

static void count_bytes(muon_opt *opt, size_t wave)
{
    const route *r = opt->route;
    double bytes = 0, wire = opt->plan->config.wire == MUON_BF16 ? 2 : 4;
    for (size_t i = r->piece_first[wave]; i < r->piece_first[wave + 1]; i++) {
        const route_piece *piece = &r->pieces[i];
        size_t index = opt->plan->items[piece->item].param;
        if (!opt->active[index]) continue;
        const plan_param *param = &opt->plan->params[index];
        double state = opt->groups[param->group].momentum_dtype == MUON_BF16 ? 2 : 4;
        double u = piece->send == ROUTE_NOWHERE ? 0 : piece->send == ROUTE_SLOT ? 4 : wire;
        bytes += (double)(piece->part.nrows * piece->part.ncols) *
                 ((double)muon__dtype_bytes(param->grad_dtype) + 2 * state + u);
    }
    opt->result.phase[MUON_PHASE_MOMENTUM].bytes += bytes;
}

muon_status muon__step_momentum(muon_opt *opt, size_t wave)
{
    size_t end = opt->piece_units.first[wave + 1];
    for (size_t first = opt->piece_units.first[wave], next; first < end; first = next) {
        next = end;
        TRY(muon__fetch_pieces(opt, first, &next));
        wave_pass pass = {opt, wave, first};
        muon__pool_run(opt->p, (int64_t)(next - first), momentum_unit, &pass);
    }
    count_bytes(opt, wave);
    return MUON_OK;
}
