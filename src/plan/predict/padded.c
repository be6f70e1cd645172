/* All-to-all of each shape, padded: a scheme in use, for comparison. It works inside the groups of ranks
 * that shard a tensor, and goes through waves as this plan does: if all that a rank computes is in one
 * of them, nothing hides its messages; else it opens and closes with its smallest batch. */
#include "base/memory.h"
#include "plan/dispatch/dispatch.h"
#include "plan/layout/seats.h"
#include "plan/predict/predict.h"
#include "plan/route/waves.h"

#include <math.h>
#include <stdlib.h>

typedef struct padded_load {
    rank_load load;
    double fill, fill_least; /* seconds: gathers and scatters of all batches, of the fastest one */
    double bytes;            /* sent and received; with padding they need not fit 64 bits */
    int64_t floats;          /* of all tensors that it gets */
} padded_load;

typedef struct padding {
    const muon_plan *plan;
    const patterns *p;
    seat_groups seats;
    double *each;       /* [groups][nranks] */
    padded_load *ranks; /* [nranks] */
    double padding;     /* bytes */
} padding;

/* Seconds for a byte between each rank and all others of its replica of the group, in which seats of an
 * uneven layout may be empty. Returns whether there is such a replica. */
static int find_rates(double *each, int64_t *in_node, const muon_machine *m, const seat_group *g,
                      int replica)
{
    int64_t ranks = 0;
    for (size_t k = 0; k < g->nseats; k++) {
        if (replica >= muon__seat_replicas(g, k)) continue;
        in_node[muon__seat_rank(g, k, replica) / m->ranks_per_node]++;
        ranks++;
    }
    for (size_t k = 0; k < g->nseats; k++) {
        if (replica >= muon__seat_replicas(g, k)) continue;
        int rank = muon__seat_rank(g, k, replica);
        int64_t node = rank / m->ranks_per_node;
        double near = (double)(in_node[node] - 1);
        double same_node = ranks > 1 ? near / (double)(ranks - 1) : 1;
        each[rank] = same_node / m->node_bandwidth + (1 - same_node) / m->bandwidth;
    }
    for (size_t k = 0; k < g->nseats; k++)
        if (replica < muon__seat_replicas(g, k))
            in_node[muon__seat_rank(g, k, replica) / m->ranks_per_node] = 0;
    return ranks > 0;
}

static muon_status find_all_rates(padding *s)
{
    const muon_machine *m = &s->plan->config.machine;
    size_t nranks = (size_t)s->plan->nranks;
    int64_t *in_node = NULL;
    TRY(CALLOC(&s->each, s->seats.n * nranks, "loads"));
    TRY(CALLOC(&in_node, nranks, "loads"));
    for (size_t i = 0; i < s->seats.n; i++)
        for (int k = 0; find_rates(s->each + i * nranks, in_node, m, &s->seats.list[i], k);)
            k++;
    free(in_node);
    return MUON_OK;
}

/* Flops and room of all matrices of a tensor. */
static double measure(int64_t *floats, const padding *s, uint32_t param)
{
    double flops = 0;
    *floats = 0;
    for (size_t i = s->p->item_first[param]; i < s->p->item_first[param + 1]; i++) {
        if (s->plan->items[i].class == PLAN_IDLE) continue;
        const plan_class *class = &s->plan->classes[s->plan->items[i].class];
        flops += class->flops;
        *floats += muon__matrix_floats(class);
    }
    return flops;
}

static void pad_pattern(padding *s, size_t pattern)
{
    uint32_t param = muon__pattern_param(s->p, pattern);
    const layout *l = s->plan->params[param].layout;
    const seat_group *g = &s->seats.list[s->seats.of[pattern]];
    int64_t seats = (int64_t)g->nseats, largest = 0, floats;
    double held = 0;
    int64_t both_ways = muon__wire_bytes(s->plan) + (int64_t)sizeof(float);
    int64_t count = (int64_t)(s->p->first[pattern + 1] - s->p->first[pattern]);
    int64_t batches = (count + seats - 1) / seats, last = count - (batches - 1) * seats;
    for (int64_t k = 0; k < seats; k++) {
        int64_t numel = muon__layout_numel_of(l, muon__seat_rank(g, (size_t)k, 0));
        if (numel > largest) largest = numel;
        held += (double)numel *
                (double)(batches - (k >= last)); /* of the tensors that it gets, there already */
    }
    const double *each = s->each + s->seats.of[pattern] * (size_t)s->plan->nranks;
    double work = measure(&floats, s, param) / s->plan->config.machine.flops;
    double bytes =
        (double)(seats - 1) * (double)(largest * both_ways); /* of a batch: sent, and received */
    for (size_t k = 0; k < g->nseats; k++) {
        for (int i = 0; i < muon__seat_replicas(g, k); i++) {
            int rank = muon__seat_rank(g, k, i);
            padded_load *r = &s->ranks[rank];
            double seconds = bytes * each[rank];
            muon__load_add(&r->load, &(rank_load){.work = (double)batches * work,
                                                  .in = (double)batches * seconds,
                                                  .out = (double)batches * seconds});
            r->bytes += 2 * (double)batches * bytes;
            r->fill += (double)batches * seconds;
            r->fill_least = fmin(r->fill_least, seconds);
            r->floats += batches * floats;
        }
    }
    double useful =
        ((double)count * (double)s->plan->params[param].numel - held) * (double)both_ways;
    s->padding +=
        ((double)batches * bytes * (double)seats - useful) * muon__layout_nholders(l, g->cell[0]);
}

static int64_t whole(double bytes)
{
    return bytes < (double)INT64_MAX ? (int64_t)bytes : INT64_MAX;
}

static muon_status pad(muon_scheme_cost *out, padding *s)
{
    TRY(muon__seats_create(&s->seats, s->plan, s->p));
    TRY(find_all_rates(s));
    TRY(CALLOC(&s->ranks, (size_t)s->plan->nranks, "loads"));
    for (int r = 0; r < s->plan->nranks; r++)
        s->ranks[r].fill_least = HUGE_VAL;
    for (size_t i = 0; i < s->p->n; i++)
        pad_pattern(s, i);
    int64_t floats = 0;
    for (int r = 0; r < s->plan->nranks; r++)
        if (s->ranks[r].floats > floats) floats = s->ranks[r].floats;
    *out = (muon_scheme_cost){.padding_bytes = whole(s->padding)};
    for (int r = 0; r < s->plan->nranks; r++) {
        const padded_load *rank = &s->ranks[r];
        double fill = floats <= WAVE_FLOATS ? rank->fill : fmin(rank->fill, rank->fill_least);
        double seconds = fmax(rank->load.work + fill, fmax(rank->load.in, rank->load.out));
        out->makespan = fmax(out->makespan, seconds);
        if (whole(rank->bytes) > out->bytes_max) out->bytes_max = whole(rank->bytes);
    }
    return MUON_OK;
}

muon_status muon__predict_padded(muon_scheme_cost *out, const muon_plan *plan, const patterns *p)
{
    padding s = {.plan = plan, .p = p};
    muon_status status = pad(out, &s);
    muon__seats_destroy(&s.seats);
    free(s.each);
    free(s.ranks);
    return status;
}
