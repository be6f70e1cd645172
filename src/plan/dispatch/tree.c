#include "plan/dispatch/tree.h"

#include "base/memory.h"

#include <stdlib.h>

static int better(const load_tree *t, int a, int b)
{
    if (a < 0) return b;
    if (b < 0) return a;
    if (t->load[a] != t->load[b]) return t->load[a] < t->load[b] ? a : b;
    return t->turn[a] < t->turn[b] ? a : b;
}

/* First one rank of every node, then the next of every node, ... The last node may be smaller. */
static void take_turns(load_tree *t, int64_t ranks_per_node)
{
    int64_t per_node = ranks_per_node < t->nranks ? ranks_per_node : t->nranks;
    int turn = 0;
    for (int64_t first = 0; first < per_node; first++)
        for (int64_t rank = first; rank < t->nranks; rank += per_node)
            t->turn[rank] = turn++;
}

muon_status muon__load_tree_create(load_tree *out, int nranks, int64_t ranks_per_node)
{
    load_tree t = {.nranks = nranks, .leaves = 1};
    while (t.leaves < (size_t)nranks)
        t.leaves *= 2;
    muon_status status = CALLOC(&t.load, (size_t)nranks, "loads");
    if (status == MUON_OK) status = CALLOC(&t.turn, (size_t)nranks, "loads");
    if (status == MUON_OK) status = CALLOC(&t.winner, 2 * t.leaves, "loads");
    if (status != MUON_OK) {
        muon__load_tree_destroy(&t);
        return status;
    }
    take_turns(&t, ranks_per_node);
    *out = t;
    return MUON_OK;
}

void muon__load_tree_destroy(load_tree *t)
{
    free(t->load);
    free(t->turn);
    free(t->winner);
}

void muon__load_tree_reset(load_tree *t, const double *loads)
{
    for (size_t i = 0; i < t->leaves; i++) {
        int there = i < (size_t)t->nranks;
        if (there) t->load[i] = loads[i];
        t->winner[t->leaves + i] = there ? (int)i : -1;
    }
    for (size_t i = t->leaves - 1; i >= 1; i--)
        t->winner[i] = better(t, t->winner[2 * i], t->winner[2 * i + 1]);
}

void muon__load_tree_set(load_tree *t, int rank, double load)
{
    if (t->load[rank] == load) return;
    t->load[rank] = load;
    for (size_t i = (t->leaves + (size_t)rank) / 2; i >= 1; i /= 2) {
        int before = t->winner[i];
        t->winner[i] = better(t, t->winner[2 * i], t->winner[2 * i + 1]);
        /* Another won here and still does: nothing above has changed. */
        if (t->winner[i] == before && before != rank) return;
    }
}

int muon__load_tree_least_of(const load_tree *t, int begin, int end)
{
    int least = -1;
    size_t a = t->leaves + (size_t)begin, b = t->leaves + (size_t)end;
    for (; a < b; a /= 2, b /= 2) {
        if (a % 2) least = better(t, least, t->winner[a++]);
        if (b % 2) least = better(t, least, t->winner[--b]);
    }
    return least;
}
