#include "plan/dispatch/turns.h"

#include "base/memory.h"

#include <stdlib.h>

static uint32_t seat_of_whole(const seat_group *g, const plan_param *param, const box *whole)
{
    layout_walk walk;
    size_t cell = 0;
    muon__layout_walk(&walk, param->layout, whole);
    muon__layout_next(&walk, &cell);
    return g->seat_of[cell];
}

static muon_status deal_matrices(turns *t, const cost_order *order)
{
    size_t *next = NULL; /* of each group, the seat that is due */
    TRY(CALLOC(&next, t->seats.n, "seats"));
    for (size_t i = 0; i < (size_t)t->plan->cost.matrices; i++) {
        uint32_t item = order->items[i];
        const plan_item *it = &t->plan->items[item];
        const plan_param *param = &t->plan->params[it->param];
        const seat_group *g = &t->seats.list[t->group[item]];
        box whole;
        muon__item_box(&whole, t->plan, it);
        if (muon__layout_count(param->layout, &whole) == 1)
            t->seat[item] = seat_of_whole(g, param, &whole);
        else
            t->seat[item] = (uint32_t)(next[t->group[item]]++ % g->nseats);
    }
    free(next);
    return MUON_OK;
}

static void deal_tensors(turns *t, const patterns *p)
{
    for (size_t i = 0; i < p->n; i++) {
        size_t nseats = t->seats.list[t->seats.of[i]].nseats;
        for (size_t k = p->first[i]; k < p->first[i + 1]; k++)
            for (size_t j = p->item_first[p->params[k]]; j < p->item_first[p->params[k] + 1]; j++)
                t->seat[j] = (uint32_t)((k - p->first[i]) % nseats);
    }
}

muon_status muon__turns_create(turns *out, const muon_plan *plan, const patterns *p,
                               const cost_order *order)
{
    *out = (turns){.plan = plan};
    TRY(muon__seats_create(&out->seats, plan, p));
    TRY(CALLOC(&out->group, plan->nitems, "seats"));
    TRY(CALLOC(&out->seat, plan->nitems, "seats"));
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = p->first[i]; k < p->first[i + 1]; k++)
            for (size_t j = p->item_first[p->params[k]]; j < p->item_first[p->params[k] + 1]; j++)
                out->group[j] = out->seats.of[i];
    for (size_t i = 0; i < out->seats.n; i++)
        for (size_t k = 0; k < out->seats.list[i].nseats; k++) {
            int replicas = muon__seat_replicas(&out->seats.list[i], k);
            if (replicas > out->replicas) out->replicas = replicas;
        }
    if (order) return deal_matrices(out, order);
    deal_tensors(out, p);
    return MUON_OK;
}

void muon__turns_destroy(turns *t)
{
    muon__seats_destroy(&t->seats);
    free(t->group);
    free(t->seat);
}
