/* zoo.h - a fleet (fleet.h) with one of everything, for tests of many ranks.
 *
 * Whole tensors are the same for every number of ranks; a rank cuts its shards from them by the plan,
 * steps, and compares with what one process made of the whole tensors, bit by bit. Nothing here
 * asserts: functions return NULL or what is wrong, so that threads and MPI processes can use it. */
#ifndef TESTS_WORLD_ZOO_H
#define TESTS_WORLD_ZOO_H

#include "tests/world/fleet.h"

enum { ZOO_STEPS = 5, ZOO_RANKS = 16 };

typedef struct zoo_axes { /* sizes of the main mesh; its ranks are their product */
    int replicate, fsdp, ep, tp;
} zoo_axes;

typedef struct zoo {
    fleet f; /* laid out for `axes` */
    int tower_ranks[ZOO_RANKS];
    muon_box boxes[2 * ZOO_RANKS];
    muon_range ranges[2 * ZOO_RANKS];
    int skip_grads; /* 1: in step 2 some parameters have no gradient */
    int nan_step;   /* a step with a NaN in one gradient, which must be skipped; 0: none */
    /* Checkpoints: after step save_at one is saved in `root` (0: before the first step; -1: none), beside
     * the next step if so asked for; with resume_at >= 0 the run begins with that one, in place of the
     * steps up to it. */
    const char *root;
    int save_at, save_beside, resume_at;
    zoo_axes axes;
} zoo;

/* The model with default settings, whole. Points into itself: init it where it stays. */
void zoo_init(zoo *z);
/* Lays it out on replicate x fsdp x ep x tp ranks. */
void zoo_lay_out(zoo *z, zoo_axes axes);

/* What one process makes of it in ZOO_STEPS steps. */
typedef struct zoo_run zoo_run;
const char *zoo_run_whole(zoo_run **out, const zoo *z);
void zoo_run_free(zoo_run *run);

/* The same on this rank's shards, compared with `whole`: weights, copies, state, results, and messages
 * with the plan's prediction. comm has as many ranks as the layout. */
const char *zoo_compare(const zoo *z, const muon_comm *comm, const zoo_run *whole);

#endif
