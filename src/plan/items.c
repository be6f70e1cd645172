/* Items: one per logical matrix, and idle ones for what is in no matrix. */
#include "base/digest.h"
#include "base/memory.h"
#include "plan/plan.h"
#include "variant/variant.h"

#include <stdlib.h>
#include <string.h>

/* Three hundred times the experts of the largest models; more are a mistake in a shape or a text, and
 * would take memory and minutes. */
enum { MAX_ITEMS = 1 << 24 };

/* The stretches of 0..extent that no band covers, as bands. Interleaved bands cover ranges at many
 * places, so the edges of all ranges are walked in order of their start. */
typedef struct gaps {
    band *bands;
    size_t n;
} gaps;

static int by_start(const void *a, const void *b)
{
    const band *ba = a, *bb = b;
    return (ba->start > bb->start) - (ba->start < bb->start);
}

/* Of all bands. There are at most MUON__MAX_BANDS, each with fewer ranges than the tensor has rows. */
static size_t count_ranges(const band *bands, size_t nbands)
{
    size_t ranges = 0;
    for (size_t i = 0; i < nbands; i++)
        ranges += (size_t)bands[i].count;
    return ranges;
}

static muon_status find_gaps(gaps *out, const band *bands, size_t nbands, int64_t extent)
{
    size_t nranges = count_ranges(bands, nbands);
    band *ranges = NULL;
    TRY(CALLOC(&ranges, nranges, "ranges"));
    size_t n = 0;
    for (size_t i = 0; i < nbands; i++)
        for (int64_t j = 0; j < bands[i].count; j++)
            ranges[n++] =
                (band){bands[i].start + j * bands[i].stride, bands[i].size, 1, bands[i].size};
    qsort(ranges, nranges, sizeof *ranges, by_start);
    muon_status status = CALLOC(&out->bands, nranges + 1, "gaps");
    int64_t end = 0;
    for (size_t i = 0; i <= nranges && status == MUON_OK; i++) {
        int64_t next = i < nranges ? ranges[i].start : extent;
        if (next > end) out->bands[out->n++] = (band){end, next - end, 1, next - end};
        if (i < nranges) end = ranges[i].start + ranges[i].size;
    }
    free(ranges);
    return status;
}

static void add_item(muon_plan *plan, size_t param, int64_t batch, band rows, band cols,
                     int32_t class)
{
    if (class != PLAN_IDLE) plan->matrix_item[plan->cost.matrices++] = (uint32_t)plan->nitems;
    plan->items[plan->nitems++] =
        (plan_item){.param = (uint32_t)param,
                    .class = class,
                    .batch = batch,
                    .rows = rows,
                    .cols = cols,
                    .strip = {0, muon__band_length(&rows), 0, muon__band_length(&cols)},
                    .team = PLAN_NO_TEAM};
}

/* The classes so far, found by what they are: a model can have as many shapes as parameters. */
typedef struct class_table {
    int32_t *slots; /* a class plus 1; 0: free */
    size_t size;    /* a power of 2, more than twice the number of classes */
} class_table;

static int is_same(const plan_class *a, const plan_class *b)
{
    return a->group == b->group && a->rows == b->rows && a->cols == b->cols &&
           a->transposed == b->transposed;
}

/* Where the class is, or where it belongs. */
static size_t find_slot(const class_table *t, const plan_class *classes, const plan_class *wanted)
{
    const int64_t words[] = {wanted->group, wanted->rows, wanted->cols, wanted->transposed};
    uint64_t hash = MUON__DIGEST_START;
    muon__digest_words(&hash, words, sizeof words / sizeof *words);
    size_t at = (size_t)hash & (t->size - 1);
    while (t->slots[at] && !is_same(&classes[t->slots[at] - 1], wanted))
        at = (at + 1) & (t->size - 1);
    return at;
}

static muon_status grow(class_table *t, const muon_plan *plan)
{
    class_table larger = {.size = t->size ? 2 * t->size : 64};
    TRY(CALLOC(&larger.slots, larger.size, "shapes"));
    for (size_t i = 0; i < plan->nclasses; i++)
        larger.slots[find_slot(&larger, plan->classes, &plan->classes[i])] = (int32_t)i + 1;
    free(t->slots);
    *t = larger;
    return MUON_OK;
}

static muon_status find_class(int32_t *out, class_table *t, muon_plan *plan,
                              const plan_param *param, int64_t rows, int64_t cols)
{
    if (2 * plan->nclasses + 2 > t->size) TRY(grow(t, plan));
    const muon_group *group = &plan->groups[param->group];
    plan_class wanted = {.group = param->group,
                         .rows = rows,
                         .cols = cols,
                         .transposed = param->spec.transposed,
                         .whole = muon__variant_is_on(group) || group->momentum_dtype == MUON_I8};
    size_t slot = find_slot(t, plan->classes, &wanted);
    if (t->slots[slot] == 0) {
        plan->classes[plan->nclasses++] = wanted;
        t->slots[slot] = (int32_t)plan->nclasses;
    }
    *out = t->slots[slot] - 1;
    return MUON_OK;
}

static muon_status add_items(muon_plan *plan, class_table *table, size_t index)
{
    const plan_param *param = &plan->params[index];
    const matrix_spec *spec = &param->spec;
    gaps rows = {0}, cols = {0};
    muon_status status = MUON_OK;
    if (spec->skipped_rows)
        status = find_gaps(&rows, spec->row_bands, spec->nrow_bands, spec->rows);
    if (status == MUON_OK && spec->skipped_cols)
        status = find_gaps(&cols, spec->col_bands, spec->ncol_bands, spec->cols);
    band whole = {0, spec->cols, 1, spec->cols};
    for (int64_t b = 0; b < spec->batch && status == MUON_OK; b++) {
        for (size_t i = 0; i < spec->nrow_bands; i++) {
            band row = spec->row_bands[i];
            for (size_t j = 0; j < spec->ncol_bands && status == MUON_OK; j++) {
                band col = spec->col_bands[j];
                int32_t class = PLAN_IDLE;
                status = find_class(&class, table, plan, param, muon__band_length(&row),
                                    muon__band_length(&col));
                add_item(plan, index, b, row, col, class);
            }
            for (size_t j = 0; j < cols.n; j++)
                add_item(plan, index, b, row, cols.bands[j], PLAN_IDLE);
        }
        for (size_t i = 0; i < rows.n; i++)
            add_item(plan, index, b, rows.bands[i], whole, PLAN_IDLE);
    }
    free(rows.bands);
    free(cols.bands);
    return status;
}

/* Upper bounds for the arrays: where something is skipped, there may be a gap before and behind each
 * range. */
static muon_status count_items(size_t *items, size_t *classes, const plan_param *param)
{
    const matrix_spec *spec = &param->spec;
    size_t rows = count_ranges(spec->row_bands, spec->nrow_bands);
    size_t cols = count_ranges(spec->col_bands, spec->ncol_bands);
    REQUIRE(rows <= MAX_ITEMS && cols <= MAX_ITEMS, E_SHAPE,
            "param '%s': the rows are cut %zu times and the columns %zu times, a plan can have %d",
            param->name, rows, cols, MAX_ITEMS);
    size_t row_gaps = spec->skipped_rows ? rows + 1 : 0, all;
    size_t col_gaps = spec->skipped_cols ? cols + 1 : 0;
    size_t each = spec->nrow_bands * (spec->ncol_bands + col_gaps) + row_gaps;
    int overflow = __builtin_mul_overflow(each, (size_t)spec->batch, &all) ||
                   __builtin_add_overflow(*items, all, items);
    REQUIRE(
        !overflow && *items <= MAX_ITEMS, E_SHAPE,
        "param '%s': %lld batch entries of %zu x %zu logical matrices are more than the %d that "
        "a plan can have",
        param->name, (long long)spec->batch, spec->nrow_bands, spec->ncol_bands, MAX_ITEMS);
    *classes += spec->nrow_bands * spec->ncol_bands;
    return MUON_OK;
}

static void count_elements(muon_plan *plan)
{
    for (size_t i = 0; i < plan->nparams; i++) {
        const plan_param *param = &plan->params[i];
        switch (param->rule) {
        case MUON_RULE_MUON:
            *(param->expert ? &plan->cost.expert_elements : &plan->cost.muon_elements) +=
                param->numel;
            break;
        case MUON_RULE_ADAMW:
        case MUON_RULE_LION:
            plan->cost.adamw_elements += param->numel;
            break;
        case MUON_RULE_FROZEN:
            plan->cost.frozen_elements += param->numel;
            break;
        }
    }
}

muon_status muon__plan_make_items(muon_plan *plan)
{
    size_t items = 0, classes = 0;
    for (size_t i = 0; i < plan->nparams; i++) {
        if (plan->params[i].rule != MUON_RULE_MUON) continue;
        TRY(count_items(&items, &classes, &plan->params[i]));
    }
    TRY(CALLOC(&plan->items, items, "logical matrices"));
    TRY(CALLOC(&plan->matrix_item, items, "logical matrices"));
    TRY(CALLOC(&plan->classes, classes, "shapes"));
    class_table table = {0};
    muon_status status = MUON_OK;
    for (size_t i = 0; i < plan->nparams && status == MUON_OK; i++)
        if (plan->params[i].rule == MUON_RULE_MUON) status = add_items(plan, &table, i);
    free(table.slots);
    count_elements(plan);
    return status;
}

/* ---- Without teams */

static muon_status join_strips(muon_plan *out, const muon_plan *plan)
{
    TRY(CALLOC(&out->items, plan->nitems, "logical matrices"));
    TRY(CALLOC(&out->classes, plan->nclasses, "shapes"));
    TRY(CALLOC(&out->matrix_item, (size_t)plan->cost.matrices, "logical matrices"));
    if (plan->nclasses) memcpy(out->classes, plan->classes, plan->nclasses * sizeof *plan->classes);
    for (size_t i = 0; i < plan->nclasses; i++)
        out->classes[i].alone = 0;
    size_t matrix = 0;
    for (size_t i = 0; i < plan->nitems; i++) {
        const plan_item *from = &plan->items[i];
        if (from->team != PLAN_NO_TEAM && plan->teams[from->team].first != i) continue;
        plan_item *item = &out->items[out->nitems++];
        *item = *from;
        if (item->class == PLAN_IDLE) continue;
        item->team = PLAN_NO_TEAM;
        item->strip =
            (rectangle){0, muon__band_length(&item->rows), 0, muon__band_length(&item->cols)};
        item->flops = plan->classes[item->class].flops;
        out->classes[item->class].alone++;
        out->matrix_item[matrix++] = (uint32_t)out->nitems - 1;
    }
    return MUON_OK;
}

muon_status muon__plan_without_teams(muon_plan *out, const muon_plan *plan)
{
    *out = *plan;
    out->items = NULL;
    out->nitems = 0;
    out->classes = NULL;
    out->matrix_item = NULL;
    out->teams = NULL;
    out->nteams = 0;
    out->shapes = NULL;
    out->nshapes = 0;
    out->scratch_team = 0;
    out->relayed = NULL;
    out->config.workspace_budget = 0;
    muon_status status = join_strips(out, plan);
    if (status != MUON_OK) muon__plan_free_items(out);
    return status;
}

void muon__plan_free_items(muon_plan *plan)
{
    free(plan->items);
    free(plan->classes);
    free(plan->matrix_item);
    plan->items = NULL;
    plan->classes = NULL;
    plan->matrix_item = NULL;
}

/* ---- Where an item is */

static void clip(int64_t *first, int64_t *n, int64_t begin, int64_t length)
{
    int64_t from = *first > begin ? *first : begin;
    int64_t end = *first + *n < begin + length ? *first + *n : begin + length;
    *first = from;
    *n = end > from ? end - from : 0;
}

int muon__item_overlap(rectangle *out, const plan_item *item, const patch *p)
{
    rectangle r;
    if (!muon__fold_overlap(&r, p, item->batch, &item->rows, &item->cols)) return 0;
    clip(&r.row, &r.nrows, item->strip.row, item->strip.nrows);
    clip(&r.col, &r.ncols, item->strip.col, item->strip.ncols);
    if (r.nrows == 0 || r.ncols == 0) return 0;
    *out = r;
    return 1;
}

/* The ranges of a band that have the n elements from `at` on in them. */
static band part_of(const band *b, int64_t at, int64_t n)
{
    if (b->count == 1) return (band){b->start + at, n, 1, n};
    int64_t first = at / b->size, last = (at + n - 1) / b->size;
    return (band){b->start + first * b->stride, b->size, last - first + 1, b->stride};
}

void muon__item_box(box *out, const muon_plan *plan, const plan_item *item)
{
    const plan_param *param = &plan->params[item->param];
    const rectangle *s = &item->strip;
    if (muon__item_numel(item) == 0) { /* a member of a team that has no part of the result */
        *out = (box){0};
        return;
    }
    band rows = part_of(&item->rows, s->row, s->nrows),
         cols = part_of(&item->cols, s->col, s->ncols);
    muon__fold_item(out, &param->fold, param->shape, param->ndim, item->batch, &rows, &cols);
}
