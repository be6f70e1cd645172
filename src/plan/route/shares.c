#include "plan/route/shares.h"

#include "base/digest.h"
#include "base/memory.h"
#include "plan/route/route.h"

#include <stdlib.h>

/* ---- Patterns */

typedef struct marked {
    uint64_t hash;
    uint32_t param;
} marked;

static int by_hash(const void *a, const void *b)
{
    const marked *ma = a, *mb = b;
    if (ma->hash != mb->hash) return ma->hash < mb->hash ? -1 : 1;
    return (ma->param > mb->param) - (ma->param < mb->param);
}

static void add_bands(uint64_t *hash, const band *bands, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t words[] = {bands[i].start, bands[i].size, bands[i].count, bands[i].stride};
        muon__digest_words(hash, words, 4);
    }
}

/* How teams share a parameter's matrices; nothing if none does. */
static void add_strips(uint64_t *hash, const muon_plan *plan, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        const plan_item *item = &plan->items[i];
        const int64_t words[] = {(int64_t)(i - first), item->strip.row, item->strip.nrows,
                                 item->strip.col, item->strip.ncols};
        if (item->team != PLAN_NO_TEAM) muon__digest_words(hash, words, 5);
    }
}

/* All that decides who holds what of a parameter's matrices. */
static uint64_t pattern_hash(const plan_param *param)
{
    uint64_t hash = MUON__DIGEST_START;
    const int64_t words[] = {(int64_t)muon__layout_hash(param->layout),
                             param->ndim,
                             param->fold.batch_dims,
                             param->fold.row_dims,
                             (int64_t)param->spec.nrow_bands,
                             (int64_t)param->spec.ncol_bands};
    muon__digest_words(&hash, words, sizeof words / sizeof *words);
    muon__digest_words(&hash, param->shape, (size_t)param->ndim);
    add_bands(&hash, param->spec.row_bands, param->spec.nrow_bands);
    add_bands(&hash, param->spec.col_bands, param->spec.ncol_bands);
    return hash;
}

static void find_items(size_t *item_first, const muon_plan *plan)
{
    size_t item = 0;
    for (size_t i = 0; i < plan->nparams; i++) {
        item_first[i] = item;
        while (item < plan->nitems && plan->items[item].param == i)
            item++;
    }
    item_first[plan->nparams] = item;
}

muon_status muon__patterns_create(patterns *out, const muon_plan *plan)
{
    patterns p = {0};
    marked *sorted = NULL;
    muon_status status = CALLOC(&sorted, plan->nparams, "patterns");
    if (status == MUON_OK) status = CALLOC(&p.params, plan->nparams, "patterns");
    if (status == MUON_OK) status = CALLOC(&p.first, plan->nparams + 1, "patterns");
    if (status == MUON_OK) status = CALLOC(&p.item_first, plan->nparams + 1, "patterns");
    if (status != MUON_OK) {
        free(sorted);
        muon__patterns_destroy(&p);
        return status;
    }
    size_t n = 0;
    for (size_t i = 0; i < plan->nparams; i++)
        if (plan->params[i].rule == MUON_RULE_MUON)
            sorted[n++] = (marked){pattern_hash(&plan->params[i]), (uint32_t)i};
    find_items(p.item_first, plan);
    for (size_t i = 0; plan->nteams && i < n; i++)
        add_strips(&sorted[i].hash, plan, p.item_first[sorted[i].param],
                   p.item_first[sorted[i].param + 1]);
    qsort(sorted, n, sizeof *sorted, by_hash);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || sorted[i].hash != sorted[i - 1].hash) p.first[p.n++] = i;
        p.params[i] = sorted[i].param;
    }
    p.first[p.n] = n;
    free(sorted);
    *out = p;
    return MUON_OK;
}

void muon__patterns_destroy(patterns *p)
{
    free(p->params);
    free(p->first);
    free(p->item_first);
}

/* ---- Shares */

static muon_status find_patches(shares *s, size_t *count, const plan_param *param, size_t cell)
{
    box at;
    muon__layout_cell(param->layout, cell, &at);
    size_t n = muon__fold_box(NULL, &param->fold, param->shape, param->ndim, &at);
    if (n > s->patch_capacity) {
        free(s->patches);
        s->patch_capacity = 0;
        TRY(CALLOC(&s->patches, n, "patches"));
        s->patch_capacity = n;
    }
    *count = muon__fold_box(s->patches, &param->fold, param->shape, param->ndim, &at);
    return MUON_OK;
}

muon_status muon__shares_find(shares *s, const muon_plan *plan, size_t item)
{
    const plan_item *it = &plan->items[item];
    const plan_param *param = &plan->params[it->param];
    box whole;
    muon__item_box(&whole, plan, &plan->items[item]);
    size_t most = (size_t)muon__layout_count(param->layout, &whole);
    s->n = 0;
    if (most > s->capacity) {
        free(s->list);
        s->capacity = 0;
        TRY(CALLOC(&s->list, most, "shares"));
        s->capacity = most;
    }
    int64_t wire = muon__wire_bytes(plan);
    layout_walk walk;
    size_t cell;
    for (muon__layout_walk(&walk, param->layout, &whole); muon__layout_next(&walk, &cell);) {
        size_t npatches = 0;
        TRY(find_patches(s, &npatches, param, cell));
        share found = {.cell = cell};
        for (size_t i = 0; i < npatches; i++) {
            rectangle part;
            if (!muon__item_overlap(&part, it, &s->patches[i])) continue;
            int64_t numel = part.nrows * part.ncols;
            found.numel += numel;
            if (!muon__route_is_alone(it, &part, wire)) found.packed_wire += numel;
            if (!muon__route_is_alone(it, &part, (int64_t)sizeof(float))) found.packed_f32 += numel;
        }
        if (found.numel == 0) continue;
        found.holder = muon__layout_holder(param->layout, cell, 0);
        found.nholders = muon__layout_nholders(param->layout, cell);
        s->list[s->n++] = found;
    }
    return MUON_OK;
}

void muon__shares_destroy(shares *s)
{
    free(s->list);
    free(s->patches);
}
