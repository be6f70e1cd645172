/* Two schemes in use, for comparison. Both work inside the groups of ranks that shard a tensor, and
 * where there are replicas each group of them does all of it again. A group has seats: a seat is what
 * the replicas of one rank have in common. */
#include "base/memory.h"
#include "plan/digest.h"
#include "plan/dispatch.h"
#include "plan/predict.h"

#include <math.h>
#include <stdlib.h>

typedef struct seat_load {
    double work, local; /* seconds; of them, on matrices that do not travel */
    double fill;        /* seconds: the fastest gather and scatter of what it gets, or infinite */
    int64_t sent, received; /* bytes */
} seat_load;

typedef struct group {
    uint64_t hash; /* of the ranks in all seats */
    const layout *l;
    size_t nseats;
    size_t *cell;      /* [nseats] one that the seat's ranks hold */
    uint32_t *seat_of; /* [cells] */
    double each;       /* seconds for a byte between a seat and the others */
    seat_load *load;   /* [nseats] */
    size_t next;       /* round robin: the seat that is due */
} group;

typedef struct scheme {
    const muon_plan *plan;
    const patterns *p;
    group *groups;
    size_t ngroups;
    uint32_t *group_of; /* [patterns] */
    int64_t padding;
} scheme;

/* ---- Groups */

static uint64_t hash_holders(const layout *l)
{
    uint64_t hash = MUON__DIGEST_START;
    for (size_t c = 0; c < muon__layout_ncells(l); c++) {
        int n = muon__layout_nholders(l, c);
        for (int i = 0; i < n; i++)
            muon__digest_words(&hash, (const int64_t[]){n, muon__layout_holder(l, c, i)}, 2);
    }
    return hash;
}

/* Ranks that hold several cells have one seat: that of the first. */
static muon_status make_seats(group *g, int nranks)
{
    size_t ncells = muon__layout_ncells(g->l);
    TRY(CALLOC(&g->cell, ncells, "seats"));
    TRY(CALLOC(&g->seat_of, ncells, "seats"));
    uint32_t *seat_of_rank = NULL; /* plus 1 */
    TRY(CALLOC(&seat_of_rank, (size_t)nranks, "seats"));
    for (size_t c = 0; c < ncells; c++) {
        int rank = muon__layout_holder(g->l, c, 0);
        if (seat_of_rank[rank] == 0) {
            g->cell[g->nseats++] = c;
            seat_of_rank[rank] = (uint32_t)g->nseats;
        }
        g->seat_of[c] = seat_of_rank[rank] - 1;
    }
    free(seat_of_rank);
    TRY(CALLOC(&g->load, g->nseats, "seats"));
    for (size_t k = 0; k < g->nseats; k++)
        g->load[k].fill = HUGE_VAL;
    return MUON_OK;
}

static double seconds_per_byte(const muon_machine *machine, const group *g)
{
    int64_t near = 0, all = (int64_t)g->nseats - 1;
    int64_t node = muon__layout_holder(g->l, g->cell[0], 0) / machine->ranks_per_node;
    for (size_t i = 1; i < g->nseats; i++)
        near += muon__layout_holder(g->l, g->cell[i], 0) / machine->ranks_per_node == node;
    double same_node = all ? (double)near / (double)all : 1;
    return same_node / machine->node_bandwidth + (1 - same_node) / machine->bandwidth;
}

static muon_status make_groups(scheme *s)
{
    TRY(CALLOC(&s->groups, s->p->n, "groups of ranks"));
    TRY(CALLOC(&s->group_of, s->p->n, "groups of ranks"));
    for (size_t i = 0; i < s->p->n; i++) {
        const layout *l = s->plan->params[muon__pattern_param(s->p, i)].layout;
        uint64_t hash = hash_holders(l);
        size_t g = 0;
        while (g < s->ngroups && s->groups[g].hash != hash)
            g++;
        s->group_of[i] = (uint32_t)g;
        if (g < s->ngroups) continue;
        s->groups[g] = (group){.hash = hash, .l = l};
        s->ngroups++;
        TRY(make_seats(&s->groups[g], s->plan->nranks));
        s->groups[g].each = seconds_per_byte(&s->plan->config.machine, &s->groups[g]);
    }
    return MUON_OK;
}

static void destroy(scheme *s)
{
    for (size_t i = 0; i < s->ngroups; i++) {
        free(s->groups[i].cell);
        free(s->groups[i].seat_of);
        free(s->groups[i].load);
    }
    free(s->groups);
    free(s->group_of);
}

/* From seats to ranks, which may sit in several groups, and to the worst of them. A rank that opens and
 * closes with what travels fastest waits for that, unless local work fills the time. */
static muon_status finish(muon_scheme *out, const scheme *s)
{
    struct {
        rank_load load;
        double fill, local;
    } *ranks = NULL;
    TRY(CALLOC(&ranks, (size_t)s->plan->nranks, "loads"));
    for (int r = 0; r < s->plan->nranks; r++)
        ranks[r].fill = HUGE_VAL;
    for (size_t i = 0; i < s->ngroups; i++) {
        const group *g = &s->groups[i];
        for (size_t k = 0; k < g->nseats; k++) {
            const seat_load *seat = &g->load[k];
            rank_load more = {.work = seat->work,
                              .in = (double)seat->received * g->each,
                              .out = (double)seat->sent * g->each,
                              .bytes = seat->sent + seat->received};
            int n = muon__layout_nholders(g->l, g->cell[k]);
            for (int h = 0; h < n; h++) {
                int rank = muon__layout_holder(g->l, g->cell[k], h);
                muon__load_add(&ranks[rank].load, &more);
                ranks[rank].local += seat->local;
                ranks[rank].fill = fmin(ranks[rank].fill, seat->fill);
            }
        }
    }
    *out = (muon_scheme){.padding_bytes = s->padding};
    for (int r = 0; r < s->plan->nranks; r++) {
        double seconds = muon__load_seconds(&ranks[r].load);
        if (isfinite(ranks[r].fill)) seconds += fmax(0, ranks[r].fill - ranks[r].local);
        out->makespan = fmax(out->makespan, seconds);
        if (ranks[r].load.bytes > out->bytes_max) out->bytes_max = ranks[r].load.bytes;
    }
    free(ranks);
    return MUON_OK;
}

/* ---- Padded */

static double tensor_seconds(const scheme *s, uint32_t param)
{
    double flops = 0;
    for (size_t i = s->p->item_first[param]; i < s->p->item_first[param + 1]; i++)
        if (s->plan->items[i].class != PLAN_IDLE)
            flops += s->plan->classes[s->plan->items[i].class].flops;
    return flops / s->plan->config.machine.flops;
}

static void pad_pattern(scheme *s, size_t pattern)
{
    uint32_t param = muon__pattern_param(s->p, pattern);
    const layout *l = s->plan->params[param].layout;
    group *g = &s->groups[s->group_of[pattern]];
    int64_t seats = (int64_t)g->nseats, largest = 0, held = 0;
    int64_t both_ways = muon__wire_bytes(s->plan) + (int64_t)sizeof(float);
    int64_t count = (int64_t)(s->p->first[pattern + 1] - s->p->first[pattern]);
    int64_t batches = (count + seats - 1) / seats, last = count - (batches - 1) * seats;
    for (int64_t k = 0; k < seats; k++) {
        int64_t numel = muon__layout_numel_of(l, muon__layout_holder(l, g->cell[k], 0));
        if (numel > largest) largest = numel;
        held += numel * (batches - (k >= last)); /* of the tensors that it gets, there already */
    }
    double seconds = (double)batches * tensor_seconds(s, param);
    int64_t bytes = batches * (seats - 1) * largest * both_ways;
    double fill = (double)((seats - 1) * largest * both_ways) * g->each;
    for (int64_t k = 0; k < seats; k++) {
        g->load[k].work += seconds;
        g->load[k].sent += bytes;
        g->load[k].received += bytes;
        g->load[k].fill = fmin(g->load[k].fill, fill);
    }
    int64_t useful = (count * s->plan->params[param].numel - held) * both_ways;
    s->padding += (bytes * seats - useful) * muon__layout_nholders(l, g->cell[0]);
}

static muon_status pad(muon_scheme *out, scheme *s)
{
    TRY(make_groups(s));
    for (size_t i = 0; i < s->p->n; i++)
        pad_pattern(s, i);
    return finish(out, s);
}

muon_status muon__predict_padded(muon_scheme *out, const muon_plan *plan, const patterns *p)
{
    scheme s = {.plan = plan, .p = p};
    muon_status status = pad(out, &s);
    destroy(&s);
    return status;
}

/* ---- Round robin */

/* The seat of every matrix. */
static void deal(uint32_t *seat, scheme *s, const cost_order *order, const uint32_t *pattern_of)
{
    for (size_t i = 0; i < (size_t)s->plan->cost.matrices; i++) {
        uint32_t item = order->items[i];
        const plan_item *it = &s->plan->items[item];
        const plan_param *param = &s->plan->params[it->param];
        group *g = &s->groups[s->group_of[pattern_of[it->param]]];
        box whole;
        muon__fold_item(&whole, &param->fold, param->shape, param->ndim, it->batch, &it->rows,
                        &it->cols);
        double seconds = s->plan->classes[it->class].flops / s->plan->config.machine.flops;
        if (muon__layout_count(param->layout, &whole) == 1) {
            layout_walk walk;
            size_t cell = 0;
            muon__layout_walk(&walk, param->layout, &whole);
            muon__layout_next(&walk, &cell);
            seat[item] = g->seat_of[cell];
            g->load[seat[item]].local += seconds;
        } else {
            seat[item] = (uint32_t)(g->next++ % g->nseats);
        }
        g->load[seat[item]].work += seconds;
    }
}

/* Counts what travels of one matrix of a pattern, for all its parameters. */
static void count_bytes(scheme *s, size_t pattern, size_t row, const shares *found,
                        const uint32_t *seat)
{
    group *g = &s->groups[s->group_of[pattern]];
    int64_t wire = muon__wire_bytes(s->plan);
    for (size_t k = s->p->first[pattern]; k < s->p->first[pattern + 1]; k++) {
        seat_load *owner = &g->load[seat[s->p->item_first[s->p->params[k]] + row]];
        int64_t travels = 0;
        for (size_t i = 0; i < found->n; i++) {
            seat_load *holder = &g->load[g->seat_of[found->list[i].cell]];
            int64_t numel = found->list[i].numel;
            if (holder == owner) continue;
            holder->sent += numel * wire;
            holder->received += numel * (int64_t)sizeof(float);
            travels += numel;
        }
        owner->received += travels * wire;
        owner->sent += travels * (int64_t)sizeof(float);
        double seconds = (double)(travels * (wire + (int64_t)sizeof(float))) * g->each;
        if (travels) owner->fill = fmin(owner->fill, seconds);
    }
}

static muon_status deal_and_count(muon_scheme *out, scheme *s, const cost_order *order,
                                  uint32_t *seat, uint32_t *pattern_of, shares *found)
{
    TRY(make_groups(s));
    for (size_t i = 0; i < s->p->n; i++)
        for (size_t k = s->p->first[i]; k < s->p->first[i + 1]; k++)
            pattern_of[s->p->params[k]] = (uint32_t)i;
    deal(seat, s, order, pattern_of);
    for (size_t i = 0; i < s->p->n; i++) {
        uint32_t param = muon__pattern_param(s->p, i);
        size_t first = s->p->item_first[param], end = s->p->item_first[param + 1];
        for (size_t item = first; item < end; item++) {
            if (s->plan->items[item].class == PLAN_IDLE) continue;
            TRY(muon__shares_find(found, s->plan, item));
            count_bytes(s, i, item - first, found, seat);
        }
    }
    return finish(out, s);
}

muon_status muon__predict_round_robin(muon_scheme *out, const muon_plan *plan, const patterns *p)
{
    scheme s = {.plan = plan, .p = p};
    cost_order order = {0};
    shares found = {0};
    uint32_t *seat = NULL, *pattern_of = NULL;
    muon_status status = CALLOC(&seat, plan->nitems, "seats");
    if (status == MUON_OK) status = CALLOC(&pattern_of, plan->nparams, "seats");
    if (status == MUON_OK) status = muon__cost_order_create(&order, plan);
    if (status == MUON_OK) status = deal_and_count(out, &s, &order, seat, pattern_of, &found);
    free(seat);
    free(pattern_of);
    muon__cost_order_destroy(&order);
    muon__shares_destroy(&found);
    destroy(&s);
    return status;
}
