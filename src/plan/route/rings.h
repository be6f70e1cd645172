/* rings.h - the buffers of a step's waves, and how many of them there are. */
#ifndef PLAN_ROUTE_RINGS_H
#define PLAN_ROUTE_RINGS_H

#include "plan/route/route.h"
#include "plan/route/traffic.h"

/* Waves whose momentum is taken before, and whose update is left for after, a wave's products; and how many
 * buffers there are of a kind. Wave w has buffer w modulo their number, so that one is used again when the
 * wave before in it has ended. */
typedef struct route_rings {
    size_t ahead, behind;
    int waves; /* of slots, and of all that is not */
    int sends; /* what holders and relays send to owners */
} route_rings;

route_rings muon__route_rings(const muon_plan *plan);
/* If so many waves were in flight; 0: all. */
route_rings muon__rings_of_depth(const muon_plan *plan, int in_flight);

/* Buffers of a list; those of slots are ROUTE_ALL_LISTS. Several lists may use the same. */
static inline int muon__rings_of_list(route_rings rings, int list)
{
    int sends = list == GATHER_SEND || list == RELAY_GATHER_IN || list == RELAY_GATHER_OUT;
    return sends ? rings.sends : rings.waves;
}

/* The lists that have buffers of their own, and slots. */
enum { ROUTE_BUFFERS = 6 };
extern const int muon__wave_buffers[ROUTE_BUFFERS];

/* Bytes of a rank's i-th buffer of a list. */
int64_t muon__route_buffer_bytes(const route *r, const muon_plan *plan, int list, int i);

/* Bytes that the optimizer allocates as workspace on this rank. */
int64_t muon__route_workspace(const route *r, const muon_plan *plan);
/* The same without the scratch for orthogonalization, of the rank that needs most. */
int64_t muon__traffic_workspace(const traffic *t, const muon_plan *plan);

#endif
