#include "plan/dispatch/priced.h"

#include <float.h>
#include <string.h>

/* Of a second on a rank without load; at the target it is 1 more. */
static const double PRICE_OF_NOTHING = 0.02;
/* Where messages take longer than work, work still counts a little. */
static const double WORK_WEIGHT = 1.0 / 64;

typedef struct market {
    const cost_model *m;
    rank_load *load;
    load_tree *tree;
    double target;
} market;

/* So steep that the fullest rank counts, not the mean: the 32nd power. */
static double price(const market *k, double load)
{
    double power = load / k->target;
    for (int i = 0; i < 5; i++)
        power *= power;
    return PRICE_OF_NOTHING + power;
}

static void add(market *k, int rank, const rank_load *cost)
{
    muon__load_add(&k->load[rank], cost);
    muon__load_tree_set(k->tree, rank,
                        muon__load_seconds(&k->load[rank]) + WORK_WEIGHT * k->load[rank].work);
}

/* What a matrix would cost the holders, if its owner were far, in prices of a byte. */
typedef struct bill {
    uint32_t n;                  /* holders */
    double all;                  /* of them */
    double each[FEW_HOLDERS];    /* of each, */
    double in_node[FEW_HOLDERS]; /* and with those of its node */
} bill;

static void make_bill(bill *b, const market *k, const holding_row *row)
{
    const holding *h = k->m->holdings + row->first;
    double sent = (double)k->m->wire * (double)row->numel / (double)row->total;
    b->n = row->n;
    b->all = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const rank_load *l = &k->load[h[i].rank];
        b->each[i] =
            (double)h[i].numel * (sizeof(float) * price(k, l->in) + sent * price(k, l->out));
        b->all += b->each[i];
    }
    /* Holders are sorted by rank, so those of a node follow each other. */
    for (uint32_t first = 0, end; first < b->n; first = end) {
        double sum = b->each[first];
        for (end = first + 1; end < b->n && k->m->node[h[end].rank] == k->m->node[h[first].rank];
             end++)
            sum += b->each[end];
        for (uint32_t i = first; i < end; i++)
            b->in_node[i] = sum;
    }
}

typedef struct offer {
    int rank;
    rank_load cost;
    double price;
} offer;

/* near, own: of the bill, what is in the owner's node, and on itself. */
static void consider(const market *k, offer *best, int rank, rank_load cost, const bill *b,
                     double near, double own)
{
    const rank_load *l = &k->load[rank];
    double total = (b->all - near) * k->m->far + (near - own) * k->m->near +
                   cost.work * price(k, l->work) + cost.in * price(k, l->in) +
                   cost.out * price(k, l->out);
    if (total < best->price) *best = (offer){rank, cost, total};
}

static void consider_other(const market *k, offer *best, size_t item, int rank, const bill *b)
{
    const holding_row *row = &k->m->rows[k->m->row_of[item]];
    const holding *h = k->m->holdings + row->first;
    double near = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        if (h[i].rank == rank) return; /* holders have been considered */
        if (k->m->node[h[i].rank] == k->m->node[rank]) near = b->in_node[i];
    }
    consider(k, best, rank, muon__cost_of_owner(k->m, item, rank), b, near, 0);
}

static int least_of_node(const market *k, int rank)
{
    int64_t per_node = k->m->plan->config.machine.ranks_per_node;
    int64_t begin = rank / per_node * per_node, end = begin + per_node;
    if (end > k->m->plan->nranks) end = k->m->plan->nranks;
    return muon__load_tree_least_of(k->tree, (int)begin, (int)end);
}

static offer find_owner(const market *k, size_t item)
{
    const holding_row *row = &k->m->rows[k->m->row_of[item]];
    offer best = {.price = DBL_MAX};
    int least = muon__load_tree_least(k->tree);
    bill b;
    if (row->n == 0) return (offer){least, muon__cost_of_owner(k->m, item, least), 0};
    make_bill(&b, k, row);
    for (uint32_t i = 0; i < row->n; i++)
        consider(k, &best, k->m->holdings[row->first + i].rank, muon__cost_of_keeper(k->m, item, i),
                 &b, b.in_node[i], b.each[i]);
    for (uint32_t i = 0; i < row->n; i++) {
        const holding *h = k->m->holdings + row->first + i;
        if (i == 0 || k->m->node[h->rank] != k->m->node[h[-1].rank])
            consider_other(k, &best, item, least_of_node(k, h->rank), &b);
    }
    consider_other(k, &best, item, least, &b);
    return best;
}

static void place(market *k, size_t item, const offer *owner)
{
    const holding_row *row = &k->m->rows[k->m->row_of[item]];
    add(k, owner->rank, &owner->cost);
    for (uint32_t i = 0; i < row->n; i++) {
        int holder = k->m->holdings[row->first + i].rank;
        if (holder == owner->rank) continue;
        rank_load cost = muon__cost_of_holder(k->m, item, owner->rank, i);
        add(k, holder, &cost);
    }
}

void muon__priced_owners(int32_t *owner, rank_load *load, load_tree *tree, const cost_model *m,
                         const cost_order *order, const unsigned char *shared, double target)
{
    market k = {.m = m, .load = load, .tree = tree, .target = target};
    int nranks = m->plan->nranks;
    memcpy(load, m->base, (size_t)nranks * sizeof *load);
    for (int r = 0; r < nranks; r++)
        tree->load[r] = muon__load_seconds(&load[r]) + WORK_WEIGHT * load[r].work;
    muon__load_tree_reset(tree, tree->load);
    for (size_t i = 0; i < (size_t)m->plan->cost.matrices; i++) {
        uint32_t item = order->items[i];
        if (shared[item]) continue;
        offer best = find_owner(&k, item);
        owner[item] = best.rank;
        place(&k, item, &best);
    }
}
