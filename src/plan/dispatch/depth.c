/* How many waves are in flight, if nobody says so: few, which saves memory, unless that makes the step
 * longer. A rank with a costly matrix, or a team's, is late for a while with what it sends and with its
 * results; with few waves in flight all others soon wait for it. Of many ranks with many matrices there is
 * always one that is late: such a plan does not try, to be made in time. */
#include "plan/dispatch/makespan.h"
#include "plan/route/waves.h"

/* Matrices times ranks. */
enum { MOST_TRIED = 1 << 24 };

/* Times the step with all waves in flight: what the memory is worth. */
static const double WORTH_MEMORY = 1.02;

static muon_status compare(muon_plan *plan)
{
    double all, usual;
    TRY(muon__makespan_of_depths(&all, &usual, plan, USUAL_DEPTH));
    if (usual <= all * WORTH_MEMORY) plan->in_flight = USUAL_DEPTH;
    return MUON_OK;
}

/* A plan that could not afford all of its waves has few of them in flight already. */
muon_status muon__plan_choose_depth(muon_plan *plan)
{
    if (plan->nranks == 1 || plan->nwaves == 1 || plan->in_flight != 0) return MUON_OK;
    return plan->cost.matrices * plan->nranks > MOST_TRIED ? MUON_OK : compare(plan);
}
