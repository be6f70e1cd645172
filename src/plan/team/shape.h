/* shape.h - how a team shares matrices of one class: who computes which tiles, and what it has to tell
 * the others.
 *
 * Every member has the whole U, and after each product the whole result; of the last one, O, it has only
 * its strip, a range of whole tiles along the longer side. A product is computed in the tiles that one
 * process would compute, each over the whole inner dimension, so the bits are those of one process. A
 * strip of U is gathered by its member, and then given to the others: so holders send every element
 * once, whatever the size of the team. */
#ifndef PLAN_TEAM_SHAPE_H
#define PLAN_TEAM_SHAPE_H

#include "ns/newton_schulz.h"
#include "plan/layout/fold.h"

enum {
    TEAM_MAX = 64,        /* ranks that share a matrix */
    TEAM_TILES = 1 << 16, /* of its squares; a short side of 185,000 has that many */
};

/* The tiles of an m x m product by member, and where each is in the packed square: the tiles of all
 * members, one after the other. */
typedef struct tile_deal {
    la_tiling tiling;
    int32_t *tiles;  /* [count] */
    size_t *first;   /* [size + 1] member k has tiles[first[k]] .. tiles[first[k + 1]] */
    int64_t *offset; /* [count + 1] floats; of tiles[i] */
} tile_deal;

/* How often a step exchanges what. */
typedef struct team_rounds {
    int strips;     /* of X: the first, and after every product with it but the last */
    int symmetric;  /* squares */
    int full;       /* squares that are not known to be symmetric */
    double inner;   /* inner dimensions of all products that give squares, together */
    int64_t passes; /* products with X */
} team_rounds;

typedef struct team_shape {
    int32_t class, size;
    int64_t numel; /* of the matrix */
    la_tiling apply;
    rectangle *strips; /* [size] */
    tile_deal symmetric, full;
    double *flops;      /* [size] */
    team_rounds rounds; /* with the settings of the plan */
} team_shape;

muon_status muon__team_shape_make(team_shape *out, const ns_plan *ns, int32_t class, int size);
void muon__team_shape_free(team_shape *s); /* zeroed is fine */

team_rounds muon__team_rounds(const ns_plan *ns);

/* Floats of member k in the packed square. */
static inline int64_t muon__deal_floats(const tile_deal *d, int member)
{
    return d->offset[d->first[member + 1]] - d->offset[d->first[member]];
}

/* What a member exchanges with the others in a step, in bytes and messages. */
typedef struct team_traffic {
    int64_t sent_each; /* bytes to every other member */
    int64_t sent, received;
    int64_t messages_sent, messages_received;
    int rounds;
} team_traffic;
team_traffic muon__team_traffic(const team_shape *s, int member);

/* Floats that every member needs as scratch: X, what is exchanged, squares, and in the end TEAM_MAX
 * verdicts. */
int64_t muon__team_scratch(const ns_plan *ns);

/* The largest strip, as a part of the matrix. */
double muon__team_largest_strip(const ns_plan *ns, int size);

/* The flops of the member that has most, without making the shape; -1: no memory. */
double muon__team_most_flops(const ns_plan *ns, int size);

#endif
