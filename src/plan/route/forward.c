/* What a rank relays: the messages between holders on its node and owners on other nodes.
 *
 * Its buffer has what belongs to an owner together: first what is packed, holder by holder, which is one
 * message between relay and owner, then what travels alone. Between relay and holder the packed part of
 * each owner is a message of its own. So everything that comes in goes out from where it is. */
#include "base/memory.h"
#include "plan/route/build.h"
#include "plan/route/relays.h"

#include <stdlib.h>

typedef struct parcel { /* part of an item */
    size_t wave, cell, patch;
    int owner, holder, alone;
    uint32_t item;
    int64_t offset, bytes; /* in the relay's buffer of the wave */
} parcel;

typedef struct parcels {
    parcel *all;
    size_t n, capacity;
} parcels;

typedef struct relay {
    route *r;
    const muon_plan *plan;
    parcels gather, scatter;
} relay;

static muon_status add(relay *f, int list, parcel p, const rectangle *part)
{
    parcels *to = muon__route_gathers(list) ? &f->gather : &f->scatter;
    void *all = to->all;
    TRY(muon__route_grow(&all, &to->capacity, to->n, sizeof p));
    to->all = all;
    int64_t size = muon__route_element_bytes(f->plan, list);
    p.alone = muon__route_is_alone(&f->plan->items[p.item], part, size);
    p.bytes = part->nrows * part->ncols * size;
    to->all[to->n++] = p;
    return MUON_OK;
}

/* What goes between a holder and owners through this rank. */
static muon_status add_holder(relay *f, const route *holder)
{
    const muon_plan *plan = f->plan;
    for (size_t w = 0; w < plan->nwaves; w++) {
        for (size_t i = holder->piece_first[w]; i < holder->piece_first[w + 1]; i++) {
            const route_piece *piece = &holder->pieces[i];
            const plan_item *item = &plan->items[piece->item];
            if (item->class == PLAN_IDLE || item->owner == holder->rank) continue;
            if (muon__relay_between(plan, holder->rank, item->owner) != f->r->rank) continue;
            parcel p = {.wave = w,
                        .cell = holder->patch_cell[piece->patch],
                        .patch = piece->patch,
                        .owner = item->owner,
                        .holder = holder->rank,
                        .item = piece->item};
            const layout *l = plan->params[item->param].layout;
            if (muon__route_sender(plan, l, p.cell, p.item) == holder->rank)
                TRY(add(f, RELAY_GATHER_IN, p, &piece->part));
            TRY(add(f, RELAY_SCATTER_IN, p, &piece->part));
        }
    }
    return MUON_OK;
}

static int by_part(const parcel *a, const parcel *b)
{
    if (a->item != b->item) return a->item < b->item ? -1 : 1;
    if (a->cell != b->cell) return a->cell < b->cell ? -1 : 1;
    return (a->patch > b->patch) - (a->patch < b->patch);
}

/* The order of messages with owners, and of the buffer. */
static int for_owners(const void *a, const void *b)
{
    const parcel *pa = a, *pb = b;
    if (pa->wave != pb->wave) return pa->wave < pb->wave ? -1 : 1;
    if (pa->owner != pb->owner) return pa->owner - pb->owner;
    if (pa->alone != pb->alone) return pa->alone - pb->alone;
    return pa->holder != pb->holder ? pa->holder - pb->holder : by_part(pa, pb);
}

/* The order of messages with holders. */
static int for_holders(const void *a, const void *b)
{
    const parcel *pa = a, *pb = b;
    if (pa->wave != pb->wave) return pa->wave < pb->wave ? -1 : 1;
    if (pa->holder != pb->holder) return pa->holder - pb->holder;
    if (pa->owner != pb->owner) return pa->owner - pb->owner;
    return pa->alone != pb->alone ? pa->alone - pb->alone : by_part(pa, pb);
}

/* Sorted for owners. Returns what a wave has at most. */
static int64_t lay_out(const parcels *p)
{
    int64_t used = 0, most = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (i > 0 && p->all[i].wave != p->all[i - 1].wave) used = 0;
        p->all[i].offset = used;
        used += p->all[i].bytes;
        if (used > most) most = used;
    }
    return most;
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
               (with_owners || p->all[i].holder == first->holder));
        out->first[first->wave + 1] = n;
    }
    return MUON_OK;
}

static muon_status make_lists(const relay *f, const parcels *p, int in)
{
    route_messages *messages = f->r->messages;
    int owners = in == RELAY_GATHER_IN ? RELAY_GATHER_OUT : RELAY_SCATTER_IN;
    int holders = in == RELAY_GATHER_IN ? RELAY_GATHER_IN : RELAY_SCATTER_OUT;
    if (p->n == 0) return MUON_OK;
    qsort(p->all, p->n, sizeof *p->all, for_owners);
    messages[in].room = lay_out(p);
    TRY(list_messages(&messages[owners], p, 1));
    qsort(p->all, p->n, sizeof *p->all, for_holders);
    return list_messages(&messages[holders], p, 0);
}

static muon_status add_node(relay *f, size_t begin, size_t end)
{
    int64_t per_node = f->plan->config.machine.ranks_per_node;
    int64_t first = muon__node_of(f->plan, f->r->rank) * per_node;
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

muon_status muon__route_make_relays(route *r, const muon_plan *plan, size_t begin, size_t end)
{
    relay f = {.r = r, .plan = plan};
    for (int list = ROUTE_LISTS; list < ROUTE_ALL_LISTS; list++)
        TRY(CALLOC(&r->messages[list].first, plan->nwaves + 1, "messages"));
    if (!plan->relayed) return MUON_OK;
    muon_status status = add_node(&f, begin, end);
    if (status == MUON_OK) status = make_lists(&f, &f.gather, RELAY_GATHER_IN);
    if (status == MUON_OK) status = make_lists(&f, &f.scatter, RELAY_SCATTER_IN);
    for (int list = ROUTE_LISTS; list < ROUTE_ALL_LISTS; list++)
        fill_gaps(&r->messages[list], plan->nwaves);
    free(f.gather.all);
    free(f.scatter.all);
    return status;
}
