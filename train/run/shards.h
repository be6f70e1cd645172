/* shards.h - between whole tensors, which the model has on every rank, and the optimizer's shards.
 *
 * A rank's shard of all parameters is one block of floats, parameter after parameter, each as the plan
 * cuts it. Every rank sends every other rank the part of its gradients that the other's shard needs,
 * and the sum over ranks is made there; after the step the shards go out the same way. Messages are
 * opened once. Any layout will do: no dim needs to be divisible by anything. */
#ifndef TRAIN_RUN_SHARDS_H
#define TRAIN_RUN_SHARDS_H

#include "muon/plan.h"
#include "train/run/team.h"

typedef struct train_shards train_shards;

/* Collective. The plan, of nparams parameters, and the team's communicator must outlive it. */
muon_status train_shards_create(train_shards **out, const muon_plan *plan, size_t nparams, team *t);
void train_shards_destroy(train_shards *s); /* NULL is fine */

int64_t train_shards_numel(const train_shards *s); /* of all parameters on this rank */
int64_t train_shards_offset(const train_shards *s, size_t param);
int64_t
train_shards_bytes_sent(const train_shards *s); /* by this rank in a reduction and a gathering */

/* This rank's elements of whole[param]. */
muon_status train_shards_cut(const train_shards *s, float *shard, const float *const *whole);

/* Collective. The same, but of the sum over all ranks, made in pairs: 0 and 1, 2 and 3, ..., then pairs
 * of pairs. */
muon_status train_shards_reduce(train_shards *s, float *shard, const float *const *whole);

/* Collective. The whole tensors out of all shards; of replicas, one sends. */
muon_status train_shards_gather(train_shards *s, float *const *whole, const float *shard);

#endif
