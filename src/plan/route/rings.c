#include "plan/route/rings.h"

#include "base/memory.h"
#include "plan/route/waves.h"

enum { SLOTS = ROUTE_ALL_LISTS };

const int muon__wave_buffers[ROUTE_BUFFERS] = {SLOTS,       GATHER_RECEIVE,  SCATTER_SEND,
                                               GATHER_SEND, SCATTER_RECEIVE, RELAY_GATHER_IN};

route_rings muon__rings_of_depth(const muon_plan *plan, int in_flight)
{
    int all = plan->nwaves > 1 ? (int)plan->nwaves : 1;
    if (plan->nranks == 1) return (route_rings){.waves = 1, .sends = 1};
    if (in_flight == 0)
        return (route_rings){
            .ahead = (size_t)all, .behind = (size_t)all, .waves = all, .sends = all};
    route_rings rings = {.ahead = (size_t)in_flight / 2, .behind = (size_t)(in_flight - 1) / 2};
    rings.waves = in_flight < all ? in_flight : all;
    rings.sends = rings.ahead < (size_t)rings.waves ? (int)rings.ahead + 1 : rings.waves;
    return rings;
}

route_rings muon__route_rings(const muon_plan *plan)
{
    return muon__rings_of_depth(plan, plan->in_flight);
}

static int64_t lines(int64_t bytes)
{
    return (bytes + MUON__ALIGN - 1) / MUON__ALIGN * MUON__ALIGN;
}

/* ---- One rank, from its route */

static void raise_to(int64_t *most, int64_t bytes)
{
    if (bytes > *most) *most = bytes;
}

static int64_t slots_in(const route *r, const muon_plan *plan, size_t wave)
{
    int64_t most = 0;
    for (size_t i = r->owned_first[wave]; i < r->owned_first[wave + 1]; i++) {
        const plan_item *item = &plan->items[r->owned[i]];
        raise_to(&most, item->slot + muon__slot_floats(item));
    }
    return most * (int64_t)sizeof(float);
}

static int64_t messages_in(const route *r, int list, size_t wave)
{
    const route_messages *m = &r->messages[list];
    int64_t most = 0;
    for (size_t i = m->first[wave]; i < m->first[wave + 1]; i++)
        if (m->entries[i].item == ROUTE_PACKED)
            raise_to(&most, m->entries[i].offset + m->entries[i].bytes);
    return most;
}

int64_t muon__route_buffer_bytes(const route *r, const muon_plan *plan, int list, int i)
{
    if (list == SLOTS && plan->nranks == 1) return plan->wave_floats * (int64_t)sizeof(float);
    size_t n = (size_t)muon__rings_of_list(muon__route_rings(plan), list);
    int64_t most = 0;
    for (size_t w = (size_t)i; w < plan->nwaves; w += n) {
        raise_to(&most, list == SLOTS ? slots_in(r, plan, w) : messages_in(r, list, w));
        if (list == SCATTER_RECEIVE) raise_to(&most, messages_in(r, RELAY_SCATTER_IN, w));
    }
    return most;
}

int64_t muon__route_workspace(const route *r, const muon_plan *plan)
{
    int64_t sum = lines(muon__scratch_floats(plan) * (int64_t)sizeof(float));
    for (int k = 0; k < ROUTE_BUFFERS; k++) {
        int n = muon__rings_of_list(muon__route_rings(plan), muon__wave_buffers[k]);
        for (int i = 0; i < n; i++)
            sum += lines(muon__route_buffer_bytes(r, plan, muon__wave_buffers[k], i));
    }
    return sum;
}

/* ---- All ranks, from what they send and receive */

static int64_t bytes_of(const wave_traffic *at, int list)
{
    switch (list) {
    case SLOTS:
        return at->floats * (int64_t)sizeof(float);
    case GATHER_RECEIVE:
        return at->gather_packed;
    case SCATTER_SEND:
        return at->scatter_packed;
    case GATHER_SEND:
        return at->gather_sent;
    case SCATTER_RECEIVE:
        return at->scatter_received + at->scatter_relayed;
    case RELAY_GATHER_IN:
        return at->gather_relayed;
    }
    return 0;
}

static int64_t buffers_of(const traffic *t, route_rings rings, size_t rank, int list)
{
    size_t n = (size_t)muon__rings_of_list(rings, list);
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t most = 0;
        for (size_t w = i; w < t->nwaves; w += n)
            raise_to(&most, bytes_of(muon__traffic_at(t, rank, w), list));
        sum += lines(most);
    }
    return sum;
}

int64_t muon__traffic_workspace(const traffic *t, const muon_plan *plan)
{
    route_rings rings = muon__route_rings(plan);
    int64_t largest = 0;
    for (size_t r = 0; r < t->nranks; r++) {
        int64_t sum = 0;
        for (int k = 0; k < ROUTE_BUFFERS; k++)
            sum += buffers_of(t, rings, r, muon__wave_buffers[k]);
        raise_to(&largest, sum);
    }
    return largest;
}
