/* The parent of a rank is the rank without its lowest set bit; rank r with 2^k as lowest bit has the
 * children r + 2^0 .. r + 2^(k-1) and speaks for r .. r + 2^k - 1.
 *
 * A message is a head and, mostly, a body. Heads are the same size in every tree, so that any two ranks
 * understand each other: a head says which call its sender is in, and how long the body is that follows
 * at once. A body that belongs to another call is received and dropped. Down the tree goes the head
 * with everybody's calls, and a body only if they are the same.
 *
 * A rank that has waited in vain says that the run is lost, up and down, and so does who hears of it;
 * all of them then find out in a roll call who is missing. Each kind of message has memory of its own: a
 * verdict may have to go out while what it would overwrite is still under way. */
#include "comm/tree.h"

#include "base/binomial.h"
#include "base/clock.h"
#include "base/memory.h"
#include "comm/call.h"
#include "comm/roll.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CHILDREN = 31 };

typedef struct head {
    int64_t lost; /* somebody has not come */
    int64_t body; /* bytes that follow; 0: none */
    calls calls;
} head;

/* The caller's block follows at MUON__ALIGN. */
#define HEAD_BYTES (((sizeof(head) + MUON__ALIGN - 1) / MUON__ALIGN) * MUON__ALIGN)

/* One direction between two ranks; room: the head, then the block. */
typedef struct wire {
    char *room;
    int peer;
    muon_batch *head, *body;
} wire;

typedef struct child {
    wire up, down;
    int arrived;
} child;

struct tree {
    muon_comm comm;
    tree_combine_fn combine;
    void *user;
    double timeout;
    int channel;
    size_t bytes; /* of the block */
    int64_t object;
    int failed;
    int nchildren;
    child children[MAX_CHILDREN];
    wire up, down; /* to and from the parent */
    char *relay;   /* the verdict as it goes on to the children */
    arena memory;
    /* The run in progress */
    double begin;
    int lost, sent;   /* the run is; this rank's word is */
    roll_waits waits; /* whom this rank waited for when it was lost */
};

/* One past the last rank that speaks through this one. */
static int end_of(int rank, int size)
{
    if (rank == 0) return size;
    return size - rank < muon__lowest_bit(rank) ? size : rank + muon__lowest_bit(rank);
}

static head *head_of(char *room)
{
    return (head *)(void *)room;
}

static char *block_of(char *room)
{
    return room + HEAD_BYTES;
}

/* ---- Creation */

static void place_ranks(tree *t)
{
    int rank = t->comm.rank;
    int size = t->comm.size;
    t->up.peer = t->down.peer = muon__binomial_parent(rank);
    for (int step = 1; step < end_of(rank, size) - rank; step *= 2) {
        child *c = &t->children[t->nchildren++];
        c->up.peer = c->down.peer = rank + step;
        if (step > size / 2) break; /* the next one would be beyond the last rank, or beyond int */
    }
}

/* Runs twice: to measure, and to hand out. */
static void place_memory(tree *t)
{
    size_t room = HEAD_BYTES + t->bytes;
    t->up.room = muon__arena_take(&t->memory, 1, room);
    if (t->comm.size == 1) return;
    t->down.room = muon__arena_take(&t->memory, 1, room);
    t->relay = muon__arena_take(&t->memory, 1, room);
    for (int i = 0; i < t->nchildren; i++) {
        t->children[i].up.room = muon__arena_take(&t->memory, 1, room);
        t->children[i].down.room = t->relay;
    }
}

static muon_status open_wire(const tree *t, wire *w, muon_direction direction, int channel)
{
    muon_message head_message = {w->room, (int64_t)sizeof(head), w->peer};
    muon_message body_message = {block_of(w->room), (int64_t)t->bytes, w->peer};
    TRY(muon__comm_open(&t->comm, &w->head, direction, channel, &head_message, 1));
    return muon__comm_open(&t->comm, &w->body, direction, channel, &body_message, 1);
}

static void close_wire(const tree *t, const wire *w)
{
    muon__comm_close(&t->comm, w->head);
    muon__comm_close(&t->comm, w->body);
}

static muon_status open_wires(tree *t, int channel)
{
    if (t->comm.rank != 0) {
        TRY(open_wire(t, &t->up, MUON_SEND, channel));
        TRY(open_wire(t, &t->down, MUON_RECEIVE, channel));
    }
    for (int i = 0; i < t->nchildren; i++) {
        TRY(open_wire(t, &t->children[i].up, MUON_RECEIVE, channel));
        TRY(open_wire(t, &t->children[i].down, MUON_SEND, channel));
    }
    return MUON_OK;
}

static muon_status build(tree *t, int channel)
{
    place_ranks(t);
    place_memory(t);
    TRY(muon__arena_alloc(&t->memory, "blocks of a reduction"));
    place_memory(t);
    return open_wires(t, channel);
}

muon_status muon__tree_create(tree **out, const muon_comm *comm, int channel, size_t bytes,
                              tree_combine_fn combine, void *user, double timeout)
{
    tree *t = NULL;
    TRY(CALLOC(&t, 1, "reduction"));
    t->comm = comm ? *comm : (muon_comm){.size = 1};
    t->channel = channel;
    t->bytes = bytes;
    t->combine = combine;
    t->user = user;
    t->timeout = timeout;
    muon_status status = build(t, channel);
    if (status != MUON_OK) {
        muon__tree_destroy(t);
        return status;
    }
    *out = t;
    return MUON_OK;
}

size_t muon__tree_destroy(tree *t)
{
    if (!t) return 0;
    close_wire(t, &t->up);
    close_wire(t, &t->down);
    for (int i = 0; i < t->nchildren; i++) {
        close_wire(t, &t->children[i].up);
        close_wire(t, &t->children[i].down);
    }
    size_t kept = muon__comm_free(&t->comm, t->memory.base, t->memory.size);
    free(t);
    return kept;
}

void muon__tree_set_object(tree *t, int64_t object)
{
    t->object = object;
}

void *muon__tree_block(tree *t)
{
    return block_of(t->up.room);
}

/* ---- Up */

static void lose(tree *t, int peer)
{
    t->lost = 1;
    muon__roll_wait(&t->waits, peer);
}

static muon_status start(tree *t, const char *stage)
{
    *head_of(t->up.room) = (head){
        .calls = muon__calls_of(t->comm.rank, stage, t->object, (int64_t)t->bytes),
    };
    t->begin = muon__seconds();
    t->lost = t->sent = 0;
    t->waits.n = 0;
    TRY(muon__comm_start(&t->comm, t->down.head));
    for (int i = 0; i < t->nchildren; i++) {
        t->children[i].arrived = 0;
        TRY(muon__comm_start(&t->comm, t->children[i].up.head));
    }
    return MUON_OK;
}

/* Before this rank has spoken, a verdict can only be that the run is lost. */
static muon_status look_up(tree *t)
{
    if (t->comm.rank == 0) return MUON_OK;
    int done = 0;
    TRY(muon__comm_test(&t->comm, t->down.head, &done));
    if (done) t->lost = 1;
    return MUON_OK;
}

/* A body that this tree has no room for. */
static muon_status drop_body(const tree *t, int peer, int64_t bytes, int *done)
{
    muon_batch *batch = NULL;
    char *room = malloc((size_t)bytes);
    REQUIRE(room, E_COMM, "no memory for %lld bytes from rank %d, which is in another call",
            (long long)bytes, peer);
    muon_message message = {room, bytes, peer};
    muon_status status = muon__comm_open(&t->comm, &batch, MUON_RECEIVE, t->channel, &message, 1);
    if (status == MUON_OK) status = muon__comm_start(&t->comm, batch);
    if (status == MUON_OK) status = muon__comm_poll(&t->comm, batch, t->timeout, done);
    muon__comm_close(&t->comm, batch);
    (void)muon__comm_free(&t->comm, room, (size_t)bytes);
    return status;
}

/* A child's head is there. */
static muon_status hear(tree *t, child *c)
{
    head *mine = head_of(t->up.room);
    const head *theirs = head_of(c->up.room);
    int done = 0;
    if (theirs->lost) lose(t, c->up.peer);
    muon__calls_combine(&mine->calls, &theirs->calls);
    if (theirs->body == 0) return MUON_OK;
    if (theirs->body != (int64_t)t->bytes) {
        TRY(drop_body(t, c->up.peer, theirs->body, &done));
    } else {
        TRY(muon__comm_start(&t->comm, c->up.body));
        TRY(muon__comm_poll(&t->comm, c->up.body, t->timeout, &done));
    }
    if (!done)
        lose(t, c->up.peer);
    else if (!muon__calls_differ(&mine->calls))
        t->combine(t->user, block_of(t->up.room), block_of(c->up.room));
    return MUON_OK;
}

/* Takes what children have to say, in the order in which they come. */
static muon_status hear_children(tree *t)
{
    int waiting = t->nchildren;
    for (int turn = 0; waiting > 0 && !t->lost;) {
        int late = muon__seconds() - t->begin > t->timeout;
        for (int i = 0; i < t->nchildren; i++) {
            child *c = &t->children[i];
            if (c->arrived) continue;
            TRY(muon__comm_test(&t->comm, c->up.head, &c->arrived));
            if (!c->arrived) continue;
            waiting--;
            TRY(hear(t, c));
        }
        if (waiting == 0) break;
        TRY(look_up(t));
        t->lost |= late;
        if (!t->lost) muon__comm_rest(&turn);
    }
    for (int i = 0; t->lost && i < t->nchildren; i++)
        if (!t->children[i].arrived) muon__roll_wait(&t->waits, t->children[i].up.peer);
    return MUON_OK;
}

static muon_status send(const tree *t, const wire *w)
{
    TRY(muon__comm_start(&t->comm, w->head));
    return head_of(w->room)->body ? muon__comm_start(&t->comm, w->body) : MUON_OK;
}

static muon_status send_up(tree *t)
{
    head *mine = head_of(t->up.room);
    mine->body = muon__calls_differ(&mine->calls) ? 0 : (int64_t)t->bytes;
    t->sent = 1;
    return t->comm.rank == 0 ? MUON_OK : send(t, &t->up);
}

/* ---- Down */

/* The verdict, into `relay`. The root gives up on others `timeout` after it came, which may have been
 * somewhat later than this rank. */
static muon_status hear_verdict(tree *t)
{
    wire *from = t->comm.rank == 0 ? &t->up : &t->down;
    const head *verdict = head_of(from->room);
    int done = 1;
    if (t->comm.rank != 0) {
        double patience = t->timeout + muon__roll_slack(t->timeout);
        TRY(muon__comm_poll(&t->comm, t->down.head, patience - (muon__seconds() - t->begin),
                            &done));
        if (done && !verdict->lost && verdict->body) {
            TRY(muon__comm_start(&t->comm, t->down.body));
            TRY(muon__comm_poll(&t->comm, t->down.body, t->timeout, &done));
        }
        if (!done || verdict->lost) lose(t, t->down.peer);
    }
    if (!t->lost) memcpy(t->relay, from->room, HEAD_BYTES + (size_t)verdict->body);
    return MUON_OK;
}

static muon_status finish_send(tree *t, const wire *w)
{
    int head_done = 0, body_done = 1;
    TRY(muon__comm_poll(&t->comm, w->head, t->timeout, &head_done));
    if (head_of(w->room)->body) TRY(muon__comm_poll(&t->comm, w->body, t->timeout, &body_done));
    if (!head_done || !body_done) lose(t, w->peer);
    return MUON_OK;
}

static muon_status tell_children(tree *t)
{
    for (int i = 0; i < t->nchildren; i++)
        TRY(send(t, &t->children[i].down));
    for (int i = 0; i < t->nchildren; i++)
        TRY(finish_send(t, &t->children[i].down));
    return t->comm.rank == 0 ? MUON_OK : finish_send(t, &t->up);
}

/* Everybody who can still be reached hears of it, and nobody is waited for. */
static muon_status tell_lost(tree *t)
{
    int done;
    *head_of(t->relay) = (head){.lost = 1};
    for (int i = 0; i < t->nchildren; i++) {
        TRY(send(t, &t->children[i].down));
        TRY(muon__comm_test(&t->comm, t->children[i].down.head, &done));
    }
    if (t->sent || t->comm.rank == 0) return MUON_OK;
    head_of(t->up.room)->lost = 1;
    TRY(send(t, &t->up));
    return muon__comm_test(&t->comm, t->up.head, &done);
}

static muon_status fail_lost(const tree *t, const char *stage)
{
    char names[ROLL_NAMES];
    muon__roll_call(&t->comm, &t->waits, t->timeout, names);
    REQUIRE(!*names, E_TIMEOUT, "%s did not reach %s within %g s", names, stage, t->timeout);
    FAIL(E_TIMEOUT, "%s: not all ranks arrived within %g s", stage, t->timeout);
}

/* This rank is what the others have waited for: it has no part in their roll call. */
static muon_status fail_late(tree *t, const char *stage)
{
    TRY(tell_lost(t));
    FAIL(E_TIMEOUT, "rank %d was too late for %s: the others have waited %g s", t->comm.rank, stage,
         t->timeout);
}

static muon_status run(tree *t, const char *stage)
{
    TRY(start(t, stage));
    TRY(look_up(t));
    if (t->lost) return fail_late(t, stage);
    TRY(hear_children(t));
    if (!t->lost) TRY(send_up(t));
    if (!t->lost) TRY(hear_verdict(t));
    if (t->lost)
        TRY(tell_lost(t));
    else
        TRY(tell_children(t));
    if (t->lost) return fail_lost(t, stage);
    const head *verdict = head_of(t->relay);
    if (!muon__calls_differ(&verdict->calls)) memcpy(t->up.room, t->relay, HEAD_BYTES + t->bytes);
    return MUON_OK;
}

muon_status muon__tree_run(tree *t, const char *stage)
{
    if (t->comm.size == 1) return MUON_OK;
    REQUIRE(!t->failed, E_COMM, "%s: this rank has lost the others in an earlier call", stage);
    t->failed = 1;
    TRY(run(t, stage));
    t->failed = 0;
    const calls *all = &head_of(t->relay)->calls;
    return muon__calls_differ(all) ? muon__calls_fail(all) : MUON_OK;
}
