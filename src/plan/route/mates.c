/* Which ranks get a result together, and through whom. */
#include "base/memory.h"
#include "plan/route/relays.h"
#include "plan/route/shares.h"

#include <stdlib.h>

/* ---- The holders of a cell */

static int ascending(const void *a, const void *b)
{
    const int *ra = a, *rb = b;
    return (*ra > *rb) - (*ra < *rb);
}

static muon_status make_room(cell_holders *h, int n)
{
    if (n <= h->capacity) return MUON_OK;
    free(h->ranks);
    *h = (cell_holders){0};
    TRY(CALLOC(&h->ranks, (size_t)n, "holders"));
    h->capacity = n;
    return MUON_OK;
}

muon_status muon__cell_holders_find(cell_holders *h, const layout *l, size_t cell)
{
    if (h->l == l && h->cell == cell) return MUON_OK;
    int n = muon__layout_nholders(l, cell), sorted = 1;
    h->l = NULL;
    TRY(make_room(h, n));
    for (int i = 0; i < n; i++) {
        h->ranks[i] = muon__layout_holder(l, cell, i);
        sorted &= i == 0 || h->ranks[i] > h->ranks[i - 1];
    }
    if (!sorted) qsort(h->ranks, (size_t)n, sizeof *h->ranks, ascending);
    h->l = l;
    h->cell = cell;
    h->n = n;
    return MUON_OK;
}

void muon__cell_holders_free(cell_holders *h)
{
    free(h->ranks);
}

/* ---- Mates */

mates muon__mates_at(const muon_plan *plan, const int *ranks, int n, int at)
{
    int end = at + 1;
    int64_t node = muon__node_of(plan, ranks[at]);
    if (plan->config.machine.ranks_per_node <= RELAY_MATES)
        while (end < n && muon__node_of(plan, ranks[end]) == node)
            end++;
    return (mates){ranks + at, end - at};
}

mates muon__mates_of(const muon_plan *plan, const cell_holders *h, int holder)
{
    int at = 0;
    mates m = {0};
    do {
        m = muon__mates_at(plan, h->ranks, h->n, at);
        at += m.n;
    } while (m.ranks[m.n - 1] < holder);
    return m;
}

/* Of a node, the ranks in it are bits; where there are more, mates are alone. */
uint64_t muon__mates_key(const muon_plan *plan, const mates *m)
{
    int64_t per_node = plan->config.machine.ranks_per_node;
    uint64_t key = 0;
    if (per_node > RELAY_MATES) return (uint64_t)(m->ranks[0] % per_node);
    for (int i = 0; i < m->n; i++)
        key |= (uint64_t)1 << (m->ranks[i] % per_node);
    return key;
}

static muon_status some_have_mates(int *found, const muon_plan *plan, const patterns *p)
{
    cell_holders h = {0};
    muon_status status = MUON_OK;
    for (size_t i = 0; i < p->n && !*found; i++) {
        const layout *l = plan->params[muon__pattern_param(p, i)].layout;
        size_t ncells = muon__layout_has_replicas(l) ? muon__layout_ncells(l) : 0;
        for (size_t cell = 0; cell < ncells && !*found && status == MUON_OK; cell++) {
            status = muon__cell_holders_find(&h, l, cell);
            for (int at = 0; status == MUON_OK && at < h.n && !*found; at++)
                *found = muon__mates_at(plan, h.ranks, h.n, at).n > 1;
        }
    }
    muon__cell_holders_free(&h);
    return status;
}

muon_status muon__mates_pay(int *pay, const muon_plan *plan)
{
    const muon_machine *m = &plan->config.machine;
    patterns p = {0};
    *pay = 0;
    if (plan->nranks <= m->ranks_per_node || m->node_bandwidth <= m->bandwidth ||
        plan->config.path == MUON_PATH_REFERENCE)
        return MUON_OK;
    TRY(muon__patterns_create(&p, plan));
    muon_status status = some_have_mates(pay, plan, &p);
    muon__patterns_destroy(&p);
    return status;
}

int muon__scatter_relay(const muon_plan *plan, int owner, const mates *m)
{
    if (!muon__has_relays(plan)) return RELAY_NONE;
    int64_t node = muon__node_of(plan, m->ranks[0]);
    if (node == muon__node_of(plan, owner)) return RELAY_NONE;
    if (muon__is_relayed(plan, node, owner)) {
        int relay = muon__relay_at(plan, node, owner);
        return m->n == 1 && m->ranks[0] == relay ? RELAY_NONE : relay;
    }
    if (!plan->results_once || m->n == 1) return RELAY_NONE;
    return m->ranks[owner % plan->config.machine.ranks_per_node % m->n];
}
