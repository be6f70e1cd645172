#include "cli/step/shards.h"
#include "muon/plan.h"

#include "cli/core/launch.h"

#include <stdlib.h>
#include <string.h>

/* ---- boxes as runs of elements that follow each other in the tensor ---------------------------- */

typedef struct runs {
    int64_t length, count;
    int64_t first; /* where the first one starts in the tensor */
    int outer;     /* dims that lead from run to run */
    int64_t stride[MUON_MAX_DIMS], extent[MUON_MAX_DIMS];
} runs;

/* Dims that the box has all of, and the one before them, are one run. */
static runs runs_of(const muon_param *param, const muon_part *part)
{
    runs r = {.length = 1, .count = 1};
    int64_t stride = 1;
    int all_so_far = 1;
    for (int d = param->ndim - 1; d >= 0; d--) {
        r.stride[d] = stride;
        r.extent[d] = part->end[d] - part->begin[d];
        r.first += part->begin[d] * stride;
        if (all_so_far)
            r.length *= r.extent[d];
        else
            r.count *= r.extent[d];
        if (!all_so_far && !r.outer) r.outer = d + 1;
        all_so_far = all_so_far && r.extent[d] == param->shape[d];
        stride *= param->shape[d];
    }
    return r;
}

static int64_t run_start(const runs *r, int64_t i)
{
    int64_t at = r->first;
    for (int d = r->outer - 1; d >= 0; d--) {
        at += i % r->extent[d] * r->stride[d];
        i /= r->extent[d];
    }
    return at;
}

static void cut_part(const muon_param *param, const muon_part *part, char *out, const char *whole,
                     size_t size)
{
    runs r = runs_of(param, part);
    size_t bytes = (size_t)r.length * size;
    for (int64_t i = 0; i < r.count; i++)
        memcpy(out + (size_t)i * bytes, whole + (size_t)run_start(&r, i) * size, bytes);
}

static void paste_part(const muon_param *param, const muon_part *part, char *whole, const char *in,
                       size_t size)
{
    runs r = runs_of(param, part);
    size_t bytes = (size_t)r.length * size;
    for (int64_t i = 0; i < r.count; i++)
        memcpy(whole + (size_t)run_start(&r, i) * size, in + (size_t)i * bytes, bytes);
}

/* ---- shards -------------------------------------------------------------------------------------- */

static int64_t part_numel(const muon_param *param, const muon_part *part)
{
    int64_t numel = 1;
    for (int d = 0; d < param->ndim; d++)
        numel *= part->end[d] - part->begin[d];
    return numel;
}

static int64_t whole_numel(const muon_param *param)
{
    int64_t numel = 1;
    for (int d = 0; d < param->ndim; d++)
        numel *= param->shape[d];
    return numel;
}

static muon_part get_part(const shards *s, size_t param, int rank, size_t i)
{
    muon_part part = {.offset = 0};
    if (muon_plan_get_part(s->plan, param, rank, i, &part, sizeof part) != MUON_OK)
        cli_must(cli_fail_library());
    return part;
}

int shards_is_whole(const shards *s, size_t param)
{
    return muon_plan_count_parts(s->plan, param, s->rank) == 1 &&
           muon_plan_count_elements(s->plan, param, s->rank) == whole_numel(&s->params[param]);
}

void shards_cut(const shards *s, size_t param, void *shard, const void *whole, size_t size)
{
    size_t count = muon_plan_count_parts(s->plan, param, s->rank);
    for (size_t i = 0; i < count; i++) {
        muon_part part = get_part(s, param, s->rank, i);
        cut_part(&s->params[param], &part, (char *)shard + (size_t)part.offset * size, whole, size);
    }
}

int shards_read(void **out, const shards *s, size_t param, const files *f, size_t index)
{
    if (shards_is_whole(s, param)) return files_read(out, f, index);
    size_t count = (size_t)muon_plan_count_elements(s->plan, param, s->rank);
    muon_st_tensor tensor;
    DO(files_get(f, index, &tensor));
    size_t size = tensor.bytes / (size_t)whole_numel(&s->params[param]);
    void *shard = tensors_alloc(count * size), *whole = NULL;
    int code = count ? files_read(&whole, f, index) : CLI_DONE;
    if (count && code == CLI_DONE) shards_cut(s, param, shard, whole, size);
    free(whole);
    if (code == CLI_DONE)
        *out = shard;
    else
        free(shard);
    return code;
}

/* ---- from all ranks to rank 0 --------------------------------------------------------------------- */

static void send_parts(const shards *s, size_t param, const void *shard, size_t size)
{
    size_t count = muon_plan_count_parts(s->plan, param, s->rank);
    for (size_t i = 0; i < count; i++) {
        muon_part part = get_part(s, param, s->rank, i);
        if (part.replica > 0) continue;
        launch_send((const char *)shard + (size_t)part.offset * size,
                    (size_t)part_numel(&s->params[param], &part) * size);
    }
}

static void receive_part(const muon_param *param, const muon_part *part, int rank, char *whole,
                         size_t size)
{
    runs r = runs_of(param, part);
    size_t bytes = (size_t)part_numel(param, part) * size;
    if (r.count == 1) { /* in place */
        launch_receive(whole + (size_t)run_start(&r, 0) * size, bytes, rank);
        return;
    }
    char *in = tensors_alloc(bytes);
    launch_receive(in, bytes, rank);
    paste_part(param, part, whole, in, size);
    free(in);
}

static void collect_parts(const shards *s, size_t param, const void *shard, size_t size,
                          char *whole)
{
    const muon_param *p = &s->params[param];
    for (int rank = 0; rank < muon_plan_count_ranks(s->plan); rank++) {
        size_t count = muon_plan_count_parts(s->plan, param, rank);
        for (size_t i = 0; i < count; i++) {
            muon_part part = get_part(s, param, rank, i);
            const char *mine = (const char *)shard + (size_t)part.offset * size;
            if (part.replica > 0) continue;
            if (rank == s->rank)
                paste_part(p, &part, whole, mine, size);
            else
                receive_part(p, &part, rank, whole, size);
        }
    }
}

const void *shards_gather(const shards *s, size_t param, const void *shard, size_t size,
                          void **memory)
{
    *memory = NULL;
    if (s->rank != 0) {
        send_parts(s, param, shard, size);
        return NULL;
    }
    if (shards_is_whole(s, param) && get_part(s, param, 0, 0).replica == 0) return shard;
    *memory = tensors_alloc((size_t)whole_numel(&s->params[param]) * size);
    collect_parts(s, param, shard, size, *memory);
    return *memory;
}
