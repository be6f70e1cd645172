/* grid.c - the cells of a placement: every dim is cut into slices, and every choice of one slice
 * per dim is a cell. */
#include "base/memory.h"
#include "plan/layout/parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- Coordinates: a number whose digits have the axes' sizes as bases, the first axis first. */

static int pack(const int *coords, const int *axes, int naxes, const int *sizes)
{
    int number = 0;
    for (int i = 0; i < naxes; i++)
        number = number * sizes[axes[i]] + coords[axes[i]];
    return number;
}

static void unpack(int *coords, int number, const int *axes, int naxes, const int *sizes)
{
    for (int i = naxes; i-- > 0; number /= sizes[axes[i]])
        coords[axes[i]] = number % sizes[axes[i]];
}

/* The next position of the mesh. */
static void advance(int *coords, const mesh *m)
{
    int a = m->naxes - 1;
    while (a > 0 && coords[a] == m->sizes[a] - 1)
        coords[a--] = 0;
    coords[a]++;
}

static const int every_axis[MUON_MAX_AXES] = {0, 1, 2, 3, 4, 5, 6, 7};

/* ---- Making one */

/* What is left of *begin .. *end after a cut into `parts` of equal size, rounded up, of which the last
 * ones may be shorter or empty: torch.chunk. Nothing here exceeds the length. */
static void take_part(int64_t *begin, int64_t *end, int parts, int part)
{
    int64_t length = *end - *begin;
    if (length == 0) return;
    int64_t size = length / parts + (length % parts != 0);
    int64_t first = part <= length / size ? part * size : length;
    *begin += first;
    if (length - first > size) *end = *begin + size;
}

static muon_status cut_dim(grid *g, int dim)
{
    grid_dim *out = &g->dims[dim];
    const int *sizes = g->mesh->sizes, *axes = g->placement.axes[dim];
    int naxes = g->placement.naxes[dim], parts = 1;
    for (int i = 0; i < naxes; i++)
        parts *= sizes[axes[i]];
    TRY(CALLOC(&out->edges, (size_t)parts + 1, "a placement"));
    TRY(CALLOC(&out->part_of, (size_t)parts, "a placement"));
    TRY(CALLOC(&out->slice_of, (size_t)parts, "a placement"));
    for (int part = 0; part < parts; part++) {
        int coords[MUON_MAX_AXES];
        int64_t begin = 0, end = g->shape[dim];
        unpack(coords, part, axes, naxes, sizes);
        for (int i = 0; i < naxes; i++)
            take_part(&begin, &end, sizes[axes[i]], coords[axes[i]]);
        out->slice_of[part] = begin < end ? out->slices : -1;
        if (begin == end) continue;
        out->part_of[out->slices++] = part;
        out->edges[out->slices] = end;
    }
    return MUON_OK;
}

static void find_free_axes(grid *g)
{
    int cuts[MUON_MAX_AXES] = {0};
    for (int d = 0; d < g->ndim; d++)
        for (int i = 0; i < g->placement.naxes[d]; i++)
            cuts[g->placement.axes[d][i]] = 1;
    g->replicas = 1;
    for (int a = 0; a < g->mesh->naxes; a++) {
        if (cuts[a]) continue;
        g->free_axes[g->nfree++] = a;
        g->replicas *= g->mesh->sizes[a];
    }
}

/* The slices that a place in the mesh has of every dim; 0 if it has nothing of some dim. */
static int find_slices(int *slices, const grid *g, const int *coords)
{
    for (int d = 0; d < g->ndim; d++) {
        slices[d] = g->dims[d].slice_of[pack(coords, g->placement.axes[d], g->placement.naxes[d],
                                             g->mesh->sizes)];
        if (slices[d] < 0) return 0;
    }
    return 1;
}

static uint64_t make_hash(const grid *g)
{
    uint64_t sum = 0;
    int coords[MUON_MAX_AXES] = {0}, slices[MUON_MAX_DIMS];
    for (int i = 0; i < (int)g->mesh->nranks; i++, advance(coords, g->mesh)) {
        if (!find_slices(slices, g, coords)) continue;
        box b;
        for (int d = 0; d < g->ndim; d++) {
            b.begin[d] = g->dims[d].edges[slices[d]];
            b.end[d] = g->dims[d].edges[slices[d] + 1];
        }
        int replica = pack(coords, g->free_axes, g->nfree, g->mesh->sizes);
        sum += muon__layout_hash_part(g->mesh->ranks[i], 0, replica, &b, g->ndim);
    }
    return muon__layout_hash_all(sum, g->ndim, g->shape);
}

static muon_status make(grid *g)
{
    g->ncells = 1;
    for (int d = 0; d < g->ndim; d++) {
        TRY(cut_dim(g, d));
        g->ncells *= g->dims[d].slices; /* at most the ranks of the mesh */
    }
    find_free_axes(g);
    g->hash = make_hash(g);
    return MUON_OK;
}

muon_status muon__grid_find(const grid **out, mesh *m, const placement *p, int ndim,
                            const int64_t *shape)
{
    for (grid *g = m->grids; g; g = g->next) {
        if (g->ndim == ndim && memcmp(g->shape, shape, (size_t)ndim * sizeof *shape) == 0 &&
            memcmp(&g->placement, p, sizeof *p) == 0) {
            *out = g;
            return MUON_OK;
        }
    }
    grid *made = NULL;
    TRY(CALLOC(&made, 1, "a placement"));
    made->mesh = m;
    made->ndim = ndim;
    memcpy(made->shape, shape, (size_t)ndim * sizeof *shape);
    made->placement = *p;
    muon_status status = make(made);
    if (status != MUON_OK) {
        muon__grids_destroy(made);
        return status;
    }
    made->next = m->grids;
    m->grids = made;
    *out = made;
    return MUON_OK;
}

void muon__grids_destroy(grid *first)
{
    while (first) {
        grid *g = first;
        first = g->next;
        for (int d = 0; d < g->ndim; d++) {
            free(g->dims[d].edges);
            free(g->dims[d].part_of);
            free(g->dims[d].slice_of);
        }
        free(g);
    }
}

/* ---- Cells and ranks */

static size_t number_cell(const grid *g, const int *slices)
{
    int cell = 0;
    for (int d = 0; d < g->ndim; d++)
        cell = cell * g->dims[d].slices + slices[d];
    return (size_t)cell;
}

void muon__grid_cell(const grid *g, size_t cell, box *out)
{
    *out = (box){0};
    int rest = (int)cell;
    for (int d = g->ndim; d-- > 0;) {
        const grid_dim *dim = &g->dims[d];
        int slice = rest % dim->slices;
        rest /= dim->slices;
        out->begin[d] = dim->edges[slice];
        out->end[d] = dim->edges[slice + 1];
    }
}

int muon__grid_holder(const grid *g, size_t cell, int index)
{
    int coords[MUON_MAX_AXES] = {0}, rest = (int)cell;
    const mesh *m = g->mesh;
    for (int d = g->ndim; d-- > 0;) {
        const grid_dim *dim = &g->dims[d];
        if (dim->slices == 1 && g->placement.naxes[d] == 0) continue;
        unpack(coords, dim->part_of[rest % dim->slices], g->placement.axes[d],
               g->placement.naxes[d], m->sizes);
        rest /= dim->slices;
    }
    unpack(coords, index, g->free_axes, g->nfree, m->sizes);
    return m->ranks[pack(coords, every_axis, m->naxes, m->sizes)];
}

int muon__grid_of_rank(const grid *g, int rank, size_t *cell, int *replica)
{
    const mesh *m = g->mesh;
    if (m->positions[rank] < 0) return 0;
    int coords[MUON_MAX_AXES], slices[MUON_MAX_DIMS];
    unpack(coords, m->positions[rank], every_axis, m->naxes, m->sizes);
    if (!find_slices(slices, g, coords)) return 0;
    *cell = number_cell(g, slices);
    *replica = pack(coords, g->free_axes, g->nfree, m->sizes);
    return 1;
}

/* ---- Walking */

/* The slice that an index is in. */
static int find_slice(const grid_dim *dim, int64_t at)
{
    int low = 0, high = dim->slices;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (dim->edges[middle] <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

void muon__grid_walk(layout_walk *walk, const grid *g)
{
    for (int d = 0; d < g->ndim; d++) {
        walk->low[d] = walk->at[d] = find_slice(&g->dims[d], walk->query.begin[d]);
        walk->high[d] = find_slice(&g->dims[d], walk->query.end[d] - 1);
    }
}

int muon__grid_next(layout_walk *walk, const grid *g, size_t *cell)
{
    *cell = number_cell(g, walk->at);
    int d = g->ndim - 1;
    while (d >= 0 && walk->at[d] == walk->high[d]) {
        walk->at[d] = walk->low[d];
        d--;
    }
    walk->done = d < 0;
    if (d >= 0) walk->at[d]++;
    return 1;
}
