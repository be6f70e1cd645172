/* route.h - what one rank does of the plan: which parts of which matrices it holds, owns, sends and
 * receives, wave by wave.
 *
 * Both ends of a message are made from the same walk over the same plan, so they agree without
 * communication. For each wave, what a holder has of an owner's matrices goes there in one packed
 * message; a stretch of whole rows that is long enough travels alone, from where it is to where it
 * belongs. A matrix's way back is the same with the ends changed; then every replica gets its part.
 * Of several holders of a cell one sends: the owner itself if it is one, else one on the owner's
 * node, else the holders in turn.
 *
 * Where ranks would have too many peers, a rank between two ends passes messages on (relays.h), from the
 * buffer that they came into. */
#ifndef PLAN_ROUTE_ROUTE_H
#define PLAN_ROUTE_ROUTE_H

#include "plan/plan.h"

enum {
    ROUTE_NOWHERE = -1, /* offsets: nothing is sent or received */
    ROUTE_SLOT = -2     /* offsets: it is in the owner's slot, which is this rank's own */
};

enum { ROUTE_PACKED = -1 };

/* Part of an item in one patch of this rank's shard. */
typedef struct route_piece {
    uint32_t item;
    uint32_t patch;
    rectangle part;
    int64_t send; /* where U goes: elements into the gather's send buffer, or a constant above */
    int64_t take; /* where O comes from: floats into the scatter's receive buffer, or a constant */
} route_piece;

typedef struct route_message { /* bytes at `offset` of a buffer */
    int peer;
    /* Rows of this item that travel alone: of the owner's wave buffer, in place. ROUTE_PACKED: of the
     * list's own buffer, packed or at the holder's end. */
    int32_t item;
    int64_t offset, bytes;
} route_message;

/* Gathers go from holders to owners, scatters back. */
enum { GATHER_SEND, GATHER_RECEIVE, SCATTER_SEND, SCATTER_RECEIVE, ROUTE_LISTS };

/* What a relay receives, and what it then sends of that: from holders to owners, and back. A result comes
 * in once and goes out to every holder on the node, apart from the relay. */
enum {
    RELAY_GATHER_IN = ROUTE_LISTS,
    RELAY_GATHER_OUT,
    RELAY_SCATTER_IN,
    RELAY_SCATTER_OUT,
    ROUTE_ALL_LISTS
};

static inline int muon__route_sends(int list)
{
    return list == GATHER_SEND || list == SCATTER_SEND || list == RELAY_GATHER_OUT ||
           list == RELAY_SCATTER_OUT;
}

static inline int muon__route_gathers(int list)
{
    return list == GATHER_SEND || list == GATHER_RECEIVE || list == RELAY_GATHER_IN ||
           list == RELAY_GATHER_OUT;
}

/* What a relay gathers is in the buffer of its IN list; results are in that of SCATTER_RECEIVE, behind those
 * that are for it alone. */
typedef struct route_messages { /* wave w has entries[first[w]] .. entries[first[w + 1]] */
    route_message *entries;
    size_t *first; /* [nwaves + 1] */
} route_messages;

/* Part of an owned matrix that travels packed: between its slot and the buffer of a list. */
typedef struct route_copy {
    uint32_t item;
    rectangle part;
    int64_t offset; /* elements into the buffer; rows of part.ncols */
} route_copy;

typedef struct route_copies {
    route_copy *entries;
    size_t *first; /* [nwaves + 1] */
} route_copies;

enum { UNPACK, PACK }; /* after the gather, before the scatter */

typedef struct route {
    int rank;
    patch *patches;      /* of all parameters; offsets count from the start of the shard */
    size_t *patch_first; /* [nparams + 1] */
    size_t *patch_cell;  /* the layout's cell it is in */
    int64_t *numel;      /* [nparams] of the shard */
    size_t *last_wave;   /* [nparams] no later wave reads its gradient here */
    route_piece *pieces;
    size_t *piece_first; /* [nwaves + 1] */
    uint32_t *owned;     /* items to orthogonalize, in each wave the costly ones first */
    size_t *owned_first; /* [nwaves + 1] */
    route_messages messages[ROUTE_ALL_LISTS];
    route_copies copies[2];
} route;

muon_status muon__route_create(route **out, const muon_plan *plan, int rank);
/* Only waves begin..end; the others are empty. For a look at part of a large plan. */
muon_status muon__route_create_waves(route **out, const muon_plan *plan, int rank, size_t begin,
                                     size_t end);
void muon__route_destroy(route *r); /* NULL is fine */

/* The ranks that it exchanges messages with in a step, ascending; *out is the caller's to free. */
muon_status muon__route_peers(int **out, size_t *n, const route *r, const muon_plan *plan);

/* The holder that sends a cell's part of an item to its owner; the owner itself if it is a
 * holder. */
int muon__route_sender(const muon_plan *plan, const layout *l, size_t cell, size_t item);

/* Of what the list's messages carry. */
int64_t muon__route_element_bytes(const muon_plan *plan, int list);

/* Does this part of an item travel alone, its elements of so many bytes on the wire? Else it is
 * packed with others, and takes room in a buffer at the owner, too. */
int muon__route_is_alone(const plan_item *item, const rectangle *part, int64_t element_bytes);

#endif
