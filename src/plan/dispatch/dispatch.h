/* dispatch.h - the cost model of the dispatcher: what it costs a rank to own a matrix.
 *
 * A matrix that a few ranks hold is followed byte by byte. One that many hold comes to its owner from
 * everywhere, whoever that is: what its holders send and receive is counted before any owner is chosen,
 * and an owner only adds what it has to bring in and send out. Seconds are those of config.machine. */
#ifndef PLAN_DISPATCH_DISPATCH_H
#define PLAN_DISPATCH_DISPATCH_H

#include "plan/route/shares.h"

enum { FEW_HOLDERS = 16 };

typedef struct holding {
    int rank;
    int64_t numel;
    int64_t node_numel; /* of all holdings in the rank's node */
} holding;

/* Where one matrix of a pattern is; the same row for that matrix in all parameters of the pattern. */
typedef struct holding_row {
    int64_t numel;
    int64_t total;         /* elements of all replicas together */
    double once;           /* of a result that goes to other nodes, the part that an owner sends */
    uint32_t first, n;     /* its holdings, by rank; n is 0 if there are many */
    const int64_t *shards; /* many: [nranks] elements of the parameter on a rank, */
    int64_t param_numel;   /* of so many */
} holding_row;

typedef struct rank_load {
    double work, in, out; /* seconds: orthogonalizing, receiving, sending */
    int64_t bytes;        /* received and sent */
} rank_load;

typedef struct cost_model {
    const muon_plan *plan;
    patterns patterns;
    holding_row *rows;
    uint32_t *row_of; /* [nitems] */
    holding *holdings;
    int64_t *shards;
    double *work;              /* [nclasses] seconds of one orthogonalization */
    rank_load *base;           /* [nranks] before any owner is chosen */
    int *node;                 /* [nranks] */
    double near, far, average; /* seconds for a byte: inside a node, between nodes, to any rank */
    double same_node;          /* of all ranks, the part that is in one's own */
    int64_t wire;
} cost_model;

muon_status muon__cost_model_create(cost_model *out, const muon_plan *plan);
void muon__cost_model_destroy(cost_model *m); /* zeroed is fine */

/* What owning the matrix adds to a rank. */
rank_load muon__cost_of_owner(const cost_model *m, size_t item, int owner);
/* The same for the rank that has holding i of its row. */
rank_load muon__cost_of_keeper(const cost_model *m, size_t item, size_t i);
/* What an owner adds to another rank, which has holding i. */
rank_load muon__cost_of_holder(const cost_model *m, size_t item, int owner, size_t i);

/* All matrices, the costliest first, then by index; those of equal cost are a bucket. */
typedef struct cost_order {
    uint32_t *items; /* [cost.matrices] */
    size_t *bucket;  /* [nbuckets + 1] */
    int64_t *even;   /* [nbuckets] so many of each on a rank, if each shape is shared out evenly */
    size_t nbuckets;
} cost_order;

muon_status muon__cost_order_create(cost_order *out, const muon_plan *plan);
void muon__cost_order_destroy(cost_order *o); /* zeroed is fine */

/* Better owners, [nitems], if the plan is small enough to look for them (small.c). */
muon_status muon__dispatch_small(int32_t *owner, const muon_plan *plan, const patterns *p,
                                 const cost_order *order);

static inline double muon__load_seconds(const rank_load *l)
{
    double messages = l->in > l->out ? l->in : l->out;
    return l->work > messages ? l->work : messages;
}

static inline void muon__load_add(rank_load *to, const rank_load *more)
{
    to->work += more->work;
    to->in += more->in;
    to->out += more->out;
    to->bytes += more->bytes;
}

#endif
