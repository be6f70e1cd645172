/* A rank has three clocks: its processor's, and those of its link, out and in. What it sends queues on the
 * link behind what it has sent before; what it receives queues likewise, and is not there before its last
 * sender has sent it. All ranks go through the waves together, so a clock of wave w depends on clocks of
 * earlier waves only.
 *
 * Who sends to whom is not known here, only how much a rank sends and receives in a wave, inside its node
 * and to others. So what comes from other nodes is waited for as if every rank of the cluster that sends
 * such messages in the wave had a part in it, and what comes from the same node as if every rank of the
 * node had. For tensors that are cut over all ranks that is so.
 *
 * What messages cost the processor is charged when they start; a rank that waits for them anyway loses
 * nothing by it.
 *
 * Not modelled: messages of a wave that arrive one by one, contention inside the network, the time of the
 * passes over momentum and weights. */
#include "plan/route/walk.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

static double seconds_of(const muon_machine *m, int64_t bytes, int64_t near)
{
    return (double)near / m->node_bandwidth + (double)(bytes - near) / m->bandwidth;
}

double muon__walk_exchange(const muon_machine *m, const wave_traffic *at)
{
    double out = seconds_of(m, at->team_sent, at->team_sent_near);
    double in = seconds_of(m, at->team_received, at->team_received_near);
    return fmax(out, in) + (double)at->team_rounds * m->latency;
}

/* With relays, a hop inside the node before a gather or after a scatter takes as long as what this rank
 * relays itself. */
static double hop(const muon_machine *m, int64_t bytes)
{
    return bytes ? seconds_of(m, bytes, bytes) + m->latency : 0;
}

/* When the senders of a wave's messages begin, and when all of it has left. */
typedef struct sending {
    double first, last;
} sending;

static const sending NOBODY = {HUGE_VAL, 0};

typedef struct walker {
    const traffic *t;
    const muon_plan *plan;
    const muon_machine *m;
    route_rings rings;
    double *now;                        /* [nranks] of processors, */
    double *out, *in;                   /* and of links */
    double *gathered, *left, *returned; /* [nranks][nwaves] U is there; O has left; O is there */
    sending *nodes;                     /* [nodes] of the wave in work, inside each */
    size_t nnodes;
    size_t *team_first; /* [nwaves + 1] teams by wave */
    uint32_t *teams;
} walker;

static sending *node_of(const walker *k, size_t rank)
{
    return &k->nodes[rank / (size_t)k->m->ranks_per_node];
}

static void start_sending(walker *k)
{
    for (size_t i = 0; i < k->nnodes; i++)
        k->nodes[i] = NOBODY;
}

/* A rank sends, as soon as its link is free. */
static void send(walker *k, size_t rank, sending *far, int64_t bytes, int64_t near)
{
    if (bytes == 0) return;
    double begin = fmax(k->now[rank], k->out[rank]);
    k->out[rank] = begin + seconds_of(k->m, bytes, near);
    sending *to[2] = {near > 0 ? node_of(k, rank) : NULL, bytes > near ? far : NULL};
    for (int i = 0; i < 2; i++) {
        if (!to[i]) continue;
        to[i]->first = fmin(to[i]->first, begin);
        to[i]->last = fmax(to[i]->last, k->out[rank]);
    }
}

/* And receives. Returns when all of it is there. */
static double receive(walker *k, size_t rank, const sending *far, int64_t bytes, int64_t near)
{
    if (bytes == 0) return 0;
    sending from = NOBODY;
    if (near > 0) from = *node_of(k, rank);
    if (bytes > near) from = (sending){fmin(from.first, far->first), fmax(from.last, far->last)};
    if (from.first == HUGE_VAL) from = (sending){0, 0}; /* a relay's: its senders are not counted */
    k->in[rank] = fmax(k->in[rank], from.first) + seconds_of(k->m, bytes, near);
    return fmax(k->in[rank], from.last);
}

/* ---- The stages of a wave, for all ranks */

/* Seconds of a rank's processor, which sends and receives so many bytes beside its work. */
static double cost_of(const walker *k, int64_t bytes)
{
    return k->m->processor_bandwidth > 0 ? (double)bytes / k->m->processor_bandwidth : 0;
}

static void begin(walker *k, size_t wave)
{
    size_t nwaves = k->t->nwaves, waves = (size_t)k->rings.waves;
    sending far = NOBODY;
    start_sending(k);
    for (size_t r = 0; r < k->t->nranks; r++) {
        const wave_traffic *at = muon__traffic_at(k->t, r, wave);
        if (wave >= waves) k->now[r] = fmax(k->now[r], k->left[r * nwaves + wave - waves]);
        send(k, r, &far, at->gather_sent + at->gather_relayed, at->gather_sent_near);
    }
    for (size_t r = 0; r < k->t->nranks; r++) {
        const wave_traffic *at = muon__traffic_at(k->t, r, wave);
        double there = receive(k, r, &far, at->gather_received + at->gather_relayed,
                               at->gather_received_near + at->gather_relayed);
        k->gathered[r * nwaves + wave] =
            at->gather_received ? there + hop(k->m, at->gather_relayed) : 0;
        k->now[r] += cost_of(k, at->gather_sent + at->gather_received + 2 * at->gather_relayed);
    }
}

/* Members of a team begin together. */
static void meet(walker *k, const plan_team *team)
{
    const plan_item *strips = &k->plan->items[team->first];
    int size = k->plan->shapes[team->shape].size;
    double last = 0;
    for (int i = 0; i < size; i++)
        last = fmax(last, k->now[strips[i].owner]);
    for (int i = 0; i < size; i++)
        k->now[strips[i].owner] = last;
}

static void compute(walker *k, size_t wave)
{
    size_t nwaves = k->t->nwaves;
    sending far = NOBODY;
    start_sending(k);
    for (size_t r = 0; r < k->t->nranks; r++)
        k->now[r] = fmax(k->now[r], k->gathered[r * nwaves + wave]);
    for (size_t i = k->team_first[wave]; i < k->team_first[wave + 1]; i++)
        meet(k, &k->plan->teams[k->teams[i]]);
    for (size_t r = 0; r < k->t->nranks; r++) {
        const wave_traffic *at = muon__traffic_at(k->t, r, wave);
        k->now[r] += at->flops / k->m->flops + muon__walk_exchange(k->m, at);
        send(k, r, &far, at->scatter_sent + at->scatter_passed,
             at->scatter_sent_near + at->scatter_passed);
        k->left[r * nwaves + wave] = at->scatter_sent ? k->out[r] : 0;
    }
    for (size_t r = 0; r < k->t->nranks; r++) {
        const wave_traffic *at = muon__traffic_at(k->t, r, wave);
        double there = receive(k, r, &far, at->scatter_received + at->scatter_relayed,
                               at->scatter_received_near);
        k->returned[r * nwaves + wave] = there + hop(k->m, at->scatter_passed);
        k->now[r] += cost_of(k, at->scatter_sent + at->scatter_received + at->scatter_relayed +
                                    at->scatter_passed);
    }
}

static void end(walker *k, size_t wave)
{
    for (size_t r = 0; r < k->t->nranks; r++)
        k->now[r] = fmax(k->now[r], k->returned[r * k->t->nwaves + wave]);
}

static void walk(walker *k, double *seconds)
{
    size_t nwaves = k->t->nwaves, begun = 0, ended = 0;
    for (size_t w = 0; w < nwaves; w++) {
        while (begun < nwaves && begun <= w + k->rings.ahead)
            begin(k, begun++);
        compute(k, w);
        while (ended + k->rings.behind <= w)
            end(k, ended++);
    }
    while (ended < nwaves)
        end(k, ended++);
    for (size_t r = 0; r < k->t->nranks; r++)
        seconds[r] = fmax(k->now[r], fmax(k->out[r], k->in[r]));
}

/* ---- Setting out */

static muon_status list_teams(walker *k)
{
    const muon_plan *plan = k->plan;
    TRY(CALLOC(&k->team_first, k->t->nwaves + 1, "waves"));
    TRY(CALLOC(&k->teams, plan->nteams, "waves"));
    for (size_t i = 0; i < plan->nteams; i++)
        k->team_first[plan->items[plan->teams[i].first].wave + 1]++;
    for (size_t w = 0; w < k->t->nwaves; w++)
        k->team_first[w + 1] += k->team_first[w];
    for (size_t i = 0; i < plan->nteams; i++) /* first[w] becomes its end ... */
        k->teams[k->team_first[plan->items[plan->teams[i].first].wave]++] = (uint32_t)i;
    for (size_t w = k->t->nwaves; w > 0; w--) /* ... which is where the next begins */
        k->team_first[w] = k->team_first[w - 1];
    k->team_first[0] = 0;
    return MUON_OK;
}

static muon_status set_out(walker *k)
{
    size_t n = k->t->nranks, per_node = (size_t)k->m->ranks_per_node;
    k->nnodes = (n + per_node - 1) / per_node;
    TRY(CALLOC(&k->now, n, "waves"));
    TRY(CALLOC(&k->out, n, "waves"));
    TRY(CALLOC(&k->in, n, "waves"));
    TRY(CALLOC(&k->gathered, n * k->t->nwaves, "waves"));
    TRY(CALLOC(&k->left, n * k->t->nwaves, "waves"));
    TRY(CALLOC(&k->returned, n * k->t->nwaves, "waves"));
    TRY(CALLOC(&k->nodes, k->nnodes, "waves"));
    return list_teams(k);
}

muon_status muon__walk(double *seconds, const traffic *t, const muon_plan *plan, route_rings rings)
{
    walker k = {.t = t, .plan = plan, .m = &plan->config.machine, .rings = rings};
    muon_status status = set_out(&k);
    if (status == MUON_OK) walk(&k, seconds);
    free(k.now);
    free(k.out);
    free(k.in);
    free(k.gathered);
    free(k.left);
    free(k.returned);
    free(k.nodes);
    free(k.team_first);
    free(k.teams);
    return status;
}
