/* rows.h - work on the rows of a matrix, shared by threads in blocks of a fixed height.
 *
 * Rows are tokens, nearly always. A sum over rows is made of one sum per block, added up in the order
 * of the blocks: that is what keeps its bits the same for any number of threads. */
#ifndef TRAIN_MODEL_ROWS_H
#define TRAIN_MODEL_ROWS_H

#include "base/pool.h"

enum { ROWS_EACH = 32 }; /* in a block */

typedef void (*rows_fn)(const void *job, int64_t first, int64_t end);

int64_t rows_blocks(int64_t rows);
void rows_run(pool *p, int64_t rows, rows_fn fn, const void *job);

/* to[i] = from[index[i]], rows of `width` floats. */
void rows_gather(pool *p, int64_t rows, int64_t width, const int32_t *index, const float *from,
                 float *to);
/* to[i] += the sum of from[index[i * each]] .. from[index[i * each + each - 1]]. */
void rows_combine(pool *p, int64_t rows, int64_t width, int each, const int32_t *index,
                  const float *from, float *to);
/* to[index[i]] += from[i], in the order of the rows. */
void rows_scatter_add(pool *p, int64_t rows, int64_t width, const uint8_t *index, const float *from,
                      float *to);

#endif
