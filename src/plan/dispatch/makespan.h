/* makespan.h - what config.machine would take for a step, from what all ranks do in every wave: the same
 * for this plan and for the schemes it is compared with. */
#ifndef PLAN_DISPATCH_MAKESPAN_H
#define PLAN_DISPATCH_MAKESPAN_H

#include "plan/dispatch/turns.h"
#include "plan/route/traffic.h"

typedef struct rank_sum {
    int64_t matrices, sent, received;
    double work;     /* seconds */
    double exchange; /* seconds with members of its teams: nothing hides them */
    double seconds;  /* until it has done and sent everything */
} rank_sum;

/* Of this plan's waves and teams. [nranks]; *out is the caller's to free. */
muon_status muon__makespan_of_ranks(rank_sum **out, const traffic *t, const muon_plan *plan);

/* Of the plan as it is. */
muon_status muon__makespan_of_plan(double *out, const muon_plan *plan);
/* With all waves in flight, and with so many. */
muon_status muon__makespan_of_depths(double *all, double *few, const muon_plan *plan,
                                     int in_flight);

/* Of the plan with other owners, [nitems], in waves of their own. Waves are sized for speed: a budget
 * does not count. */
muon_status muon__makespan_of_owners(muon_scheme_cost *out, const muon_plan *plan,
                                     const patterns *p, const int32_t *owner);
/* The same of ranks in turn, where all replicas work. */
muon_status muon__makespan_of_turns(muon_scheme_cost *out, const turns *t, const patterns *p);

#endif
