/* spectrum.h - singular values of a matrix before and after orthogonalization: what Muon does, as two
 * lines in a picture. */
#ifndef TRAIN_RUN_SPECTRUM_H
#define TRAIN_RUN_SPECTRUM_H

#include "train/run/record.h"

enum { TRAIN_SPECTRUM_MOST = 256 }; /* values kept; of more, evenly spaced ones with both ends */

/* Orthogonalizes before[rows][cols] by `settings` (NULL: the defaults) on this thread. The name is
 * copied, and lives as long as the values. MUON_E_NONFINITE for a matrix with a NaN or infinity. */
muon_status train_spectrum_make(train_spectrum *out, const char *name, int64_t step,
                                const float *before, int64_t rows, int64_t cols,
                                const muon_group *settings);
void train_spectrum_free(train_spectrum *spectrum); /* zeros are fine */

/* The values of rank 0, ... of x[rows][cols], descending, evenly spaced if there are more than count.
 * count is at most min(rows, cols). */
muon_status train_singular_values(double *values, int count, const float *x, int64_t rows,
                                  int64_t cols);

#endif
