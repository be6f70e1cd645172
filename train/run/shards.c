#include "train/run/shards.h"
#include "muon/plan.h"

#include "base/memory.h"
#include "comm/comm.h"
#include "train/run/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096 }; /* elements summed at a time: blocks of a few ranks stay in the cache */

typedef struct lane { /* messages to all other ranks, or from them */
    muon_batch *batch;
    int64_t *at; /* [size + 1]: where each rank's is in memory; the own one's place stays empty */
    float *memory;
} lane;

struct train_shards {
    const muon_comm *comm; /* NULL: one rank */
    double timeout;
    int rank, size;
    int64_t *offsets; /* [nparams]: in this rank's shard */
    /* [size]: all that a rank has, which is what it gets of our gradients; and what it gets from us, and
     * we from it, when weights are gathered. */
    pieces *has, *gets, *gives;
    lane reduce_out, reduce_in, gather_out, gather_in;
    float *out, *in; /* memory of the lanes: of a reduction or a gathering, never of both at once */
    int64_t bytes_sent;
};

/* ---- who has what ------------------------------------------------------------------------------- */

static muon_status get_part(const muon_plan *plan, size_t param, int rank, size_t i,
                            muon_part *part)
{
    *part = (muon_part){.offset = 0};
    return muon_plan_get_part(plan, param, rank, i, part, sizeof *part);
}

static int same_box(const muon_param *tensor, const muon_part *a, const muon_part *b)
{
    for (int d = 0; d < tensor->ndim; d++)
        if (a->begin[d] != b->begin[d] || a->end[d] != b->end[d]) return 0;
    return 1;
}

static muon_status find_box(const muon_plan *plan, size_t param, const muon_param *tensor, int rank,
                            const muon_part *box, int *out)
{
    *out = 0;
    for (size_t i = 0; i < muon_plan_count_parts(plan, param, rank) && !*out; i++) {
        muon_part part;
        TRY(get_part(plan, param, rank, i, &part));
        *out = same_box(tensor, box, &part);
    }
    return MUON_OK;
}

/* What `to` gets from `from`: parts it has not itself, each from one of its replicas; ranks take
 * different ones, so that replicas share the work. */
static muon_status list_gift(pieces *out, const muon_plan *plan, size_t param,
                             const muon_param *tensor, int from, int to)
{
    for (size_t i = 0; i < muon_plan_count_parts(plan, param, from); i++) {
        muon_part part;
        int there = 0;
        TRY(get_part(plan, param, from, i, &part));
        if (part.replica != to % part.replicas) continue;
        TRY(find_box(plan, param, tensor, to, &part, &there));
        if (!there) TRY(pieces_add(out, param, tensor, &part));
    }
    return MUON_OK;
}

static muon_status list_pieces(train_shards *s, const muon_plan *plan, size_t param,
                               const muon_param *tensor)
{
    for (int rank = 0; rank < s->size; rank++) {
        for (size_t i = 0; i < muon_plan_count_parts(plan, param, rank); i++) {
            muon_part part;
            TRY(get_part(plan, param, rank, i, &part));
            TRY(pieces_add(&s->has[rank], param, tensor, &part));
        }
        if (rank == s->rank) continue;
        TRY(list_gift(&s->gets[rank], plan, param, tensor, s->rank, rank));
        TRY(list_gift(&s->gives[rank], plan, param, tensor, rank, s->rank));
    }
    return MUON_OK;
}

/* ---- creation ----------------------------------------------------------------------------------- */

/* Rank r's message is as long as lists[r], or all are as long as `each`. */
static muon_status place_lane(lane *l, int size, const pieces *lists, const pieces *each)
{
    TRY(CALLOC(&l->at, (size_t)size + 1, "places of messages"));
    for (int rank = 0; rank < size; rank++)
        l->at[rank + 1] = l->at[rank] + (each ? each : &lists[rank])->numel;
    return MUON_OK;
}

static int64_t lane_numel(const lane *l, int rank)
{
    return l->at[rank + 1] - l->at[rank];
}

static muon_status place_lanes(train_shards *s)
{
    TRY(place_lane(&s->reduce_out, s->size, s->has, NULL));
    TRY(place_lane(&s->reduce_in, s->size, NULL, &s->has[s->rank]));
    TRY(place_lane(&s->gather_out, s->size, s->gets, NULL));
    TRY(place_lane(&s->gather_in, s->size, s->gives, NULL));
    return MUON_OK;
}

static muon_status share_memory(float **out, int size, lane *a, lane *b)
{
    int64_t numel = a->at[size] > b->at[size] ? a->at[size] : b->at[size];
    TRY(CALLOC(out, (size_t)numel, "messages between ranks"));
    a->memory = b->memory = *out;
    return MUON_OK;
}

static muon_status open_lane(train_shards *s, lane *l, muon_direction direction)
{
    muon_message *messages = NULL;
    size_t count = 0;
    TRY(CALLOC(&messages, (size_t)s->size, "messages between ranks"));
    for (int rank = 0; rank < s->size; rank++) {
        int64_t bytes = lane_numel(l, rank) * (int64_t)sizeof *l->memory;
        if (rank == s->rank || bytes == 0) continue;
        messages[count++] = (muon_message){l->memory + l->at[rank], bytes, rank};
        if (direction == MUON_SEND) s->bytes_sent += bytes;
    }
    muon_status status =
        muon__comm_open(s->comm, &l->batch, direction, CHANNEL_SPARE, messages, count);
    free(messages);
    return status;
}

static muon_status open_lanes(train_shards *s)
{
    TRY(place_lanes(s));
    TRY(share_memory(&s->out, s->size, &s->reduce_out, &s->gather_out));
    TRY(share_memory(&s->in, s->size, &s->reduce_in, &s->gather_in));
    TRY(open_lane(s, &s->reduce_out, MUON_SEND));
    TRY(open_lane(s, &s->reduce_in, MUON_RECEIVE));
    TRY(open_lane(s, &s->gather_out, MUON_SEND));
    return open_lane(s, &s->gather_in, MUON_RECEIVE);
}

static muon_status build(train_shards *s, const muon_plan *plan, const muon_param *params,
                         size_t nparams)
{
    size_t size = (size_t)s->size;
    TRY(CALLOC(&s->offsets, nparams, "offsets of shards"));
    TRY(CALLOC(&s->has, size, "pieces"));
    TRY(CALLOC(&s->gets, size, "pieces"));
    TRY(CALLOC(&s->gives, size, "pieces"));
    for (size_t i = 0; i < nparams; i++) {
        s->offsets[i] = s->has[s->rank].numel;
        TRY(list_pieces(s, plan, i, &params[i]));
    }
    return s->size > 1 ? open_lanes(s) : MUON_OK;
}

muon_status train_shards_create(train_shards **out, const muon_plan *plan, const muon_param *params,
                                size_t nparams, team *t)
{
    train_shards *s = NULL;
    muon_status status = CALLOC(&s, 1, "shards");
    if (status == MUON_OK) {
        s->comm = team_comm(t);
        s->timeout = team_timeout(t);
        s->rank = team_rank(t);
        s->size = team_size(t);
        status = build(s, plan, params, nparams);
    }
    status = team_agree(t, status);
    if (status == MUON_OK)
        *out = s;
    else
        train_shards_destroy(s);
    return status;
}

static void close_lane(train_shards *s, lane *l)
{
    if (s->comm) muon__comm_close(s->comm, l->batch);
    free(l->at);
}

static void free_lists(pieces *lists, int size)
{
    for (int rank = 0; lists && rank < size; rank++)
        pieces_free(&lists[rank]);
    free(lists);
}

void train_shards_destroy(train_shards *s)
{
    if (!s) return;
    close_lane(s, &s->reduce_out);
    close_lane(s, &s->reduce_in);
    close_lane(s, &s->gather_out);
    close_lane(s, &s->gather_in);
    free_lists(s->has, s->size);
    free_lists(s->gets, s->size);
    free_lists(s->gives, s->size);
    free(s->offsets);
    free(s->out);
    free(s->in);
    free(s);
}

int64_t train_shards_numel(const train_shards *s)
{
    return s->has[s->rank].numel;
}

int64_t train_shards_offset(const train_shards *s, size_t param)
{
    return s->offsets[param];
}

int64_t train_shards_bytes_sent(const train_shards *s)
{
    return s->bytes_sent;
}

/* ---- moving ------------------------------------------------------------------------------------- */

static muon_status move(train_shards *s, lane *out, lane *in, const char *what)
{
    TRY(muon__comm_start(s->comm, in->batch));
    TRY(muon__comm_start(s->comm, out->batch));
    TRY(muon__comm_wait(s->comm, in->batch, s->timeout, "%s", what));
    return muon__comm_wait(s->comm, out->batch, s->timeout, "%s", what);
}

static void pack(train_shards *s, const lane *l, const pieces *lists, const float *const *whole)
{
    for (int rank = 0; rank < s->size; rank++)
        if (rank != s->rank) pieces_take(&lists[rank], l->memory + l->at[rank], whole);
}

static void add(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* The sum of the blocks that all ranks have sent ends up in rank 0's. */
static void add_up(const train_shards *s, int64_t first, int64_t n)
{
    const lane *l = &s->reduce_in;
    for (int step = 1; step < s->size; step *= 2)
        for (int rank = 0; rank + step < s->size; rank += 2 * step)
            add(l->memory + l->at[rank] + first, l->memory + l->at[rank + step] + first, n);
}

void train_shards_cut(const train_shards *s, float *shard, const float *const *whole)
{
    pieces_take(&s->has[s->rank], shard, whole);
}

muon_status train_shards_reduce(train_shards *s, float *shard, const float *const *whole)
{
    int64_t numel = train_shards_numel(s);
    if (s->size == 1) {
        train_shards_cut(s, shard, whole);
        return MUON_OK;
    }
    pack(s, &s->reduce_out, s->has, whole);
    train_shards_cut(s, s->in + s->reduce_in.at[s->rank], whole);
    TRY(move(s, &s->reduce_out, &s->reduce_in, "gradients"));
    for (int64_t at = 0; at < numel; at += BLOCK)
        add_up(s, at, numel - at < BLOCK ? numel - at : BLOCK);
    memcpy(shard, s->in, (size_t)numel * sizeof *shard);
    return MUON_OK;
}

/* The own shard first: what is sent is then taken from the whole tensors, like gradients. */
muon_status train_shards_gather(train_shards *s, float *const *whole, const float *shard)
{
    pieces_put(&s->has[s->rank], whole, shard);
    if (s->size == 1) return MUON_OK;
    pack(s, &s->gather_out, s->gets, (const float *const *)whole);
    TRY(move(s, &s->gather_out, &s->gather_in, "weights"));
    for (int rank = 0; rank < s->size; rank++)
        pieces_put(&s->gives[rank], whole, s->in + s->gather_in.at[rank]);
    return MUON_OK;
}
