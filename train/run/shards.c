#include "train/run/shards.h"
#include "muon/plan.h"

#include "base/memory.h"
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096 }; /* elements summed at a time: blocks of a few ranks stay in the cache */

typedef struct lane { /* messages to all other ranks, or from them */
    muon_batch *batch;
    int64_t *at; /* [size + 1]: where each rank's is in memory; the own one's place stays empty */
    float *memory;
} lane;

typedef struct gift {   /* a part that one rank sends to another */
    size_t param, part; /* of the one that sends */
    int64_t numel;
} gift;

typedef struct gifts {
    gift *list;
    size_t count, room;
    int64_t numel;
} gifts;

struct train_shards {
    const muon_plan *plan;
    size_t nparams;
    const muon_comm *comm; /* NULL: one rank */
    double timeout;
    int rank, size;
    int64_t *offsets; /* [nparams]: in this rank's shard */
    /* [size]: elements of a rank's shard, which is what it gets of our gradients; and what it gets from us,
     * and we from it, when weights are gathered. */
    int64_t *numel;
    gifts *gets, *gives;
    lane reduce_out, reduce_in, gather_out, gather_in;
    float *out, *in; /* memory of the lanes: of a reduction or a gathering, never of both at once */
    int64_t bytes_sent;
};

/* ---- who sends what ------------------------------------------------------------------------------ */

static muon_status get_part(const muon_plan *plan, size_t param, int rank, size_t i,
                            muon_part *part)
{
    return muon_plan_get_part(plan, param, rank, i, part, sizeof *part);
}

static muon_status find_box(const muon_plan *plan, size_t param, int rank, const muon_part *box,
                            int *out)
{
    *out = 0;
    for (size_t i = 0; i < muon_plan_count_parts(plan, param, rank) && !*out; i++) {
        muon_part part;
        TRY(get_part(plan, param, rank, i, &part));
        *out = memcmp(part.begin, box->begin, sizeof part.begin) == 0 &&
               memcmp(part.end, box->end, sizeof part.end) == 0;
    }
    return MUON_OK;
}

static muon_status add_gift(gifts *g, gift added)
{
    if (g->count == g->room) {
        size_t room = g->room ? 2 * g->room : 64;
        gift *list = realloc(g->list, room * sizeof *list);
        REQUIRE(list, E_NOMEM, "no memory for a list of %zu parts of tensors", room);
        g->list = list;
        g->room = room;
    }
    g->list[g->count++] = added;
    g->numel += added.numel;
    return MUON_OK;
}

/* What `to` gets from `from`: parts it has not itself, each from one of its replicas; ranks take
 * different ones, so that replicas share the work. */
static muon_status list_gifts(gifts *out, const muon_plan *plan, size_t param, int from, int to)
{
    for (size_t i = 0; i < muon_plan_count_parts(plan, param, from); i++) {
        muon_part part;
        int there = 0;
        TRY(get_part(plan, param, from, i, &part));
        if (part.replica != to % part.replicas) continue;
        TRY(find_box(plan, param, to, &part, &there));
        if (!there) TRY(add_gift(out, (gift){param, i, part.elements}));
    }
    return MUON_OK;
}

/* ---- creation ----------------------------------------------------------------------------------- */

static int64_t lane_numel(const lane *l, int rank)
{
    return l->at[rank + 1] - l->at[rank];
}

static muon_status place_lanes(train_shards *s)
{
    lane *lanes[] = {&s->reduce_out, &s->reduce_in, &s->gather_out, &s->gather_in};
    for (int i = 0; i < 4; i++)
        TRY(CALLOC(&lanes[i]->at, (size_t)s->size + 1, "places of messages"));
    for (int rank = 0; rank < s->size; rank++) {
        const int64_t numel[] = {s->numel[rank], s->numel[s->rank], s->gets[rank].numel,
                                 s->gives[rank].numel};
        for (int i = 0; i < 4; i++)
            lanes[i]->at[rank + 1] = lanes[i]->at[rank] + numel[i];
    }
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

static muon_status build(train_shards *s)
{
    size_t size = (size_t)s->size;
    TRY(CALLOC(&s->offsets, s->nparams, "offsets of shards"));
    TRY(CALLOC(&s->numel, size, "sizes of shards"));
    TRY(CALLOC(&s->gets, size, "lists of parts"));
    TRY(CALLOC(&s->gives, size, "lists of parts"));
    for (size_t i = 0; i < s->nparams; i++) {
        s->offsets[i] = s->numel[s->rank];
        for (int rank = 0; rank < s->size; rank++) {
            s->numel[rank] += muon_plan_count_elements(s->plan, i, rank);
            if (rank == s->rank) continue;
            TRY(list_gifts(&s->gets[rank], s->plan, i, s->rank, rank));
            TRY(list_gifts(&s->gives[rank], s->plan, i, rank, s->rank));
        }
    }
    return s->size > 1 ? open_lanes(s) : MUON_OK;
}

muon_status train_shards_create(train_shards **out, const muon_plan *plan, size_t nparams, team *t)
{
    train_shards *s = NULL;
    muon_status status = CALLOC(&s, 1, "shards");
    if (status == MUON_OK) {
        s->plan = plan;
        s->nparams = nparams;
        s->comm = team_comm(t);
        s->timeout = team_timeout(t);
        s->rank = team_rank(t);
        s->size = team_size(t);
        status = build(s);
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

static void free_gifts(gifts *lists, int size)
{
    for (int rank = 0; lists && rank < size; rank++)
        free(lists[rank].list);
    free(lists);
}

void train_shards_destroy(train_shards *s)
{
    if (!s) return;
    close_lane(s, &s->reduce_out);
    close_lane(s, &s->reduce_in);
    close_lane(s, &s->gather_out);
    close_lane(s, &s->gather_in);
    free_gifts(s->gets, s->size);
    free_gifts(s->gives, s->size);
    free(s->offsets);
    free(s->numel);
    free(s->out);
    free(s->in);
    free(s);
}

int64_t train_shards_numel(const train_shards *s)
{
    return s->numel[s->rank];
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

/* Any rank's shard out of our whole tensors. */
static muon_status cut(const train_shards *s, int rank, float *shard, const float *const *whole)
{
    for (size_t i = 0; i < s->nparams; i++) {
        TRY(muon_plan_cut_shard(s->plan, i, rank, shard, whole[i], sizeof *shard));
        shard += muon_plan_count_elements(s->plan, i, rank);
    }
    return MUON_OK;
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

muon_status train_shards_cut(const train_shards *s, float *shard, const float *const *whole)
{
    return cut(s, s->rank, shard, whole);
}

muon_status train_shards_reduce(train_shards *s, float *shard, const float *const *whole)
{
    int64_t numel = train_shards_numel(s);
    if (s->size == 1) return train_shards_cut(s, shard, whole);
    for (int rank = 0; rank < s->size; rank++) {
        const lane *l = rank == s->rank ? &s->reduce_in : &s->reduce_out;
        TRY(cut(s, rank, l->memory + l->at[rank], whole));
    }
    TRY(move(s, &s->reduce_out, &s->reduce_in, "gradients"));
    for (int64_t at = 0; at < numel; at += BLOCK)
        add_up(s, at, numel - at < BLOCK ? numel - at : BLOCK);
    memcpy(shard, s->in, (size_t)numel * sizeof *shard);
    return MUON_OK;
}

/* The own shard first: what is sent is then taken from the whole tensors, like gradients. */
muon_status train_shards_gather(train_shards *s, float *const *whole, const float *shard)
{
    for (size_t i = 0; i < s->nparams; i++)
        TRY(muon_plan_join_shard(s->plan, i, s->rank, whole[i], shard + s->offsets[i],
                                 sizeof *shard));
    if (s->size == 1) return MUON_OK;
    for (int rank = 0; rank < s->size; rank++) {
        float *at = s->out + s->gather_out.at[rank];
        const gifts *g = &s->gets[rank];
        for (size_t i = 0; i < g->count; at += g->list[i++].numel)
            TRY(muon_plan_cut_part(s->plan, g->list[i].param, s->rank, g->list[i].part, at,
                                   whole[g->list[i].param], sizeof *at));
    }
    TRY(move(s, &s->gather_out, &s->gather_in, "weights"));
    for (int rank = 0; rank < s->size; rank++) {
        const float *at = s->in + s->gather_in.at[rank];
        const gifts *g = &s->gives[rank];
        for (size_t i = 0; i < g->count; at += g->list[i++].numel)
            TRY(muon_plan_join_part(s->plan, g->list[i].param, rank, g->list[i].part,
                                    whole[g->list[i].param], at, sizeof *at));
    }
    return MUON_OK;
}
