/* layout.h - where the elements of a tensor are: cells and their holders.
 *
 * Whatever way a caller describes a sharding, here it becomes a set of disjoint boxes of the tensor,
 * the cells, which together are the tensor, each held by one rank or, as replicas, by several. Nothing
 * after this file knows of meshes and placements. A placement's cells are a grid and are never listed,
 * and tensors that are cut alike share one: thousands of them on thousands of ranks would be millions
 * of cells. */
#ifndef PLAN_LAYOUT_LAYOUT_H
#define PLAN_LAYOUT_LAYOUT_H

#include "matrix/matrix.h"

typedef struct box {
    int64_t begin[MUON_MAX_DIMS], end[MUON_MAX_DIMS];
} box;

typedef struct mesh {
    char *name;
    int naxes;
    char *axes[MUON_MAX_AXES];
    int sizes[MUON_MAX_AXES];
    int64_t nranks;
    int *ranks;         /* [nranks], the last axis fastest */
    int *positions;     /* [the communicator's ranks] where in `ranks`, or -1 */
    struct grid *grids; /* what was made on it so far: layouts that are alike share */
    struct list *lists;
} mesh;

typedef struct layout layout;

/* Loads config.meshes, each checked against the number of ranks. Behind the last one follows one more,
 * without a name, that has all ranks along one axis: for tensors that are on none. */
muon_status muon__meshes_create(mesh **out, const muon_mesh *meshes, size_t nmeshes, int nranks);
void muon__meshes_destroy(mesh *meshes, size_t nmeshes); /* NULL is fine */

/* From a parameter's mesh and placement, boxes or ranges, of which at most one may be given; with
 * none, one cell that all nranks hold. MUON_E_LAYOUT (MUON_E_NAME for an unknown mesh or axis) with
 * the text, the place, names and numbers; the caller adds the parameter's name. The meshes are those
 * of muon__meshes_create and must outlive the layout. */
muon_status muon__layout_create(layout **out, const muon_param *param, mesh *meshes, size_t nmeshes,
                                int nranks);
void muon__layout_destroy(layout *l); /* NULL is fine */

/* ---- Cells. Numbers are 0 .. ncells - 1, in the order of their first elements. None is empty: where
 * there are more ranks than rows, some ranks have no cell. */
size_t muon__layout_ncells(const layout *l);
void muon__layout_cell(const layout *l, size_t cell, box *out);
int64_t muon__box_numel(const box *b, int ndim);

/* Ranks that hold a cell, in an order that is the same everywhere; at least one. */
int muon__layout_nholders(const layout *l, size_t cell);
int muon__layout_holder(const layout *l, size_t cell, int index);

/* The cells of a rank, in the order of its memory, and how many elements are before each there. */
size_t muon__layout_ncells_of(const layout *l, int rank);
size_t muon__layout_cell_of(const layout *l, int rank, size_t index);
int64_t muon__layout_offset_of(const layout *l, int rank, size_t index);
int64_t muon__layout_numel_of(const layout *l, int rank);
/* Elements on all ranks together, replicas included; INT64_MAX if they do not fit. */
int64_t muon__layout_held(const layout *l);
/* Which of the cell's holders the rank is, or -1. */
int muon__layout_replica_of(const layout *l, size_t cell, int rank);

/* Some cell has more than one holder. */
int muon__layout_has_replicas(const layout *l);

/* All that the layout is, for comparison between ranks and for the plan's hash: for every rank what it
 * holds, in which order, and which of the replicas that is. How it was written does not matter. */
uint64_t muon__layout_hash(const layout *l);

/* Walks the cells that overlap a box, in ascending order, in time that grows with their number and not
 * with the number of cells:
 *     layout_walk walk;
 *     for (muon__layout_walk(&walk, l, &query); muon__layout_next(&walk, &cell);) ...       */
typedef struct layout_walk {
    const layout *l;
    box query;
    size_t next, end;                                               /* list: cells to look at */
    int low[MUON_MAX_DIMS], high[MUON_MAX_DIMS], at[MUON_MAX_DIMS]; /* grid: slices of each dim */
    int done;
} layout_walk;

void muon__layout_walk(layout_walk *walk, const layout *l, const box *query);
int muon__layout_next(layout_walk *walk, size_t *cell);
/* How many there are at most, without walking. */
int64_t muon__layout_count(const layout *l, const box *query);

#endif
