/* ckpt_stats.h - what a tensor holds, in one pass and a few blocks of memory. */
#ifndef CLI_CKPT_STATS_H
#define CLI_CKPT_STATS_H

#include "cli/ckpt/source.h"

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
