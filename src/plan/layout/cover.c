/* cover.c - do boxes tile a tensor? In time that grows like a sort.
 *
 * Count for every element how often it is covered, and take differences along every dim. A box then
 * leaves a trace only at its corners: +1 where it begins, -1 where it ends in one dim, +1 where it ends
 * in two, and so on; corners beyond the tensor do not matter. Boxes cover every element once if the
 * traces add up to 1 at the first element and to 0 everywhere else. If they do not, the first place
 * in the tensor's order where it is so is also the first element that is not covered once: no corner
 * lies before it that could make up for it. */
#include "base/memory.h"
#include "plan/layout/parts.h"

#include <stdlib.h>

typedef struct corner {
    int64_t at; /* flat index */
    int64_t sign;
} corner;

/* The dims in which a box ends inside the tensor, as distances of flat indices; returns how many. */
static int find_ends(int64_t *distances, const box *b, int ndim, const int64_t *shape)
{
    int n = 0;
    int64_t stride = 1;
    for (int d = ndim; d-- > 0; stride *= shape[d])
        if (b->end[d] < shape[d]) distances[n++] = (b->end[d] - b->begin[d]) * stride;
    return n;
}

/* Writes the corners of a box; returns the end of what it wrote. */
static corner *add_corners(corner *out, const box *b, int ndim, const int64_t *shape)
{
    int64_t distances[MUON_MAX_DIMS];
    int n = find_ends(distances, b, ndim, shape);
    corner *first = out;
    *out++ = (corner){muon__box_flat(b->begin, ndim, shape), 1};
    for (int i = 0; i < n; i++) { /* every corner so far, and the same one further along the dim */
        corner *end = out;
        for (const corner *c = first; c < end; c++)
            *out++ = (corner){c->at + distances[i], -c->sign};
    }
    return out;
}

static int by_place(const void *a, const void *b)
{
    const corner *ca = a, *cb = b;
    return (ca->at > cb->at) - (ca->at < cb->at);
}

/* Lists that are in order already, as most are, cost no sort. */
static int in_order(const corner *corners, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (corners[i - 1].at > corners[i].at) return 0;
    return 1;
}

static int64_t find_wrong(const corner *corners, size_t n)
{
    if (n == 0 || corners[0].at > 0) return 0;
    for (size_t i = 0; i < n;) {
        int64_t at = corners[i].at, sum = 0;
        for (; i < n && corners[i].at == at; i++)
            sum += corners[i].sign;
        if (sum != (at == 0)) return at;
    }
    return -1;
}

static box shard_box(const given *g, size_t shard)
{
    return muon__given_box(g, g->entries[g->shard_first[shard]].index);
}

muon_status muon__cover_check(int64_t *element, const given *g)
{
    size_t ncorners = 0;
    for (size_t i = 0; i < g->nshards; i++) {
        int64_t distances[MUON_MAX_DIMS];
        box b = shard_box(g, i);
        ncorners += (size_t)1 << find_ends(distances, &b, g->ndim, g->shape);
    }
    corner *corners = NULL;
    TRY(CALLOC(&corners, ncorners, "corners of boxes"));
    corner *end = corners;
    for (size_t i = 0; i < g->nshards; i++) {
        box b = shard_box(g, i);
        end = add_corners(end, &b, g->ndim, g->shape);
    }
    if (!in_order(corners, ncorners)) qsort(corners, ncorners, sizeof *corners, by_place);
    *element = find_wrong(corners, ncorners);
    free(corners);
    return MUON_OK;
}
