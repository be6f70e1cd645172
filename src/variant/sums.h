/* sums.h - a number for each row, or each column, of a matrix [rows][cols]. */
#ifndef VARIANT_SUMS_H
#define VARIANT_SUMS_H

#include "base/pool.h"

/* of[i]: the sum of a * b along row i, or column i; of a * a with b == a. */
void muon__sum_rows(double *of, const float *a, const float *b, int64_t rows, int64_t cols,
                    pool *p);
void muon__sum_columns(double *of, const float *a, const float *b, int64_t rows, int64_t cols,
                       pool *p);

/* Multiplies row i, or column i, by by[i]. */
void muon__scale_rows(float *x, const double *by, int64_t rows, int64_t cols, pool *p);
void muon__scale_columns(float *x, const double *by, int64_t rows, int64_t cols, pool *p);

#endif
