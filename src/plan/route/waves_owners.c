/* Who owns what, and what messages that takes. */
#include "plan/route/waves.h"

#include <stdlib.h>

/* How many elements of a matrix ranks and nodes hold, all replicas together. */
typedef struct held {
    int64_t *rank, *node; /* [nranks], [nodes] */
    int64_t all;
} held;

static void count_held(held *h, const layout *l, const shares *s, int64_t per_node, int sign)
{
    for (size_t i = 0; i < s->n; i++) {
        const share *part = &s->list[i];
        for (int k = 0; k < part->nholders; k++) {
            int rank = k ? muon__layout_holder(l, part->cell, k) : part->holder;
            h->rank[rank] += sign * part->numel;
            h->node[rank / per_node] += sign * part->numel;
            h->all += sign * part->numel;
        }
    }
}

/* Seconds in which its owner sends the result to all who hold it, and receives what it gathers: all of a
 * matrix, of whose replicas one is gathered, or its part of it. */
static double find_seconds(const muon_plan *plan, const held *h, const plan_item *item)
{
    const muon_machine *m = &plan->config.machine;
    int64_t near = h->node[item->owner / m->ranks_per_node];
    double result = (double)(h->all - near) / m->bandwidth +
                    (double)(near - h->rank[item->owner]) / m->node_bandwidth;
    double gathered = (double)muon__item_numel(item) / (double)h->all;
    return result * (sizeof(float) + (double)muon__wire_bytes(plan) * gathered);
}

static muon_status find_pattern(owners *o, const muon_plan *plan, const patterns *p, size_t pattern,
                                held *h, shares *s)
{
    uint32_t param = muon__pattern_param(p, pattern);
    const layout *l = plan->params[param].layout;
    int64_t per_node = plan->config.machine.ranks_per_node;
    size_t first = p->item_first[param], n = p->item_first[param + 1] - first;
    for (size_t j = 0; j < n; j++) {
        if (plan->items[first + j].class == PLAN_IDLE) continue;
        TRY(muon__shares_find(s, plan, first + j));
        count_held(h, l, s, per_node, 1);
        for (size_t k = p->first[pattern]; k < p->first[pattern + 1]; k++) {
            size_t item = p->item_first[p->params[k]] + j;
            o->messages[item] = find_seconds(plan, h, &plan->items[item]);
        }
        count_held(h, l, s, per_node, -1);
    }
    return MUON_OK;
}

static muon_status find_messages(owners *o, const muon_plan *plan, const patterns *p)
{
    held h = {0};
    shares s = {0};
    size_t nranks = (size_t)plan->nranks;
    muon_status status = CALLOC(&o->messages, plan->nitems, "waves");
    if (status == MUON_OK) status = CALLOC(&h.rank, nranks, "waves");
    if (status == MUON_OK)
        status = CALLOC(&h.node, nranks / (size_t)plan->config.machine.ranks_per_node + 1, "waves");
    for (size_t i = 0; i < p->n && status == MUON_OK; i++)
        status = find_pattern(o, plan, p, i, &h, &s);
    free(h.rank);
    free(h.node);
    muon__shares_destroy(&s);
    return status;
}

static muon_status list_owned(owners *o, const muon_plan *plan)
{
    size_t nranks = (size_t)plan->nranks;
    int64_t *floats = NULL;
    TRY(CALLOC(&o->items, plan->nitems, "waves"));
    TRY(CALLOC(&o->first, nranks + 1, "waves"));
    TRY(CALLOC(&floats, nranks, "waves"));
    for (size_t i = 0; i < plan->nitems; i++) {
        const plan_item *item = &plan->items[i];
        if (item->class == PLAN_IDLE) continue;
        int64_t slot = muon__slot_floats(item);
        int64_t *largest = item->team == PLAN_NO_TEAM ? &o->whole : &o->strip;
        if (slot > *largest) *largest = slot;
        o->first[item->owner + 1]++;
        floats[item->owner] += slot;
    }
    for (size_t r = 0; r < nranks; r++) {
        if (o->first[r + 1] > o->most) o->most = o->first[r + 1];
        if (floats[r] > o->floats) o->floats = floats[r];
        o->first[r + 1] += o->first[r];
    }
    free(floats);
    for (size_t i = 0; i < plan->nitems; i++) /* first[r] becomes its end ... */
        if (plan->items[i].class != PLAN_IDLE)
            o->items[o->first[plan->items[i].owner]++] = (uint32_t)i;
    for (size_t r = nranks; r > 0; r--) /* ... which is where the next begins */
        o->first[r] = o->first[r - 1];
    o->first[0] = 0;
    return MUON_OK;
}

muon_status muon__owners_create(owners *out, const muon_plan *plan, const patterns *p)
{
    TRY(list_owned(out, plan));
    return find_messages(out, plan, p);
}

void muon__owners_destroy(owners *o)
{
    free(o->items);
    free(o->first);
    free(o->messages);
}
