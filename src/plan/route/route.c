#include "plan/route/route.h"

#include "base/memory.h"
#include "plan/route/build.h"
#include "plan/route/waves.h"

#include <stdlib.h>

enum { ALONE_BYTES = 64 * 1024 }; /* below it a message costs more than a copy */

int muon__route_is_alone(const plan_item *item, const rectangle *part, int64_t element_bytes)
{
    /* What is not f32 on the wire has to be widened on arrival, so it cannot arrive in place. */
    return element_bytes == (int64_t)sizeof(float) && part->ncols == item->strip.ncols &&
           part->nrows * part->ncols * element_bytes >= ALONE_BYTES;
}

int muon__route_sender(const muon_plan *plan, const layout *l, size_t cell, size_t item)
{
    int n = muon__layout_nholders(l, cell);
    int owner = plan->items[item].owner;
    if (n == 1) return muon__layout_holder(l, cell, 0);
    if (muon__layout_replica_of(l, cell, owner) >= 0) return owner;
    int64_t per_node = plan->config.machine.ranks_per_node;
    int first = (int)((item + cell) % (size_t)n);
    for (int i = 0; i < n; i++) {
        int holder = muon__layout_holder(l, cell, (first + i) % n);
        if (holder / per_node == owner / per_node) return holder;
    }
    return muon__layout_holder(l, cell, first);
}

/* ---- The shard as patches */

static size_t patches_of(patch *out, size_t *cells, const plan_param *param, int rank)
{
    size_t n = 0;
    int64_t base = 0;
    for (size_t i = 0; i < muon__layout_ncells_of(param->layout, rank); i++) {
        size_t cell = muon__layout_cell_of(param->layout, rank, i);
        box b;
        muon__layout_cell(param->layout, cell, &b);
        size_t count =
            muon__fold_box(out ? out + n : NULL, &param->fold, param->shape, param->ndim, &b);
        for (size_t k = 0; out && k < count; k++) {
            out[n + k].offset += base;
            cells[n + k] = cell;
        }
        n += count;
        base += muon__box_numel(&b, param->ndim);
    }
    return n;
}

static muon_status make_patches(route *r, const muon_plan *plan)
{
    TRY(CALLOC(&r->patch_first, plan->nparams + 1, "shards"));
    TRY(CALLOC(&r->numel, plan->nparams, "shards"));
    TRY(CALLOC(&r->last_wave, plan->nparams, "shards"));
    size_t n = 0;
    for (size_t i = 0; i < plan->nparams; i++) {
        r->patch_first[i] = n;
        r->numel[i] = muon__layout_numel_of(plan->params[i].layout, r->rank);
        n += patches_of(NULL, NULL, &plan->params[i], r->rank);
    }
    r->patch_first[plan->nparams] = n;
    TRY(CALLOC(&r->patches, n, "shards"));
    TRY(CALLOC(&r->patch_cell, n, "shards"));
    for (size_t i = 0; i < plan->nparams; i++)
        patches_of(r->patches + r->patch_first[i], r->patch_cell + r->patch_first[i],
                   &plan->params[i], r->rank);
    return MUON_OK;
}

/* ---- What it holds of every item, by wave */

/* With pieces NULL only counts. */
static size_t pieces_of(const route *r, const muon_plan *plan, uint32_t item, route_piece *pieces)
{
    const plan_item *it = &plan->items[item];
    size_t n = 0;
    for (size_t p = r->patch_first[it->param]; p < r->patch_first[it->param + 1]; p++) {
        rectangle part;
        if (!muon__item_overlap(&part, it, &r->patches[p])) continue;
        if (pieces)
            pieces[n] = (route_piece){.item = item,
                                      .patch = (uint32_t)p,
                                      .part = part,
                                      .send = ROUTE_NOWHERE,
                                      .take = ROUTE_NOWHERE};
        n++;
    }
    return n;
}

static muon_status make_pieces(route *r, const muon_plan *plan, size_t begin, size_t end)
{
    TRY(CALLOC(&r->piece_first, plan->nwaves + 1, "pieces"));
    size_t n = 0;
    for (size_t i = plan->wave[begin]; i < plan->wave[end]; i++)
        n += pieces_of(r, plan, plan->order[i], NULL);
    TRY(CALLOC(&r->pieces, n, "pieces"));
    n = 0;
    for (size_t w = 0; w < plan->nwaves; w++) {
        r->piece_first[w] = n;
        if (w < begin || w >= end) continue;
        for (size_t i = plan->wave[w]; i < plan->wave[w + 1]; i++) {
            size_t count = pieces_of(r, plan, plan->order[i], r->pieces + n);
            if (count) r->last_wave[plan->items[plan->order[i]].param] = w;
            n += count;
        }
    }
    r->piece_first[plan->nwaves] = n;
    return MUON_OK;
}

/* ---- What it orthogonalizes */

typedef struct costed {
    double flops;
    uint32_t item;
} costed;

static int costly_first(const void *a, const void *b)
{
    const costed *ca = a, *cb = b;
    if (ca->flops != cb->flops) return ca->flops > cb->flops ? -1 : 1;
    return (ca->item > cb->item) - (ca->item < cb->item);
}

static muon_status make_owned(route *r, const muon_plan *plan, size_t begin, size_t end)
{
    TRY(CALLOC(&r->owned_first, plan->nwaves + 1, "owned matrices"));
    size_t most = 0;
    for (size_t i = plan->wave[begin]; i < plan->wave[end]; i++)
        most += plan->items[plan->order[i]].owner == r->rank;
    TRY(CALLOC(&r->owned, most, "owned matrices"));
    costed *sorted = NULL;
    TRY(CALLOC(&sorted, most, "owned matrices"));
    size_t n = 0;
    for (size_t w = 0; w < plan->nwaves; w++) {
        r->owned_first[w] = n;
        if (w < begin || w >= end) continue;
        for (size_t i = plan->wave[w]; i < plan->wave[w + 1]; i++) {
            const plan_item *item = &plan->items[plan->order[i]];
            if (item->owner != r->rank) continue;
            sorted[n++] = (costed){item->flops, plan->order[i]};
        }
        size_t first = r->owned_first[w];
        if (n > first) qsort(sorted + first, n - first, sizeof *sorted, costly_first);
        for (size_t i = first; i < n; i++)
            r->owned[i] = sorted[i].item;
    }
    r->owned_first[plan->nwaves] = n;
    free(sorted);
    return MUON_OK;
}

muon_status muon__route_create(route **out, const muon_plan *plan, int rank)
{
    return muon__route_create_waves(out, plan, rank, 0, plan->nwaves);
}

muon_status muon__route_create_held(route **out, const muon_plan *plan, int rank, size_t begin,
                                    size_t end)
{
    route *r = NULL;
    TRY(CALLOC(&r, 1, "route"));
    r->rank = rank;
    muon_status status = make_patches(r, plan);
    if (status == MUON_OK) status = make_pieces(r, plan, begin, end);
    if (status != MUON_OK) {
        muon__route_destroy(r);
        return status;
    }
    *out = r;
    return MUON_OK;
}

muon_status muon__route_create_waves(route **out, const muon_plan *plan, int rank, size_t begin,
                                     size_t end)
{
    route *r = NULL;
    TRY(muon__route_create_held(&r, plan, rank, begin, end));
    muon_status status = make_owned(r, plan, begin, end);
    if (status == MUON_OK) status = muon__route_make_messages(r, plan);
    if (status == MUON_OK) status = muon__route_make_relays(r, plan, begin, end);
    if (status != MUON_OK) {
        muon__route_destroy(r);
        return status;
    }
    *out = r;
    return MUON_OK;
}

void muon__route_destroy(route *r)
{
    if (!r) return;
    free(r->patches);
    free(r->patch_first);
    free(r->patch_cell);
    free(r->numel);
    free(r->last_wave);
    free(r->pieces);
    free(r->piece_first);
    free(r->owned);
    free(r->owned_first);
    for (int i = 0; i < ROUTE_ALL_LISTS; i++) {
        free(r->messages[i].entries);
        free(r->messages[i].first);
    }
    for (int i = 0; i < 2; i++) {
        free(r->copies[i].entries);
        free(r->copies[i].first);
    }
    free(r);
}
