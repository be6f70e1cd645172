/* The parent of a rank is the rank without its lowest set bit; rank r with 2^k as lowest bit has the
 * children r + 2^0 .. r + 2^(k-1) and speaks for r .. r + 2^k - 1.
 *
 * Every message carries, before the caller's block, who has not come. A rank that has waited in vain
 * for a child goes on without it, up and down, so that all who are there hear of it; one that waits in
 * vain for the verdict names its parent, and tells its children. Each kind of message has memory of its
 * own: a verdict may have to go out while what it would overwrite is still under way. */
#include "comm/tree.h"

#include "base/clock.h"
#include "base/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHILDREN = 31, MAX_LATE = 8 };

/* In front of every block. */
typedef struct head {
    int32_t nlate;          /* 0: everybody has come */
    int32_t late[MAX_LATE]; /* the lowest ones, ascending */
} head;

/* The caller's block follows at MUON__ALIGN. */
#define HEAD_BYTES MUON__ALIGN
_Static_assert(sizeof(head) <= HEAD_BYTES, "the head has its room");

typedef struct child {
    int rank, height; /* height of the tree below it: 0 for a leaf */
    int arrived, given_up;
    char *block;
    muon_batch *up, *down;
} child;

struct tree {
    muon_comm comm;
    tree_combine_fn combine;
    void *user;
    double timeout;
    size_t wire; /* bytes of a message */
    int failed;
    int height, depth; /* of the whole tree; of this rank in it */
    int nchildren;
    child children[MAX_CHILDREN];
    muon_batch *up, *down; /* to and from the parent */
    /* Messages: this rank's word, the parent's verdict as it comes, and the verdict as it goes on. */
    char *word, *verdict, *relay;
    arena memory;
};

static int lowest_bit(int rank)
{
    return rank & -rank;
}

static int parent_of(int rank)
{
    return rank - lowest_bit(rank);
}

/* One past the last rank that speaks through this one. */
static int end_of(int rank, int size)
{
    if (rank == 0) return size;
    return size - rank < lowest_bit(rank) ? size : rank + lowest_bit(rank);
}

/* Steps down to the deepest rank below: k if it speaks for 2^k .. 2^(k+1) - 1 ranks. */
static int height_of(int rank, int size)
{
    int height = 0;
    for (int ranks = end_of(rank, size) - rank; ranks > 1; ranks /= 2)
        height++;
    return height;
}

static int depth_of(int rank)
{
    int depth = 0;
    for (; rank != 0; rank = parent_of(rank))
        depth++;
    return depth;
}

static head *head_of(char *message)
{
    return (head *)(void *)message;
}

static char *block_of(char *message)
{
    return message + HEAD_BYTES;
}

/* ---- Creation */

static void place_ranks(tree *t)
{
    int rank = t->comm.rank;
    int size = t->comm.size;
    t->height = height_of(0, size);
    t->depth = depth_of(rank);
    for (int step = 1; step < end_of(rank, size) - rank; step *= 2) {
        child *c = &t->children[t->nchildren++];
        c->rank = rank + step;
        c->height = height_of(c->rank, size);
        if (step > size / 2) break; /* the next one would be beyond the last rank, or beyond int */
    }
}

/* Runs twice: to measure, and to hand out. */
static void place_memory(tree *t, size_t bytes)
{
    t->wire = HEAD_BYTES + bytes;
    t->word = muon__arena_take(&t->memory, 1, t->wire);
    if (t->comm.size == 1) return;
    t->verdict = muon__arena_take(&t->memory, 1, t->wire);
    t->relay = muon__arena_take(&t->memory, 1, t->wire);
    for (int i = 0; i < t->nchildren; i++)
        t->children[i].block = muon__arena_take(&t->memory, 1, t->wire);
}

static muon_status open_message(tree *t, muon_batch **out, muon_direction direction, int channel,
                                int peer, char *data)
{
    muon_message message = {.data = data, .bytes = (int64_t)t->wire, .peer = peer};
    return muon__comm_open(&t->comm, out, direction, channel, &message, 1);
}

static muon_status open_messages(tree *t, int channel)
{
    int rank = t->comm.rank;
    if (rank != 0) {
        TRY(open_message(t, &t->up, MUON_SEND, channel, parent_of(rank), t->word));
        TRY(open_message(t, &t->down, MUON_RECEIVE, channel, parent_of(rank), t->verdict));
    }
    for (int i = 0; i < t->nchildren; i++) {
        child *c = &t->children[i];
        TRY(open_message(t, &c->up, MUON_RECEIVE, channel, c->rank, c->block));
        TRY(open_message(t, &c->down, MUON_SEND, channel, c->rank, t->relay));
    }
    return MUON_OK;
}

static muon_status build(tree *t, int channel, size_t bytes)
{
    place_ranks(t);
    place_memory(t, bytes);
    TRY(muon__arena_alloc(&t->memory, "blocks of a reduction"));
    place_memory(t, bytes);
    return open_messages(t, channel);
}

muon_status muon__tree_create(tree **out, const muon_comm *comm, int channel, size_t bytes,
                              tree_combine_fn combine, void *user, double timeout)
{
    tree *t = NULL;
    TRY(CALLOC(&t, 1, "reduction"));
    t->comm = comm ? *comm : (muon_comm){.size = 1};
    t->combine = combine;
    t->user = user;
    t->timeout = timeout;
    muon_status status = build(t, channel, bytes);
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
    muon__comm_close(&t->comm, t->up);
    muon__comm_close(&t->comm, t->down);
    for (int i = 0; i < t->nchildren; i++) {
        muon__comm_close(&t->comm, t->children[i].up);
        muon__comm_close(&t->comm, t->children[i].down);
    }
    size_t kept = muon__comm_free(&t->comm, t->memory.base, t->memory.size);
    free(t);
    return kept;
}

void *muon__tree_block(tree *t)
{
    return block_of(t->word);
}

/* ---- Who is late */

static void add_late(head *h, int rank)
{
    int at = h->nlate;
    while (at > 0 && h->late[at - 1] > rank)
        at--;
    if (at == MAX_LATE || (at > 0 && h->late[at - 1] == rank)) return;
    if (h->nlate < MAX_LATE) h->nlate++;
    memmove(&h->late[at + 1], &h->late[at], (size_t)(h->nlate - 1 - at) * sizeof *h->late);
    h->late[at] = rank;
}

static muon_status fail_late(const tree *t, const head *h, const char *stage)
{
    int rank = h->late[0];
    int last = end_of(rank, t->comm.size) - 1;
    if (h->nlate == 1 && rank != 0 && last > rank)
        FAIL(E_TIMEOUT, "rank %d did not come to %s within %g s (it speaks for ranks %d..%d)", rank,
             stage, t->timeout, rank, last);
    if (h->nlate == 1)
        FAIL(E_TIMEOUT, "rank %d did not come to %s within %g s", rank, stage, t->timeout);
    char ranks[MAX_LATE * 16] = "";
    for (int i = 0, used = 0; i < h->nlate; i++)
        used +=
            snprintf(ranks + used, sizeof ranks - (size_t)used, "%s%d", i ? ", " : "", h->late[i]);
    FAIL(E_TIMEOUT, "ranks %s%s did not come to %s within %g s", ranks,
         h->nlate == MAX_LATE ? ", ..." : "", stage, t->timeout);
}

/* What a level of the tree adds to the time to wait: enough for news to come up it. */
static double slack(const tree *t)
{
    double eighth = t->timeout / 8;
    return eighth > 0.5 ? eighth : 0.5;
}

/* ---- Running */

static muon_status start(tree *t)
{
    memset(t->word, 0, sizeof(head));
    if (t->down) TRY(muon__comm_start(&t->comm, t->down));
    for (int i = 0; i < t->nchildren; i++) {
        t->children[i].arrived = t->children[i].given_up = 0;
        TRY(muon__comm_start(&t->comm, t->children[i].up));
    }
    return MUON_OK;
}

static void take_word(tree *t, child *c)
{
    head *mine = head_of(t->word);
    const head *theirs = head_of(c->block);
    for (int i = 0; i < theirs->nlate; i++)
        add_late(mine, theirs->late[i]);
    if (mine->nlate == 0) t->combine(t->user, block_of(t->word), block_of(c->block));
}

/* Takes what children have to say, in the order in which they come. */
static muon_status hear_children(tree *t, double begin)
{
    int waiting = t->nchildren;
    for (int turn = 0; waiting > 0;) {
        double waited = muon__seconds() - begin;
        for (int i = 0; i < t->nchildren; i++) {
            child *c = &t->children[i];
            if (c->arrived || c->given_up) continue;
            TRY(muon__comm_test(&t->comm, c->up, &c->arrived));
            if (c->arrived) {
                take_word(t, c);
            } else if (waited > t->timeout + c->height * slack(t)) {
                c->given_up = 1;
                add_late(head_of(t->word), c->rank);
            }
            waiting -= c->arrived || c->given_up;
        }
        if (waiting > 0) muon__comm_rest(&turn);
    }
    return MUON_OK;
}

/* Sends this rank's word up and waits for the verdict, which goes into `relay`. Since `begin` there has
 * then been time for the parent to give up on everybody who is late, even if it came somewhat later
 * than this rank, and the parent gives up before its children do. */
static muon_status ask_parent(tree *t, double begin)
{
    TRY(muon__comm_start(&t->comm, t->up));
    double patience = t->timeout + (t->height + 1 + t->depth) * slack(t);
    muon_status status =
        muon__comm_wait(&t->comm, t->down, patience - (muon__seconds() - begin), "verdict");
    if (status == MUON_OK) {
        memcpy(t->relay, t->verdict, t->wire);
    } else if (status == MUON_E_TIMEOUT) {
        memcpy(t->relay, t->word, sizeof(head));
        add_late(head_of(t->relay), parent_of(t->comm.rank));
    } else {
        return status;
    }
    return MUON_OK;
}

/* A child that has not come is told as well, but not waited for. */
static muon_status tell_children(tree *t, const char *stage)
{
    for (int i = 0; i < t->nchildren; i++)
        TRY(muon__comm_start(&t->comm, t->children[i].down));
    for (int i = 0; i < t->nchildren; i++)
        if (t->children[i].arrived)
            TRY(muon__comm_wait(&t->comm, t->children[i].down, t->timeout, "%s", stage));
    return MUON_OK;
}

static muon_status run(tree *t, const char *stage)
{
    double begin = muon__seconds();
    TRY(start(t));
    TRY(hear_children(t, begin));
    if (t->up)
        TRY(ask_parent(t, begin));
    else
        memcpy(t->relay, t->word, t->wire);
    TRY(tell_children(t, stage));
    const head *verdict = head_of(t->relay);
    if (verdict->nlate > 0) return fail_late(t, verdict, stage);
    TRY(muon__comm_wait(&t->comm, t->up, t->timeout, "%s", stage));
    memcpy(t->word, t->relay, t->wire);
    return MUON_OK;
}

muon_status muon__tree_run(tree *t, const char *stage)
{
    if (t->comm.size == 1) return MUON_OK;
    REQUIRE(!t->failed, E_COMM, "%s: this rank has lost the others in an earlier call", stage);
    t->failed = 1;
    TRY(run(t, stage));
    t->failed = 0;
    return MUON_OK;
}
