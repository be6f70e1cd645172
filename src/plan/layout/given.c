/* given.c - the caller's boxes or ranges: each checked, equal ones joined as replicas, and all
 * together a tiling of the tensor. */
#include "base/memory.h"
#include "base/text.h"
#include "plan/layout/parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- As they are */

static size_t width(const given *g)
{
    return 1 + 2 * (size_t)g->ndim;
}

static const int64_t *words_of(const given *g, size_t index)
{
    return g->words + index * width(g);
}

box muon__given_box(const given *g, size_t index)
{
    box b = {0};
    const int64_t *words = words_of(g, index);
    memcpy(b.begin, words + 1, (size_t)g->ndim * sizeof *words);
    memcpy(b.end, words + 1 + g->ndim, (size_t)g->ndim * sizeof *words);
    return b;
}

muon_status muon__given_load(given *g, const muon_param *param)
{
    *g = (given){.what = "boxes", .ndim = param->ndim, .n = param->nboxes};
    memcpy(g->shape, param->shape, (size_t)param->ndim * sizeof *g->shape);
    if (param->ranges) {
        *g = (given){.what = "ranges", .is_flat = 1, .ndim = 1, .shape = {1}, .n = param->nranges};
        for (int d = 0; d < param->ndim; d++)
            g->shape[0] *= param->shape[d];
    }
    TRY(CALLOC(&g->words, g->n * width(g), g->what));
    int64_t *out = g->words;
    for (size_t i = 0; i < g->n; i++, out += width(g)) {
        out[0] = param->ranges ? param->ranges[i].rank : param->boxes[i].rank;
        const int64_t *begin = param->ranges ? &param->ranges[i].begin : param->boxes[i].begin;
        const int64_t *end = param->ranges ? &param->ranges[i].end : param->boxes[i].end;
        memcpy(out + 1, begin, (size_t)g->ndim * sizeof *out);
        memcpy(out + 1 + g->ndim, end, (size_t)g->ndim * sizeof *out);
    }
    return MUON_OK;
}

int muon__given_equal(const given *a, const given *b)
{
    return a->is_flat == b->is_flat && a->n == b->n && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->words, b->words, a->n * width(a) * sizeof *a->words) == 0;
}

void muon__given_free(given *g)
{
    free(g->words);
    free(g->entries);
    free(g->shard_first);
    *g = (given){0};
}

/* ---- For messages */

enum { BOX_TEXT = 384 };

/* "[0:4, 2:6]", or "3:8" for a range. */
static const char *box_text(char buffer[BOX_TEXT], const given *g, size_t index)
{
    box b = muon__given_box(g, index);
    text t = muon__text_in(buffer, BOX_TEXT);
    if (!g->is_flat) muon__text_add(&t, "[");
    for (int d = 0; d < g->ndim; d++)
        muon__text_add(&t, "%s%lld:%lld", d ? ", " : "", (long long)b.begin[d],
                       (long long)b.end[d]);
    if (!g->is_flat) muon__text_add(&t, "]");
    return buffer;
}

/* "[3, 2]", or "17" in a flattened tensor. */
static const char *place_text(char buffer[BOX_TEXT], const given *g, const int64_t *at)
{
    text t = muon__text_in(buffer, BOX_TEXT);
    if (g->is_flat) {
        muon__text_add(&t, "%lld", (long long)at[0]);
    } else {
        muon__text_add_shape(&t, g->ndim, at);
    }
    return buffer;
}

/* ---- Checked */

static muon_status add_entry(given *g, size_t index, int nranks)
{
    char buffer[BOX_TEXT];
    int64_t rank = *words_of(g, index);
    box b = muon__given_box(g, index);
    int is_empty = 0;
    REQUIRE(rank >= 0 && rank < nranks, E_LAYOUT, "%s[%zu].rank is %d, must be 0..%d", g->what,
            index, (int)rank, nranks - 1);
    for (int d = 0; d < g->ndim; d++) {
        REQUIRE(b.begin[d] >= 0 && b.begin[d] <= b.end[d] && b.end[d] <= g->shape[d], E_LAYOUT,
                "%s[%zu] is %s, but %s %d is 0:%lld", g->what, index, box_text(buffer, g, index),
                g->is_flat ? "the flattened tensor's dim" : "dim", d, (long long)g->shape[d]);
        is_empty |= b.begin[d] == b.end[d];
        b.end[d]--;
    }
    if (is_empty) return MUON_OK;
    g->entries[g->nentries++] = (shard_entry){.first = muon__box_flat(b.begin, g->ndim, g->shape),
                                              .last = muon__box_flat(b.end, g->ndim, g->shape),
                                              .rank = (int)rank,
                                              .index = index};
    return MUON_OK;
}

static int by_box(const void *a, const void *b)
{
    const shard_entry *ea = a, *eb = b;
    if (ea->first != eb->first) return ea->first < eb->first ? -1 : 1;
    if (ea->last != eb->last) return ea->last < eb->last ? -1 : 1;
    if (ea->rank != eb->rank) return ea->rank < eb->rank ? -1 : 1;
    return (ea->index > eb->index) - (ea->index < eb->index);
}

static muon_status sort_entries(given *g, int nranks)
{
    TRY(CALLOC(&g->entries, g->n, g->what));
    for (size_t i = 0; i < g->n; i++)
        TRY(add_entry(g, i, nranks));
    size_t i = 1; /* most lists are in order already */
    while (i < g->nentries && by_box(&g->entries[i - 1], &g->entries[i]) < 0)
        i++;
    if (i < g->nentries) qsort(g->entries, g->nentries, sizeof *g->entries, by_box);
    return MUON_OK;
}

static muon_status join_equal(given *g)
{
    TRY(CALLOC(&g->shard_first, g->nentries + 1, g->what));
    for (size_t i = 0; i < g->nentries; i++) {
        const shard_entry *e = &g->entries[i], *before = i ? e - 1 : NULL;
        if (!before || before->first != e->first || before->last != e->last) {
            g->shard_first[g->nshards++] = i;
        } else if (before->rank == e->rank) {
            char buffer[BOX_TEXT];
            FAIL(E_LAYOUT, "%s[%zu] and %s[%zu] are both %s on rank %d", g->what, before->index,
                 g->what, e->index, box_text(buffer, g, e->index), e->rank);
        }
    }
    g->shard_first[g->nshards] = g->nentries;
    return MUON_OK;
}

static int contains(const box *b, const int64_t *at, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (at[d] < b->begin[d] || at[d] >= b->end[d]) return 0;
    return 1;
}

/* The shards are different boxes; they must not overlap either, and leave nothing out. */
static muon_status check_cover(const given *g)
{
    int64_t element, at[MUON_MAX_DIMS];
    TRY(muon__cover_check(&element, g));
    if (element < 0) return MUON_OK;
    muon__box_place(at, element, g->ndim, g->shape);
    char where[BOX_TEXT], one[BOX_TEXT], other[BOX_TEXT];
    place_text(where, g, at);
    const shard_entry *found[2] = {NULL, NULL};
    for (size_t i = 0, n = 0; i < g->nshards && n < 2; i++) {
        const shard_entry *e = &g->entries[g->shard_first[i]];
        box b = muon__given_box(g, e->index);
        if (contains(&b, at, g->ndim)) found[n++] = e;
    }
    REQUIRE(found[0] && found[1], E_LAYOUT, "element %s is in none of the %s", where, g->what);
    FAIL(E_LAYOUT, "%s[%zu], %s on rank %d, and %s[%zu], %s on rank %d, overlap at %s", g->what,
         found[0]->index, box_text(one, g, found[0]->index), found[0]->rank, g->what,
         found[1]->index, box_text(other, g, found[1]->index), found[1]->rank, where);
}

muon_status muon__given_find_shards(given *g, int nranks)
{
    TRY(sort_entries(g, nranks));
    TRY(join_equal(g));
    return check_cover(g);
}
