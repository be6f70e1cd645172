#include "plan/route/traffic.h"

#include "base/memory.h"
#include "plan/route/relays.h"
#include "plan/route/route.h"
#include "plan/route/waves.h"

#include <stdlib.h>
#include <string.h>

typedef struct walker {
    traffic *t;
    const muon_plan *plan;
    const patterns *p;
    int64_t wire;
    int replica;   /* the only one that counts, or -1: all */
    int *node;     /* [nranks] */
    shares shares; /* of the item in work, and */
    int *holders;  /* their holders, share by share: ascending, or by replica if only one counts */
    size_t capacity;
    cell_holders found;
} walker;

/* Rank r is in group r * ngroups / nranks. */
static void add_pair(const traffic *t, int64_t *to_count, int from, int to, int64_t bytes)
{
    if (t->ngroups == 0) return;
    size_t row = (size_t)from * t->ngroups / t->nranks, col = (size_t)to * t->ngroups / t->nranks;
    to_count[row * t->ngroups + col] += bytes;
}

/* By way of a relay, if there is one. */
static void add_hops(const traffic *t, int64_t *to_count, int from, int relay, int to,
                     int64_t bytes)
{
    add_pair(t, to_count, from, relay == RELAY_NONE ? to : relay, bytes);
    if (relay != RELAY_NONE) add_pair(t, to_count, relay, to, bytes);
}

static void add_gather(const walker *w, size_t item, const share *part, int sender)
{
    const plan_item *it = &w->plan->items[item];
    size_t nwaves = w->t->nwaves, wave = (size_t)it->wave;
    int64_t bytes = part->numel * w->wire;
    int64_t near = w->node[sender] == w->node[it->owner] ? bytes : 0;
    wave_traffic *from = &w->t->of[(size_t)sender * nwaves + wave];
    wave_traffic *to = &w->t->of[(size_t)it->owner * nwaves + wave];
    int relay = muon__gather_relay(w->plan, sender, it->owner);
    if (relay != RELAY_NONE) {
        w->t->of[(size_t)relay * nwaves + wave].gather_relayed += bytes;
        w->t->detour_bytes += bytes;
    }
    from->gather_sent += bytes;
    from->gather_sent_near += relay == RELAY_NONE ? near : bytes;
    to->gather_received += bytes;
    to->gather_received_near += near;
    to->gather_packed += part->packed_wire * w->wire;
    add_hops(w->t, w->t->gather, sender, relay, it->owner, bytes);
}

/* What a rank has sent of a result: its owner to a holder or a relay, or a relay to a holder. Returns where
 * it is counted. */
static wave_traffic *add_hop(const walker *w, size_t item, const share *part, int from, int to)
{
    add_pair(w->t, w->t->scatter, from, to, part->numel * (int64_t)sizeof(float));
    return &w->t->of[(size_t)from * w->t->nwaves + (size_t)w->plan->items[item].wave];
}

static void add_sent(const walker *w, size_t item, const share *part, int to)
{
    int owner = w->plan->items[item].owner;
    int64_t bytes = part->numel * (int64_t)sizeof(float);
    wave_traffic *from = add_hop(w, item, part, owner, to);
    from->scatter_sent += bytes;
    from->scatter_sent_near += w->node[to] == w->node[owner] ? bytes : 0;
    from->scatter_packed += part->packed_f32 * (int64_t)sizeof(float);
}

static void add_received(const walker *w, size_t item, const share *part, int holder, int near)
{
    int64_t bytes = part->numel * (int64_t)sizeof(float);
    wave_traffic *to = &w->t->of[(size_t)holder * w->t->nwaves + (size_t)w->plan->items[item].wave];
    to->scatter_received += bytes;
    to->scatter_received_near += near ? bytes : 0;
}

static void add_scatter(const walker *w, size_t item, const share *part, int holder)
{
    int owner = w->plan->items[item].owner;
    if (holder == owner) return;
    add_sent(w, item, part, holder);
    add_received(w, item, part, holder, w->node[holder] == w->node[owner]);
}

static void add_passed(const walker *w, size_t item, const share *part, int relay, const mates *m)
{
    int64_t bytes = part->numel * (int64_t)sizeof(float);
    int detour = 1;
    add_sent(w, item, part, relay);
    for (int i = 0; i < m->n; i++) {
        if (m->ranks[i] == relay) {
            detour = 0;
            continue;
        }
        add_hop(w, item, part, relay, m->ranks[i])->scatter_passed += bytes;
        add_received(w, item, part, m->ranks[i], 1);
    }
    w->t->of[(size_t)relay * w->t->nwaves + (size_t)w->plan->items[item].wave].scatter_relayed +=
        bytes;
    if (detour) w->t->detour_bytes += bytes;
}

/* To all holders. */
static void add_results(const walker *w, size_t item, const share *part, const int *holders)
{
    mates m;
    for (int i = 0; i < part->nholders; i += m.n) {
        m = muon__mates_at(w->plan, holders, part->nholders, i);
        int relay = muon__scatter_relay(w->plan, w->plan->items[item].owner, &m);
        if (relay != RELAY_NONE) {
            add_passed(w, item, part, relay, &m);
            continue;
        }
        for (int k = 0; k < m.n; k++)
            add_scatter(w, item, part, m.ranks[k]);
    }
}

/* One cell's part of an item. Returns how much of it the owner has already. */
static int64_t add_share(const walker *w, const layout *l, size_t item, const share *part,
                         const int *holders)
{
    int owner = w->plan->items[item].owner, sender = part->holder;
    if (w->replica >= part->nholders) return 0;
    if (w->replica >= 0) {
        sender = holders[w->replica];
        if (sender == owner) return part->numel;
        add_gather(w, item, part, sender);
        add_scatter(w, item, part, sender);
        return 0;
    }
    if (part->nholders > 1) sender = muon__route_sender(w->plan, l, part->cell, item);
    if (sender != owner) add_gather(w, item, part, sender);
    add_results(w, item, part, holders);
    return sender == owner ? part->numel : 0;
}

static void add_item(walker *w, size_t item, int64_t total)
{
    const plan_item *it = &w->plan->items[item];
    const layout *l = w->plan->params[it->param].layout;
    int64_t own = 0;
    const int *holders = w->holders;
    if (it->owner < 0) return;
    for (size_t i = 0; i < w->shares.n; i++) {
        const share *part = &w->shares.list[i];
        own += add_share(w, l, item, part, holders);
        holders += part->nholders;
    }
    wave_traffic *owner = &w->t->of[(size_t)it->owner * w->t->nwaves + (size_t)it->wave];
    owner->matrices++;
    owner->floats += muon__slot_floats(it);
    owner->flops += it->flops;
    if (w->replica >= 0) return; /* what each replica would need for itself is in no plan */
    w->t->useful_bytes +=
        (muon__item_numel(it) - own) * w->wire + (total - own) * (int64_t)sizeof(float);
}

static muon_status list_holders(walker *w, const layout *l)
{
    size_t n = 0;
    for (size_t i = 0; i < w->shares.n; i++)
        n += (size_t)w->shares.list[i].nholders;
    if (n > w->capacity) {
        free(w->holders);
        w->capacity = 0;
        TRY(CALLOC(&w->holders, n, "traffic"));
        w->capacity = n;
    }
    int *at = w->holders;
    for (size_t i = 0; i < w->shares.n; i++) {
        const share *part = &w->shares.list[i];
        if (w->replica < 0 && part->nholders > 1) {
            TRY(muon__cell_holders_find(&w->found, l, part->cell));
            memcpy(at, w->found.ranks, (size_t)part->nholders * sizeof *at);
            at += part->nholders;
            continue;
        }
        for (int k = 0; k < part->nholders; k++)
            *at++ = k ? muon__layout_holder(l, part->cell, k) : part->holder;
    }
    return MUON_OK;
}

/* How much all replicas of an item have together. */
static int64_t count_replicas(const walker *w)
{
    int64_t total = 0;
    for (size_t i = 0; i < w->shares.n; i++)
        total += w->shares.list[i].numel * w->shares.list[i].nholders;
    return total;
}

/* Members exchange what they have computed. */
static void add_team(const walker *w, const plan_team *team)
{
    const team_shape *shape = &w->plan->shapes[team->shape];
    const plan_item *strips = &w->plan->items[team->first];
    for (int k = 0; k < shape->size; k++) {
        team_traffic t = muon__team_traffic(shape, k);
        wave_traffic *at =
            &w->t->of[(size_t)strips[k].owner * w->t->nwaves + (size_t)strips[k].wave];
        at->team_sent += t.sent;
        at->team_received += t.received;
        at->team_rounds += t.rounds;
        for (int i = 0; i < shape->size; i++) {
            if (i == k || w->node[strips[i].owner] != w->node[strips[k].owner]) continue;
            at->team_sent_near += t.sent_each;
            at->team_received_near += muon__team_traffic(shape, i).sent_each;
        }
    }
}

static muon_status walk(walker *w)
{
    const muon_plan *plan = w->plan;
    traffic *t = w->t;
    const muon_machine *machine = &plan->config.machine;
    TRY(CALLOC(&w->node, t->nranks, "traffic"));
    for (size_t r = 0; r < t->nranks; r++)
        w->node[r] = (int)((int64_t)r / machine->ranks_per_node);
    for (size_t i = 0; i < w->p->n; i++) {
        uint32_t param = muon__pattern_param(w->p, i);
        size_t first = w->p->item_first[param], end = w->p->item_first[param + 1];
        size_t begin = w->p->first[i], n = w->p->first[i + 1] - begin;
        for (size_t item = first; item < end; item++) {
            if (plan->items[item].class == PLAN_IDLE) continue;
            TRY(muon__shares_find(&w->shares, plan, item));
            TRY(list_holders(w, plan->params[param].layout));
            int64_t total = count_replicas(w);
            for (size_t k = begin; k < begin + n; k++)
                add_item(w, w->p->item_first[w->p->params[k]] + item - first, total);
        }
    }
    for (size_t i = 0; w->replica < 0 && i < plan->nteams; i++)
        add_team(w, &plan->teams[i]);
    return MUON_OK;
}

muon_status muon__traffic_create_empty(traffic *out, const muon_plan *plan)
{
    *out = (traffic){.nranks = (size_t)plan->nranks, .nwaves = plan->nwaves};
    return CALLOC(&out->of, out->nranks * out->nwaves, "traffic");
}

muon_status muon__traffic_create(traffic *out, const muon_plan *plan, const patterns *p)
{
    TRY(muon__traffic_create_empty(out, plan));
    return muon__traffic_add_replica(out, plan, p, -1);
}

muon_status muon__traffic_add_replica(traffic *t, const muon_plan *plan, const patterns *p,
                                      int replica)
{
    walker w = {.t = t, .plan = plan, .p = p, .wire = muon__wire_bytes(plan), .replica = replica};
    muon_status status = walk(&w);
    free(w.node);
    free(w.holders);
    muon__cell_holders_free(&w.found);
    muon__shares_destroy(&w.shares);
    return status;
}

void muon__traffic_destroy(traffic *t)
{
    free(t->of);
}
