/* relays.h - which messages go through a rank between their ends, so that no rank has more peers than
 * config.peers_max.
 *
 * Between a node and an owner on another node, either every holder of the node exchanges messages with
 * the owner, or one rank of the node does so for all of them. That relay is the rank with the owner's
 * number inside its node. So the ranks of a node share the work, and if everything is relayed, a rank's
 * peers are its node mates and the ranks with its number on other nodes. */
#ifndef PLAN_ROUTE_RELAYS_H
#define PLAN_ROUTE_RELAYS_H

#include "plan/plan.h"

enum { RELAY_NONE = -1 };

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

/* What the messages between a holder and an owner go through, in both directions; RELAY_NONE: nothing. */
static inline int muon__relay_between(const muon_plan *plan, int holder, int owner)
{
    if (!plan->relayed) return RELAY_NONE;
    int64_t node = muon__node_of(plan, holder);
    if (!plan->relayed[(size_t)node * (size_t)plan->nranks + (size_t)owner]) return RELAY_NONE;
    int relay = muon__relay_at(plan, node, owner);
    return relay == holder ? RELAY_NONE : relay;
}

#endif
