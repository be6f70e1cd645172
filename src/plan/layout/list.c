/* list.c - the cells of explicit boxes and of flat ranges. */
#include "base/memory.h"
#include "plan/layout/parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- Cells: a box is one, a range is cut into boxes. */

/* The largest box of the tensor that starts at flat index `at` and is a contiguous part of at .. end;
 * returns where it ends. A range is at most 2 ndim - 1 of them: they grow, and then shrink. */
static int64_t next_box(box *out, int64_t at, int64_t end, int ndim, const int64_t *shape)
{
    int64_t stride = 1;
    for (int d = 0; d < ndim; d++)
        stride *= shape[d];
    int dim = 0;
    for (stride /= shape[0]; at % stride != 0 || end - at < stride; stride /= shape[dim])
        dim++;
    *out = (box){0};
    muon__box_place(out->begin, at, ndim, shape);
    for (int d = 0; d < ndim; d++)
        out->end[d] = d > dim ? shape[d] : out->begin[d] + 1;
    int64_t most = shape[dim] - out->begin[dim], whole = (end - at) / stride;
    int64_t n = whole < most ? whole : most;
    out->end[dim] = out->begin[dim] + n;
    return at + n * stride;
}

/* The cells of a shard; returns how many. With out NULL only counts. */
static size_t cut_shard(box *out, const box *shard, const list *s)
{
    if (!s->given.is_flat) {
        if (out) *out = *shard;
        return 1;
    }
    size_t n = 0;
    for (int64_t at = shard->begin[0]; at < shard->end[0]; n++) {
        box ignored;
        at = next_box(out ? &out[n] : &ignored, at, shard->end[0], s->ndim, s->shape);
    }
    return n;
}

/* cell_first[i] .. cell_first[i + 1] are the cells of shard i. */
static muon_status make_cells(list *s, size_t *cell_first)
{
    const given *g = &s->given;
    size_t nholders = 0;
    for (size_t i = 0; i < g->nshards; i++) {
        box shard = muon__given_box(g, g->entries[g->shard_first[i]].index);
        size_t n = cut_shard(NULL, &shard, s);
        cell_first[i + 1] = cell_first[i] + n;
        nholders += n * (g->shard_first[i + 1] - g->shard_first[i]);
    }
    s->ncells = cell_first[g->nshards];
    TRY(CALLOC(&s->cells, s->ncells, g->what));
    TRY(CALLOC(&s->first, s->ncells, g->what));
    TRY(CALLOC(&s->reach, s->ncells, g->what));
    TRY(CALLOC(&s->holder_first, s->ncells + 1, g->what));
    TRY(CALLOC(&s->holders, nholders, g->what));
    TRY(CALLOC(&s->rank_cells, nholders, g->what));
    TRY(CALLOC(&s->rank_offsets, nholders, g->what));
    for (size_t i = 0; i < g->nshards; i++) {
        box shard = muon__given_box(g, g->entries[g->shard_first[i]].index);
        cut_shard(&s->cells[cell_first[i]], &shard, s);
        for (size_t c = cell_first[i]; c < cell_first[i + 1]; c++) {
            size_t at = s->holder_first[c];
            for (size_t h = g->shard_first[i]; h < g->shard_first[i + 1]; h++)
                s->holders[at++] = g->entries[h].rank;
            s->holder_first[c + 1] = at;
        }
    }
    return MUON_OK;
}

static void find_reach(list *s)
{
    int64_t reach = 0;
    for (size_t c = 0; c < s->ncells; c++) {
        int64_t last[MUON_MAX_DIMS];
        for (int d = 0; d < s->ndim; d++)
            last[d] = s->cells[c].end[d] - 1;
        int64_t at = muon__box_flat(last, s->ndim, s->shape);
        if (at > reach) reach = at;
        s->first[c] = muon__box_flat(s->cells[c].begin, s->ndim, s->shape);
        s->reach[c] = reach;
    }
}

/* In the memory of a rank, what it holds follows in the caller's order. shard_of[i] is the shard of the
 * caller's i-th, or nshards if that is empty. */
static muon_status fill_ranks(list *s, const size_t *cell_first, const size_t *shard_of, int nranks)
{
    const given *g = &s->given;
    TRY(CALLOC(&s->rank_first, (size_t)nranks + 2, g->what));
    size_t *next = s->rank_first + 1; /* while filling, the end of the ranks before */
    for (size_t i = 0; i < g->nshards; i++)
        for (size_t h = g->shard_first[i]; h < g->shard_first[i + 1]; h++)
            next[g->entries[h].rank + 1] += cell_first[i + 1] - cell_first[i];
    for (int r = 0; r < nranks; r++)
        next[r + 1] += next[r];
    for (size_t i = 0; i < g->n; i++) {
        if (shard_of[i] == g->nshards) continue;
        int64_t rank = g->words[i * (1 + 2 * (size_t)g->ndim)];
        for (size_t c = cell_first[shard_of[i]]; c < cell_first[shard_of[i] + 1]; c++)
            s->rank_cells[next[rank]++] = c;
    }
    return MUON_OK;
}

static void find_shard_of(size_t *shard_of, const given *g)
{
    for (size_t i = 0; i < g->n; i++)
        shard_of[i] = g->nshards;
    for (size_t i = 0; i < g->nshards; i++)
        for (size_t h = g->shard_first[i]; h < g->shard_first[i + 1]; h++)
            shard_of[g->entries[h].index] = i;
}

/* Offsets and the hash, which go through what every rank holds. */
static void number_elements(list *s, int nranks)
{
    uint64_t sum = 0;
    for (int r = 0; r < nranks; r++) {
        int64_t offset = 0;
        for (size_t i = s->rank_first[r]; i < s->rank_first[r + 1]; i++) {
            size_t cell = s->rank_cells[i];
            s->rank_offsets[i] = offset;
            offset += muon__box_numel(&s->cells[cell], s->ndim);
            sum +=
                muon__layout_hash_part(r, i - s->rank_first[r], muon__list_replica_of(s, cell, r),
                                       &s->cells[cell], s->ndim);
        }
    }
    s->hash = muon__layout_hash_all(sum, s->ndim, s->shape);
}

static muon_status fill(list *s, size_t *cell_first, size_t *shard_of, int nranks)
{
    TRY(make_cells(s, cell_first));
    find_reach(s);
    find_shard_of(shard_of, &s->given);
    TRY(fill_ranks(s, cell_first, shard_of, nranks));
    number_elements(s, nranks);
    return MUON_OK;
}

static muon_status make(list *s, int nranks)
{
    TRY(muon__given_find_shards(&s->given, nranks));
    size_t *cell_first = NULL, *shard_of = NULL;
    muon_status status = CALLOC(&cell_first, s->given.nshards + 1, s->given.what);
    if (status == MUON_OK) status = CALLOC(&shard_of, s->given.n, s->given.what);
    if (status == MUON_OK) status = fill(s, cell_first, shard_of, nranks);
    free(cell_first);
    free(shard_of);
    return status;
}

/* The same list as another parameter's; the shape decides into which boxes ranges are cut. */
static const list *find_alike(const mesh *m, const list *s)
{
    const list *other = m->lists;
    while (other &&
           !(other->ndim == s->ndim && memcmp(other->shape, s->shape, sizeof s->shape) == 0 &&
             muon__given_equal(&other->given, &s->given)))
        other = other->next;
    return other;
}

muon_status muon__list_find(const list **out, mesh *m, const muon_param *param, int nranks)
{
    list *s = NULL;
    TRY(CALLOC(&s, 1, "boxes"));
    s->ndim = param->ndim;
    memcpy(s->shape, param->shape, (size_t)param->ndim * sizeof *s->shape);
    muon_status status = muon__given_load(&s->given, param);
    const list *alike = status == MUON_OK ? find_alike(m, s) : NULL;
    if (status == MUON_OK && !alike) status = make(s, nranks);
    if (status != MUON_OK || alike) {
        muon__lists_destroy(s);
        if (alike) *out = alike;
        return status;
    }
    s->next = m->lists;
    m->lists = s;
    *out = s;
    return MUON_OK;
}

void muon__lists_destroy(list *first)
{
    while (first) {
        list *s = first;
        first = s->next;
        muon__given_free(&s->given);
        free(s->cells);
        free(s->first);
        free(s->reach);
        free(s->holder_first);
        free(s->holders);
        free(s->rank_first);
        free(s->rank_cells);
        free(s->rank_offsets);
        free(s);
    }
}

/* ---- Asking */

int muon__list_replica_of(const list *s, size_t cell, int rank)
{
    size_t low = s->holder_first[cell], high = s->holder_first[cell + 1];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->holders[middle] < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    int is_holder = low < s->holder_first[cell + 1] && s->holders[low] == rank;
    return is_holder ? (int)(low - s->holder_first[cell]) : -1;
}

/* The first of n ascending numbers that is at least x. */
static size_t lower_bound(const int64_t *numbers, size_t n, int64_t x)
{
    size_t low = 0;
    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (numbers[middle] < x) {
            low = middle + 1;
        } else {
            n = middle;
        }
    }
    return low;
}

/* A cell that overlaps the query neither ends before its first element nor begins after its last. */
void muon__list_walk(layout_walk *walk, const list *s)
{
    int64_t last[MUON_MAX_DIMS];
    for (int d = 0; d < s->ndim; d++)
        last[d] = walk->query.end[d] - 1;
    walk->next =
        lower_bound(s->reach, s->ncells, muon__box_flat(walk->query.begin, s->ndim, s->shape));
    walk->end = lower_bound(s->first, s->ncells, muon__box_flat(last, s->ndim, s->shape) + 1);
}

int muon__list_next(layout_walk *walk, const list *s, size_t *cell)
{
    while (walk->next < walk->end) {
        const box *b = &s->cells[walk->next++];
        int d = 0;
        while (d < s->ndim && b->begin[d] < walk->query.end[d] && walk->query.begin[d] < b->end[d])
            d++;
        if (d < s->ndim) continue;
        *cell = walk->next - 1;
        return 1;
    }
    return 0;
}
