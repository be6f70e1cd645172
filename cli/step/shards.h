/* shards.h - between whole tensors in files and what a rank has of them.
 *
 * Every rank reads the rows that it has something of, and rank 0 puts whole tensors together again. One
 * process has everything, and nothing is copied. */
#ifndef CLI_STEP_SHARDS_H
#define CLI_STEP_SHARDS_H

#include "cli/core/files.h"
#include "muon/plan.h"

typedef struct shards {
    const muon_plan *plan;
    const muon_param *params;
    int rank;
} shards;

/* This rank's elements of a tensor in a file, in memory for free; never NULL, also if there are none. */
int shards_read(void **out, const shards *s, size_t param, const files *f, size_t index);

/* Collective. The tensor on rank 0, NULL on others: in *memory, for free, or if *memory is NULL in
 * the shard itself. Elements have `size` bytes. */
const void *shards_gather(const shards *s, size_t param, const void *shard, size_t size,
                          void **memory);

#endif
