/* The prediction: a step of this plan on config.machine, against lower bounds and other schemes. */
#include "plan/predict.h"

#include "base/memory.h"
#include "base/mode.h"
#include "base/versioned.h"
#include "plan/traffic.h"
#include "plan/waves.h"

static double max3(double a, double b, double c)
{
    double larger = a > b ? a : b;
    return larger > c ? larger : c;
}

static double seconds(const muon_machine *m, int64_t bytes, int64_t near)
{
    return (double)near / m->node_bandwidth + (double)(bytes - near) / m->bandwidth;
}

/* What a rank has to wait for because no work is there to hide it: the gather of its first wave that
 * needs one, and the scatter of its last. */
static double fill_seconds(const traffic *t, const muon_machine *m, size_t rank)
{
    double fill = 0, work = 0;
    for (size_t w = 0; w < t->nwaves; w++) {
        const wave_traffic *at = muon__traffic_at(t, rank, w);
        double gather = seconds(m, at->gather_received, at->gather_received_near);
        if (gather > work) fill += gather - work;
        if (gather > 0) break;
        work += at->flops / m->flops;
    }
    work = 0;
    for (size_t w = t->nwaves; w-- > 0;) {
        const wave_traffic *at = muon__traffic_at(t, rank, w);
        double scatter = seconds(m, at->scatter_sent, at->scatter_sent_near);
        if (scatter > work) fill += scatter - work;
        if (scatter > 0) break;
        work += at->flops / m->flops;
    }
    return fill;
}

typedef struct rank_sum {
    int64_t matrices, sent, received;
    double work, messages; /* seconds */
} rank_sum;

static rank_sum sum_rank(const traffic *t, const muon_machine *m, size_t rank)
{
    rank_sum sum = {0};
    int64_t sent_near = 0, received_near = 0;
    for (size_t w = 0; w < t->nwaves; w++) {
        const wave_traffic *at = muon__traffic_at(t, rank, w);
        sum.matrices += at->matrices;
        sum.work += at->flops / m->flops;
        sum.sent += at->gather_sent + at->scatter_sent;
        sum.received += at->gather_received + at->scatter_received;
        sent_near += at->gather_sent_near + at->scatter_sent_near;
        received_near += at->gather_received_near + at->scatter_received_near;
    }
    double out = seconds(m, sum.sent, sent_near), in = seconds(m, sum.received, received_near);
    sum.messages = out > in ? out : in;
    return sum;
}

static void sum_ranks(muon_prediction *p, const muon_plan *plan, const traffic *t)
{
    const muon_machine *m = &plan->config.machine;
    double busiest = 0;
    int64_t sent = 0, bytes = 0;
    for (size_t r = 0; r < t->nranks; r++) {
        rank_sum sum = sum_rank(t, m, r);
        double makespan = max3(sum.work, sum.messages, 0) + fill_seconds(t, m, r);
        if (makespan > p->makespan) p->makespan = makespan;
        if (sum.work > busiest) busiest = sum.work;
        if (sum.matrices > p->matrices_max) p->matrices_max = sum.matrices;
        if (sum.sent + sum.received > p->bytes_max) p->bytes_max = sum.sent + sum.received;
        sent += sum.sent;
        bytes += sum.sent + sum.received;
    }
    p->bytes_mean = bytes / p->ranks;
    p->padding_bytes = sent - t->useful_bytes;
    p->bound_work = plan->cost.flops / m->flops / (double)p->ranks;
    p->imbalance = p->bound_work > 0 ? busiest / p->bound_work : 1;
}

static int64_t workspace(const traffic *t, const muon_plan *plan)
{
    return muon__traffic_workspace(t, plan) + muon__scratch_floats(plan) * (int64_t)sizeof(float);
}

static muon_status predict(muon_prediction *p, const muon_plan *plan, const patterns *found,
                           traffic *t)
{
    TRY(muon__traffic_create(t, plan, found));
    *p = (muon_prediction){
        .ranks = plan->nranks, .matrices = plan->cost.matrices, .waves = (int64_t)plan->nwaves};
    sum_ranks(p, plan, t);
    for (size_t i = 0; i < plan->nclasses; i++) {
        double work = plan->classes[i].flops / plan->config.machine.flops;
        if (work > p->bound_matrix) p->bound_matrix = work;
    }
    p->bound_bytes = t->bound_bytes;
    p->lower_bound = max3(p->bound_work, p->bound_matrix, p->bound_bytes);
    p->workspace_max = workspace(t, plan);
    TRY(muon__predict_padded(&p->padded, plan, found));
    return muon__predict_round_robin(&p->round_robin, plan, found);
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
