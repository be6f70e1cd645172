#include "plan/dispatch/nodes.h"

#include "base/memory.h"

#include <stdlib.h>

static int size_of(const node_loads *n, int node)
{
    int left = n->nranks - node * n->per_node;
    return left < n->per_node ? left : n->per_node;
}

static double start_of(const node_loads *n, int node, int size)
{
    return n->load[n->sorted[node * n->per_node + size - 1]];
}

static int better(const node_loads *n, int size, int a, int b)
{
    if (a < 0) return b;
    if (b < 0) return a;
    double start_a = start_of(n, a, size), start_b = start_of(n, b, size);
    if (start_a != start_b) return start_a < start_b ? a : b;
    if (n->total[a] != n->total[b]) return n->total[a] < n->total[b] ? a : b;
    return a < b ? a : b;
}

muon_status muon__node_loads_create(node_loads *out, const double *load, int nranks,
                                    int64_t ranks_per_node, int most)
{
    *out = (node_loads){.nranks = nranks, .load = load, .leaves = 1};
    if (ranks_per_node > NODE_MAX) return MUON_OK;
    out->per_node = (int)ranks_per_node;
    out->nnodes = (nranks + out->per_node - 1) / out->per_node;
    out->most = most < out->per_node ? most : out->per_node;
    while (out->leaves < (size_t)out->nnodes)
        out->leaves *= 2;
    TRY(CALLOC(&out->sorted, (size_t)out->nnodes * (size_t)out->per_node, "nodes"));
    TRY(CALLOC(&out->total, (size_t)out->nnodes, "nodes"));
    return CALLOC(&out->winner, (size_t)(out->most + 1) * 2 * out->leaves, "nodes");
}

void muon__node_loads_destroy(node_loads *n)
{
    free(n->sorted);
    free(n->total);
    free(n->winner);
}

static void sort_node(node_loads *n, int node)
{
    int first = node * n->per_node, *sorted = n->sorted + first;
    n->total[node] = 0;
    for (int i = 0; i < size_of(n, node); i++) {
        int rank = first + i, at = i;
        for (; at > 0 && n->load[sorted[at - 1]] > n->load[rank]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = rank;
        n->total[node] += n->load[rank];
    }
}

void muon__node_loads_reset(node_loads *n)
{
    for (int node = 0; node < n->nnodes; node++)
        sort_node(n, node);
    for (int size = 2; size <= n->most; size++) {
        int *winner = n->winner + (size_t)size * 2 * n->leaves;
        for (size_t i = 0; i < n->leaves; i++)
            winner[n->leaves + i] =
                i < (size_t)n->nnodes && size_of(n, (int)i) >= size ? (int)i : -1;
        for (size_t i = n->leaves - 1; i >= 1; i--)
            winner[i] = better(n, size, winner[2 * i], winner[2 * i + 1]);
    }
}

void muon__node_loads_changed(node_loads *n, int rank)
{
    if (n->most < 2) return;
    int node = rank / n->per_node;
    sort_node(n, node);
    for (int size = 2; size <= n->most; size++) {
        int *winner = n->winner + (size_t)size * 2 * n->leaves;
        for (size_t i = (n->leaves + (size_t)node) / 2; i >= 1; i /= 2)
            winner[i] = better(n, size, winner[2 * i], winner[2 * i + 1]);
    }
}

const int *muon__node_loads_best(const node_loads *n, int size)
{
    if (size > n->most) return NULL;
    int node = n->winner[(size_t)size * 2 * n->leaves + 1];
    return node < 0 ? NULL : n->sorted + (size_t)node * (size_t)n->per_node;
}
