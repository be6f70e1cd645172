/* holders.h - how much of a matrix its ranks and nodes have, for the bounds. */
#ifndef PLAN_PREDICT_HOLDERS_H
#define PLAN_PREDICT_HOLDERS_H

#include "plan/route/relays.h"
#include "plan/route/shares.h"

/* The elements of a matrix that are on its holders, replicas included. */
typedef struct holders {
    double numel, total;
    double once; /* replicas on one node counted once: between nodes, a relay may save the others */
    /* On those 0, 1, .. ranks and nodes that hold most, together. */
    double rank[TEAM_MAX + 1], node[TEAM_MAX + 1], node_once[TEAM_MAX + 1];
    /* Seconds for a float that an owner saves by sending inside its nodes, instead of to a relay there. */
    double saved[TEAM_MAX + 1];
} holders;

typedef struct holders_finder {
    const muon_plan *plan;
    double near, far; /* seconds for a byte */
    shares shares;
    cell_holders cell;
    double *held, *held_once; /* [nranks] by rank, or by node; all 0 between two matrices */
    int *touched;             /* [nranks] ranks, or nodes, where `held` is not 0 */
    double *sorted;           /* [nranks] the largest first */
} holders_finder;

muon_status muon__holders_finder_create(holders_finder *out, const muon_plan *plan, double near,
                                        double far);
void muon__holders_finder_destroy(holders_finder *f); /* zeroed is fine */
muon_status muon__holders_find(holders_finder *f, holders *out, size_t item);

#endif
