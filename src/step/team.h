/* team.h - a matrix that several ranks share.
 *
 * A member has gathered its strip of U. The members give each other their strips, and then go through
 * the products of the iteration together: each computes its tiles, sends them to all others, receives
 * theirs, and mirrors them. The last product gives each member its strip of O, in its slot, from where
 * it is scattered like any other result.
 *
 * All members of a team work on it at the same place of the same wave, and on several teams in the order
 * of the plan; so nobody waits in a circle. */
#ifndef STEP_TEAM_H
#define STEP_TEAM_H

#include "step/opt.h"

/* Work to do while messages are on their way: as little of it as is worth a call. Returns 0 if there is
 * none left. */
typedef struct filler {
    int (*work)(void *arg);
    void *arg;
} filler;

/* This rank's teams in a wave are numbers first .. end - 1. */
size_t muon__team_first(const muon_opt *opt, size_t wave);

/* The strip of team `index`; U becomes O. Sets *finite to 0 if the matrix is not; O is then 0. */
muon_status muon__team_run(muon_opt *opt, size_t index, const filler *f, int *finite);
const plan_item *muon__team_item(const muon_opt *opt, size_t index);

#endif
