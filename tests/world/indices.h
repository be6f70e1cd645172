/* indices.h - which elements of a tensor a rank's shard has, in the order of its memory. */
#ifndef TESTS_INDICES_H
#define TESTS_INDICES_H

#include "muon/plan.h"

#include <stdlib.h>

/* Flat indices; free them. They are the shard of a tensor whose elements are their own places. */
static inline int64_t *shard_indices(const muon_plan *plan, size_t param, int rank,
                                     const muon_param *p)
{
    int64_t numel = 1;
    for (int d = 0; d < p->ndim; d++)
        numel *= p->shape[d];
    int64_t *whole = calloc((size_t)numel, sizeof *whole);
    int64_t *shard = calloc((size_t)muon_plan_count_elements(plan, param, rank) + 1, sizeof *shard);
    if (!whole || !shard) abort();
    for (int64_t i = 0; i < numel; i++)
        whole[i] = i;
    if (muon_plan_cut_shard(plan, param, rank, shard, whole, sizeof *whole) != MUON_OK) abort();
    free(whole);
    return shard;
}

#endif
