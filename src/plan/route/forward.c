/* What a rank relays: the messages between ranks of its node and owners on other nodes.
 *
 * Its buffer has what belongs to an owner together: first what is packed, mates by mates (relays.h), which
 * is one message between relay and owner, then what travels alone. Between relay and holder the packed part
 * of each owner is a message of its own, or several if the holder has different mates for it. So everything
 * that comes in goes out from where it is, results as often as there are mates. What the relay holds a
 * replica of itself, it takes from there, too: results share the buffer of those that are for it alone. */
#include "base/memory.h"
#include "plan/route/build.h"
#include "plan/route/relays.h"

#include <stdlib.h>

typedef struct parcel { /* part of an item */
    size_t wave, cell, patch;
    int owner, holder, alone;
    uint64_t mates; /* their key */
    uint32_t item;
    route_piece *own;      /* the relay's replica of it, or NULL */
    size_t number;         /* of those that are exchanged with owners */
    int64_t offset, bytes; /* in the relay's buffer of the wave */
} parcel;

typedef struct parcels {
    parcel *all;
    size_t n, capacity;
} parcels;

typedef struct relay {
    route *r;
    const muon_plan *plan;
    /* What it exchanges with owners, and with holders, in a gather and in a scatter. */
    parcels owners[2], holders[2];
    int64_t *offsets;     /* by number */
    cell_holders holding; /* of one cell */
} relay;

enum { GATHER, SCATTER };

static muon_status append(parcels *to, const parcel *p)
{
    void *all = to->all;
    TRY(muon__route_grow(&all, &to->capacity, to->n, sizeof *p));
    to->all = all;
    to->all[to->n++] = *p;
    return MUON_OK;
}

/* From or to mates; the relay's own part, if it is one of them, stays. */
static muon_status add(relay *f, int way, parcel p, const rectangle *part, const mates *m)
{
    int64_t size = muon__route_element_bytes(f->plan, way == GATHER ? GATHER_SEND : SCATTER_SEND);
    p.alone = muon__route_is_alone(&f->plan->items[p.item], part, size);
    p.bytes = part->nrows * part->ncols * size;
    p.mates = muon__mates_key(f->plan, m);
    p.number = f->owners[way].n;
    TRY(append(&f->owners[way], &p));
    for (int i = 0; i < m->n; i++) {
        p.holder = m->ranks[i];
        if (p.holder != f->r->rank) TRY(append(&f->holders[way], &p));
    }
    return MUON_OK;
}

static int has(const mates *m, int rank)
{
    for (int i = 0; i < m->n; i++)
        if (m->ranks[i] == rank) return 1;
    return 0;
}

/* Of mates, one stands for all: the relay itself, or else the first. */
static muon_status add_result(relay *f, parcel p, const layout *l, const route *holder,
                              route_piece *piece)
{
    int rank = f->r->rank;
    TRY(muon__cell_holders_find(&f->holding, l, p.cell));
    mates m = muon__mates_of(f->plan, &f->holding, holder->rank);
    if (muon__scatter_relay(f->plan, p.owner, &m) != rank) return MUON_OK;
    if (holder->rank != (has(&m, rank) ? rank : m.ranks[0])) return MUON_OK;
    p.own = holder->rank == rank ? piece : NULL;
    return add(f, SCATTER, p, &piece->part, &m);
}

/* What goes between a holder and owners through this rank. */
static muon_status add_holder(relay *f, const route *holder)
{
    const muon_plan *plan = f->plan;
    for (size_t w = 0; w < plan->nwaves; w++) {
        for (size_t i = holder->piece_first[w]; i < holder->piece_first[w + 1]; i++) {
            route_piece *piece = &holder->pieces[i];
            const plan_item *item = &plan->items[piece->item];
            if (item->class == PLAN_IDLE || item->owner == holder->rank) continue;
            parcel p = {.wave = w,
                        .cell = holder->patch_cell[piece->patch],
                        .patch = piece->patch,
                        .owner = item->owner,
                        .item = piece->item};
            const layout *l = plan->params[item->param].layout;
            if (muon__gather_relay(plan, holder->rank, item->owner) == f->r->rank &&
                muon__route_sender(plan, l, p.cell, p.item) == holder->rank)
                TRY(add(f, GATHER, p, &piece->part, &(mates){&holder->rank, 1}));
            TRY(add_result(f, p, l, holder, piece));
        }
    }
    return MUON_OK;
}

static int by_part(const parcel *a, const parcel *b)
{
    if (a->mates != b->mates) return a->mates < b->mates ? -1 : 1;
    if (a->item != b->item) return a->item < b->item ? -1 : 1;
    if (a->cell != b->cell) return a->cell < b->cell ? -1 : 1;
    return (a->patch > b->patch) - (a->patch < b->patch);
}

static int by_owner(const parcel *a, const parcel *b)
{
    if (a->owner != b->owner) return a->owner - b->owner;
    return a->alone != b->alone ? a->alone - b->alone : by_part(a, b);
}

/* The order of messages with owners, and of the buffer. */
static int for_owners(const void *a, const void *b)
{
    const parcel *pa = a, *pb = b;
    if (pa->wave != pb->wave) return pa->wave < pb->wave ? -1 : 1;
    return by_owner(pa, pb);
}

/* The order of messages with holders. */
static int for_holders(const void *a, const void *b)
{
    const parcel *pa = a, *pb = b;
    if (pa->wave != pb->wave) return pa->wave < pb->wave ? -1 : 1;
    return pa->holder != pb->holder ? pa->holder - pb->holder : by_owner(pa, pb);
}

static int64_t bytes_in(const route_messages *m, size_t wave)
{
    int64_t bytes = 0;
    for (size_t i = m->first[wave]; i < m->first[wave + 1]; i++)
        bytes += m->entries[i].bytes;
    return bytes;
}

/* Behind what the wave has in the buffer already. Sorted for owners. */
static void lay_out(relay *f, const parcels *p, const route_messages *buffer)
{
    int64_t used = 0;
    for (size_t i = 0; i < p->n; i++) {
        parcel *at = &p->all[i];
        if (i == 0 || at->wave != p->all[i - 1].wave) used = bytes_in(buffer, at->wave);
        at->offset = f->offsets[at->number] = used;
        if (at->own) at->own->take = used / (int64_t)sizeof(float);
        used += at->bytes;
    }
}

/* Sorted for those ends. */
static muon_status list_messages(route_messages *out, const parcels *p, int with_owners)
{
    size_t n = 0;
    TRY(CALLOC(&out->entries, p->n, "messages"));
    for (size_t i = 0; i < p->n;) {
        const parcel *first = &p->all[i];
        route_message *m = &out->entries[n++];
        *m = (route_message){.peer = with_owners ? first->owner : first->holder,
                             .item = ROUTE_PACKED,
                             .offset = first->offset};
        do
            m->bytes += p->all[i++].bytes;
        while (i < p->n && !first->alone && !p->all[i].alone && p->all[i].wave == first->wave &&
               p->all[i].owner == first->owner &&
               (with_owners ||
                (p->all[i].holder == first->holder && p->all[i].mates == first->mates)));
        out->first[first->wave + 1] = n;
    }
    return MUON_OK;
}

/* Results go where those are that are for this rank alone, so that all that it takes is in one buffer. */
static muon_status make_lists(relay *f, int way)
{
    parcels *owners = &f->owners[way], *holders = &f->holders[way];
    route_messages *messages = f->r->messages;
    route_messages *buffer = &messages[way == GATHER ? RELAY_GATHER_IN : SCATTER_RECEIVE];
    if (owners->n == 0) return MUON_OK;
    TRY(CALLOC(&f->offsets, owners->n, "messages"));
    qsort(owners->all, owners->n, sizeof *owners->all, for_owners);
    lay_out(f, owners, buffer);
    for (size_t i = 0; i < holders->n; i++)
        holders->all[i].offset = f->offsets[holders->all[i].number];
    free(f->offsets);
    f->offsets = NULL;
    qsort(holders->all, holders->n, sizeof *holders->all, for_holders);
    TRY(list_messages(&messages[way == GATHER ? RELAY_GATHER_OUT : RELAY_SCATTER_IN], owners, 1));
    return list_messages(&messages[way == GATHER ? RELAY_GATHER_IN : RELAY_SCATTER_OUT], holders,
                         0);
}

/* All that ranks of the node hold may go through this one; without a bound, only what it has itself. */
static muon_status add_node(relay *f, size_t begin, size_t end)
{
    int64_t per_node = f->plan->config.machine.ranks_per_node;
    int64_t first = muon__node_of(f->plan, f->r->rank) * per_node;
    TRY(add_holder(f, f->r));
    if (!f->plan->relayed) return MUON_OK;
    for (int64_t i = first; i < first + per_node && i < f->plan->nranks; i++) {
        route *holder = NULL;
        if (i == f->r->rank) continue;
        TRY(muon__route_create_held(&holder, f->plan, (int)i, begin, end));
        muon_status status = add_holder(f, holder);
        muon__route_destroy(holder);
        TRY(status);
    }
    return MUON_OK;
}

/* A wave without messages begins where the one before it ends. */
static void fill_gaps(route_messages *messages, size_t nwaves)
{
    for (size_t w = 0; w < nwaves; w++)
        if (messages->first[w + 1] < messages->first[w])
            messages->first[w + 1] = messages->first[w];
}

static void destroy(relay *f)
{
    for (int way = GATHER; way <= SCATTER; way++) {
        free(f->owners[way].all);
        free(f->holders[way].all);
    }
    free(f->offsets);
    muon__cell_holders_free(&f->holding);
}

muon_status muon__route_make_relays(route *r, const muon_plan *plan, size_t begin, size_t end)
{
    relay f = {.r = r, .plan = plan};
    for (int list = ROUTE_LISTS; list < ROUTE_ALL_LISTS; list++)
        TRY(CALLOC(&r->messages[list].first, plan->nwaves + 1, "messages"));
    if (!muon__has_relays(plan)) return MUON_OK;
    muon_status status = add_node(&f, begin, end);
    if (status == MUON_OK) status = make_lists(&f, GATHER);
    if (status == MUON_OK) status = make_lists(&f, SCATTER);
    for (int list = ROUTE_LISTS; list < ROUTE_ALL_LISTS; list++)
        fill_gaps(&r->messages[list], plan->nwaves);
    destroy(&f);
    return status;
}
