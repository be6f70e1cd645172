/* values.h - elements of a dtype as doubles, and back. */
#ifndef CLI_CKPT_VALUES_H
#define CLI_CKPT_VALUES_H

#include "cli/ckpt/source.h"

#include <stddef.h>

/* Elements that are handled at a time: their doubles fit into a processor's cache. */
enum { VALUES_BLOCK = 1 << 14 };

/* Bytes of an element; 0 for a dtype whose elements are no numbers we know. */
size_t values_size(const char *dtype);
void values_load(double *to, const void *from, size_t count, const char *dtype);

/* Whether values_store writes it: F32, BF16, F64 and I64. */
int values_can_store(const char *dtype);
/* Rounded to nearest even. Returns the index of the first finite number that the dtype cannot hold, or
 * count. */
size_t values_store(void *to, const double *from, size_t count, const char *dtype);

/* ---- what a tensor holds, in one pass and a few blocks of memory -------------------------------- */

/* Of the finite elements, where that makes a difference; 0 if there are none. */
typedef struct ckpt_stats {
    int known; /* 0: elements of this dtype are no numbers we know, and nothing is counted */
    int64_t count, zeros, nans, infs;
    double min, max, mean, rms, absmax;
} ckpt_stats;

int ckpt_measure(const ckpt_source *source, size_t index, ckpt_stats *out);

/* How two tensors of one shape and dtype differ. */
typedef struct ckpt_difference {
    int equal;            /* bit by bit */
    int known;            /* as above: if not, the rest is 0 */
    int64_t count;        /* elements with other bits */
    double most, largest; /* of |a - b|, infinite for a NaN on one side; of |a| and |b| */
} ckpt_difference;

int ckpt_compare(const ckpt_source *a, size_t i, const ckpt_source *b, size_t j,
                 ckpt_difference *out);

#endif
