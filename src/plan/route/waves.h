/* waves.h - shared by the files that make waves. */
#ifndef PLAN_ROUTE_WAVES_H
#define PLAN_ROUTE_WAVES_H

#include "base/memory.h"
#include "plan/route/shares.h"

/* Sizes are whole cache lines, so that what is planned is to the byte what is allocated. */
enum {
    WAVE_LINE = MUON__ALIGN / sizeof(float),
    WAVE_FLOATS = 2 * 1024 * 1024 /* 8 MiB: what a stage leaves is in cache for the next */
};

static inline int64_t muon__slot_floats(const plan_item *item)
{
    return (muon__item_numel(item) + WAVE_LINE - 1) / WAVE_LINE * WAVE_LINE;
}

/* The slot of a whole matrix of a class. */
static inline int64_t muon__matrix_floats(const plan_class *c)
{
    return (c->rows * c->cols + WAVE_LINE - 1) / WAVE_LINE * WAVE_LINE;
}

/* Scratch for orthogonalization: of a team's matrix, and of one large matrix or of small ones side by
 * side. */
static inline int64_t muon__scratch_floats(const muon_plan *plan)
{
    int64_t small = plan->scratch_small * plan->threads;
    return plan->scratch_team + (small > plan->scratch_large ? small : plan->scratch_large);
}

/* Every owner's matrices, and which of them need no message. */
typedef struct owners {
    uint32_t *items;      /* matrices by owner, in each by index */
    size_t *first;        /* [nranks + 1] */
    unsigned char *local; /* [nitems] nobody but the owner holds any of it */
    size_t most;          /* items of one owner at most */
    int64_t floats;       /* slots of one owner at most */
    int64_t strip, whole; /* slots: the largest of a team's strip, and of a matrix with one owner */
} owners;

/* Floats of a wave in which every rank has room for a strip and a matrix. */
static inline int64_t muon__least_wave(const owners *o)
{
    return o->strip + o->whole;
}

muon_status muon__owners_create(owners *out, const muon_plan *plan, const patterns *p);
void muon__owners_destroy(owners *o); /* zeroed is fine */

/* Waves for the owners of many ranks, and all that follows from them. */
muon_status muon__waves_for_ranks(muon_plan *plan, const patterns *p);

/* Gives every item a wave, with what any owner has in one of them in plan->wave_floats. */
muon_status muon__waves_spread(muon_plan *plan, const owners *o);

#endif
