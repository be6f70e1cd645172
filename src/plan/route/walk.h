/* walk.h - how long a step would take on config.machine: all ranks' way through its waves, as
 * step/pipeline.c goes it. */
#ifndef PLAN_ROUTE_WALK_H
#define PLAN_ROUTE_WALK_H

#include "plan/route/rings.h"

/* seconds: [nranks] until a rank has done, sent and received everything. The plan's waves, or those of
 * `t` if it has no teams. */
muon_status muon__walk(double *seconds, const traffic *t, const muon_plan *plan, route_rings rings);

/* What members of teams exchange in a wave. */
double muon__walk_exchange(const muon_machine *m, const wave_traffic *at);

#endif
