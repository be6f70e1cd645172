/* priced.h - owners for machines on which messages take as long as work.
 *
 * An owner's choice has consequences for others: every holder sends its part and receives it back, near
 * or far. So work, receiving and sending have a price on every rank, which rises steeply as the rank's
 * load comes near a target, and a matrix goes where all that it causes is cheapest. While loads are low,
 * prices are equal, and that is where fewest bytes move. */
#ifndef PLAN_DISPATCH_PRICED_H
#define PLAN_DISPATCH_PRICED_H

#include "plan/dispatch/dispatch.h"
#include "plan/dispatch/tree.h"

/* Owners, [nitems], of all matrices that are not shared, and the loads, [nranks], that come of them. The
 * tree is scratch. */
void muon__priced_owners(int32_t *owner, rank_load *load, load_tree *tree, const cost_model *m,
                         const cost_order *order, const unsigned char *shared, double target);

#endif
