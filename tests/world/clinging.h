/* clinging.h - a transport that cannot let go, as MPI cannot: a batch that is closed while it is active
 * stays where it is, and its messages' memory is read and written when the peer comes at last.
 *
 * Around that of the threads. It knows of every message whether its memory was offered to `keep` after
 * its batch was closed, so that a test sees what would be freed under the transport's hands. */
#ifndef TESTS_WORLD_CLINGING_H
#define TESTS_WORLD_CLINGING_H

#include "tests/world/ranks.h"

#include <stdlib.h>
#include <string.h>

typedef struct cling_batch cling_batch;
struct cling_batch {
    cling_batch *next; /* of all, or of those that are closed */
    muon_batch *inner;
    muon_direction direction;
    int channel;
    int is_active; /* was, when it was closed */
    size_t n;
    struct {
        muon_message message;
        int is_offered;
    } parts[];
};

typedef struct cling_block {
    struct cling_block *next;
    void *memory;
    void (*release)(void *memory);
} cling_block;

typedef struct clinging {
    const muon_comm *inner;
    muon_comm comm;
    cling_batch *closed;
    cling_block *kept;
    size_t kept_bytes;
    int64_t nopen, nabandoned;
    void (*before_start)(void *user, int channel); /* NULL: nothing */
    void *user;
} clinging;

static inline cling_batch *cling_of(muon_batch *batch)
{
    return (cling_batch *)(void *)batch;
}

static inline muon_status cling_open(void *self, muon_batch **out, muon_direction direction,
                                     int channel, const muon_message *messages, size_t n)
{
    clinging *c = self;
    cling_batch *b = calloc(1, sizeof *b + n * sizeof b->parts[0]);
    if (!b) return muon_error_set(MUON_E_NOMEM, "no memory for a batch of a test");
    muon_status status =
        c->inner->ops->open(c->inner->self, &b->inner, direction, channel, messages, n);
    if (status != MUON_OK) {
        free(b);
        return status;
    }
    b->direction = direction;
    b->channel = channel;
    b->n = n;
    for (size_t i = 0; i < n; i++)
        b->parts[i].message = messages[i];
    c->nopen++;
    *out = (muon_batch *)(void *)b;
    return MUON_OK;
}

static inline muon_status cling_start(void *self, muon_batch *batch)
{
    clinging *c = self;
    if (c->before_start) c->before_start(c->user, cling_of(batch)->channel);
    return c->inner->ops->start(c->inner->self, cling_of(batch)->inner);
}

static inline muon_status cling_test(void *self, muon_batch *batch, int *done)
{
    clinging *c = self;
    return c->inner->ops->test(c->inner->self, cling_of(batch)->inner, done);
}

static inline int cling_late(void *self, muon_batch *batch)
{
    clinging *c = self;
    return c->inner->ops->late(c->inner->self, cling_of(batch)->inner);
}

static inline void cling_close(void *self, muon_batch *batch)
{
    clinging *c = self;
    cling_batch *b = cling_of(batch);
    int done = 0;
    b->is_active = cling_test(self, batch, &done) != MUON_OK || !done;
    if (!b->is_active) {
        c->inner->ops->close(c->inner->self, b->inner);
        b->inner = NULL;
    }
    c->nopen--;
    c->nabandoned += b->is_active;
    b->next = c->closed;
    c->closed = b;
}

static inline int cling_keep(void *self, void *memory, size_t bytes, void (*release)(void *memory))
{
    clinging *c = self;
    const char *begin = memory, *end = begin + bytes;
    for (cling_batch *b = c->closed; b; b = b->next)
        for (size_t i = 0; i < b->n; i++) {
            const char *data = b->parts[i].message.data;
            if (begin <= data && data + b->parts[i].message.bytes <= end)
                b->parts[i].is_offered = 1;
        }
    if (c->nabandoned == 0) return 0;
    cling_block *k = calloc(1, sizeof *k);
    if (!k) abort();
    *k = (cling_block){c->kept, memory, release};
    c->kept = k;
    c->kept_bytes += bytes;
    return 1;
}

static const muon_comm_ops cling_ops = {.struct_size = sizeof cling_ops,
                                        .name = "clinging",
                                        .open = cling_open,
                                        .close = cling_close,
                                        .start = cling_start,
                                        .test = cling_test,
                                        .late = cling_late,
                                        .keep = cling_keep};

/* What to give as config.comm is comm. */
static inline void cling_init(clinging *c, const muon_comm *inner)
{
    *c = (clinging){.inner = inner, .comm = *inner};
    c->comm.ops = &cling_ops;
    c->comm.self = c;
}

/* When the library has destroyed all it had: looks at every message, touches all memory that it may
 * still touch, and lets go. Returns how many messages' memory it was never asked about; with a sanitizer
 * the touch is the better witness. */
static inline int64_t cling_finish(clinging *c)
{
    int64_t missed = 0;
    while (c->closed) {
        cling_batch *b = c->closed;
        c->closed = b->next;
        for (size_t i = 0; i < b->n; i++) {
            muon_message *m = &b->parts[i].message;
            missed += !b->parts[i].is_offered;
            if (b->is_active && b->direction == MUON_RECEIVE) memset(m->data, 0, (size_t)m->bytes);
        }
        if (b->inner) c->inner->ops->close(c->inner->self, b->inner);
        free(b);
    }
    while (c->kept) {
        cling_block *k = c->kept;
        c->kept = k->next;
        k->release(k->memory);
        free(k);
    }
    return missed;
}

#endif
