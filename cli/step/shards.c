#include "cli/step/shards.h"

#include "cli/core/launch.h"

#include <stdlib.h>

static size_t whole_numel(const shards *s, size_t param)
{
    const muon_param *p = &s->params[param];
    return (size_t)tensors_elements(p->ndim, p->shape);
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

static muon_part get_part(const shards *s, size_t param, int rank, size_t i)
{
    muon_part part;
    if (muon_plan_get_part(s->plan, param, rank, i, &part, sizeof part) != MUON_OK)
        cli_must(cli_fail_library());
    return part;
}

/* Of the rows that this rank has something of, a few megabytes at a time. */
static int read_bands(void *shard, const shards *s, size_t param, const files *f, size_t index,
                      size_t size)
{
    const size_t most = ((size_t)4 << 20) / size;
    size_t row = whole_numel(s, param) / (size_t)s->params[param].shape[0];
    size_t at = whole_numel(s, param), end = 0;
    for (size_t i = 0; i < muon_plan_count_parts(s->plan, param, s->rank); i++) {
        muon_part part = get_part(s, param, s->rank, i);
        if ((size_t)part.begin[0] * row < at) at = (size_t)part.begin[0] * row;
        if ((size_t)part.end[0] * row > end) end = (size_t)part.end[0] * row;
    }
    char *band = tensors_alloc(most * size);
    int code = CLI_DONE;
    for (size_t next; at < end && code == CLI_DONE; at = next) {
        next = end - at < most ? end : at + most;
        code = files_read_part(f, index, at * size, band, (next - at) * size);
        if (code == CLI_DONE && muon_plan_cut_band(s->plan, param, s->rank, shard, band,
                                                   (int64_t)at, (int64_t)next, size) != MUON_OK)
            code = cli_fail_library();
    }
    free(band);
    return code;
}

int shards_read(void **out, const shards *s, size_t param, const files *f, size_t index)
{
    if (has_whole(s, param, s->rank)) return files_read(out, f, index);
    muon_st_tensor tensor;
    DO(files_get(f, index, &tensor));
    size_t size = tensor.bytes / whole_numel(s, param);
    void *shard = tensors_alloc(shard_numel(s, param, s->rank) * size);
    int code = read_bands(shard, s, param, f, index, size);
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
    for (size_t i = 0; i < muon_plan_count_parts(s->plan, param, rank); i++)
        if (get_part(s, param, rank, i).replica == 0) return 1;
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
