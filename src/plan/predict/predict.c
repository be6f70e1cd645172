/* The prediction: a step of this plan on config.machine, against lower bounds, and other schemes. */
#include "plan/predict/predict.h"

#include "base/memory.h"
#include "base/mode.h"
#include "base/versioned.h"
#include "plan/dispatch/makespan.h"
#include "plan/predict/bounds.h"
#include "plan/route/rings.h"
#include "plan/route/waves.h"

#include <stdlib.h>

static int64_t team_bytes(const traffic *t)
{
    int64_t sent = 0;
    for (size_t i = 0; i < t->nranks * t->nwaves; i++)
        sent += t->of[i].team_sent;
    return sent;
}

static int64_t relayed_bytes(const traffic *t)
{
    int64_t sent = 0;
    for (size_t i = 0; i < t->nranks * t->nwaves; i++)
        sent += t->of[i].gather_relayed + t->of[i].scatter_passed;
    return sent;
}

static muon_status sum_ranks(muon_prediction *p, const muon_plan *plan, const traffic *t)
{
    rank_sum *sums = NULL;
    TRY(muon__makespan_of_ranks(&sums, t, plan));
    double busiest = 0;
    int64_t sent = 0, bytes = 0;
    for (size_t r = 0; r < t->nranks; r++) {
        const rank_sum *sum = &sums[r];
        if (sum->seconds > p->makespan) p->makespan = sum->seconds;
        if (sum->work > busiest) busiest = sum->work;
        if (sum->matrices > p->matrices_max) p->matrices_max = sum->matrices;
        if (sum->sent + sum->received > p->bytes_max) p->bytes_max = sum->sent + sum->received;
        sent += sum->sent;
        bytes += sum->sent + sum->received;
    }
    free(sums);
    p->bytes_mean = bytes / p->ranks;
    p->relayed_bytes = relayed_bytes(t);
    p->padding_bytes = sent - team_bytes(t) - t->detour_bytes - t->useful_bytes;
    double mean = plan->cost.flops / plan->config.machine.flops / (double)p->ranks;
    p->imbalance = mean > 0 ? busiest / mean : 1;
    return MUON_OK;
}

static int64_t workspace(const traffic *t, const muon_plan *plan)
{
    return muon__traffic_workspace(t, plan) + muon__scratch_floats(plan) * (int64_t)sizeof(float);
}

static muon_status predict_turns(muon_scheme_cost *out, const muon_plan *plan, const patterns *p,
                                 const cost_order *order)
{
    turns t = {0};
    muon_status status = muon__turns_create(&t, plan, p, order);
    if (status == MUON_OK) status = muon__makespan_of_turns(out, &t, p);
    muon__turns_destroy(&t);
    return status;
}

static muon_status predict_round_robin(muon_scheme_cost *out, const muon_plan *plan,
                                       const patterns *p)
{
    cost_order order = {0};
    muon_status status = muon__cost_order_create(&order, plan);
    if (status == MUON_OK) status = predict_turns(out, plan, p, &order);
    muon__cost_order_destroy(&order);
    return status;
}

/* Padding makes nothing faster, whatever its waves. */
static muon_status predict_padded(muon_scheme_cost *out, const muon_plan *plan, const patterns *p)
{
    muon_scheme_cost bare;
    TRY(muon__predict_padded(out, plan, p));
    TRY(predict_turns(&bare, plan, p, NULL));
    if (bare.makespan > out->makespan) out->makespan = bare.makespan;
    return MUON_OK;
}

static muon_status predict(muon_prediction *p, const muon_plan *plan, const patterns *found,
                           traffic *t)
{
    bounds b;
    TRY(muon__bounds_find(&b, plan));
    TRY(muon__traffic_create(t, plan, found));
    *p = (muon_prediction){
        .ranks = plan->nranks, .matrices = plan->cost.matrices, .waves = (int64_t)plan->nwaves};
    TRY(sum_ranks(p, plan, t));
    p->bound_work = b.work;
    for (size_t i = 0; i < plan->nteams; i++) {
        int64_t size = plan->shapes[plan->teams[i].shape].size;
        if (size > p->team_max) p->team_max = size;
    }
    p->teams = (int64_t)plan->nteams;
    p->bound_matrix = b.matrix;
    p->bound_bytes = b.bytes;
    p->bound_teams = b.teams;
    p->lower_bound = muon__bounds_largest(&b);
    p->workspace_max = workspace(t, plan);
    return MUON_OK;
}

muon_status muon__predict_workspace(int64_t *out, const muon_plan *plan)
{
    patterns found = {0};
    traffic t = {0};
    TRY(muon__patterns_create(&found, plan));
    muon_status status = muon__traffic_create(&t, plan, &found);
    if (status == MUON_OK) *out = workspace(&t, plan);
    muon__traffic_destroy(&t);
    muon__patterns_destroy(&found);
    return status;
}

muon_status muon_plan_predict(const muon_plan *plan, muon_prediction *prediction,
                              size_t prediction_size)
{
    OWN_MODE;
    REQUIRE(plan && prediction, E_ARG, "muon_plan_predict: plan and prediction must not be NULL");
    patterns found = {0};
    traffic t = {0};
    muon_prediction p;
    TRY(muon__patterns_create(&found, plan));
    muon_status status = predict(&p, plan, &found, &t);
    muon__traffic_destroy(&t);
    muon__patterns_destroy(&found);
    TRY(status);
    return muon__struct_store(prediction, prediction_size, &p, sizeof p, "muon_prediction");
}

muon_status muon_plan_predict_scheme(const muon_plan *plan, muon_scheme scheme,
                                     muon_scheme_cost *cost, size_t cost_size)
{
    OWN_MODE;
    REQUIRE(plan && cost, E_ARG, "muon_plan_predict_scheme: plan and cost must not be NULL");
    REQUIRE(scheme == MUON_SCHEME_PADDED || scheme == MUON_SCHEME_ROUND_ROBIN, E_ARG,
            "muon_plan_predict_scheme: %d is not a scheme", (int)scheme);
    patterns found = {0};
    muon_scheme_cost c;
    muon_plan whole;
    TRY(muon__plan_without_teams(&whole, plan));
    muon_status status = muon__patterns_create(&found, &whole);
    if (status == MUON_OK)
        status = scheme == MUON_SCHEME_PADDED ? predict_padded(&c, &whole, &found)
                                              : predict_round_robin(&c, &whole, &found);
    muon__patterns_destroy(&found);
    muon__plan_free_items(&whole);
    TRY(status);
    return muon__struct_store(cost, cost_size, &c, sizeof c, "muon_scheme_cost");
}
