/* relays.h - which messages go through a rank between their ends: so that no rank has more peers than
 * config.peers_max, or because a result that several ranks of a node need gets there sooner.
 *
 * For the first reason: between a node and an owner on another node, either every holder of the node
 * exchanges messages with the owner, or one rank of the node does so for all of them. That relay is the
 * rank with the owner's number inside its node. So the ranks of a node share the work, and if everything
 * is relayed, a rank's peers are its node mates and the ranks with its number on other nodes.
 *
 * For the second, where plan->results_once: the holders of a cell on one node take turns, by the owner's
 * number, in getting a result from another node and passing it on. So a relay has a replica itself, nothing
 * moves more often than it has to, and all that changes is that it moves inside a node instead of between
 * nodes. Gathers stay direct: of several holders only one sends.
 *
 * A relay gets a result once, however many ranks of its node hold a replica of it, itself included. */
#ifndef PLAN_ROUTE_RELAYS_H
#define PLAN_ROUTE_RELAYS_H

#include "plan/plan.h"

enum {
    RELAY_NONE = -1,
    RELAY_MATES = 64 /* ranks of a node: in a larger one, each replica travels by itself */
};

static inline int64_t muon__node_of(const muon_plan *plan, int rank)
{
    return rank / plan->config.machine.ranks_per_node;
}

/* The rank of a node that relays for an owner on another one. The last node may be smaller. */
static inline int muon__relay_at(const muon_plan *plan, int64_t node, int owner)
{
    int64_t per_node = plan->config.machine.ranks_per_node, first = node * per_node;
    int64_t size = plan->nranks - first < per_node ? plan->nranks - first : per_node;
    return (int)(first + owner % per_node % size);
}

static inline int muon__has_relays(const muon_plan *plan)
{
    return plan->relayed || plan->results_once;
}

/* Do all messages between the ranks of a node and an owner go through one of them? */
static inline int muon__is_relayed(const muon_plan *plan, int64_t node, int owner)
{
    return plan->relayed && plan->relayed[(size_t)node * (size_t)plan->nranks + (size_t)owner];
}

/* What a message from a holder to an owner goes through; RELAY_NONE: nothing. */
static inline int muon__gather_relay(const muon_plan *plan, int holder, int owner)
{
    int64_t node = muon__node_of(plan, holder);
    if (!muon__is_relayed(plan, node, owner)) return RELAY_NONE;
    int relay = muon__relay_at(plan, node, owner);
    return relay == holder ? RELAY_NONE : relay;
}

/* ---- Mates: holders of a cell that are on one node, and get a result together */

typedef struct mates {
    const int *ranks; /* ascending */
    int n;
} mates;

typedef struct cell_holders {
    const layout *l;
    size_t cell;
    int *ranks; /* ascending */
    int n, capacity;
} cell_holders;

/* All holders of a cell. Nothing is done if they are those of the last call. Zero it before the first. */
muon_status muon__cell_holders_find(cell_holders *h, const layout *l, size_t cell);
void muon__cell_holders_free(cell_holders *h); /* zeroed is fine */

/* Those of n ascending ranks that are mates of the one at `at` and not before it. */
mates muon__mates_at(const muon_plan *plan, const int *ranks, int n, int at);
/* The mates of one of the holders, itself included. */
mates muon__mates_of(const muon_plan *plan, const cell_holders *h, int holder);
/* For sorting: different mates on one node have different keys, equal ones the same. */
uint64_t muon__mates_key(const muon_plan *plan, const mates *m);

/* Could a step be shorter with results_once? Only if some holders have mates, and a node is faster inside. */
muon_status muon__mates_pay(int *pay, const muon_plan *plan);

/* The rank that receives the result for all of them, perhaps one of them; RELAY_NONE: each receives
 * its own from the owner. */
int muon__scatter_relay(const muon_plan *plan, int owner, const mates *m);

#endif
