/* Who relays for whom. If direct messages keep to the bound, nobody does. Otherwise everything that can be
 * is relayed at first, which gives the fewest peers; then the pairs of a node and an owner with the
 * most bytes become direct again, one after the other, wherever nobody gets too many peers by that. */
#include "plan/route/relays.h"

#include "base/binomial.h"
#include "base/memory.h"
#include "plan/route/route.h"
#include "plan/route/shares.h"

#include <stdlib.h>
#include <string.h>

typedef struct pair { /* the holders of a node, and an owner on another one */
    int64_t bytes;    /* that they exchange in a step */
    int32_t node, owner;
} pair;

/* Where nothing is relayed for the bound: is a message between a holder and an owner, or does all that the
 * holder gets come through its mates? */
enum { DIRECT = 1, PASSED = 2 };

typedef struct graph {
    const muon_plan *plan;
    size_t n;     /* ranks */
    size_t width; /* ranks of a node at most */
    size_t nnodes;
    unsigned char *held;  /* [holder][owner] they have a matrix in common: DIRECT, PASSED or both */
    unsigned char *mates; /* [rank][width] it passes results on to this one of its node */
    int64_t *bytes;       /* [node][owner] between the node and the owner, if a rank relays */
    /* Reasons for a connection, both ways: on another node, and on the same one by number inside it. */
    unsigned char *far; /* [rank][rank] */
    uint32_t *near;     /* [rank][width] */
    int32_t *peers;     /* [rank] */
    pair *pairs;        /* that have a choice */
    size_t npairs;
    cell_holders holders; /* of one cell */
} graph;

static size_t node_of(const graph *g, int rank)
{
    return (size_t)rank / g->width;
}

/* ---- Who has to do with whom */

static void add_holder(graph *g, int holder, int owner, unsigned char how)
{
    if (holder != owner) g->held[(size_t)holder * g->n + (size_t)owner] |= how;
}

static void add_bytes(graph *g, int holder, int owner, int64_t bytes)
{
    if (holder != owner) g->bytes[node_of(g, holder) * g->n + (size_t)owner] += bytes;
}

/* Mates get a result through a relay together. Without a bound, that is one of them, or none. */
static void add_mates(graph *g, int owner, const mates *m, int64_t bytes)
{
    int relay = muon__scatter_relay(g->plan, owner, m);
    for (int i = 0; i < m->n; i++) {
        int passed = relay != RELAY_NONE && m->ranks[i] != relay;
        add_holder(g, m->ranks[i], owner, passed ? PASSED : DIRECT);
        if (passed) g->mates[(size_t)relay * g->width + (size_t)m->ranks[i] % g->width] = 1;
        if (i == 0 || node_of(g, owner) == node_of(g, m->ranks[0]))
            add_bytes(g, m->ranks[i], owner, bytes);
    }
}

/* Everybody who has a part of an item gets its result, and one holder of each part sends it. */
static muon_status add_item(graph *g, const shares *s, size_t item)
{
    const plan_item *it = &g->plan->items[item];
    const layout *l = g->plan->params[it->param].layout;
    for (size_t i = 0; i < s->n; i++) {
        const share *part = &s->list[i];
        mates m;
        TRY(muon__cell_holders_find(&g->holders, l, part->cell));
        for (int k = 0; k < part->nholders; k += m.n) {
            m = muon__mates_at(g->plan, g->holders.ranks, part->nholders, k);
            add_mates(g, it->owner, &m, part->numel * (int64_t)sizeof(float));
        }
        int sender =
            part->nholders > 1 ? muon__route_sender(g->plan, l, part->cell, item) : part->holder;
        add_holder(g, sender, it->owner, DIRECT);
        add_bytes(g, sender, it->owner, part->numel * muon__wire_bytes(g->plan));
    }
    return MUON_OK;
}

static muon_status add_items(graph *g, const patterns *p, shares *s)
{
    for (size_t i = 0; i < p->n; i++) {
        uint32_t param = muon__pattern_param(p, i);
        size_t first = p->item_first[param], end = p->item_first[param + 1];
        for (size_t item = first; item < end; item++) {
            if (g->plan->items[item].class == PLAN_IDLE) continue;
            TRY(muon__shares_find(s, g->plan, item));
            for (size_t k = p->first[i]; k < p->first[i + 1]; k++)
                TRY(add_item(g, s, p->item_first[p->params[k]] + item - first));
        }
    }
    return MUON_OK;
}

static muon_status find_holders(graph *g)
{
    patterns p = {0};
    shares s = {0};
    TRY(muon__patterns_create(&p, g->plan));
    muon_status status = add_items(g, &p, &s);
    muon__shares_destroy(&s);
    muon__patterns_destroy(&p);
    return status;
}

/* ---- Connections */

/* by: one reason more (1) or less (-1) for two ranks to be connected. */
static void connect(graph *g, int a, int b, int by)
{
    size_t x = (size_t)a, y = (size_t)b;
    int was, is;
    if (a == b) return;
    if (node_of(g, a) == node_of(g, b)) {
        uint32_t *there = &g->near[x * g->width + y % g->width];
        was = *there > 0;
        *there = (uint32_t)((int64_t)*there + by);
        g->near[y * g->width + x % g->width] = *there;
        is = *there > 0;
    } else {
        unsigned char *there = &g->far[x * g->n + y];
        was = *there > 0;
        *there = (unsigned char)(*there + by);
        g->far[y * g->n + x] = *there;
        is = *there > 0;
    }
    g->peers[a] += is - was;
    g->peers[b] += is - was;
}

/* The connections between the holders of a node and an owner. */
static void connect_pair(graph *g, size_t node, int owner, int relayed, int by)
{
    int relay = relayed ? muon__relay_at(g->plan, (int64_t)node, owner) : owner;
    size_t end = (node + 1) * g->width < g->n ? (node + 1) * g->width : g->n;
    int any = 0;
    for (size_t h = node * g->width; h < end; h++) {
        unsigned char how = g->held[h * g->n + (size_t)owner];
        if (!how || (!relayed && how == PASSED)) continue;
        connect(g, (int)h, relay, by);
        any = 1;
    }
    if (relayed && any) connect(g, relay, owner, by);
}

static void connect_teams(graph *g)
{
    for (size_t t = 0; t < g->plan->nteams; t++) {
        const plan_item *strips = &g->plan->items[g->plan->teams[t].first];
        int size = g->plan->shapes[g->plan->teams[t].shape].size;
        for (int a = 0; a < size; a++) {
            for (int b = a + 1; b < size; b++) {
                size_t x = (size_t)strips[a].owner, y = (size_t)strips[b].owner;
                if (node_of(g, (int)x) == node_of(g, (int)y) || g->far[x * g->n + y] == 0)
                    connect(g, (int)x, (int)y, 1);
            }
        }
    }
}

/* Mates stay connected where all of their messages are relayed: in the same node that costs little. */
static void connect_mates(graph *g)
{
    for (size_t r = 0; r < g->n; r++)
        for (size_t i = 0; i < g->width; i++)
            if (g->mates[r * g->width + i])
                connect(g, (int)r, (int)(node_of(g, (int)r) * g->width + i), 1);
}

/* The most peers that any rank has if every pair of a node and an owner elsewhere is relayed, or none. */
static int32_t connect_all(graph *g, int relayed)
{
    memset(g->far, 0, g->n * g->n * sizeof *g->far);
    memset(g->near, 0, g->n * g->width * sizeof *g->near);
    memset(g->peers, 0, g->n * sizeof *g->peers);
    connect_teams(g);
    connect_mates(g);
    for (size_t r = 1; r < g->n; r++)
        connect(g, (int)r, muon__binomial_parent((int)r), 1);
    for (size_t node = 0; node < g->nnodes; node++)
        for (size_t owner = 0; owner < g->n; owner++)
            if (g->bytes[node * g->n + owner])
                connect_pair(g, node, (int)owner, relayed && node_of(g, (int)owner) != node, 1);
    int32_t most = 0;
    for (size_t r = 0; r < g->n; r++)
        if (g->peers[r] > most) most = g->peers[r];
    return most;
}

/* ---- What need not be relayed */

static int largest_first(const void *a, const void *b)
{
    const pair *pa = a, *pb = b;
    if (pa->bytes != pb->bytes) return pa->bytes > pb->bytes ? -1 : 1;
    if (pa->node != pb->node) return pa->node < pb->node ? -1 : 1;
    return (pa->owner > pb->owner) - (pa->owner < pb->owner);
}

static muon_status list_pairs(graph *g)
{
    for (size_t i = 0; i < g->nnodes * g->n; i++)
        g->npairs += g->bytes[i] && node_of(g, (int)(i % g->n)) != i / g->n;
    TRY(CALLOC(&g->pairs, g->npairs, "relays"));
    size_t n = 0;
    for (size_t i = 0; i < g->nnodes * g->n; i++)
        if (g->bytes[i] && node_of(g, (int)(i % g->n)) != i / g->n)
            g->pairs[n++] = (pair){g->bytes[i], (int32_t)(i / g->n), (int32_t)(i % g->n)};
    if (n) qsort(g->pairs, n, sizeof *g->pairs, largest_first);
    return MUON_OK;
}

static int keeps_to_bound(const graph *g, const pair *p)
{
    size_t begin = (size_t)p->node * g->width;
    size_t end = begin + g->width < g->n ? begin + g->width : g->n;
    int64_t most = g->plan->config.peers_max;
    if (g->peers[p->owner] > most) return 0;
    for (size_t h = begin; h < end; h++)
        if (g->peers[h] > most) return 0;
    return 1;
}

static void relay_the_rest(graph *g, unsigned char *relayed)
{
    for (size_t i = 0; i < g->npairs; i++) {
        const pair *p = &g->pairs[i];
        connect_pair(g, (size_t)p->node, p->owner, 1, -1);
        connect_pair(g, (size_t)p->node, p->owner, 0, 1);
        if (keeps_to_bound(g, p)) continue;
        connect_pair(g, (size_t)p->node, p->owner, 0, -1);
        connect_pair(g, (size_t)p->node, p->owner, 1, 1);
        relayed[(size_t)p->node * g->n + (size_t)p->owner] = 1;
    }
}

/* ---- All of it */

static muon_status choose(graph *g, muon_plan *plan)
{
    TRY(CALLOC(&g->held, g->n * g->n, "relays"));
    TRY(CALLOC(&g->mates, g->n * g->width, "relays"));
    TRY(CALLOC(&g->far, g->n * g->n, "relays"));
    TRY(CALLOC(&g->near, g->n * g->width, "relays"));
    TRY(CALLOC(&g->bytes, g->n * g->nnodes, "relays"));
    TRY(CALLOC(&g->peers, g->n, "relays"));
    TRY(find_holders(g));
    int64_t most = plan->config.peers_max, direct = connect_all(g, 0);
    if (direct <= most) return MUON_OK;
    int64_t least = connect_all(g, 1);
    REQUIRE(least <= most, E_BUDGET,
            "peers_max is %lld, but with machine.ranks_per_node %lld the smallest possible is %lld",
            (long long)most, (long long)plan->config.machine.ranks_per_node,
            (long long)(least < direct ? least : direct));
    TRY(list_pairs(g));
    TRY(CALLOC(&plan->relayed, g->n * g->nnodes, "relays"));
    relay_the_rest(g, plan->relayed);
    return MUON_OK;
}

muon_status muon__plan_choose_relays(muon_plan *plan)
{
    if (plan->config.peers_max == 0 || plan->nranks == 1) return MUON_OK;
    int64_t per_node = plan->config.machine.ranks_per_node;
    graph g = {.plan = plan, .n = (size_t)plan->nranks};
    g.width = per_node < plan->nranks ? (size_t)per_node : g.n;
    g.nnodes = (g.n + g.width - 1) / g.width;
    muon_status status = choose(&g, plan);
    free(g.held);
    free(g.mates);
    free(g.far);
    free(g.near);
    free(g.bytes);
    free(g.peers);
    free(g.pairs);
    muon__cell_holders_free(&g.holders);
    return status;
}
