/* build.h - shared by the files that make a route. */
#ifndef PLAN_ROUTE_BUILD_H
#define PLAN_ROUTE_BUILD_H

#include "plan/route/route.h"

/* From pieces and owned items: all messages, and where pieces go and come from. */
muon_status muon__route_make_messages(route *r, const muon_plan *plan);

#endif
