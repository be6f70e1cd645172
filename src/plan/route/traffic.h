/* traffic.h - what all ranks send and receive in every wave, to the byte: one walk over the matrices
 * and their holders, by the rules of route.h. */
#ifndef PLAN_ROUTE_TRAFFIC_H
#define PLAN_ROUTE_TRAFFIC_H

#include "plan/route/shares.h"

typedef struct wave_traffic { /* of one rank in one wave; bytes */
    int64_t matrices, floats; /* of its slots */
    double flops;
    int64_t gather_sent, gather_received, scatter_sent, scatter_received;
    /* Of these, inside the node. */
    int64_t gather_sent_near, gather_received_near, scatter_sent_near, scatter_received_near;
    /* Of these, what is packed at the owner. */
    int64_t gather_packed, scatter_packed;
    /* What it relays; in none of the numbers above. Of a gather it is received inside the node and sent to
     * another. A result is received from another node, and passed on to all other holders on this one. */
    int64_t gather_relayed, scatter_relayed, scatter_passed;
    /* What it exchanges with the members of its teams, and how often. */
    int64_t team_sent, team_received, team_sent_near, team_received_near, team_rounds;
} wave_traffic;

typedef struct traffic {
    size_t nranks, nwaves;
    wave_traffic *of; /* [nranks][nwaves] */
    /* Elements that an owner lacks, and that other ranks hold, in bytes as they travel. */
    int64_t useful_bytes;
    int64_t detour_bytes; /* received by relays that have no part of it themselves */
    /* Bytes from group to group of neighbouring ranks, [ngroups][ngroups]; 0 groups: not counted. */
    size_t ngroups;
    int64_t *gather, *scatter;
} traffic;

/* Owners and waves must have been chosen. */
muon_status muon__traffic_create(traffic *out, const muon_plan *plan, const patterns *p);
/* The same in two steps, for a scheme in which every replica of a tensor's ranks is for itself: of each
 * cell only this holder counts, which sends to and receives from the plan's owner in its replica; an
 * owner of -1 has none. */
muon_status muon__traffic_create_empty(traffic *out, const muon_plan *plan);
muon_status muon__traffic_add_replica(traffic *t, const muon_plan *plan, const patterns *p,
                                      int replica);
void muon__traffic_destroy(traffic *t); /* zeroed is fine */

static inline const wave_traffic *muon__traffic_at(const traffic *t, size_t rank, size_t wave)
{
    return &t->of[rank * t->nwaves + wave];
}

#endif
