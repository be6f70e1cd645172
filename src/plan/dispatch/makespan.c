#include "plan/dispatch/makespan.h"

#include "plan/route/waves.h"

/* ---- One rank */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double seconds(const muon_machine *m, int64_t bytes, int64_t near)
{
    return (double)near / m->node_bandwidth + (double)(bytes - near) / m->bandwidth;
}

static double exchange_seconds(const muon_machine *m, const wave_traffic *at)
{
    double out = seconds(m, at->team_sent, at->team_sent_near);
    double in = seconds(m, at->team_received, at->team_received_near);
    return larger(out, in) + (double)at->team_rounds * m->latency;
}

/* With relays, a hop inside the node before a gather or after a scatter takes as long as what this rank
 * relays itself. */
static double hop_seconds(const muon_machine *m, int64_t bytes)
{
    return bytes ? seconds(m, bytes, bytes) + m->latency : 0;
}

/* Of an owner: what it gets before it can begin, and what is left when it is done. */
static double gather_seconds(const muon_machine *m, const wave_traffic *at)
{
    return seconds(m, at->gather_received, at->gather_received_near) +
           hop_seconds(m, at->gather_relayed);
}

static double scatter_seconds(const muon_machine *m, const wave_traffic *at)
{
    return seconds(m, at->scatter_sent, at->scatter_sent_near) + hop_seconds(m, at->scatter_passed);
}

/* What a rank has to wait for because no work is there to hide it: the gather of its first wave that
 * needs one, and the scatter of its last. */
static double fill_seconds(const traffic *t, const muon_machine *m, size_t rank)
{
    double fill = 0, work = 0;
    for (size_t w = 0; w < t->nwaves; w++) {
        const wave_traffic *at = muon__traffic_at(t, rank, w);
        double gather = gather_seconds(m, at);
        if (gather > work) fill += gather - work;
        if (gather > 0) break;
        work += at->flops / m->flops;
    }
    work = 0;
    for (size_t w = t->nwaves; w-- > 0;) {
        const wave_traffic *at = muon__traffic_at(t, rank, w);
        double scatter = scatter_seconds(m, at);
        if (scatter > work) fill += scatter - work;
        if (scatter > 0) break;
        work += at->flops / m->flops;
    }
    return fill;
}

rank_sum muon__makespan_of_rank(const traffic *t, const muon_machine *m, size_t rank)
{
    rank_sum sum = {0};
    int64_t sent_near = 0, received_near = 0;
    double longest = 0; /* of the paths through a wave */
    for (size_t w = 0; w < t->nwaves; w++) {
        const wave_traffic *at = muon__traffic_at(t, rank, w);
        double work = at->flops / m->flops, exchange = exchange_seconds(m, at);
        sum.matrices += at->matrices;
        sum.work += work;
        sum.exchange += exchange;
        sum.sent += at->gather_sent + at->scatter_sent + at->gather_relayed + at->scatter_passed;
        sum.received +=
            at->gather_received + at->scatter_received + at->gather_relayed + at->scatter_relayed;
        sent_near += at->gather_sent_near + at->scatter_sent_near + at->scatter_passed;
        received_near += at->gather_received_near + at->scatter_received_near + at->gather_relayed;
        longest = larger(longest, gather_seconds(m, at) + work + exchange + scatter_seconds(m, at));
    }
    double out = seconds(m, sum.sent, sent_near), in = seconds(m, sum.received, received_near);
    double busy = sum.work + sum.exchange + fill_seconds(t, m, rank);
    sum.seconds = larger(larger(busy, longest), larger(out, in));
    for (size_t w = 0; w < t->nwaves; w++) {
        sum.sent += muon__traffic_at(t, rank, w)->team_sent;
        sum.received += muon__traffic_at(t, rank, w)->team_received;
    }
    return sum;
}

/* ---- Other owners */

static void find_worst(muon_scheme_cost *out, const traffic *t, const muon_machine *m)
{
    *out = (muon_scheme_cost){0};
    for (size_t r = 0; r < t->nranks; r++) {
        rank_sum sum = muon__makespan_of_rank(t, m, r);
        if (sum.seconds > out->makespan) out->makespan = sum.seconds;
        if (sum.sent + sum.received > out->bytes_max) out->bytes_max = sum.sent + sum.received;
    }
}

muon_status muon__makespan_of_plan(double *out, const muon_plan *plan)
{
    patterns p = {0};
    traffic t = {0};
    muon_scheme_cost worst = {0};
    TRY(muon__patterns_create(&p, plan));
    muon_status status = muon__traffic_create(&t, plan, &p);
    if (status == MUON_OK) find_worst(&worst, &t, &plan->config.machine);
    muon__traffic_destroy(&t);
    muon__patterns_destroy(&p);
    *out = worst.makespan;
    return status;
}

typedef struct trial {
    muon_plan plan;
    traffic t;
} trial;

static void destroy(trial *t)
{
    muon__plan_free_items(&t->plan);
    muon__traffic_destroy(&t->t);
}

static muon_status try_owners(trial *t, const patterns *p, const int32_t *owner)
{
    for (size_t i = 0; i < (size_t)t->plan.cost.matrices; i++)
        t->plan.items[t->plan.matrix_item[i]].owner = owner[t->plan.matrix_item[i]];
    TRY(muon__waves_for_ranks(&t->plan, p));
    return muon__traffic_create(&t->t, &t->plan, p);
}

muon_status muon__makespan_of_owners(muon_scheme_cost *out, const muon_plan *plan,
                                     const patterns *p, const int32_t *owner)
{
    trial t = {.t = {0}};
    muon_status status = muon__plan_without_teams(&t.plan, plan);
    if (status == MUON_OK) status = try_owners(&t, p, owner);
    if (status == MUON_OK) find_worst(out, &t.t, &plan->config.machine);
    destroy(&t);
    return status;
}

static void set_replica(trial *t, const turns *from, int replica)
{
    for (size_t i = 0; i < (size_t)t->plan.cost.matrices; i++) {
        uint32_t item = t->plan.matrix_item[i];
        t->plan.items[item].owner = muon__turns_owner(from, item, replica);
    }
}

/* Every replica of a group goes through the waves of the first. */
static muon_status try_turns(trial *t, const turns *from, const patterns *p)
{
    set_replica(t, from, 0);
    TRY(muon__waves_for_ranks(&t->plan, p));
    TRY(muon__traffic_create_empty(&t->t, &t->plan));
    for (int k = 0; k < from->replicas; k++) {
        set_replica(t, from, k);
        TRY(muon__traffic_add_replica(&t->t, &t->plan, p, k));
    }
    return MUON_OK;
}

muon_status muon__makespan_of_turns(muon_scheme_cost *out, const turns *t, const patterns *p)
{
    trial made = {.t = {0}};
    muon_status status = muon__plan_without_teams(&made.plan, t->plan);
    if (status == MUON_OK) status = try_turns(&made, t, p);
    if (status == MUON_OK) find_worst(out, &made.t, &t->plan->config.machine);
    destroy(&made);
    return status;
}
