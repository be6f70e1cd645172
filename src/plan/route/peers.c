/* Who a rank sends to or receives from in a step. If one rank is another's peer, so is the other its. */
#include "base/binomial.h"
#include "base/memory.h"
#include "plan/route/route.h"

#include <stdlib.h>

static void mark_team(unsigned char *met, const muon_plan *plan, const plan_item *item)
{
    const plan_item *strips = &plan->items[plan->teams[item->team].first];
    for (int k = 0; k < muon__item_shape(plan, item)->size; k++)
        met[strips[k].owner] = 1;
}

static void mark(unsigned char *met, const route *r, const muon_plan *plan)
{
    for (int list = 0; list < ROUTE_ALL_LISTS; list++)
        for (size_t i = 0; i < r->messages[list].first[plan->nwaves]; i++)
            met[r->messages[list].entries[i].peer] = 1;
    for (size_t i = 0; i < r->owned_first[plan->nwaves]; i++) {
        const plan_item *item = &plan->items[r->owned[i]];
        if (item->team != PLAN_NO_TEAM) mark_team(met, plan, item);
    }
    met[muon__binomial_parent(r->rank)] = 1; /* every step begins with an agreement */
    for (int rank = 1; rank < plan->nranks; rank++)
        if (muon__binomial_parent(rank) == r->rank) met[rank] = 1;
    met[r->rank] = 0;
}

muon_status muon__route_peers(int **out, size_t *n, const route *r, const muon_plan *plan)
{
    unsigned char *met = NULL;
    TRY(CALLOC(&met, (size_t)plan->nranks, "peers"));
    mark(met, r, plan);
    *n = 0;
    for (int i = 0; i < plan->nranks; i++)
        *n += met[i];
    muon_status status = CALLOC(out, *n, "peers");
    size_t at = 0;
    for (int i = 0; status == MUON_OK && i < plan->nranks; i++)
        if (met[i]) (*out)[at++] = i;
    free(met);
    return status;
}
