/* Weights of Muon parameters: W = W (1 - decay) - lr factor O. What is in no matrix only decays. */
#include "base/simd.h"
#include "rule/group.h"
#include "step/elements.h"

#include <math.h>

MUON__SIMD static void move(float *restrict w, const float *restrict o, int64_t n, float decay,
                            float rate)
{
    for (int64_t i = 0; i < n; i++)
        w[i] = w[i] * decay - rate * o[i];
}

MUON__SIMD static void move_cautiously(float *restrict w, const float *restrict o, int64_t n,
                                       float decay, float rate)
{
    for (int64_t i = 0; i < n; i++)
        w[i] = w[i] * cautious_decay(w[i], o[i], decay) - rate * o[i];
}

MUON__SIMD static void divide(float *restrict to, float *restrict v, const float *restrict o,
                              int64_t n, float rest, float eps)
{
    for (int64_t i = 0; i < n; i++) {
        float vi = v[i] + rest * (o[i] * o[i] - v[i]);
        v[i] = vi;
        to[i] = o[i] / (sqrtf(vi) + eps);
    }
}

MUON__SIMD static void divide_clamped(float *restrict to, float *restrict v,
                                      const float *restrict o, int64_t n, float rest, float eps)
{
    for (int64_t i = 0; i < n; i++) {
        float vi = v[i] + rest * (o[i] * o[i] - v[i]);
        v[i] = vi;
        to[i] = o[i] / sqrtf(vi > eps ? vi : eps);
    }
}

MUON__SIMD static void shrink(float *w, int64_t n, float decay)
{
    for (int64_t i = 0; i < n; i++)
        w[i] *= decay;
}

/* Second moments of this shard's elements. A list, of whole matrices, is none of the update's. */
static float *second_of(const muon_opt *opt, size_t param)
{
    const muon_group *group = &opt->groups[opt->plan->params[param].group];
    return group->second_moment == MUON_SECOND_ELEMENTS ? opt->state[param].second_moment : NULL;
}

update muon__update_of(const muon_opt *opt, const plan_item *item)
{
    const muon_group *group = &opt->groups[opt->plan->params[item->param].group];
    double factor = item->class == PLAN_IDLE ? 0 : opt->factor[item->class];
    int clamped = group->second_eps_mode == MUON_SECOND_EPS_CLAMP;
    return (update){.kernel = group->cautious_decay ? move_cautiously : move,
                    .decay = (float)(1 - muon__group_decay(group)),
                    .rate = (float)(group->lr * factor),
                    .divide = clamped ? divide_clamped : divide,
                    .second = second_of(opt, item->param),
                    .rest = (float)(1 - group->second_beta),
                    .eps = (float)group->second_eps};
}

void muon__update_stretch(const update *c, const weight *target, const chunks *p, const float *o)
{
    float room[CHUNK], divided[CHUNK];
    float *w = weight_edit(target, p->at, p->n, room);
    if (o && c->second) {
        c->divide(divided, c->second + p->at, o, p->n, c->rest, c->eps);
        o = divided;
    }
    if (o)
        c->kernel(w, o, p->n, c->decay, c->rate);
    else
        shrink(w, p->n, c->decay);
    weight_commit(target, w, p->at, p->n, p->index);
}

static const float *source_of(const wave_pass *pass, const route_piece *piece, int64_t begin,
                              int64_t *ld)
{
    const muon_opt *opt = pass->opt;
    *ld = piece->part.ncols;
    if (piece->take == ROUTE_NOWHERE) return NULL;
    int64_t at = place_of(&opt->plan->items[piece->item], piece, piece->take, begin, ld);
    if (piece->take == ROUTE_SLOT) return muon__opt_slots(opt, pass->wave) + at;
    return (const float *)(const void *)muon__opt_buffer(opt, SCATTER_RECEIVE, pass->wave) + at;
}

static void update_unit(void *arg, int64_t index, int worker)
{
    const wave_pass *pass = arg;
    const muon_opt *opt = pass->opt;
    (void)worker;
    const part_unit *unit = &opt->piece_units.units[pass->first + (size_t)index];
    const route_piece *piece = &opt->route->pieces[unit->index];
    const plan_item *item = &opt->plan->items[piece->item];
    if (!opt->active[item->param]) return;
    weight target = weight_of(opt, item->param, STREAM_UPDATE);
    update c = muon__update_of(opt, item);
    int64_t ld;
    const float *o = source_of(pass, piece, unit->begin, &ld);
    for (chunks p = chunks_of_unit(opt, unit, ld); chunks_next(&p);)
        muon__update_stretch(&c, &target, &p, o ? o + p.place : NULL);
}

static void count_bytes(muon_opt *opt, size_t wave)
{
    const route *r = opt->route;
    double bytes = 0;
    for (size_t i = r->piece_first[wave]; i < r->piece_first[wave + 1]; i++) {
        const route_piece *piece = &r->pieces[i];
        size_t param = opt->plan->items[piece->item].param;
        if (!opt->active[param]) continue;
        bytes += (double)(piece->part.nrows * piece->part.ncols) *
                 (weight_bytes(&opt->plan->params[param]) + (piece->take == ROUTE_NOWHERE ? 0 : 4) +
                  (second_of(opt, param) ? 8 : 0));
    }
    opt->result.phase[MUON_PHASE_UPDATE].bytes += bytes;
}

void muon__step_update(muon_opt *opt, size_t wave)
{
    const part_units *units = &opt->piece_units;
    wave_pass pass = {opt, wave, units->first[wave]};
    muon__pool_run(opt->p, (int64_t)(units->first[wave + 1] - pass.first), update_unit, &pass);
    count_bytes(opt, wave);
}
