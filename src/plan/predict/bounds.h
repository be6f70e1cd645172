/* bounds.h - how fast a step can be at best, whatever the plan. */
#ifndef PLAN_PREDICT_BOUNDS_H
#define PLAN_PREDICT_BOUNDS_H

#include "plan/plan.h"

typedef struct bounds { /* seconds of config.machine */
    double work;        /* all work shared evenly */
    double matrix;      /* the slowest matrix, each with its best team */
    double bytes;       /* what must move, shared evenly */
    double teams; /* work and exchanges shared evenly, with teams that are fast enough for it */
} bounds;

muon_status muon__bounds_find(bounds *out, const muon_plan *plan);
double muon__bounds_largest(const bounds *b);

#endif
