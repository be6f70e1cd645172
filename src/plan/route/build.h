/* build.h - shared by the files that make a route. */
#ifndef PLAN_ROUTE_BUILD_H
#define PLAN_ROUTE_BUILD_H

#include "plan/route/route.h"

/* From pieces and owned items: all messages, and where pieces go and come from. */
muon_status muon__route_make_messages(route *r, const muon_plan *plan);
/* What it passes on for others in waves begin..end. */
muon_status muon__route_make_relays(route *r, const muon_plan *plan, size_t begin, size_t end);

/* A route that knows only patches and pieces: what a rank holds of every item. */
muon_status muon__route_create_held(route **out, const muon_plan *plan, int rank, size_t begin,
                                    size_t end);

/* Makes room for one more element of a growing array of `count`. */
muon_status muon__route_grow(void **array, size_t *capacity, size_t count, size_t size);

#endif
