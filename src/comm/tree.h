/* tree.h - all ranks combine a block of memory, and all get the result.
 *
 * Up a binomial tree to rank 0 and down again, in messages that are opened once: running it allocates
 * nothing and sets nothing up. A rank that does not come in time makes every rank that did return the
 * same MUON_E_TIMEOUT, which names it; a rank waits a little longer for children with many ranks
 * behind them, so that who knows most speaks first. */
#ifndef COMM_TREE_H
#define COMM_TREE_H

#include "comm/comm.h"

typedef struct tree tree;
/* Must not care about order or grouping. */
typedef void (*tree_combine_fn)(void *user, void *into, const void *from);

/* comm NULL or of one rank: running it does nothing. comm must outlive the tree. */
muon_status muon__tree_create(tree **out, const muon_comm *comm, int channel, size_t bytes,
                              tree_combine_fn combine, void *user, double timeout);
size_t muon__tree_destroy(tree *t); /* NULL is fine; returns what muon__comm_free does */

/* The block: filled in before a run, the result after it. Aligned for any type; zeros at first. */
void *muon__tree_block(tree *t);

/* stage is for the message: "rank 3 did not come to muon_step within 600 s". After a failure the tree
 * can only be destroyed, and the block has no meaning. */
muon_status muon__tree_run(tree *t, const char *stage);

#endif
