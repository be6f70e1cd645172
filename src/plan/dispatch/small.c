/* Small plans: where a step has few matrices, and one wave with nothing to hide its messages behind, the
 * dispatcher's rules of thumb can be beaten by chance. But then there is time to try: plain schemes are
 * timed as the whole plan would be, and the best one is taken. */
#include "base/memory.h"
#include "plan/dispatch/makespan.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TRIED = 1 << 16 }; /* matrices times ranks */

/* Less is rounding. */
static const double FASTER = 1e-9;

typedef struct tries {
    const muon_plan *plan;
    const patterns *p;
    int32_t *owner;  /* [nitems] the best so far */
    double makespan; /* with it */
    int32_t *other;  /* [nitems] */
    int *due;        /* [nranks] of a seat, by its first rank: the replica whose turn it is */
} tries;

/* Ranks in turn, and of a seat its replicas. */
static void take_turns(tries *t, const turns *from)
{
    for (int r = 0; r < t->plan->nranks; r++)
        t->due[r] = 0;
    for (size_t i = 0; i < (size_t)t->plan->cost.matrices; i++) {
        uint32_t item = t->plan->matrix_item[i];
        int *due = &t->due[muon__turns_owner(from, item, 0)];
        int32_t owner = muon__turns_owner(from, item, *due);
        if (owner < 0) owner = muon__turns_owner(from, item, *due = 0);
        t->other[item] = owner;
        ++*due;
    }
}

static muon_status try_turns(tries *t, const turns *from)
{
    muon_scheme_cost found;
    take_turns(t, from);
    TRY(muon__makespan_of_owners(&found, t->plan, t->p, t->other));
    if (found.makespan >= t->makespan * (1 - FASTER)) return MUON_OK;
    t->makespan = found.makespan;
    memcpy(t->owner, t->other, t->plan->nitems * sizeof *t->owner);
    return MUON_OK;
}

static muon_status try_all(tries *t, const cost_order *order)
{
    muon_scheme_cost first;
    TRY(CALLOC(&t->other, t->plan->nitems, "owners"));
    TRY(CALLOC(&t->due, (size_t)t->plan->nranks, "loads"));
    TRY(muon__makespan_of_owners(&first, t->plan, t->p, t->owner));
    t->makespan = first.makespan;
    const cost_order *const orders[] = {order, NULL};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        turns from = {0};
        muon_status status = muon__turns_create(&from, t->plan, t->p, orders[i]);
        if (status == MUON_OK) status = try_turns(t, &from);
        muon__turns_destroy(&from);
        TRY(status);
    }
    return MUON_OK;
}

muon_status muon__dispatch_small(int32_t *owner, const muon_plan *plan, const patterns *p,
                                 const cost_order *order)
{
    if (plan->cost.matrices * plan->nranks > MOST_TRIED) return MUON_OK;
    tries t = {.plan = plan, .p = p, .owner = owner};
    muon_status status = try_all(&t, order);
    free(t.other);
    free(t.due);
    return status;
}
