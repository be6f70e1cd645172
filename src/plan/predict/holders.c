#include "plan/predict/holders.h"

#include "base/memory.h"

#include <stdlib.h>

muon_status muon__holders_finder_create(holders_finder *out, const muon_plan *plan, double near,
                                        double far)
{
    size_t nranks = (size_t)plan->nranks;
    *out = (holders_finder){.plan = plan, .near = near, .far = far};
    TRY(CALLOC(&out->held, nranks, "bounds"));
    TRY(CALLOC(&out->held_once, nranks, "bounds"));
    TRY(CALLOC(&out->sorted, nranks, "bounds"));
    return CALLOC(&out->touched, nranks, "bounds");
}

void muon__holders_finder_destroy(holders_finder *f)
{
    muon__shares_destroy(&f->shares);
    muon__cell_holders_free(&f->cell);
    free(f->held);
    free(f->held_once);
    free(f->sorted);
    free(f->touched);
}

static int largest_first(const void *a, const void *b)
{
    const double *na = a, *nb = b;
    return (*na < *nb) - (*na > *nb);
}

static void add_held(holders_finder *f, size_t *n, int at, double numel)
{
    if (f->held[at] == 0) f->touched[(*n)++] = at;
    f->held[at] += numel;
}

/* Sums of the 0, 1, .. TEAM_MAX largest of n in f->sorted. */
static void sum_largest(holders_finder *f, double *sums, size_t n)
{
    qsort(f->sorted, n, sizeof *f->sorted, largest_first);
    sums[0] = 0;
    for (size_t i = 0; i < TEAM_MAX; i++)
        sums[i + 1] = sums[i] + (i < n ? f->sorted[i] : 0);
}

static void sum_held(holders_finder *f, double *sums, const double *held, size_t n)
{
    for (size_t i = 0; i < n; i++)
        f->sorted[i] = held[f->touched[i]];
    sum_largest(f, sums, n);
}

static void forget_held(holders_finder *f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        f->held[f->touched[i]] = f->held_once[f->touched[i]] = 0;
}

static muon_status find_ranks(holders_finder *f, holders *out, const layout *l)
{
    size_t n = 0;
    for (size_t i = 0; i < f->shares.n; i++) {
        const share *s = &f->shares.list[i];
        TRY(muon__cell_holders_find(&f->cell, l, s->cell));
        for (int k = 0; k < s->nholders; k++)
            add_held(f, &n, f->cell.ranks[k], (double)s->numel);
        out->total += (double)s->numel * s->nholders;
    }
    sum_held(f, out->rank, f->held, n);
    forget_held(f, n);
    return MUON_OK;
}

static muon_status find_nodes(holders_finder *f, holders *out, const layout *l)
{
    size_t n = 0;
    for (size_t i = 0; i < f->shares.n; i++) {
        const share *s = &f->shares.list[i];
        TRY(muon__cell_holders_find(&f->cell, l, s->cell));
        int last = -1;
        for (int k = 0; k < s->nholders; k++) {
            int node = (int)(f->cell.ranks[k] / f->plan->config.machine.ranks_per_node);
            add_held(f, &n, node, (double)s->numel);
            if (node == last) continue;
            f->held_once[node] += (double)s->numel;
            out->once += (double)s->numel;
            last = node;
        }
    }
    sum_held(f, out->node, f->held, n);
    sum_held(f, out->node_once, f->held_once, n);
    for (size_t i = 0; i < n; i++)
        f->sorted[i] = f->held_once[f->touched[i]] * f->far - f->held[f->touched[i]] * f->near;
    sum_largest(f, out->saved, n);
    forget_held(f, n);
    return MUON_OK;
}

muon_status muon__holders_find(holders_finder *f, holders *out, size_t item)
{
    const plan_item *it = &f->plan->items[item];
    const layout *l = f->plan->params[it->param].layout;
    TRY(muon__shares_find(&f->shares, f->plan, item));
    *out = (holders){.numel = (double)muon__item_numel(it)};
    TRY(find_ranks(f, out, l));
    return find_nodes(f, out, l);
}
