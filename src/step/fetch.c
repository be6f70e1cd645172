/* Gradients that are elsewhere: the caller brings what the next units of a stage read, a part at a
 * time, so that only that much of them is in memory. */
#include "base/mode.h"
#include "step/elements.h"
#include "step/state.h"

#include <stdlib.h>

enum { DEFAULT_BUDGET = 64 << 20 };

muon_status muon__fetch_create(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    TRY(CALLOC(&opt->grads, plan->nparams, "gradients"));
    if (!plan->config.grad_fetch) return MUON_OK;
    fetch *f = &opt->fetch;
    f->budget = plan->config.grad_budget ? plan->config.grad_budget : DEFAULT_BUDGET;
    TRY(CALLOC(&f->part_of, plan->nparams, "gradients"));
    return CALLOC(&f->parts, plan->nparams, "gradients");
}

void muon__fetch_destroy(muon_opt *opt)
{
    free(opt->grads);
    free(opt->fetch.parts);
    free(opt->fetch.part_of);
}

/* ---- What to bring */

static void begin(fetch *f)
{
    f->nparts = 0;
    f->bytes = 0;
}

/* A parameter has one part, from the first element to the last that these units read. Returns 0 if that
 * is more than the budget; the first unit is taken in any case. */
static int take(muon_opt *opt, size_t param, int64_t first, int64_t end)
{
    fetch *f = &opt->fetch;
    size_t at = f->part_of[param];
    muon_grad_part part = {.param = param, .begin = first, .end = end};
    int64_t known = 0;
    if (at < f->nparts && f->parts[at].param == param) {
        const muon_grad_part *old = &f->parts[at];
        known = old->end - old->begin;
        if (old->begin < part.begin) part.begin = old->begin;
        if (old->end > part.end) part.end = old->end;
    } else {
        at = f->nparts;
    }
    int64_t element = (int64_t)muon__dtype_bytes(opt->plan->params[param].grad_dtype);
    int64_t more = (part.end - part.begin - known) * element;
    if (f->nparts > 0 && f->bytes + more > f->budget) return 0;
    if (at == f->nparts) f->part_of[param] = f->nparts++;
    f->parts[at] = part;
    f->bytes += more;
    return 1;
}

/* Rows and columns of a patch lie in its shard in ascending order, so that the corners of a part are its
 * first and its last element. */
static int take_chunks(muon_opt *opt, size_t param, const chunks *c)
{
    const rectangle *part = &c->part;
    int64_t first = chunks_place(c, part->row, part->col);
    int64_t last = chunks_place(c, part->row + part->nrows - 1, part->col + part->ncols - 1);
    return take(opt, param, first, last + 1);
}

/* ---- Bringing it */

static muon_status bring(muon_opt *opt)
{
    const fetch *f = &opt->fetch;
    const muon_config *config = &opt->plan->config;
    if (f->nparts == 0) return MUON_OK;
    const plan_param *params = opt->plan->params;
    int code;
    IN_HOST_MODE(code = config->grad_fetch(config->user, f->parts, f->nparts));
    REQUIRE(code == 0, E_CALLBACK,
            "the grad_fetch callback returned %d for %zu gradients, from that of param '%s' on",
            code, f->nparts, params[f->parts[0].param].name);
    for (size_t i = 0; i < f->nparts; i++) {
        const muon_grad_part *part = &f->parts[i];
        const plan_param *param = &params[part->param];
        REQUIRE(part->data, E_CALLBACK, "param '%s': grad_fetch has left data NULL", param->name);
        REQUIRE((uintptr_t)part->data % muon__dtype_bytes(param->grad_dtype) == 0, E_CALLBACK,
                "param '%s': what grad_fetch gave is not aligned to its elements", param->name);
        opt->grads[part->param] = (grad_view){part->data, part->begin};
    }
    return MUON_OK;
}

muon_status muon__fetch_check(muon_opt *opt, size_t first, size_t *end)
{
    if (!opt->fetch.parts) return MUON_OK;
    begin(&opt->fetch);
    size_t i = first;
    for (; i < *end; i++) {
        const flat_unit *unit = &opt->check_units[i];
        if (opt->active[unit->param] && !take(opt, unit->param, unit->begin, unit->end)) break;
    }
    *end = i;
    return bring(opt);
}

muon_status muon__fetch_pieces(muon_opt *opt, size_t first, size_t *end)
{
    if (!opt->fetch.parts) return MUON_OK;
    begin(&opt->fetch);
    size_t i = first;
    for (; i < *end; i++) {
        const part_unit *unit = &opt->piece_units.units[i];
        const route_piece *piece = &opt->route->pieces[unit->index];
        size_t param = opt->plan->items[piece->item].param;
        if (!opt->active[param]) continue;
        chunks c = chunks_of_unit(opt, unit, piece->part.ncols);
        if (!take_chunks(opt, param, &c)) break;
    }
    *end = i;
    return bring(opt);
}

muon_status muon__fetch_adamw(muon_opt *opt, size_t first, size_t *end)
{
    if (!opt->fetch.parts) return MUON_OK;
    begin(&opt->fetch);
    size_t i = first;
    for (; i < *end; i++) {
        const patch_unit *unit = &opt->adamw_units[i];
        if (!opt->active[unit->param]) continue;
        band bands[2];
        chunks c =
            chunks_of_patch(&opt->plan->params[unit->param].fold, &opt->route->patches[unit->patch],
                            unit->batch, unit->begin, unit->end, bands);
        if (!take_chunks(opt, unit->param, &c)) break;
    }
    *end = i;
    return bring(opt);
}

muon_status muon__fetch_shard(muon_opt *opt, size_t param)
{
    if (!opt->fetch.parts || opt->route->numel[param] == 0) return MUON_OK;
    begin(&opt->fetch);
    take(opt, param, 0, opt->route->numel[param]);
    return bring(opt);
}
