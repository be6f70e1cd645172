/* tree.h - the least loaded rank, of all or of a range, while loads change one by one.
 *
 * A tournament: every inner node knows the better of its two sides. Equal loads are decided by a
 * turn that goes around the nodes of the machine before it comes back to the first, so that large
 * matrices do not gather on the ranks of a few nodes. */
#ifndef PLAN_DISPATCH_TREE_H
#define PLAN_DISPATCH_TREE_H

#include "base/status.h"

typedef struct load_tree {
    int nranks;
    size_t leaves; /* a power of 2 */
    double *load;  /* [nranks] */
    int *turn;     /* [nranks] */
    int *winner;   /* [2 leaves], 1 is the root; -1: nobody */
} load_tree;

muon_status muon__load_tree_create(load_tree *out, int nranks, int64_t ranks_per_node);
void muon__load_tree_destroy(load_tree *t); /* zeroed is fine */
void muon__load_tree_reset(load_tree *t, const double *loads);
void muon__load_tree_set(load_tree *t, int rank, double load);

static inline int muon__load_tree_least(const load_tree *t)
{
    return t->winner[1];
}

int muon__load_tree_least_of(const load_tree *t, int begin, int end); /* ranks begin .. end - 1 */

#endif
