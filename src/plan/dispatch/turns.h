/* turns.h - a scheme for comparison: ranks in turn, in each group of ranks that shards a tensor.
 * Nothing is padded, and every replica of a group repeats all of it. */
#ifndef PLAN_DISPATCH_TURNS_H
#define PLAN_DISPATCH_TURNS_H

#include "plan/dispatch/dispatch.h"
#include "plan/layout/seats.h"

typedef struct turns {
    const muon_plan *plan;
    seat_groups seats;
    uint32_t *group; /* [nitems] */
    uint32_t *seat;  /* [nitems] in the group */
    int replicas;    /* of a seat at most */
} turns;

/* Matrices by cost, one rank after the other; a matrix that is whole on a rank stays there. Without
 * an order: whole tensors of one shape and layout, one rank after the other. */
muon_status muon__turns_create(turns *out, const muon_plan *plan, const patterns *p,
                               const cost_order *order);
void muon__turns_destroy(turns *t); /* zeroed is fine */

/* An item's owner in a replica of its group; -1: there is no such replica. */
static inline int32_t muon__turns_owner(const turns *t, size_t item, int replica)
{
    const seat_group *g = &t->seats.list[t->group[item]];
    if (replica >= muon__seat_replicas(g, t->seat[item])) return -1;
    return (int32_t)muon__seat_rank(g, t->seat[item], replica);
}

#endif
