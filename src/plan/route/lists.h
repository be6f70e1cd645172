/* lists.h - what a muon_route is made of. */
#ifndef PLAN_ROUTE_LISTS_H
#define PLAN_ROUTE_LISTS_H

#include "muon/route.h"
#include "plan/plan.h"

typedef struct route_list { /* wave w has pieces[piece_first[w]] .. pieces[piece_first[w + 1]] */
    muon_route_piece *pieces;
    size_t *piece_first; /* [nwaves + 1] */
    muon_route_message *messages;
    size_t *message_first; /* [nwaves + 1] */
} route_list;

struct muon_route {
    size_t nwaves;
    route_list lists[MUON_ROUTE_NLISTS];
    size_t *owned; /* matrices */
    size_t *owned_first;
};

/* Fills an empty route; on failure it is incomplete, but can be destroyed. */
muon_status muon__route_lists_make(muon_route *out, const muon_plan *plan, int rank);

#endif
