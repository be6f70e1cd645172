/* seats.h - groups of ranks that shard a tensor, for schemes that work inside them.
 *
 * A group has seats: a seat is what the replicas of one rank have in common. Where there are replicas,
 * each of them has the whole group once more. */
#ifndef PLAN_LAYOUT_SEATS_H
#define PLAN_LAYOUT_SEATS_H

#include "plan/route/shares.h"

typedef struct seat_group {
    uint64_t hash; /* of the ranks in all seats */
    const layout *l;
    size_t nseats;
    size_t *cell;      /* [nseats] one that the seat's ranks hold */
    uint32_t *seat_of; /* [cells] */
} seat_group;

typedef struct seat_groups {
    seat_group *list;
    size_t n;
    uint32_t *of; /* [patterns] */
} seat_groups;

muon_status muon__seats_create(seat_groups *out, const muon_plan *plan, const patterns *p);
void muon__seats_destroy(seat_groups *s); /* zeroed is fine */

static inline int muon__seat_replicas(const seat_group *g, size_t seat)
{
    return muon__layout_nholders(g->l, g->cell[seat]);
}

static inline int muon__seat_rank(const seat_group *g, size_t seat, int replica)
{
    return muon__layout_holder(g->l, g->cell[seat], replica);
}

#endif
