/* layout.c - a layout is a grid or a list of cells; here is what they have in common. */
#include "plan/layout/layout.h"

#include "base/digest.h"
#include "base/memory.h"
#include "plan/layout/parts.h"

#include <stdlib.h>
#include <string.h>

struct layout {
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    const grid *grid; /* one of these; they are the mesh's */
    const list *list;
};

/* ---- Boxes */

int64_t muon__box_numel(const box *b, int ndim)
{
    int64_t n = 1;
    for (int d = 0; d < ndim; d++)
        n *= b->end[d] - b->begin[d];
    return n;
}

int64_t muon__box_flat(const int64_t *at, int ndim, const int64_t *shape)
{
    int64_t flat = 0;
    for (int d = 0; d < ndim; d++)
        flat = flat * shape[d] + at[d];
    return flat;
}

void muon__box_place(int64_t *at, int64_t flat, int ndim, const int64_t *shape)
{
    for (int d = ndim; d-- > 0; flat /= shape[d])
        at[d] = flat % shape[d];
}

/* ---- Making one */

static muon_status place_on_mesh(layout *l, const muon_param *param, mesh *m)
{
    placement p;
    TRY(muon__placement_parse(&p, param->placement, m, param->ndim));
    return muon__grid_find(&l->grid, m, &p, param->ndim, param->shape);
}

static muon_status find_mesh(mesh **out, const char *name, mesh *meshes, size_t nmeshes)
{
    size_t i = 0;
    while (i < nmeshes && strcmp(meshes[i].name, name) != 0)
        i++;
    REQUIRE(i < nmeshes, E_NAME, "mesh '%s' is not one of the %zu in the config", name, nmeshes);
    *out = &meshes[i];
    return MUON_OK;
}

/* Two ways to say where the elements are would have to be compared; so there may be one. */
static muon_status check_ways(const muon_param *param)
{
    REQUIRE(!param->placement || param->mesh, E_LAYOUT, "placement \"%s\" needs a mesh",
            param->placement);
    REQUIRE((param->boxes != NULL) == (param->nboxes > 0), E_LAYOUT,
            "boxes is %s, but nboxes is %zu", param->boxes ? "given" : "NULL", param->nboxes);
    REQUIRE((param->ranges != NULL) == (param->nranges > 0), E_LAYOUT,
            "ranges is %s, but nranges is %zu", param->ranges ? "given" : "NULL", param->nranges);
    const char *ways[] = {"a mesh", "boxes", "ranges"};
    const int is_given[] = {param->mesh != NULL, param->boxes != NULL, param->ranges != NULL};
    for (int i = 0; i < 3; i++)
        for (int j = i + 1; j < 3; j++)
            REQUIRE(!is_given[i] || !is_given[j], E_LAYOUT, "%s and %s are given, only one may be",
                    ways[i], ways[j]);
    return MUON_OK;
}

static muon_status fill(layout *l, const muon_param *param, mesh *meshes, size_t nmeshes,
                        int nranks)
{
    mesh *m = &meshes[nmeshes];
    if (param->boxes || param->ranges) return muon__list_find(&l->list, m, param, nranks);
    if (param->mesh) TRY(find_mesh(&m, param->mesh, meshes, nmeshes));
    return place_on_mesh(l, param, m);
}

muon_status muon__layout_create(layout **out, const muon_param *param, mesh *meshes, size_t nmeshes,
                                int nranks)
{
    TRY(check_ways(param));
    layout *l = NULL;
    TRY(CALLOC(&l, 1, "layout"));
    l->ndim = param->ndim;
    memcpy(l->shape, param->shape, (size_t)param->ndim * sizeof *l->shape);
    muon_status status = fill(l, param, meshes, nmeshes, nranks);
    if (status == MUON_OK) {
        *out = l;
    } else {
        muon__layout_destroy(l);
    }
    return status;
}

void muon__layout_destroy(layout *l)
{
    free(l);
}

/* ---- Cells and ranks */

size_t muon__layout_ncells(const layout *l)
{
    return l->grid ? (size_t)l->grid->ncells : l->list->ncells;
}

void muon__layout_cell(const layout *l, size_t cell, box *out)
{
    if (l->grid) {
        muon__grid_cell(l->grid, cell, out);
    } else {
        *out = l->list->cells[cell];
    }
}

int muon__layout_nholders(const layout *l, size_t cell)
{
    if (l->grid) return l->grid->replicas;
    return (int)(l->list->holder_first[cell + 1] - l->list->holder_first[cell]);
}

int muon__layout_holder(const layout *l, size_t cell, int index)
{
    if (l->grid) return muon__grid_holder(l->grid, cell, index);
    return l->list->holders[l->list->holder_first[cell] + (size_t)index];
}

size_t muon__layout_ncells_of(const layout *l, int rank)
{
    size_t cell;
    int replica;
    if (l->grid) return (size_t)muon__grid_of_rank(l->grid, rank, &cell, &replica);
    return l->list->rank_first[rank + 1] - l->list->rank_first[rank];
}

size_t muon__layout_cell_of(const layout *l, int rank, size_t index)
{
    if (l->list) return l->list->rank_cells[l->list->rank_first[rank] + index];
    size_t cell = 0;
    int replica;
    muon__grid_of_rank(l->grid, rank, &cell, &replica);
    return cell;
}

int64_t muon__layout_offset_of(const layout *l, int rank, size_t index)
{
    return l->list ? l->list->rank_offsets[l->list->rank_first[rank] + index] : 0;
}

int64_t muon__layout_numel_of(const layout *l, int rank)
{
    size_t n = muon__layout_ncells_of(l, rank);
    if (n == 0) return 0;
    box last;
    muon__layout_cell(l, muon__layout_cell_of(l, rank, n - 1), &last);
    return muon__layout_offset_of(l, rank, n - 1) + muon__box_numel(&last, l->ndim);
}

int64_t muon__layout_held(const layout *l)
{
    int64_t held = 0;
    for (size_t c = 0; c < (l->grid ? 1 : l->list->ncells); c++) {
        int64_t numel = 1;
        for (int d = 0; l->grid && d < l->ndim; d++)
            numel *= l->shape[d];
        if (l->list) numel = muon__box_numel(&l->list->cells[c], l->ndim);
        if (__builtin_mul_overflow(numel, muon__layout_nholders(l, c), &numel) ||
            __builtin_add_overflow(held, numel, &held))
            return INT64_MAX;
    }
    return held;
}

int muon__layout_replica_of(const layout *l, size_t cell, int rank)
{
    if (l->list) return muon__list_replica_of(l->list, cell, rank);
    size_t own;
    int replica;
    return muon__grid_of_rank(l->grid, rank, &own, &replica) && own == cell ? replica : -1;
}

int muon__layout_has_replicas(const layout *l)
{
    if (l->grid) return l->grid->replicas > 1;
    return l->list->holder_first[l->list->ncells] > l->list->ncells;
}

/* ---- Hash */

uint64_t muon__layout_hash_part(int rank, size_t index, int replica, const box *b, int ndim)
{
    int64_t words[3 + 2 * MUON_MAX_DIMS] = {rank, (int64_t)index, replica};
    memcpy(words + 3, b->begin, (size_t)ndim * sizeof *words);
    memcpy(words + 3 + ndim, b->end, (size_t)ndim * sizeof *words);
    uint64_t hash = MUON__DIGEST_START;
    muon__digest_words(&hash, words, 3 + 2 * (size_t)ndim);
    return hash;
}

uint64_t muon__layout_hash_all(uint64_t sum, int ndim, const int64_t *shape)
{
    uint64_t hash = sum;
    muon__digest_words(&hash, shape, (size_t)ndim);
    return hash;
}

uint64_t muon__layout_hash(const layout *l)
{
    return l->grid ? l->grid->hash : l->list->hash;
}

/* ---- Walking */

void muon__layout_walk(layout_walk *walk, const layout *l, const box *query)
{
    *walk = (layout_walk){.l = l, .query = *query};
    for (int d = 0; d < l->ndim; d++)
        walk->done |= query->begin[d] >= query->end[d];
    if (walk->done) return;
    if (l->grid) {
        muon__grid_walk(walk, l->grid);
    } else {
        muon__list_walk(walk, l->list);
    }
}

int muon__layout_next(layout_walk *walk, size_t *cell)
{
    if (walk->done) return 0;
    return walk->l->grid ? muon__grid_next(walk, walk->l->grid, cell)
                         : muon__list_next(walk, walk->l->list, cell);
}

int64_t muon__layout_count(const layout *l, const box *query)
{
    layout_walk walk;
    muon__layout_walk(&walk, l, query);
    if (walk.done) return 0;
    if (l->list) return (int64_t)(walk.end - walk.next);
    int64_t n = 1;
    for (int d = 0; d < l->ndim; d++)
        n *= walk.high[d] - walk.low[d] + 1;
    return n;
}
