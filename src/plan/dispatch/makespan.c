#include "plan/dispatch/makespan.h"

#include "plan/route/walk.h"
#include "plan/route/waves.h"

#include <stdlib.h>

/* ---- All ranks */

static void sum_waves(rank_sum *sum, const traffic *t, const muon_machine *m, size_t rank)
{
    for (size_t w = 0; w < t->nwaves; w++) {
        const wave_traffic *at = muon__traffic_at(t, rank, w);
        sum->matrices += at->matrices;
        sum->work += at->flops / m->flops;
        sum->exchange += muon__walk_exchange(m, at);
        sum->sent += at->gather_sent + at->scatter_sent + at->gather_relayed + at->scatter_passed +
                     at->team_sent;
        sum->received += at->gather_received + at->scatter_received + at->gather_relayed +
                         at->scatter_relayed + at->team_received;
    }
}

muon_status muon__makespan_of_ranks(rank_sum **out, const traffic *t, const muon_plan *plan)
{
    double *seconds = NULL;
    rank_sum *sums = NULL;
    muon_status status = CALLOC(&seconds, t->nranks, "loads");
    if (status == MUON_OK) status = CALLOC(&sums, t->nranks, "loads");
    if (status == MUON_OK) status = muon__walk(seconds, t, plan, muon__route_rings(plan));
    for (size_t r = 0; r < t->nranks && status == MUON_OK; r++) {
        sum_waves(&sums[r], t, &plan->config.machine, r);
        sums[r].seconds = seconds[r];
    }
    free(seconds);
    if (status == MUON_OK)
        *out = sums;
    else
        free(sums);
    return status;
}

/* ---- The plan's own owners */

/* Of walks with different rings; [n] each. */
static muon_status walk_all(double *longest, const route_rings *rings, int n, const muon_plan *plan)
{
    patterns p = {0};
    traffic t = {0};
    double *seconds = NULL;
    muon_status status = muon__patterns_create(&p, plan);
    if (status == MUON_OK) status = muon__traffic_create(&t, plan, &p);
    if (status == MUON_OK) status = CALLOC(&seconds, t.nranks, "loads");
    for (int i = 0; i < n && status == MUON_OK; i++) {
        status = muon__walk(seconds, &t, plan, rings[i]);
        longest[i] = 0;
        for (size_t r = 0; r < t.nranks && status == MUON_OK; r++)
            if (seconds[r] > longest[i]) longest[i] = seconds[r];
    }
    free(seconds);
    muon__traffic_destroy(&t);
    muon__patterns_destroy(&p);
    return status;
}

muon_status muon__makespan_of_plan(double *out, const muon_plan *plan)
{
    route_rings rings = muon__route_rings(plan);
    return walk_all(out, &rings, 1, plan);
}

muon_status muon__makespan_of_depths(double *all, double *few, const muon_plan *plan, int in_flight)
{
    const route_rings rings[] = {muon__rings_of_depth(plan, 0),
                                 muon__rings_of_depth(plan, in_flight)};
    double longest[2];
    TRY(walk_all(longest, rings, 2, plan));
    *all = longest[0];
    *few = longest[1];
    return MUON_OK;
}

/* ---- Other owners */

static muon_status find_worst(muon_scheme_cost *out, const traffic *t, const muon_plan *plan)
{
    rank_sum *sums = NULL;
    TRY(muon__makespan_of_ranks(&sums, t, plan));
    *out = (muon_scheme_cost){0};
    for (size_t r = 0; r < t->nranks; r++) {
        const rank_sum *sum = &sums[r];
        if (sum->seconds > out->makespan) out->makespan = sum->seconds;
        if (sum->sent + sum->received > out->bytes_max) out->bytes_max = sum->sent + sum->received;
    }
    free(sums);
    return MUON_OK;
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
    if (status == MUON_OK) status = find_worst(out, &t.t, &t.plan);
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
    if (status == MUON_OK) status = find_worst(out, &made.t, &made.plan);
    destroy(&made);
    return status;
}
