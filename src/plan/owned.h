/* owned.h - state that a matrix's owner keeps for it, where the matrix is whole: lists of a parameter,
 * one matrix after the other. All other state lies where the weights lie. */
#ifndef PLAN_OWNED_H
#define PLAN_OWNED_H

#include "plan/plan.h"

enum {
    OWNED_SECOND, /* second moments */
    OWNED_CODES,  /* momentum in 8 bits, and */
    OWNED_SCALES, /* the scales of its blocks (base/i8.h) */
    OWNED_LISTS
};

/* Of an element. */
muon_dtype muon__owned_dtype(int list);
/* Elements of a list for one item; 0 if it is in no matrix. */
int64_t muon__owned_length(const muon_plan *plan, const plan_item *item, int list);
/* Of all its lists. */
int64_t muon__owned_bytes(const muon_plan *plan, const plan_item *item);

#endif
