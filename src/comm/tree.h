/* tree.h - all ranks combine a block of memory, and all get the result.
 *
 * The block goes up a binomial tree to rank 0 and down again, in messages that are opened once: a
 * run allocates nothing and sets nothing up. Every run starts by announcing its call. Ranks that
 * are in different calls all return the same MUON_E_DISAGREE, and can continue: each has taken part
 * in one run, of whatever tree on that channel. If a rank does not take part, all others return
 * MUON_E_TIMEOUT, naming it. */
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

/* Whose it is: a number that all ranks have for the same object. 0 at first, nobody's. */
void muon__tree_set_object(tree *t, int64_t object);

/* The block: filled in before a run, the result after it. Aligned for any type; zeros at first. */
void *muon__tree_block(tree *t);

/* stage is what ranks must have in common, and for messages: "rank 3 did not reach muon_step within
 * 600 s", "rank 1 is in muon_load, rank 0 in muon_step". After a failure the block has no meaning,
 * and after another one than MUON_E_DISAGREE the tree can only be destroyed. */
muon_status muon__tree_run(tree *t, const char *stage);

#endif
