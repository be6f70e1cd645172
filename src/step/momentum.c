/* Momentum: M from G, and U, the matrix to orthogonalize, into its slot or on its way to the owner.
 * Momentum in 8 bits has a scale for elements that other ranks may hold, so it lies at the owner of the
 * matrix, G goes there in the place of U, and M and U are made there. */
#include "base/i8.h"
#include "base/simd.h"
#include "rule/group.h"
#include "step/elements.h"
#include "step/state.h"

#include <math.h>
#include <string.h>

/* g is scaled on the way; c is a copy, so that no store can change it. */

MUON__SIMD static void heavy_ball(const float *restrict g, float *restrict m, float *restrict u,
                                  int64_t n, momentum c)
{
    for (int64_t i = 0; i < n; i++)
        u[i] = m[i] = c.mu * m[i] + g[i] * c.scale;
}

MUON__SIMD static void heavy_ball_nesterov(const float *restrict g, float *restrict m,
                                           float *restrict u, int64_t n, momentum c)
{
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * c.scale;
        float mi = c.mu * m[i] + gi;
        m[i] = mi;
        u[i] = gi + c.mu * mi;
    }
}

MUON__SIMD static void ema(const float *restrict g, float *restrict m, float *restrict u, int64_t n,
                           momentum c)
{
    for (int64_t i = 0; i < n; i++)
        u[i] = m[i] = m[i] + c.rest * (g[i] * c.scale - m[i]);
}

MUON__SIMD static void ema_nesterov(const float *restrict g, float *restrict m, float *restrict u,
                                    int64_t n, momentum c)
{
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * c.scale;
        float mi = m[i] + c.rest * (gi - m[i]);
        m[i] = mi;
        u[i] = gi + c.mu * (mi - gi);
    }
}

MUON__SIMD static void ema_corrected(const float *restrict g, float *restrict m, float *restrict u,
                                     int64_t n, momentum c)
{
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * c.scale;
        float mi = m[i] + c.rest * (gi - m[i]);
        m[i] = mi;
        u[i] = c.of_m * mi + c.of_g * gi;
    }
}

/* The owner has the momentum. */
MUON__SIMD static void pass_on(float *restrict u, const float *restrict g, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++)
        u[i] = g[i] * scale;
}

static momentum_fn kernel_of(const muon_group *group)
{
    static const momentum_fn kernels[][2] = {
        [MUON_HEAVY_BALL] = {heavy_ball, heavy_ball_nesterov},
        [MUON_EMA] = {ema, ema_nesterov},
    };
    return group->bias_correction ? ema_corrected : kernels[group->momentum_form][group->nesterov];
}

momentum muon__momentum_of(const muon_opt *opt, size_t param)
{
    const muon_group *group = &opt->groups[opt->plan->params[param].group];
    double mu = group->momentum, t = (double)*opt->state[param].step + 1;
    momentum c = {.kernel = kernel_of(group),
                  .scale = muon__grad_multiplier(opt, group),
                  .mu = (float)mu,
                  .rest = (float)(1 - mu)};
    if (group->bias_correction) {
        c.of_m = (float)(group->nesterov ? mu / (1 - pow(mu, t + 1)) : 1 / (1 - pow(mu, t)));
        c.of_g = (float)(group->nesterov ? (1 - mu) / (1 - pow(mu, t)) : 0);
    }
    return c;
}

void muon__momentum_stretch(const muon_opt *opt, const momentum *c, size_t param, int64_t at,
                            int64_t n, float *u)
{
    const muon_group *group = &opt->groups[opt->plan->params[param].group];
    void *state = opt->state[param].momentum;
    int bf16 = group->momentum_dtype == MUON_BF16;
    float grad_room[CHUNK], state_room[CHUNK];
    momentum own = *c;
    const float *g = muon__grad_regular(opt, param, at, n, grad_room, &own.scale);
    if (group->momentum_dtype == MUON_I8) {
        pass_on(u, g, n, own.scale);
        if (opt->plan->config.wire == MUON_BF16) muon__bf16_round(u, u, n);
        return;
    }
    float *m = bf16 ? state_room : (float *)state + at;
    if (bf16) muon__bf16_load(m, (const uint16_t *)state + at, n);
    own.kernel(g, m, u, n, own);
    if (bf16) muon__bf16_store((uint16_t *)state + at, m, n);
    if (opt->plan->config.wire == MUON_BF16) muon__bf16_round(u, u, n);
}

/* ---- At the owner */

typedef struct owner_pass {
    momentum c;
    int8_t *codes;
    float *scales, *x;
    int64_t n, index; /* index: of the first element, in the parameter's list */
    uint64_t key;
} owner_pass;

static void block_unit(void *arg, int64_t block, int worker)
{
    const owner_pass *o = arg;
    float g[MUON__I8_BLOCK], m[MUON__I8_BLOCK];
    int64_t at = block * MUON__I8_BLOCK;
    int64_t n = o->n - at < MUON__I8_BLOCK ? o->n - at : MUON__I8_BLOCK;
    (void)worker;
    memcpy(g, o->x + at, (size_t)n * sizeof *g);
    muon__i8_load(m, o->codes + at, o->scales[block], n);
    o->c.kernel(g, m, o->x + at, n, o->c);
    o->scales[block] = muon__i8_store(o->codes + at, m, n, o->key, o->index + at);
}

void muon__momentum_i8(const muon_opt *opt, const plan_item *item, float *x, pool *p)
{
    owner_pass o = {.c = muon__momentum_of(opt, item->param),
                    .codes = muon__owned_at(opt, OWNED_CODES, item),
                    .scales = muon__owned_at(opt, OWNED_SCALES, item),
                    .x = x,
                    .n = muon__owned_length(opt->plan, item, OWNED_CODES),
                    .index = opt->lists[OWNED_CODES].index[item - opt->plan->items],
                    .key = random_key_of(opt, item->param, STREAM_MOMENTUM)};
    o.c.scale = 1; /* it has been applied */
    muon__pool_run(p, muon__i8_blocks(o.n), block_unit, &o);
}

/* ---- At the holders */

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
    if (piece->send == ROUTE_SLOT) return (target){.wide = muon__opt_slots(opt, pass->wave) + at};
    char *transit = muon__opt_buffer(opt, GATHER_SEND, pass->wave);
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
    momentum c = muon__momentum_of(opt, item->param);
    for (chunks p = chunks_of_unit(opt, unit, ld); chunks_next(&p);) {
        float *u = to.wide ? to.wide + p.place : u_room;
        muon__momentum_stretch(opt, &c, item->param, p.at, p.n, u);
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
        double state = (double)muon__plan_momentum_bytes(&opt->groups[param->group]);
        int l2 = muon__group_l2(&opt->groups[param->group]) > 0;
        double w = !l2 ? 0 : param->dtype == MUON_BF16 ? 2 : 4;
        double u = piece->send == ROUTE_NOWHERE ? 0 : piece->send == ROUTE_SLOT ? 4 : wire;
        bytes += (double)(piece->part.nrows * piece->part.ncols) *
                 ((double)muon__dtype_bytes(param->grad_dtype) + 2 * state + u + w);
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
