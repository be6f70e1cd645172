/* What one rank has to do, from its route: the same lists that the step will work through. */
#include "base/mode.h"
#include "base/versioned.h"
#include "plan/owned.h"
#include "plan/route/rings.h"

#include <stdlib.h>

typedef struct counted {
    int64_t messages_sent, messages_received, bytes_sent, bytes_received;
    int64_t bytes[ROUTE_ALL_LISTS];
    double sent_seconds, received_seconds;
} counted;

static double rate_to(const muon_plan *plan, int a, int b)
{
    const muon_machine *machine = &plan->config.machine;
    int same_node = a / machine->ranks_per_node == b / machine->ranks_per_node;
    return same_node ? machine->node_bandwidth : machine->bandwidth;
}

static counted count_waves(const route *r, const muon_plan *plan, size_t begin, size_t end)
{
    counted t = {0};
    for (int list = 0; list < ROUTE_ALL_LISTS; list++) {
        const route_messages *messages = &r->messages[list];
        int sends = muon__route_sends(list);
        for (size_t i = messages->first[begin]; i < messages->first[end]; i++) {
            const route_message *m = &messages->entries[i];
            t.bytes[list] += m->bytes;
            *(sends ? &t.bytes_sent : &t.bytes_received) += m->bytes;
            *(sends ? &t.messages_sent : &t.messages_received) += 1;
            *(sends ? &t.sent_seconds : &t.received_seconds) +=
                (double)m->bytes / rate_to(plan, r->rank, m->peer);
        }
    }
    return t;
}

/* What it exchanges with the members of its teams. */
typedef struct exchanged {
    int64_t teams, messages_sent, messages_received, bytes_sent, bytes_received;
    double seconds;
} exchanged;

static exchanged count_teams(const route *r, const muon_plan *plan)
{
    exchanged sum = {0};
    for (size_t i = 0; i < r->owned_first[plan->nwaves]; i++) {
        const plan_item *item = &plan->items[r->owned[i]];
        if (item->team == PLAN_NO_TEAM) continue;
        const team_shape *shape = muon__item_shape(plan, item);
        int member = muon__item_member(plan, item);
        team_traffic t = muon__team_traffic(shape, member);
        double out = 0, in = 0;
        for (int k = 0; k < shape->size; k++) {
            if (k == member) continue;
            double rate = rate_to(plan, r->rank, (item - member + k)->owner);
            out += (double)t.sent_each / rate;
            in += (double)muon__team_traffic(shape, k).sent_each / rate;
        }
        sum.teams++;
        sum.messages_sent += t.messages_sent;
        sum.messages_received += t.messages_received;
        sum.bytes_sent += t.sent;
        sum.bytes_received += t.received;
        sum.seconds += (out > in ? out : in) + t.rounds * plan->config.machine.latency;
    }
    return sum;
}

static double count_flops(const route *r, const muon_plan *plan)
{
    double flops = 0;
    for (size_t i = 0; i < r->owned_first[plan->nwaves]; i++)
        flops += plan->items[r->owned[i]].flops;
    return flops;
}

static int64_t count_state(const route *r, const muon_plan *plan)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < plan->nparams; i++) {
        const plan_param *param = &plan->params[i];
        if (param->rule == MUON_RULE_FROZEN) continue;
        bytes += r->numel[i] * muon__plan_state_bytes(plan, param) + (int64_t)sizeof(int64_t);
    }
    for (size_t i = 0; i < r->owned_first[plan->nwaves]; i++)
        bytes += muon__owned_bytes(plan, &plan->items[r->owned[i]]);
    return bytes;
}

static muon_status check_rank(const muon_plan *plan, int rank)
{
    REQUIRE(plan, E_ARG, "plan must not be NULL");
    REQUIRE(rank >= 0 && rank < plan->nranks, E_ARG, "rank %d does not exist: there are %d", rank,
            plan->nranks);
    return MUON_OK;
}

muon_status muon_plan_get_rank(const muon_plan *plan, int rank, muon_rank_load *load,
                               size_t load_size)
{
    OWN_MODE;
    TRY(check_rank(plan, rank));
    REQUIRE(load, E_ARG, "load must not be NULL");
    route *r = NULL;
    TRY(muon__route_create(&r, plan, rank));
    counted t = count_waves(r, plan, 0, plan->nwaves);
    exchanged x = count_teams(r, plan);
    int *peers = NULL;
    size_t npeers = 0;
    muon_status status = muon__route_peers(&peers, &npeers, r, plan);
    free(peers);
    muon_rank_load found = {
        .matrices = (int64_t)r->owned_first[plan->nwaves],
        .flops = count_flops(r, plan),
        .messages_sent = t.messages_sent + x.messages_sent,
        .messages_received = t.messages_received + x.messages_received,
        .bytes_sent = t.bytes_sent + x.bytes_sent,
        .bytes_received = t.bytes_received + x.bytes_received,
        .state_bytes = count_state(r, plan),
        .workspace_bytes = muon__route_workspace(r, plan),
        .teams = x.teams,
        .exchange_seconds = x.seconds,
        .peers = (int64_t)npeers,
        .relayed_bytes = t.bytes[RELAY_GATHER_OUT] + t.bytes[RELAY_SCATTER_OUT],
    };
    found.work_seconds = found.flops / plan->config.machine.flops;
    found.message_seconds =
        (t.sent_seconds > t.received_seconds ? t.sent_seconds : t.received_seconds) + x.seconds;
    muon__route_destroy(r);
    TRY(status);
    return muon__struct_store(load, load_size, &found, sizeof found, "muon_rank_load");
}

muon_status muon_plan_get_wave(const muon_plan *plan, int rank, size_t wave, muon_wave_load *load,
                               size_t load_size)
{
    OWN_MODE;
    TRY(check_rank(plan, rank));
    REQUIRE(load, E_ARG, "load must not be NULL");
    REQUIRE(wave < plan->nwaves, E_ARG, "wave %zu does not exist: there are %zu", wave,
            plan->nwaves);
    route *r = NULL;
    TRY(muon__route_create_waves(&r, plan, rank, wave, wave + 1));
    counted t = count_waves(r, plan, wave, wave + 1);
    muon_wave_load found = {
        .matrices = (int64_t)(r->owned_first[wave + 1] - r->owned_first[wave]),
        .flops = count_flops(r, plan),
        .gather_bytes_sent = t.bytes[GATHER_SEND] + t.bytes[RELAY_GATHER_OUT],
        .gather_bytes_received = t.bytes[GATHER_RECEIVE] + t.bytes[RELAY_GATHER_IN],
        .scatter_bytes_sent = t.bytes[SCATTER_SEND] + t.bytes[RELAY_SCATTER_OUT],
        .scatter_bytes_received = t.bytes[SCATTER_RECEIVE] + t.bytes[RELAY_SCATTER_IN],
    };
    muon__route_destroy(r);
    return muon__struct_store(load, load_size, &found, sizeof found, "muon_wave_load");
}
