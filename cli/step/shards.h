/* shards.h - between whole tensors in files and what a rank has of them.
 *
 * A plan says which boxes of a tensor a rank has and in which order they are in its memory. Files are
 * read whole, one tensor at a time, by every rank that has something of it, and rank 0 puts whole
 * tensors together again. One process has everything, and nothing is copied. */
#ifndef CLI_SHARDS_H
#define CLI_SHARDS_H

#include "cli/core/files.h"
#include "muon/plan.h"

typedef struct shards {
    const muon_plan *plan;
    const muon_param *params;
    int rank;
} shards;

/* Has this rank all of the tensor, in the tensor's own order? */
int shards_is_whole(const shards *s, size_t param);

/* This rank's elements, of `size` bytes each, out of the tensor. */
void shards_cut(const shards *s, size_t param, void *shard, const void *whole, size_t size);

/* The same from a file into memory for free; never NULL, also if the rank has nothing of it. */
int shards_read(void **out, const shards *s, size_t param, const files *f, size_t index);

/* Collective. The tensor on rank 0, NULL on others: in *memory, for free, or if *memory is NULL in
 * the shard itself. Of replicas the first is taken. */
const void *shards_gather(const shards *s, size_t param, const void *shard, size_t size,
                          void **memory);

#endif
