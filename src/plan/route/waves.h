/* waves.h - shared by the files that make waves. */
#ifndef PLAN_ROUTE_WAVES_H
#define PLAN_ROUTE_WAVES_H

#include "base/memory.h"
#include "plan/route/shares.h"

/* Sizes are whole cache lines, so that what is planned is to the byte what is allocated. */
enum {
    WAVE_LINE = MUON__ALIGN / sizeof(float),
    WAVE_FLOATS = 2 * 1024 * 1024, /* 8 MiB: what a stage leaves is in cache for the next */
    USUAL_DEPTH = 3                /* waves in flight, unless more of them make a step shorter */
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

/* Every owner's matrices, and what it costs their owner that others hold them. */
typedef struct owners {
    uint32_t *items;  /* matrices by owner, in each by index */
    size_t *first;    /* [nranks + 1] */
    double *messages; /* [nitems] seconds of its link; 0: nobody but the owner holds any of it */
    size_t most;      /* items of one owner at most */
    int64_t floats;   /* slots of one owner at most */
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

/* What a rank's teams take of waves, which are counted without the opening one, and of time. */
typedef struct team_time {
    size_t wave;           /* the last one that it has a team in, */
    int64_t used, most;    /* floats in it; in any wave */
    double until;          /* seconds: its last team is done */
    double busy, messages; /* seconds of all that it owns, teams or not: its processor, its link */
} team_time;

/* Teams come first. Waves are taken as equal parts of a step of `busiest` seconds on the busiest rank. Gives
 * each team's strips a wave and returns how many waves there are: `nwaves` or more. */
size_t muon__waves_place_teams(const muon_plan *plan, const owners *o, team_time *ranks,
                               size_t nwaves, double busiest);

/* Seconds of a rank's processor for an item; what its team exchanges counts. */
double muon__waves_seconds(const muon_plan *plan, const plan_item *item);

#endif
