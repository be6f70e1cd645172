/* The messages of one rank. For each wave and direction all parts that travel are listed with their
 * peer and sorted by (peer, packed before alone, item, cell); a peer's packed parts are one message.
 * The other end sorts by the same key and so finds the same messages in the same order.
 *
 * Where a rank between them relays, that is the peer. What goes through it comes after what is for it
 * alone: an owner has one packed message with it for all ranks that it relays for, mates by mates; a
 * holder has one for each owner and each set of mates that it is one of. */
#include "base/memory.h"
#include "plan/route/build.h"
#include "plan/route/relays.h"

#include <stdlib.h>

typedef struct traveller {
    int peer, alone, relayed;
    int owner;
    uint64_t mates; /* relayed: the key of those who send or get it */
    uint32_t item;
    size_t cell, patch; /* patch: within the rank's or the cell's, in the same order at both ends */
    rectangle part;
    route_piece *piece; /* at the holder's end */
} traveller;

typedef struct travellers {
    traveller *all;
    size_t n, capacity;
} travellers;

typedef struct builder {
    route *r;
    const muon_plan *plan;
    travellers of[ROUTE_LISTS]; /* of the wave in work */
    size_t nmessages[ROUTE_LISTS], message_capacity[ROUTE_LISTS];
    size_t ncopies[2], copy_capacity[2];
    patch *patches; /* of one cell */
    size_t patch_capacity;
    cell_holders holders; /* of one cell */
} builder;

muon_status muon__route_grow(void **array, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity) return MUON_OK;
    size_t larger = *capacity ? 2 * *capacity : 64;
    if (larger < count + 1) larger = count + 1;
    void *moved = realloc(*array, larger * size);
    REQUIRE(moved, E_NOMEM, "messages: no memory for %zu items of %zu bytes", larger, size);
    *array = moved;
    *capacity = larger;
    return MUON_OK;
}

int64_t muon__route_element_bytes(const muon_plan *plan, int list)
{
    return muon__route_gathers(list) && plan->config.wire == MUON_BF16 ? 2 : 4;
}

static int is_owner_end(int list)
{
    return list == GATHER_RECEIVE || list == SCATTER_SEND;
}

/* t.peer: the other end, unless a rank between them relays. */
static muon_status add(builder *b, int list, traveller t, int relay, const mates *m)
{
    t.owner = is_owner_end(list) ? b->r->rank : t.peer;
    if (relay != RELAY_NONE) {
        t.peer = relay;
        t.relayed = 1;
        t.mates = muon__mates_key(b->plan, m);
    }
    travellers *of = &b->of[list];
    void *all = of->all;
    TRY(muon__route_grow(&all, &of->capacity, of->n, sizeof *of->all));
    of->all = all;
    const plan_item *item = &b->plan->items[t.item];
    t.alone = muon__route_is_alone(item, &t.part, muon__route_element_bytes(b->plan, list));
    of->all[of->n++] = t;
    return MUON_OK;
}

static muon_status add_gather(builder *b, int list, traveller t, int sender)
{
    int relay = muon__gather_relay(b->plan, sender, b->plan->items[t.item].owner);
    return add(b, list, t, relay, &(mates){&sender, 1});
}

/* What this rank itself relays it has no other message for: the relay's buffer has it (forward.c). */
static muon_status add_result(builder *b, const layout *l, traveller t)
{
    int rank = b->r->rank;
    if (!muon__has_relays(b->plan)) return add(b, SCATTER_RECEIVE, t, RELAY_NONE, NULL);
    TRY(muon__cell_holders_find(&b->holders, l, t.cell));
    mates m = muon__mates_of(b->plan, &b->holders, rank);
    int relay = muon__scatter_relay(b->plan, t.peer, &m);
    return relay == rank ? MUON_OK : add(b, SCATTER_RECEIVE, t, relay, &m);
}

/* What this rank holds of others' items. */
static muon_status list_held(builder *b, size_t wave)
{
    route *r = b->r;
    for (size_t i = r->piece_first[wave]; i < r->piece_first[wave + 1]; i++) {
        route_piece *piece = &r->pieces[i];
        const plan_item *item = &b->plan->items[piece->item];
        if (item->class == PLAN_IDLE) continue;
        if (item->owner == r->rank) {
            piece->send = piece->take = ROUTE_SLOT;
            continue;
        }
        size_t cell = r->patch_cell[piece->patch];
        traveller t = {.peer = item->owner,
                       .item = piece->item,
                       .cell = cell,
                       .patch = piece->patch,
                       .part = piece->part,
                       .piece = piece};
        const layout *l = b->plan->params[item->param].layout;
        if (muon__route_sender(b->plan, l, cell, piece->item) == r->rank)
            TRY(add_gather(b, GATHER_SEND, t, r->rank));
        TRY(add_result(b, l, t));
    }
    return MUON_OK;
}

/* A part of an owned item, to all its holders. */
static muon_status add_results(builder *b, const layout *l, traveller t)
{
    TRY(muon__cell_holders_find(&b->holders, l, t.cell));
    mates m;
    for (int i = 0; i < b->holders.n; i += m.n) {
        m = muon__mates_at(b->plan, b->holders.ranks, b->holders.n, i);
        int relay = muon__scatter_relay(b->plan, b->r->rank, &m);
        for (int k = 0; k < (relay == RELAY_NONE ? m.n : 1); k++) {
            t.peer = m.ranks[k];
            if (t.peer != b->r->rank) TRY(add(b, SCATTER_SEND, t, relay, &m));
        }
    }
    return MUON_OK;
}

/* One cell's part of an owned item: from its sender, to all its holders. */
static muon_status list_cell(builder *b, uint32_t index, size_t cell)
{
    const plan_item *item = &b->plan->items[index];
    const plan_param *param = &b->plan->params[item->param];
    box at;
    muon__layout_cell(param->layout, cell, &at);
    size_t npatches = muon__fold_box(NULL, &param->fold, param->shape, param->ndim, &at);
    void *patches = b->patches;
    if (npatches)
        TRY(muon__route_grow(&patches, &b->patch_capacity, npatches - 1, sizeof *b->patches));
    b->patches = patches;
    muon__fold_box(b->patches, &param->fold, param->shape, param->ndim, &at);
    int sender = muon__route_sender(b->plan, param->layout, cell, index);
    for (size_t p = 0; p < npatches; p++) {
        traveller t = {.peer = sender, .item = index, .cell = cell, .patch = p};
        if (!muon__item_overlap(&t.part, item, &b->patches[p])) continue;
        if (sender != b->r->rank) TRY(add_gather(b, GATHER_RECEIVE, t, sender));
        TRY(add_results(b, param->layout, t));
    }
    return MUON_OK;
}

static muon_status list_owned(builder *b, size_t wave)
{
    const route *r = b->r;
    for (size_t i = r->owned_first[wave]; i < r->owned_first[wave + 1]; i++) {
        const plan_item *item = &b->plan->items[r->owned[i]];
        const plan_param *param = &b->plan->params[item->param];
        box whole;
        muon__item_box(&whole, b->plan, item);
        layout_walk walk;
        size_t cell;
        for (muon__layout_walk(&walk, param->layout, &whole); muon__layout_next(&walk, &cell);)
            TRY(list_cell(b, r->owned[i], cell));
    }
    return MUON_OK;
}

static int by_peer(const traveller *a, const traveller *b)
{
    return a->peer != b->peer ? a->peer - b->peer : a->relayed - b->relayed;
}

static int by_mates(const traveller *a, const traveller *b)
{
    return (a->mates > b->mates) - (a->mates < b->mates);
}

static int by_part(const traveller *a, const traveller *b)
{
    int order = by_mates(a, b);
    if (order) return order;
    if (a->item != b->item) return a->item < b->item ? -1 : 1;
    if (a->cell != b->cell) return a->cell < b->cell ? -1 : 1;
    return (a->patch > b->patch) - (a->patch < b->patch);
}

static int in_order(const void *a, const void *b)
{
    const traveller *ta = a, *tb = b;
    int order = by_peer(ta, tb);
    if (order) return order;
    if (ta->owner != tb->owner) return ta->owner - tb->owner;
    return ta->alone != tb->alone ? ta->alone - tb->alone : by_part(ta, tb);
}

/* Are two packed parts of a sorted list in one message? */
static int is_together(const traveller *a, const traveller *b, int list)
{
    return !b->alone && by_peer(a, b) == 0 && a->owner == b->owner &&
           (is_owner_end(list) || by_mates(a, b) == 0);
}

static muon_status add_message(builder *b, int list, route_message m)
{
    route_messages *messages = &b->r->messages[list];
    void *entries = messages->entries;
    TRY(muon__route_grow(&entries, &b->message_capacity[list], b->nmessages[list], sizeof m));
    messages->entries = entries;
    messages->entries[b->nmessages[list]++] = m;
    return MUON_OK;
}

static muon_status add_copy(builder *b, int which, const traveller *t, int64_t offset)
{
    route_copies *copies = &b->r->copies[which];
    void *entries = copies->entries;
    TRY(muon__route_grow(&entries, &b->copy_capacity[which], b->ncopies[which],
                         sizeof(route_copy)));
    copies->entries = entries;
    copies->entries[b->ncopies[which]++] = (route_copy){t->item, t->part, offset};
    return MUON_OK;
}

/* Says where a traveller is in the list's buffer: elements from its start. */
static muon_status place(builder *b, int list, const traveller *t, int64_t offset)
{
    switch (list) {
    case GATHER_SEND:
        t->piece->send = offset;
        return MUON_OK;
    case SCATTER_RECEIVE:
        t->piece->take = offset;
        return MUON_OK;
    default:
        return add_copy(b, list == GATHER_RECEIVE ? UNPACK : PACK, t, offset);
    }
}

static muon_status make_list(builder *b, int list)
{
    travellers *of = &b->of[list];
    if (of->n == 0) return MUON_OK;
    int owner_end = is_owner_end(list);
    qsort(of->all, of->n, sizeof *of->all, in_order);
    int64_t size = muon__route_element_bytes(b->plan, list);
    int64_t used = 0; /* elements of the buffer */
    for (size_t i = 0; i < of->n;) {
        const traveller *first = &of->all[i];
        int64_t begin = used;
        if (first->alone) {
            int64_t n = first->part.nrows * first->part.ncols;
            const plan_item *item = &b->plan->items[first->item];
            if (owner_end) {
                int64_t at = muon__item_place(item, first->part.row, first->part.col);
                TRY(add_message(
                    b, list,
                    (route_message){first->peer, (int32_t)first->item, at * size, n * size}));
            } else {
                TRY(place(b, list, first, used));
                used += n;
                TRY(add_message(
                    b, list, (route_message){first->peer, ROUTE_PACKED, begin * size, n * size}));
            }
            i++;
            continue;
        }
        for (; i < of->n && is_together(first, &of->all[i], list); i++) {
            TRY(place(b, list, &of->all[i], used));
            used += of->all[i].part.nrows * of->all[i].part.ncols;
        }
        TRY(add_message(
            b, list,
            (route_message){first->peer, ROUTE_PACKED, begin * size, (used - begin) * size}));
    }
    of->n = 0;
    return MUON_OK;
}

static muon_status make_waves(builder *b)
{
    route *r = b->r;
    for (int list = 0; list < ROUTE_LISTS; list++)
        TRY(CALLOC(&r->messages[list].first, b->plan->nwaves + 1, "messages"));
    for (int which = 0; which < 2; which++)
        TRY(CALLOC(&r->copies[which].first, b->plan->nwaves + 1, "messages"));
    for (size_t w = 0; w < b->plan->nwaves; w++) {
        TRY(list_held(b, w));
        if (b->plan->nranks > 1) TRY(list_owned(b, w));
        for (int list = 0; list < ROUTE_LISTS; list++) {
            TRY(make_list(b, list));
            r->messages[list].first[w + 1] = b->nmessages[list];
        }
        for (int which = 0; which < 2; which++)
            r->copies[which].first[w + 1] = b->ncopies[which];
    }
    return MUON_OK;
}

muon_status muon__route_make_messages(route *r, const muon_plan *plan)
{
    builder b = {.r = r, .plan = plan};
    muon_status status = make_waves(&b);
    for (int list = 0; list < ROUTE_LISTS; list++)
        free(b.of[list].all);
    free(b.patches);
    muon__cell_holders_free(&b.holders);
    return status;
}
