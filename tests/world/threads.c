/* A message is matched when both of its ends have been started: who comes first waits in the queue of
 * (source, destination, channel), who comes second copies. All of that happens under the destination's
 * lock, and so does the withdrawal of a message whose batch is closed: nobody can meet memory that is
 * gone. The count of open messages is the last thing of a batch that a peer touches. */
#include "tests/world/threads.h"

#include "base/memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct end end;

/* One end of a message. */
struct end {
    muon_batch *batch;
    muon_message message;
    end *next;          /* in its queue */
    int queued;         /* under the lock */
    int64_t peer_bytes; /* of the other end, once they have met */
    atomic_int done;
};

struct muon_batch {
    muon_direction direction;
    int channel;
    size_t n;
    atomic_size_t left; /* ends that are not done; 0: not active */
    atomic_int mismatch;
    end ends[];
};

/* Ends that wait for their peers; all of them sends, or all of them receives. */
typedef struct queue {
    end *first, *last;
} queue;

typedef struct thread_rank {
    threads_world *world;
    muon_comm comm;
    pthread_mutex_t lock; /* of the queues to this rank */
    queue *queues;        /* [size * MUON_CHANNELS] by source and channel */
    _Atomic int64_t messages, bytes, batches;
} thread_rank;

struct threads_world {
    int size;
    thread_rank ranks[];
};

static thread_rank *destination(const thread_rank *self, const end *e)
{
    int rank = e->batch->direction == MUON_SEND ? e->message.peer : self->comm.rank;
    return &self->world->ranks[rank];
}

static queue *queue_of(const thread_rank *self, const end *e)
{
    int source = e->batch->direction == MUON_SEND ? self->comm.rank : e->message.peer;
    return &destination(self, e)->queues[source * MUON_CHANNELS + e->batch->channel];
}

/* ---- Queues, under the destination's lock */

static void append(queue *q, end *e)
{
    e->next = NULL;
    e->queued = 1;
    if (q->last)
        q->last->next = e;
    else
        q->first = e;
    q->last = e;
}

static end *take_first(queue *q)
{
    end *e = q->first;
    q->first = e->next;
    if (!q->first) q->last = NULL;
    e->queued = 0;
    return e;
}

static void withdraw(queue *q, end *e)
{
    end *before = NULL;
    for (end *at = q->first; at != e; at = at->next)
        before = at;
    if (before)
        before->next = e->next;
    else
        q->first = e->next;
    if (q->last == e) q->last = before;
    e->queued = 0;
}

/* The owner may close the batch as soon as its count is 0. */
static void finish(end *e, int64_t peer_bytes)
{
    muon_batch *batch = e->batch;
    e->peer_bytes = peer_bytes;
    atomic_store(&e->done, 1);
    if (peer_bytes != e->message.bytes) atomic_store(&batch->mismatch, 1);
    atomic_fetch_sub(&batch->left, 1);
}

static void meet(end *a, end *b)
{
    const end *send = a->batch->direction == MUON_SEND ? a : b;
    const end *receive = send == a ? b : a;
    int64_t a_bytes = a->message.bytes, b_bytes = b->message.bytes;
    if (a_bytes == b_bytes) memcpy(receive->message.data, send->message.data, (size_t)a_bytes);
    finish(a, b_bytes);
    finish(b, a_bytes);
}

/* ---- The table */

static muon_status open_batch(void *self, muon_batch **out, muon_direction direction, int channel,
                              const muon_message *messages, size_t nmessages)
{
    thread_rank *me = self;
    REQUIRE(channel >= 0 && channel < MUON_CHANNELS, E_ARG, "channel is %d, must be 0..%d", channel,
            MUON_CHANNELS - 1);
    for (size_t i = 0; i < nmessages; i++) {
        int peer = messages[i].peer;
        REQUIRE(peer >= 0 && peer < me->world->size && peer != me->comm.rank, E_ARG,
                "rank %d: message %zu has peer %d, must be another one of %d ranks", me->comm.rank,
                i, peer, me->world->size);
        REQUIRE(messages[i].bytes > 0, E_ARG, "rank %d: message %zu has %lld bytes", me->comm.rank,
                i, (long long)messages[i].bytes);
    }
    muon_batch *batch = calloc(1, sizeof *batch + nmessages * sizeof *batch->ends);
    REQUIRE(batch, E_NOMEM, "no memory for a batch of %zu messages", nmessages);
    batch->direction = direction;
    batch->channel = channel;
    batch->n = nmessages;
    for (size_t i = 0; i < nmessages; i++) {
        batch->ends[i].batch = batch;
        batch->ends[i].message = messages[i];
    }
    atomic_fetch_add(&me->batches, 1);
    *out = batch;
    return MUON_OK;
}

static void close_batch(void *self, muon_batch *batch)
{
    thread_rank *me = self;
    for (size_t i = 0; i < batch->n && atomic_load(&batch->left) > 0; i++) {
        end *e = &batch->ends[i];
        pthread_mutex_t *lock = &destination(me, e)->lock;
        pthread_mutex_lock(lock);
        if (e->queued) withdraw(queue_of(me, e), e);
        pthread_mutex_unlock(lock);
    }
    free(batch);
}

static muon_status start_batch(void *self, muon_batch *batch)
{
    thread_rank *me = self;
    REQUIRE(atomic_load(&batch->left) == 0, E_COMM, "rank %d: a batch was started twice",
            me->comm.rank);
    atomic_store(&batch->left, batch->n);
    for (size_t i = 0; i < batch->n; i++)
        atomic_store(&batch->ends[i].done, 0);
    for (size_t i = 0; i < batch->n; i++) {
        end *e = &batch->ends[i];
        if (batch->direction == MUON_SEND) {
            atomic_fetch_add(&me->messages, 1);
            atomic_fetch_add(&me->bytes, e->message.bytes);
        }
        queue *q = queue_of(me, e);
        pthread_mutex_t *lock = &destination(me, e)->lock;
        pthread_mutex_lock(lock);
        if (q->first && q->first->batch->direction != batch->direction)
            meet(e, take_first(q));
        else
            append(q, e);
        pthread_mutex_unlock(lock);
    }
    return MUON_OK;
}

static muon_status fail_mismatch(const thread_rank *me, const muon_batch *batch)
{
    const end *e = batch->ends;
    while (!atomic_load(&e->done) || e->peer_bytes == e->message.bytes)
        e++;
    int sends = batch->direction == MUON_SEND;
    int source = sends ? me->comm.rank : e->message.peer;
    int target = sends ? e->message.peer : me->comm.rank;
    return muon_error_set(MUON_E_COMM,
                          "rank %d sends %lld bytes to rank %d, which expects %lld (channel %d)",
                          source, (long long)(sends ? e->message.bytes : e->peer_bytes), target,
                          (long long)(sends ? e->peer_bytes : e->message.bytes), batch->channel);
}

static muon_status test_batch(void *self, muon_batch *batch, int *done)
{
    int left = atomic_load(&batch->left) != 0;
    if (atomic_load(&batch->mismatch)) return fail_mismatch(self, batch);
    *done = !left;
    return MUON_OK;
}

static int late_peer(void *self, muon_batch *batch)
{
    (void)self;
    if (atomic_load(&batch->left) == 0) return -1;
    for (size_t i = 0; i < batch->n; i++)
        if (!atomic_load(&batch->ends[i].done)) return batch->ends[i].message.peer;
    return -1;
}

static const muon_comm_ops ops = {.struct_size = sizeof ops,
                                  .name = "threads",
                                  .open = open_batch,
                                  .close = close_batch,
                                  .start = start_batch,
                                  .test = test_batch,
                                  .late = late_peer};

/* ---- The world */

muon_status muon__threads_create(threads_world **out, int nranks)
{
    REQUIRE(nranks >= 1, E_ARG, "nranks is %d, must be at least 1", nranks);
    size_t n = (size_t)nranks;
    threads_world *world = calloc(1, sizeof *world + n * sizeof *world->ranks);
    REQUIRE(world, E_NOMEM, "no memory for %d ranks", nranks);
    for (int rank = 0; rank < nranks; rank++) {
        thread_rank *r = &world->ranks[rank];
        muon_status status = CALLOC(&r->queues, n * MUON_CHANNELS, "queues of a rank");
        if (status != MUON_OK) {
            muon__threads_destroy(world);
            return status;
        }
        r->world = world;
        r->comm = (muon_comm){.struct_size = sizeof r->comm,
                              .ops = &ops,
                              .self = r,
                              .rank = rank,
                              .size = nranks,
                              .sharing = nranks};
        pthread_mutex_init(&r->lock, NULL);
        world->size++;
    }
    *out = world;
    return MUON_OK;
}

void muon__threads_destroy(threads_world *world)
{
    if (!world) return;
    for (int rank = 0; rank < world->size; rank++) {
        pthread_mutex_destroy(&world->ranks[rank].lock);
        free(world->ranks[rank].queues);
    }
    free(world);
}

const muon_comm *muon__threads_comm(threads_world *world, int rank)
{
    assert(rank >= 0 && rank < world->size);
    return &world->ranks[rank].comm;
}

threads_count muon__threads_count(threads_world *world, int rank)
{
    thread_rank *r = &world->ranks[rank];
    return (threads_count){.messages = atomic_load(&r->messages),
                           .bytes = atomic_load(&r->bytes),
                           .batches = atomic_load(&r->batches)};
}
