/* matrix.h - the logical-matrix language: from a tensor and its description to the matrices inside.
 *
 * A tensor is folded to batch x rows x cols; the description cuts rows and columns into bands; every
 * (batch entry, row band, column band) is a logical matrix. A band is usually one contiguous range;
 * with N*[...] it is N ranges of equal size at a constant distance. Bands are declared on the whole
 * tensor, so no sharding changes them. The grammar is in muon.h. */
#ifndef MATRIX_MATRIX_H
#define MATRIX_MATRIX_H

#include "base/status.h"

/* Rows (or columns) start, start + 1, ... start + size - 1, then the same again `stride` further,
 * `count` ranges in all. The band has count * size rows. A contiguous band always has count 1 and
 * stride == size, however it was written. */
typedef struct band {
    int64_t start, size, count, stride;
} band;

#define MUON__MAX_BANDS (1 << 20) /* per side: what a text may make us allocate */

typedef struct matrix_spec {
    int64_t batch, rows, cols; /* the folded tensor */
    int batch_dims,
        row_dims;   /* of it: the leading dims that are a batch, and the next that are rows */
    int transposed; /* swap rows and cols in the lr factor */
    band *row_bands, *col_bands;
    size_t nrow_bands, ncol_bands;      /* at least 1 each, in order of start */
    int64_t skipped_rows, skipped_cols; /* in no band */
} matrix_spec;

/* Parses `matrices` (NULL or "": one matrix) for a tensor of this shape. MUON_E_ARG for a text that
 * is not in the language, MUON_E_SHAPE for what does not fit the tensor, with the text, the place and
 * the numbers in the message; the caller adds the parameter's name. On failure *out is as before. */
muon_status muon__matrix_spec_create(matrix_spec *out, const char *matrices, int ndim,
                                     const int64_t *shape);
void muon__matrix_spec_destroy(matrix_spec *spec);

static inline int64_t muon__band_length(const band *b)
{
    return b->count * b->size;
}

/* The tensor's row (or column) of the band's row i. */
static inline int64_t muon__band_at(const band *b, int64_t i)
{
    return b->start + i / b->size * b->stride + i % b->size;
}

/* How many logical matrices, or -1 if the number does not fit, which cannot be for a spec made by
 * muon__matrix_spec_create: there are never more matrices than elements. */
int64_t muon__matrix_count(const matrix_spec *spec);

/* MUON_E_SHAPE unless 1..MUON_MAX_DIMS dims of at least 1 make a number of elements that fits. */
muon_status muon__matrix_check_shape(int ndim, const int64_t *shape);

/* What the description made of the tensor, for people: "64 x [128, 512]", "[4096, 512] + 2 x
 * [1024, 512]", "12 x [192, 512], 64 rows in none"; "[8*512, 4096]" has rows from 8 places, 512 from
 * each. Cut to `size` bytes with "..." at the end, always terminated. */
void muon__matrix_explain(const matrix_spec *spec, char *buffer, size_t size);

#endif
