/* The plan for people. */
#include "cli/plan/outcome.h"
#include "cli/plan/units.h"
#include "muon/plan.h"

#include <stdio.h>

static void print_head(const plan_outcome *o)
{
    const plan_case *c = o->what;
    const muon_machine *m = &c->config.machine;
    int64_t nodes = (o->nranks + m->ranks_per_node - 1) / m->ranks_per_node;
    plan_axes axes = plan_case_axes(c);
    printf("%s on %s rank%s%s%s", c->model, units_count(o->nranks).text, o->nranks == 1 ? "" : "s",
           *axes.text ? ": " : "", axes.text);
    printf("\n%s profile: a rank computes %s/s and sends %s/s inside a node, %s/s between nodes; ",
           c->profile, units_flops(m->flops).text, units_bytes(m->node_bandwidth).text,
           units_bytes(m->bandwidth).text);
    printf("%s wire; %s node%s of %s\n\n", c->config.wire == MUON_BF16 ? "bf16" : "f32",
           units_count(nodes).text, nodes == 1 ? "" : "s", units_count(m->ranks_per_node).text);
}

static void print_teams(const muon_prediction *p)
{
    if (p->teams == 0) return;
    printf("%-11s %s of the matrices %s shared, by up to %s ranks each\n", "teams",
           units_count(p->teams).text, p->teams == 1 ? "is" : "are", units_count(p->team_max).text);
}

static void print_relays(const muon_prediction *p)
{
    if (p->relayed_bytes == 0) return;
    printf("%-11s %s are passed on by a rank on their way\n", "relays",
           units_bytes((double)p->relayed_bytes).text);
}

static void print_scheme(const char *name, const muon_scheme_cost *s, const plan_outcome *o)
{
    const muon_prediction *p = &o->prediction;
    printf("%-13s %10s %9s %13s %9s %11s\n", name, units_seconds(s->makespan).text,
           units_ratio(s->makespan, p->makespan).text, units_bytes((double)s->bytes_max).text,
           units_ratio((double)s->bytes_max, (double)p->bytes_max).text,
           units_bytes((double)s->padding_bytes).text);
}

static void print_schemes(const plan_outcome *o)
{
    const muon_prediction *p = &o->prediction;
    muon_scheme_cost ours = {p->makespan, p->bytes_max, p->padding_bytes};
    printf("\n%-13s %10s %9s %13s %9s %11s\n", "scheme", "time", "", "bytes/rank", "", "padding");
    print_scheme("this plan", &ours, o);
    print_scheme("round-robin", &o->round_robin, o);
    print_scheme("padded", &o->padded, o);
}

void plan_print_text(const plan_outcome *o)
{
    const muon_prediction *p = &o->prediction;
    const muon_plan_cost *cost = &o->cost;
    print_head(o);
    printf("%-11s %s in %s tensor%s, %s parameters, %s per step\n", "matrices",
           units_count(p->matrices).text, units_count(o->tensors).text, o->tensors == 1 ? "" : "s",
           units_elements((double)(cost->muon_elements + cost->expert_elements)).text,
           units_flops(cost->flops).text);
    printf("%-11s %s predicted, %s the lower bound of %s (%s)\n", "time",
           units_seconds(p->makespan).text, units_ratio(p->makespan, p->lower_bound).text,
           units_seconds(p->lower_bound).text, plan_outcome_bound(o).text);
    printf("%-11s the busiest rank works %s the mean; most matrices on a rank: %s\n", "balance",
           units_ratio(p->imbalance, 1).text, units_count(p->matrices_max).text);
    print_teams(p);
    printf("%-11s %s sent and received by a rank at most, %s on average; padding %s\n", "bytes",
           units_bytes((double)p->bytes_max).text, units_bytes((double)p->bytes_mean).text,
           units_bytes((double)p->padding_bytes).text);
    printf("%-11s %s of the busiest rank, which is rank %d, with %s other%s\n", "messages",
           units_count(o->busiest.messages_sent + o->busiest.messages_received).text, o->by_work[0],
           units_count(o->busiest.peers).text, o->busiest.peers == 1 ? "" : "s");
    print_relays(p);
    printf("%-11s %s of workspace on a rank at most; %s of state on rank 0\n", "memory",
           units_bytes((double)p->workspace_max).text,
           units_bytes((double)o->first.state_bytes).text);
    printf("%-11s %s wave%s, %s in flight, hash %016llx, made in %s\n", "plan",
           units_count(p->waves).text, p->waves == 1 ? "" : "s", units_count(cost->in_flight).text,
           (unsigned long long)muon_plan_get_hash(o->plan), units_seconds(o->plan_seconds).text);
    print_schemes(o);
}

int plan_print_ranks(const plan_outcome *o)
{
    int chosen[PLAN_CHOSEN], count = plan_outcome_choose(o, chosen);
    printf("\n%6s %9s %10s %10s %9s %9s %9s %9s %9s\n", "rank", "matrices", "work", "transfer",
           "messages", "sent", "received", "state", "workspace");
    for (int i = 0; i < count; i++) {
        muon_rank_load load;
        DO(plan_outcome_rank(o, chosen[i], &load));
        if (i && count < o->nranks && i % 8 == 0) printf("   ...\n");
        printf("%6d %9s %10s %10s %9s %9s %9s %9s %9s\n", chosen[i],
               units_count(load.matrices).text, units_seconds(load.work_seconds).text,
               units_seconds(load.message_seconds).text,
               units_count(load.messages_sent + load.messages_received).text,
               units_bytes((double)load.bytes_sent).text,
               units_bytes((double)load.bytes_received).text,
               units_bytes((double)load.state_bytes).text,
               units_bytes((double)load.workspace_bytes).text);
    }
    return CLI_DONE;
}
