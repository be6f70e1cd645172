/* Weights of Muon parameters: W = W (1 - lr weight_decay) - lr factor O. What is in no matrix only
 * decays. */
#include "base/simd.h"
#include "step/elements.h"

MUON__SIMD static void update(float *restrict w, const float *restrict o, int64_t n, float decay,
                              float rate)
{
    for (int64_t i = 0; i < n; i++)
        w[i] = w[i] * decay - rate * o[i];
}

MUON__SIMD static void shrink(float *w, int64_t n, float decay)
{
    for (int64_t i = 0; i < n; i++)
        w[i] *= decay;
}

static void update_unit(void *arg, int64_t index, int worker)
{
    const wave_pass *pass = arg;
    const muon_opt *opt = pass->opt;
    (void)worker;
    const row_unit *unit = &opt->row_units[pass->first + (size_t)index];
    const plan_item *item = &opt->plan->items[unit->item];
    if (!opt->active[item->param]) return;
    const muon_group *group = &opt->groups[opt->plan->params[item->param].group];
    weight target = weight_of(opt, item->param, STREAM_UPDATE);
    int idle = item->class == PLAN_IDLE;
    float decay = (float)(1 - group->lr * group->weight_decay);
    float rate = idle ? 0 : (float)(group->lr * opt->factor[item->class]);
    float room[PIECE];
    for (pieces p = pieces_of(opt, item, unit->begin, unit->end); pieces_next(&p);) {
        float *w = weight_edit(&target, p.at, p.n, room);
        if (idle)
            shrink(w, p.n, decay);
        else
            update(w, opt->wave + item->slot + p.slot, p.n, decay, rate);
        weight_commit(&target, w, p.at, p.n);
    }
}

static void count_bytes(muon_opt *opt, size_t wave)
{
    double bytes = 0;
    for (size_t i = opt->plan->wave[wave]; i < opt->plan->wave[wave + 1]; i++) {
        const plan_item *item = &opt->plan->items[i];
        if (!opt->active[item->param]) continue;
        double o = item->class == PLAN_IDLE ? 0 : 4;
        bytes += (double)(muon__item_rows(item) * muon__item_cols(item)) *
                 (weight_bytes(&opt->plan->params[item->param]) + o);
    }
    opt->result.phase[MUON_PHASE_UPDATE].bytes += bytes;
}

void muon__step_update(muon_opt *opt, size_t wave)
{
    wave_pass pass = {opt, opt->wave_rows[wave]};
    muon__pool_run(opt->p, (int64_t)(opt->wave_rows[wave + 1] - pass.first), update_unit, &pass);
    count_bytes(opt, wave);
}
