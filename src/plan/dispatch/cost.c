#include "base/memory.h"
#include "plan/dispatch/dispatch.h"

#include <stdlib.h>

/* ---- Costs */

/* Of what other ranks hold, the part that is sent to the owner: one of several replicas sends. */
static double sent_part(const holding_row *row, int64_t own)
{
    if (row->total == row->numel) return 1;
    return row->total > own ? (double)(row->numel - own) / (double)(row->total - own) : 0;
}

static rank_load owner_of_many(const cost_model *m, const holding_row *row, int owner)
{
    int64_t own =
        (int64_t)((double)row->shards[owner] * (double)row->numel / (double)row->param_numel);
    int64_t replicas = row->total / row->numel;
    /* The base counts its own part as sent and received by it, which does not happen. */
    int64_t in = (row->numel - own) * m->wire - own * (int64_t)sizeof(float);
    int64_t out = (row->total - own) * (int64_t)sizeof(float) - own * m->wire / replicas;
    return (rank_load){
        .in = (double)in * m->average, .out = (double)out * m->average, .bytes = in + out};
}

/* For an owner that holds `own` elements, in a node that holds `near` of them. */
static rank_load owner_of_few(const cost_model *m, const holding_row *row, int64_t own,
                              int64_t near)
{
    double seconds = (double)(near - own) * m->near + (double)(row->total - near) * m->far;
    double in = (double)m->wire * sent_part(row, own);
    return (rank_load){.in = in * seconds,
                       .out = sizeof(float) * seconds,
                       .bytes = (int64_t)((in + sizeof(float)) * (double)(row->total - own))};
}

static rank_load add_work(const cost_model *m, size_t item, rank_load cost)
{
    cost.work = m->work[m->plan->items[item].class];
    return cost;
}

rank_load muon__cost_of_keeper(const cost_model *m, size_t item, size_t i)
{
    const holding_row *row = &m->rows[m->row_of[item]];
    const holding *h = &m->holdings[row->first + i];
    return add_work(m, item, owner_of_few(m, row, h->numel, h->node_numel));
}

rank_load muon__cost_of_owner(const cost_model *m, size_t item, int owner)
{
    const holding_row *row = &m->rows[m->row_of[item]];
    if (row->n == 0) return add_work(m, item, owner_of_many(m, row, owner));
    int64_t own = 0, near = 0;
    for (uint32_t i = 0; i < row->n; i++) {
        const holding *h = &m->holdings[row->first + i];
        if (h->rank == owner) own = h->numel;
        if (m->node[h->rank] == m->node[owner]) near = h->node_numel;
    }
    return add_work(m, item, owner_of_few(m, row, own, near));
}

rank_load muon__cost_of_holder(const cost_model *m, size_t item, int owner, size_t i)
{
    const holding_row *row = &m->rows[m->row_of[item]];
    const holding *holdings = m->holdings + row->first, *h = &holdings[i];
    int64_t own = 0;
    for (uint32_t k = 0; row->total > row->numel && k < row->n; k++)
        if (holdings[k].rank == owner) own = holdings[k].numel;
    double each = m->node[owner] == m->node[h->rank] ? m->near : m->far;
    double out = (double)(h->numel * m->wire) * sent_part(row, own);
    int64_t in = h->numel * (int64_t)sizeof(float);
    return (rank_load){.in = (double)in * each, .out = out * each, .bytes = in + (int64_t)out};
}

/* ---- Where everything is */

/* Holdings of an item by rank, if there are few; a rank may hold several cells of it. */
static size_t list_holdings(holding *out, const layout *l, const shares *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        for (int k = 0; k < s->list[i].nholders; k++) {
            int rank = muon__layout_holder(l, s->list[i].cell, k);
            size_t at = 0;
            while (at < n && out[at].rank != rank)
                at++;
            if (at == FEW_HOLDERS) return 0;
            if (at == n) out[n++] = (holding){.rank = rank};
            out[at].numel += s->list[i].numel;
        }
    }
    for (size_t i = 1; i < n; i++) {
        holding moved = out[i];
        size_t at = i;
        for (; at > 0 && out[at - 1].rank > moved.rank; at--)
            out[at] = out[at - 1];
        out[at] = moved;
    }
    return n;
}

typedef struct rows_maker {
    cost_model *m;
    shares shares;
    size_t nholdings, capacity;
} rows_maker;

static muon_status grow(rows_maker *maker)
{
    if (maker->nholdings + FEW_HOLDERS <= maker->capacity) return MUON_OK;
    size_t larger = 2 * maker->capacity + (size_t)64 * FEW_HOLDERS;
    void *moved = realloc(maker->m->holdings, larger * sizeof(holding));
    REQUIRE(moved, E_NOMEM, "holders: no memory for %zu of them", larger);
    maker->m->holdings = moved;
    maker->capacity = larger;
    return MUON_OK;
}

static muon_status make_row(rows_maker *maker, holding_row *row, size_t item)
{
    const muon_plan *plan = maker->m->plan;
    const plan_item *it = &plan->items[item];
    const plan_param *param = &plan->params[it->param];
    int64_t numel = muon__item_numel(it);
    *row = (holding_row){.numel = numel,
                         .total = numel * muon__layout_nholders(param->layout, 0),
                         .param_numel = param->numel};
    box whole;
    muon__item_box(&whole, plan, it);
    if (muon__layout_count(param->layout, &whole) > FEW_HOLDERS) return MUON_OK;
    TRY(grow(maker));
    TRY(muon__shares_find(&maker->shares, plan, item));
    holding *found = maker->m->holdings + maker->nholdings;
    size_t n = list_holdings(found, param->layout, &maker->shares);
    if (n == 0) return MUON_OK;
    row->first = (uint32_t)maker->nholdings;
    row->n = (uint32_t)n;
    row->total = 0;
    for (size_t i = 0; i < n; i++) {
        row->total += found[i].numel;
        for (size_t k = 0; k < n; k++)
            if (maker->m->node[found[k].rank] == maker->m->node[found[i].rank])
                found[i].node_numel += found[k].numel;
    }
    maker->nholdings += n;
    return MUON_OK;
}

/* What the holders of a pattern's matrices with many of them send and receive in any case. */
static void add_base(cost_model *m, const layout *l, int64_t *shards, double part, double count)
{
    double replicas = muon__layout_nholders(l, 0);
    for (int r = 0; r < m->plan->nranks; r++) {
        shards[r] = muon__layout_numel_of(l, r);
        double numel = (double)shards[r] * part * count;
        double in = numel * sizeof(float), out = numel * (double)m->wire / replicas;
        muon__load_add(&m->base[r], &(rank_load){.in = in * m->average,
                                                 .out = out * m->average,
                                                 .bytes = (int64_t)(in + out)});
    }
}

static muon_status make_rows(rows_maker *maker)
{
    cost_model *m = maker->m;
    const patterns *p = &m->patterns;
    size_t nranks = (size_t)m->plan->nranks, nrows = 0;
    for (size_t i = 0; i < p->n; i++) {
        uint32_t param = muon__pattern_param(p, i);
        nrows += p->item_first[param + 1] - p->item_first[param];
    }
    TRY(CALLOC(&m->rows, nrows, "holders"));
    TRY(CALLOC(&m->shards, p->n * nranks, "shards"));
    size_t row = 0;
    for (size_t i = 0; i < p->n; i++) {
        uint32_t param = muon__pattern_param(p, i);
        size_t first = p->item_first[param], n = p->item_first[param + 1] - first;
        int64_t many = 0;
        for (size_t j = 0; j < n; j++) {
            if (m->plan->items[first + j].class == PLAN_IDLE) continue;
            TRY(make_row(maker, &m->rows[row + j], first + j));
            if (m->rows[row + j].n) continue;
            m->rows[row + j].shards = m->shards + i * nranks;
            many += m->rows[row + j].numel;
        }
        const plan_param *standing = &m->plan->params[param];
        if (many)
            add_base(m, standing->layout, m->shards + i * nranks,
                     (double)many / (double)standing->numel,
                     (double)(p->first[i + 1] - p->first[i]));
        for (size_t k = p->first[i]; k < p->first[i + 1]; k++)
            for (size_t j = 0; j < n; j++)
                m->row_of[p->item_first[p->params[k]] + j] = (uint32_t)(row + j);
        row += n;
    }
    return MUON_OK;
}

static muon_status make(cost_model *m)
{
    const muon_plan *plan = m->plan;
    const muon_machine *machine = &plan->config.machine;
    TRY(muon__patterns_create(&m->patterns, plan));
    TRY(CALLOC(&m->row_of, plan->nitems, "holders"));
    TRY(CALLOC(&m->work, plan->nclasses, "shapes"));
    TRY(CALLOC(&m->base, (size_t)plan->nranks, "loads"));
    TRY(CALLOC(&m->node, (size_t)plan->nranks, "loads"));
    for (int r = 0; r < plan->nranks; r++)
        m->node[r] = (int)(r / machine->ranks_per_node);
    for (size_t i = 0; i < plan->nclasses; i++)
        m->work[i] = plan->classes[i].flops / machine->flops;
    m->wire = muon__wire_bytes(plan);
    m->near = 1 / machine->node_bandwidth;
    m->far = 1 / machine->bandwidth;
    double same_node =
        machine->ranks_per_node < plan->nranks ? (double)machine->ranks_per_node / plan->nranks : 1;
    m->average = same_node * m->near + (1 - same_node) * m->far;
    rows_maker maker = {.m = m};
    muon_status status = make_rows(&maker);
    muon__shares_destroy(&maker.shares);
    return status;
}

muon_status muon__cost_model_create(cost_model *out, const muon_plan *plan)
{
    *out = (cost_model){.plan = plan};
    return make(out);
}

void muon__cost_model_destroy(cost_model *m)
{
    muon__patterns_destroy(&m->patterns);
    free(m->rows);
    free(m->row_of);
    free(m->holdings);
    free(m->shards);
    free(m->work);
    free(m->base);
    free(m->node);
}
