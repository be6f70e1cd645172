/* The rounds in which stripes become whole at their owners, or go from there to who holds them.
 *
 * A message is what a cell has of a stripe: one piece of a shard. It is staged at the holder's end,
 * because no message may be in memory of the caller, who frees it as he likes after a failure; at the
 * owner's end it is in its place where it is one piece of the stripe, too, else the owner packs and
 * unpacks it. Receives are started before sends, and both are waited for before the next round: a rank
 * waits only for what others do in the same round or an earlier one, so that nobody waits for ever. */
#include "comm/comm.h"
#include "save/stripes.h"

#include <string.h>

typedef struct round {
    stripes *s;
    const stripe *first, *last; /* its stripes: first .. last - 1 */
    const stripe *own;          /* or NULL */
    char *data;                 /* of own */
    muon_message *receive, *send;
    size_t nreceive, nsend;
    muon_status status; /* the first failure that is not of the messages */
} round;

static int rank_of(const round *r)
{
    return r->s->tensors->opt->comm.rank;
}

static size_t element_of(const round *r, const stripe *of)
{
    return r->s->tensors->list[of->tensor].element;
}

static size_t bytes_of(const round *r, const stripe_walk *cell)
{
    return (size_t)cell->count * element_of(r, cell->of);
}

/* ---- What a cell has of a stripe: packed in a message and, since its order is the tensor's, in this
 * rank's shard; in the stripe it may be in many pieces. */

/* From this rank's memory or its file, and back. */
static void read_cell(round *r, const stripe_walk *cell, char *room)
{
    if (r->status != MUON_OK) return;
    r->status = muon__tensor_read(r->s->tensors, cell->of->tensor, cell->at_mine + cell->at,
                                  cell->count, room);
}

static void write_cell(round *r, const stripe_walk *cell, const char *room)
{
    if (r->status != MUON_OK) return;
    r->status = muon__tensor_write(r->s->tensors, cell->of->tensor, cell->at_mine + cell->at,
                                   cell->count, room);
}

static void copy_packed(const round *r, const stripe_walk *cell, char *packed, int to_stripe)
{
    size_t element = element_of(r, cell->of);
    for (runs run = muon__stripe_runs(cell); muon__runs_next(&run);) {
        char *there = r->data + (size_t)(run.index - cell->of->begin) * element;
        size_t bytes = (size_t)run.count * element;
        memcpy(to_stripe ? there : packed, to_stripe ? packed : there, bytes);
        packed += bytes;
    }
}

/* ---- Messages */

static void add(muon_message *list, size_t *n, void *data, size_t bytes, int peer)
{
    list[(*n)++] = (muon_message){data, (int64_t)bytes, peer};
}

static muon_status run_batches(const muon_opt *opt, muon_batch *receive, muon_batch *send)
{
    double timeout = opt->plan->config.timeout;
    TRY(muon__comm_start(&opt->comm, receive));
    TRY(muon__comm_start(&opt->comm, send));
    TRY(muon__comm_wait(&opt->comm, receive, timeout, "receiving parts of a checkpoint"));
    return muon__comm_wait(&opt->comm, send, timeout, "sending parts of a checkpoint");
}

/* Who fails here leaves others waiting: the ranks are parted, whatever the reason. */
static muon_status exchange_messages(const round *r)
{
    muon_opt *opt = r->s->tensors->opt;
    muon_batch *receive = NULL, *send = NULL;
    if (r->nreceive + r->nsend == 0) return MUON_OK;
    muon_status status = muon__comm_open(&opt->comm, &receive, MUON_RECEIVE, CHANNEL_GATHER,
                                         r->receive, r->nreceive);
    if (status == MUON_OK)
        status = muon__comm_open(&opt->comm, &send, MUON_SEND, CHANNEL_GATHER, r->send, r->nsend);
    if (status == MUON_OK) status = run_batches(opt, receive, send);
    muon__comm_close(&opt->comm, receive);
    muon__comm_close(&opt->comm, send);
    if (status != MUON_OK) muon__opt_break(opt, MUON_E_COMM, NULL);
    return status;
}

/* The stripe this rank owns: where it is in its own memory, if all of it is and no message is sent from
 * there; else the room for it. */
static char *find_data(const round *r)
{
    stripe_walk cell;
    if (r->s->direction == STRIPES_FROM_OWNER && r->own->messages > 0) return r->s->whole;
    muon__stripe_walk(&cell, r->s, r->own);
    muon__stripe_next(&cell);
    char *memory = cell.count == r->own->end - r->own->begin ? muon__stripe_memory(&cell) : NULL;
    return memory ? memory : r->s->whole;
}

/* Lists the stripes of the round that begins at list[at]; returns where the next one does. In one of
 * the two directions the owner's messages come first in the list, in the other those of the others. */
static size_t begin_round(round *r, size_t at)
{
    stripes *s = r->s;
    size_t end = at;
    int64_t owned = 0, others = 0;
    *r = (round){.s = s, .status = r->status, .first = &s->list[at]};
    for (; end < s->n && s->list[end].round == s->list[at].round; end++) {
        const stripe *of = &s->list[end];
        if (of->owner == rank_of(r)) r->own = of;
        *(of->owner == rank_of(r) ? &owned : &others) += of->messages;
    }
    r->last = &s->list[end];
    r->data = r->own ? find_data(r) : NULL;
    r->receive = s->messages;
    r->send = s->messages + (s->direction == STRIPES_TO_OWNER ? owned : others);
    return end;
}

/* ---- To the owner */

static void send_cells(round *r, const stripe *of, char **staged)
{
    stripe_walk cell;
    for (muon__stripe_walk(&cell, r->s, of); muon__stripe_next(&cell);) {
        if (cell.is_owners || cell.from != rank_of(r)) continue;
        read_cell(r, &cell, *staged);
        add(r->send, &r->nsend, *staged, bytes_of(r, &cell), of->owner);
        *staged += bytes_of(r, &cell);
    }
}

static void receive_cells(round *r)
{
    char *packed = r->s->packed;
    stripe_walk cell;
    for (muon__stripe_walk(&cell, r->s, r->own); muon__stripe_next(&cell);) {
        if (cell.is_owners) continue;
        char *to = r->data + (size_t)cell.offset * element_of(r, r->own);
        if (!cell.one_run) to = packed, packed += bytes_of(r, &cell);
        add(r->receive, &r->nreceive, to, bytes_of(r, &cell), cell.from);
    }
}

static void put_together(round *r)
{
    char *packed = r->s->packed;
    stripe_walk cell;
    for (muon__stripe_walk(&cell, r->s, r->own); muon__stripe_next(&cell);) {
        if (cell.is_owners) {
            if (r->data != r->s->whole) continue; /* it is in its place */
            char *packed_own = muon__stripe_memory(&cell);
            if (!packed_own) read_cell(r, &cell, packed_own = r->s->shard);
            copy_packed(r, &cell, packed_own, 1);
        } else if (!cell.one_run) {
            copy_packed(r, &cell, packed, 1);
            packed += bytes_of(r, &cell);
        }
    }
}

muon_status muon__stripes_gather(stripes *s, stripe_fn fn, void *user)
{
    round r = {.s = s};
    for (size_t at = 0; at < s->n;) {
        at = begin_round(&r, at);
        char *staged = s->staged;
        for (const stripe *of = r.first; of < r.last; of++)
            if (of != r.own) send_cells(&r, of, &staged);
        if (r.own) receive_cells(&r);
        TRY(exchange_messages(&r));
        if (!r.own) continue;
        put_together(&r);
        if (r.status == MUON_OK) r.status = fn(user, r.own, r.data);
    }
    return r.status;
}

/* ---- From the owner */

static void send_to_holders(round *r)
{
    char *packed = r->s->packed;
    stripe_walk cell;
    for (muon__stripe_walk(&cell, r->s, r->own); muon__stripe_next(&cell);) {
        int holders = muon__layout_nholders(cell.l, cell.cell);
        if (holders == cell.is_mine) continue;
        char *from = r->data + (size_t)cell.offset * element_of(r, r->own);
        if (!cell.one_run) {
            from = packed;
            packed += bytes_of(r, &cell);
            copy_packed(r, &cell, from, 0);
        }
        for (int i = 0; i < holders; i++) {
            int peer = muon__layout_holder(cell.l, cell.cell, i);
            if (peer != rank_of(r)) add(r->send, &r->nsend, from, bytes_of(r, &cell), peer);
        }
    }
}

/* The parts of another's stripe that are this rank's: first where they are to arrive, then from there
 * into their place. */
static void take_cells(round *r, const stripe *of, char **staged, int have_arrived)
{
    stripe_walk cell;
    for (muon__stripe_walk(&cell, r->s, of); muon__stripe_next(&cell);) {
        if (!cell.is_mine) continue;
        if (have_arrived)
            write_cell(r, &cell, *staged);
        else
            add(r->receive, &r->nreceive, *staged, bytes_of(r, &cell), of->owner);
        *staged += bytes_of(r, &cell);
    }
}

static void take_own(round *r)
{
    stripe_walk cell;
    if (r->data != r->s->whole) return; /* it is in its place */
    for (muon__stripe_walk(&cell, r->s, r->own); muon__stripe_next(&cell);) {
        if (!cell.is_mine) continue;
        char *memory = muon__stripe_memory(&cell), *packed = memory ? memory : r->s->shard;
        copy_packed(r, &cell, packed, 0);
        if (!memory) write_cell(r, &cell, packed);
    }
}

muon_status muon__stripes_scatter(stripes *s, stripe_fn fn, void *user)
{
    round r = {.s = s};
    for (size_t at = 0; at < s->n;) {
        at = begin_round(&r, at);
        if (r.own) {
            if (r.status == MUON_OK) r.status = fn(user, r.own, r.data);
            send_to_holders(&r);
        }
        char *staged = s->staged;
        for (const stripe *of = r.first; of < r.last; of++)
            if (of != r.own) take_cells(&r, of, &staged, 0);
        TRY(exchange_messages(&r));
        staged = s->staged;
        for (const stripe *of = r.first; of < r.last; of++)
            if (of != r.own) take_cells(&r, of, &staged, 1);
        if (r.own) take_own(&r);
    }
    return r.status;
}
