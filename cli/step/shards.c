#include "cli/step/shards.h"

#include "cli/core/launch.h"

#include <stdlib.h>

static size_t whole_numel(const shards *s, size_t param)
{
    const muon_param *p = &s->params[param];
    int64_t numel = 1;
    for (int d = 0; d < p->ndim; d++)
        numel *= p->shape[d];
    return (size_t)numel;
}

static size_t shard_numel(const shards *s, size_t param, int rank)
{
    return (size_t)muon_plan_count_elements(s->plan, param, rank);
}

/* Has the rank all of the tensor, in the tensor's own order? */
static int has_whole(const shards *s, size_t param, int rank)
{
    return muon_plan_count_parts(s->plan, param, rank) == 1 &&
           shard_numel(s, param, rank) == whole_numel(s, param);
}

int shards_read(void **out, const shards *s, size_t param, const files *f, size_t index)
{
    if (has_whole(s, param, s->rank)) return files_read(out, f, index);
    size_t count = shard_numel(s, param, s->rank);
    muon_st_tensor tensor;
    DO(files_get(f, index, &tensor));
    size_t size = tensor.bytes / whole_numel(s, param);
    void *shard = tensors_alloc(count * size), *whole = NULL;
    int code = count ? files_read(&whole, f, index) : CLI_DONE;
    if (code == CLI_DONE &&
        muon_plan_cut_shard(s->plan, param, s->rank, shard, whole, size) != MUON_OK)
        code = cli_fail_library();
    free(whole);
    if (code == CLI_DONE)
        *out = shard;
    else
        free(shard);
    return code;
}

/* ---- from all ranks to rank 0 --------------------------------------------------------------------- */

/* Replicas are equal: the first one sends. */
static int is_sent(const shards *s, size_t param, int rank)
{
    for (size_t i = 0; i < muon_plan_count_parts(s->plan, param, rank); i++) {
        muon_part part;
        if (muon_plan_get_part(s->plan, param, rank, i, &part, sizeof part) != MUON_OK)
            cli_must(cli_fail_library());
        if (part.replica == 0) return 1;
    }
    return 0;
}

static void join(const shards *s, size_t param, int rank, void *whole, const void *shard,
                 size_t size)
{
    if (muon_plan_join_shard(s->plan, param, rank, whole, shard, size) != MUON_OK)
        cli_must(cli_fail_library());
}

static void receive(const shards *s, size_t param, int rank, void *whole, size_t size)
{
    size_t bytes = shard_numel(s, param, rank) * size;
    void *shard = tensors_alloc(bytes);
    launch_receive(shard, bytes, rank);
    join(s, param, rank, whole, shard, size);
    free(shard);
}

const void *shards_gather(const shards *s, size_t param, const void *shard, size_t size,
                          void **memory)
{
    *memory = NULL;
    if (has_whole(s, param, 0)) return s->rank == 0 ? shard : NULL;
    if (s->rank != 0) {
        if (is_sent(s, param, s->rank)) launch_send(shard, shard_numel(s, param, s->rank) * size);
        return NULL;
    }
    *memory = tensors_alloc(whole_numel(s, param) * size);
    join(s, param, 0, *memory, shard, size);
    for (int rank = 1; rank < muon_plan_count_ranks(s->plan); rank++)
        if (is_sent(s, param, rank)) receive(s, param, rank, *memory, size);
    return *memory;
}
