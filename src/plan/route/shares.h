/* shares.h - who holds how much of every matrix.
 *
 * A model has many layers, and tensors of the same shape, matrices and layout are cut in the same way:
 * they are one pattern, looked at once. */
#ifndef PLAN_ROUTE_SHARES_H
#define PLAN_ROUTE_SHARES_H

#include "plan/plan.h"

typedef struct patterns {
    size_t n;
    uint32_t *params;   /* Muon's parameters, pattern by pattern */
    size_t *first;      /* [n + 1] pattern p has params[first[p]] .. params[first[p + 1]] */
    size_t *item_first; /* [nparams + 1] a parameter's items */
} patterns;

muon_status muon__patterns_create(patterns *out, const muon_plan *plan);
void muon__patterns_destroy(patterns *p); /* zeroed is fine */

/* The parameter that stands for a pattern. */
static inline uint32_t muon__pattern_param(const patterns *p, size_t pattern)
{
    return p->params[p->first[pattern]];
}

/* What the holders of a cell have of an item, in elements. */
typedef struct share {
    size_t cell;
    int holder, nholders; /* the first, and how many */
    int64_t numel;
    int64_t packed_wire, packed_f32; /* of it, in parts that do not travel alone; by what travels */
} share;

typedef struct shares { /* of one item; zero it before the first use */
    share *list;        /* by cell, ascending; none is empty */
    size_t n, capacity;
    patch *patches; /* of one cell */
    size_t patch_capacity;
} shares;

muon_status muon__shares_find(shares *s, const muon_plan *plan, size_t item);
void muon__shares_destroy(shares *s);

/* Bytes of an element on the way to the owner; on the way back it is always f32. */
static inline int64_t muon__wire_bytes(const muon_plan *plan)
{
    return plan->config.wire == MUON_BF16 ? 2 : 4;
}

#endif
