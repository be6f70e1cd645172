/* nodes.h - the node whose ranks can begin a team's work first, while loads change one by one.
 *
 * Every node keeps its ranks sorted by load, and for every size of a team there is a tournament of
 * nodes: a team of k begins when the k-th least loaded rank of its node is free. Among equals the node
 * with less to do in all wins, so that teams spread over nodes: what their members hold can then stay
 * near them. */
#ifndef PLAN_DISPATCH_NODES_H
#define PLAN_DISPATCH_NODES_H

#include "base/status.h"

enum { NODE_MAX = 64 }; /* ranks; in larger nodes there is nothing to prefer */

typedef struct node_loads {
    int nranks, per_node, nnodes;
    int most;           /* ranks of a team inside a node; less than 2: not looked for */
    size_t leaves;      /* a power of 2 */
    const double *load; /* [nranks] of the caller */
    int *sorted;        /* [nnodes][per_node] ranks, the least loaded first */
    double *total;      /* [nnodes] */
    int *winner;        /* [most + 1][2 leaves] nodes, 1 is the root; -1: none is that large */
} node_loads;

muon_status muon__node_loads_create(node_loads *out, const double *load, int nranks,
                                    int64_t ranks_per_node, int most);
void muon__node_loads_destroy(node_loads *n); /* zeroed is fine */
/* All loads may have changed, or one. */
void muon__node_loads_reset(node_loads *n);
void muon__node_loads_changed(node_loads *n, int rank);

/* The members of the best team of so many ranks in one node, the least loaded first; NULL: no node is
 * that large. */
const int *muon__node_loads_best(const node_loads *n, int size);

#endif
