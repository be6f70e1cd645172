/* fold.h - from boxes of a tensor to rectangles of its matrices.
 *
 * A tensor is folded to batch x rows x cols. A box of it is then one patch or, where it cuts a dim
 * behind another one of the same fold, several: in a patch batch entries, rows and columns are each
 * one range, and rows are a constant distance apart in the memory of the box. What an item and a patch
 * have in common is a rectangle of the item's matrix, because a band's rows are in the tensor's order. */
#ifndef PLAN_LAYOUT_FOLD_H
#define PLAN_LAYOUT_FOLD_H

#include "plan/layout/layout.h"

typedef struct fold {
    int batch_dims, row_dims, col_dims; /* consecutive dims of the tensor; each may be 0 */
    int64_t batch, rows, cols;
} fold;

typedef struct patch {
    int64_t batch, nbatch, row, nrows, col, ncols; /* of the folded tensor */
    int64_t offset;                                /* in the box's memory, of its first element */
    int64_t row_stride, batch_stride; /* there, in elements; columns are next to each other */
} patch;

typedef struct rectangle { /* of an item's matrix */
    int64_t row, nrows, col, ncols;
} rectangle;

/* The fold of a tensor whose leading batch_dims are a batch and whose next row_dims are rows. */
fold muon__fold_make(const int64_t *shape, int ndim, int batch_dims, int row_dims);

/* The patches of a box, in the order of its memory; returns how many. With out NULL only counts. */
size_t muon__fold_box(patch *out, const fold *f, const int64_t *shape, int ndim, const box *b);

/* The smallest box of the tensor that holds an item: a batch entry, a row band and a column band. */
void muon__fold_item(box *out, const fold *f, const int64_t *shape, int ndim, int64_t batch,
                     const band *rows, const band *cols);

/* What item and patch have in common; 0 if nothing. */
int muon__fold_overlap(rectangle *out, const patch *p, int64_t batch, const band *rows,
                       const band *cols);

/* How many of a band's rows (or columns) lie before `at` in the tensor. */
int64_t muon__band_before(const band *b, int64_t at);

#endif
