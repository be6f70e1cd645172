#include "base/memory.h"
#include "plan/dispatch/dispatch.h"
#include "plan/route/relays.h"

#include <stdlib.h>

/* ---- Costs */

/* Of what other ranks hold, the part that is sent to the owner: one of several replicas sends. */
static double sent_part(const holding_row *row, int64_t own)
{
    if (row->total == row->numel) return 1;
    return row->total > own ? (double)(row->numel - own) / (double)(row->total - own) : 0;
}

/* Seconds for a byte of a result, to and from other nodes: if it goes to a node once, holders there get
 * most of it from each other. */
static double far_out(const cost_model *m, const holding_row *row)
{
    return row->once * m->far;
}

static double far_in(const cost_model *m, const holding_row *row)
{
    return row->once * m->far + (1 - row->once) * m->near;
}

static double far_passed(const cost_model *m, const holding_row *row)
{
    return (1 - row->once) * m->near;
}

/* To and from any rank. */
static double mean(const cost_model *m, double near, double far)
{
    return m->same_node * near + (1 - m->same_node) * far;
}

/* What holders of `numel` elements send and receive for owners that could be any rank. */
static rank_load holder_of_many(const cost_model *m, const holding_row *row, double numel,
                                double replicas)
{
    double in = numel * sizeof(float), out = numel * (double)m->wire / replicas;
    return (rank_load){.in = in * mean(m, m->near, far_in(m, row)),
                       .out = out * m->average + in * mean(m, 0, far_passed(m, row)),
                       .bytes = (int64_t)(in + out)};
}

static rank_load owner_of_many(const cost_model *m, const holding_row *row, int owner)
{
    int64_t own =
        (int64_t)((double)row->shards[owner] * (double)row->numel / (double)row->param_numel);
    int64_t replicas = row->total / row->numel;
    double in = (double)((row->numel - own) * m->wire);
    double out = (double)(row->total - own) * sizeof(float);
    /* The base counts its own part as sent and received by it, which does not happen. */
    rank_load itself = holder_of_many(m, row, (double)own, (double)replicas);
    return (rank_load){.in = in * m->average - itself.in,
                       .out = out * mean(m, m->near, far_out(m, row)) - itself.out,
                       .bytes = (int64_t)(in + out) - itself.bytes};
}

/* For an owner that holds `own` elements, in a node that holds `near` of them. */
static rank_load owner_of_few(const cost_model *m, const holding_row *row, int64_t own,
                              int64_t near)
{
    double inside = (double)(near - own) * m->near, outside = (double)(row->total - near);
    double in = (double)m->wire * sent_part(row, own);
    return (rank_load){.in = in * (inside + outside * m->far),
                       .out = sizeof(float) * (inside + outside * far_out(m, row)),
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
    int near = m->node[owner] == m->node[h->rank];
    double out = (double)(h->numel * m->wire) * sent_part(row, own);
    int64_t in = h->numel * (int64_t)sizeof(float);
    return (rank_load){.in = (double)in * (near ? m->near : far_in(m, row)),
                       .out = out * (near ? m->near : m->far) +
                              (near ? 0 : (double)in * far_passed(m, row)),
                       .bytes = in + (int64_t)out};
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
    cell_holders holders;
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

/* As of the first cell. */
static muon_status find_once(rows_maker *maker, holding_row *row, const layout *l)
{
    const cost_model *m = maker->m;
    if (!m->plan->results_once || !muon__layout_has_replicas(l)) return MUON_OK;
    TRY(muon__cell_holders_find(&maker->holders, l, 0));
    int n = maker->holders.n, nodes = 0;
    for (int at = 0; at < n; nodes++)
        at += muon__mates_at(m->plan, maker->holders.ranks, n, at).n;
    row->once = (double)nodes / n;
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
                         .once = 1,
                         .param_numel = param->numel};
    TRY(find_once(maker, row, param->layout));
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
static void add_base(cost_model *m, const layout *l, const holding_row *row, int64_t *shards,
                     double part)
{
    for (int r = 0; r < m->plan->nranks; r++) {
        shards[r] = muon__layout_numel_of(l, r);
        rank_load each =
            holder_of_many(m, row, (double)shards[r] * part, muon__layout_nholders(l, 0));
        muon__load_add(&m->base[r], &each);
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
        const holding_row *last = NULL; /* of those with many holders */
        int64_t many = 0;
        for (size_t j = 0; j < n; j++) {
            if (m->plan->items[first + j].class == PLAN_IDLE) continue;
            TRY(make_row(maker, &m->rows[row + j], first + j));
            if (m->rows[row + j].n) continue;
            m->rows[row + j].shards = m->shards + i * nranks;
            last = &m->rows[row + j];
            many += last->numel;
        }
        const plan_param *standing = &m->plan->params[param];
        if (last)
            add_base(m, standing->layout, last, m->shards + i * nranks,
                     (double)many / (double)standing->numel *
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
    m->same_node =
        machine->ranks_per_node < plan->nranks ? (double)machine->ranks_per_node / plan->nranks : 1;
    m->average = mean(m, m->near, m->far);
    rows_maker maker = {.m = m};
    muon_status status = make_rows(&maker);
    muon__shares_destroy(&maker.shares);
    muon__cell_holders_free(&maker.holders);
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
