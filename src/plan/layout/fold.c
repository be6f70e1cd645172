/* fold.c - from boxes of a tensor to rectangles of its matrices. */
#include "plan/layout/fold.h"

/* Consecutive dims that are folded to one, and what a box takes of them: `n` ranges of `length` indices.
 * Behind the last dim that the box does not take whole, dims melt into one range; before it, every
 * index is a range of its own. */
typedef struct side {
    const int64_t *shape, *begin, *end; /* of the dims */
    int ndim, split;                    /* the dims before `split` give a range per index */
    int64_t n, length;
} side;

static side take_side(const int64_t *shape, const box *b, int first, int ndim)
{
    side s = {.shape = shape + first,
              .begin = b->begin + first,
              .end = b->end + first,
              .ndim = ndim,
              .n = 1,
              .length = 1};
    for (int d = ndim; d-- > 0;) {
        int64_t taken = s.end[d] - s.begin[d];
        if (s.split == 0 && taken < s.shape[d]) s.split = d;
        *(d < s.split ? &s.n : &s.length) *= taken;
    }
    return s;
}

/* The folded index at which range i starts. */
static int64_t range_start(const side *s, int64_t i)
{
    int64_t start = 0, stride = 1;
    for (int d = s->ndim; d-- > 0; stride *= s->shape[d]) {
        int64_t at = s->begin[d];
        if (d < s->split) {
            int64_t taken = s->end[d] - s->begin[d];
            at += i % taken;
            i /= taken;
        }
        start += at * stride;
    }
    return start;
}

static int64_t product(const int64_t *shape, int n)
{
    int64_t result = 1;
    for (int d = 0; d < n; d++)
        result *= shape[d];
    return result;
}

fold muon__fold_make(const int64_t *shape, int ndim, int batch_dims, int row_dims)
{
    int before_cols = batch_dims + row_dims;
    return (fold){.batch_dims = batch_dims,
                  .row_dims = row_dims,
                  .col_dims = ndim - before_cols,
                  .batch = product(shape, batch_dims),
                  .rows = product(shape + batch_dims, row_dims),
                  .cols = product(shape + before_cols, ndim - before_cols)};
}

size_t muon__fold_box(patch *out, const fold *f, const int64_t *shape, int ndim, const box *b)
{
    side batch = take_side(shape, b, 0, f->batch_dims);
    side rows = take_side(shape, b, f->batch_dims, f->row_dims);
    side cols = take_side(shape, b, ndim - f->col_dims, f->col_dims);
    int64_t n = batch.n * rows.n * cols.n;
    if (!out) return (size_t)n;
    int64_t row_stride = cols.n * cols.length;
    int64_t batch_stride = rows.n * rows.length * row_stride;
    for (int64_t i = 0; i < batch.n; i++) {
        for (int64_t j = 0; j < rows.n; j++) {
            for (int64_t k = 0; k < cols.n; k++)
                *out++ = (patch){.batch = range_start(&batch, i),
                                 .nbatch = batch.length,
                                 .row = range_start(&rows, j),
                                 .nrows = rows.length,
                                 .col = range_start(&cols, k),
                                 .ncols = cols.length,
                                 .offset = i * batch.length * batch_stride +
                                           j * rows.length * row_stride + k * cols.length,
                                 .row_stride = row_stride,
                                 .batch_stride = batch_stride};
        }
    }
    return (size_t)n;
}

/* Widens begin .. end of some dims so that the folded indices first .. last are inside: the same place
 * in the leading dims, a range in the first dim where they differ, and everything behind it. */
static void widen(int64_t *begin, int64_t *end, const int64_t *shape, int ndim, int64_t first,
                  int64_t last)
{
    int64_t stride = product(shape, ndim);
    int differ = 0;
    for (int d = 0; d < ndim; d++) {
        stride /= shape[d];
        int64_t low = differ ? 0 : first / stride, high = differ ? shape[d] - 1 : last / stride;
        if (low < begin[d]) begin[d] = low;
        if (high >= end[d]) end[d] = high + 1;
        differ |= low != high;
        first %= stride;
        last %= stride;
    }
}

static void bound(box *out, const int64_t *shape, int first_dim, int ndim, const band *b)
{
    int64_t *begin = out->begin + first_dim, *end = out->end + first_dim;
    shape += first_dim;
    for (int d = 0; d < ndim; d++) {
        begin[d] = shape[d];
        end[d] = 0;
    }
    if (ndim < 2) { /* ranges need no look of their own */
        widen(begin, end, shape, ndim, b->start,
              b->start + (b->count - 1) * b->stride + b->size - 1);
        return;
    }
    for (int64_t i = 0; i < b->count; i++)
        widen(begin, end, shape, ndim, b->start + i * b->stride,
              b->start + i * b->stride + b->size - 1);
}

void muon__fold_item(box *out, const fold *f, const int64_t *shape, int ndim, int64_t batch,
                     const band *rows, const band *cols)
{
    *out = (box){0};
    band entry = {batch, 1, 1, 1};
    bound(out, shape, 0, f->batch_dims, &entry);
    bound(out, shape, f->batch_dims, f->row_dims, rows);
    bound(out, shape, ndim - f->col_dims, f->col_dims, cols);
}

int64_t muon__band_before(const band *b, int64_t at)
{
    if (at <= b->start) return 0;
    int64_t range = (at - b->start) / b->stride, inside = (at - b->start) % b->stride;
    if (range >= b->count) return muon__band_length(b);
    return range * b->size + (inside < b->size ? inside : b->size);
}

/* The part of a band that lies in n indices from `at` on; returns how many. */
static int64_t clip(int64_t *first, const band *b, int64_t at, int64_t n)
{
    *first = muon__band_before(b, at);
    return muon__band_before(b, at + n) - *first;
}

int muon__fold_overlap(rectangle *out, const patch *p, int64_t batch, const band *rows,
                       const band *cols)
{
    if (batch < p->batch || batch >= p->batch + p->nbatch) return 0;
    rectangle r;
    r.nrows = clip(&r.row, rows, p->row, p->nrows);
    r.ncols = clip(&r.col, cols, p->col, p->ncols);
    if (r.nrows == 0 || r.ncols == 0) return 0;
    *out = r;
    return 1;
}
