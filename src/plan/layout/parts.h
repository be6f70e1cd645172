/* parts.h - shared by the files that make layouts: placements as grids, boxes and ranges as lists.
 *
 * Both answer the same questions; a layout is one or the other and passes questions on. */
#ifndef PLAN_LAYOUT_PARTS_H
#define PLAN_LAYOUT_PARTS_H

#include "plan/layout/layout.h"

/* ---- placement.c: the text of muon_param.placement */

typedef struct placement {
    int naxes[MUON_MAX_DIMS]; /* that cut a dim */
    int axes[MUON_MAX_DIMS]
            [MUON_MAX_AXES]; /* of the mesh, the outermost first; of size 2 and more */
} placement;

/*     text = [ item { ";" item } ]
 *     item = DIM ":" AXIS { "," AXIS }
 *
 * A dim appears at most once, an axis at most once in the whole text. Spaces, tabs and line ends
 * separate and mean nothing else. NULL or "" cuts nothing. */
muon_status muon__placement_parse(placement *out, const char *text, const mesh *m, int ndim);

/* ---- grid.c: the cells of a placement */

/* How a dim is cut: slices are the parts that are not empty. */
typedef struct grid_dim {
    int slices;
    int64_t *edges; /* [slices + 1] slice i is edges[i] .. edges[i + 1] */
    int *part_of;   /* [slices] number of the part: the axes' coordinates, the outermost first */
    int *slice_of;  /* [parts] or -1 */
} grid_dim;

typedef struct grid {
    struct grid *next; /* of the mesh */
    const mesh *mesh;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    placement placement;
    grid_dim dims[MUON_MAX_DIMS];
    int nfree, free_axes[MUON_MAX_AXES]; /* axes that cut nothing */
    int replicas;                        /* product of their sizes */
    int ncells;
    uint64_t hash;
} grid;

/* The mesh's grid for this tensor and placement: a new one, or the one that another tensor has. */
muon_status muon__grid_find(const grid **out, mesh *m, const placement *p, int ndim,
                            const int64_t *shape);
void muon__grids_destroy(grid *first);

void muon__grid_cell(const grid *g, size_t cell, box *out);
int muon__grid_holder(const grid *g, size_t cell, int index);
/* The one cell of a rank and which replica of it the rank has; 0 if it has none. */
int muon__grid_of_rank(const grid *g, int rank, size_t *cell, int *replica);
void muon__grid_walk(layout_walk *walk, const grid *g);
int muon__grid_next(layout_walk *walk, const grid *g, size_t *cell);

/* ---- given.c: the caller's boxes or ranges */

typedef struct shard_entry {
    int64_t first, last; /* flat indices of a box's corners: no other box has both */
    int rank;
    size_t index; /* in the caller's list */
} shard_entry;

typedef struct given {
    const char *what; /* "boxes", "ranges" */
    int is_flat;      /* ranges: boxes of the flattened tensor */
    int ndim;         /* of the tensor that the boxes are in, which is the flattened one or not */
    int64_t shape[MUON_MAX_DIMS];
    int64_t *words; /* [n][1 + 2 ndim] rank, begin, end */
    size_t n;
    shard_entry *entries; /* that are not empty, in ascending order of all their fields */
    size_t nentries;
    size_t *shard_first; /* [nshards + 1] equal boxes of several ranks are one shard */
    size_t nshards;
} given;

/* Copies what the caller has given, unchecked. */
muon_status muon__given_load(given *g, const muon_param *param);
/* Checks every entry and finds the shards, which tile the tensor; MUON_E_LAYOUT if they do not. */
muon_status muon__given_find_shards(given *g, int nranks);
box muon__given_box(const given *g, size_t index);
int muon__given_equal(const given *a, const given *b);
void muon__given_free(given *g);

/* ---- cover.c: do boxes tile a tensor? */

/* *element: the flat index of the first element that is not in exactly one shard, or -1. */
muon_status muon__cover_check(int64_t *element, const given *g);

/* ---- list.c: the cells of boxes and ranges */

typedef struct list {
    struct list *next; /* of the mesh */
    given given;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    size_t ncells;
    box *cells;
    int64_t *first;        /* [ncells] flat index of a cell's first element, ascending */
    int64_t *reach;        /* [ncells] the largest flat index in this cell and those before it */
    size_t *holder_first;  /* [ncells + 1] */
    int *holders;          /* of a cell from holders[holder_first[cell]] on, ascending */
    size_t *rank_first;    /* [nranks + 1] */
    size_t *rank_cells;    /* of a rank from rank_cells[rank_first[rank]] on, as in its memory */
    int64_t *rank_offsets; /* beside them */
    uint64_t hash;
} list;

/* The mesh's list for this parameter: a new one, or the one that another parameter has. */
muon_status muon__list_find(const list **out, mesh *m, const muon_param *param, int nranks);
void muon__lists_destroy(list *first);

int muon__list_replica_of(const list *s, size_t cell, int rank);
void muon__list_walk(layout_walk *walk, const list *s);
int muon__list_next(layout_walk *walk, const list *s, size_t *cell);

/* ---- layout.c */

int64_t muon__box_flat(const int64_t *at, int ndim,
                       const int64_t *shape); /* flat index of a place */
void muon__box_place(int64_t *at, int64_t flat, int ndim, const int64_t *shape);

/* A rank's share of a layout's hash; they are added up, so their order does not matter. */
uint64_t muon__layout_hash_part(int rank, size_t index, int replica, const box *b, int ndim);
uint64_t muon__layout_hash_all(uint64_t sum, int ndim, const int64_t *shape);

#endif
