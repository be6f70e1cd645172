/* team.h - the ranks of a run, and what they tell each other besides tensors: numbers and failures.
 *
 * Every rank puts its words into a place of its own, and all see all places: sums are made in the order
 * of the ranks, so they are the same everywhere. Everything here is collective. A run of one rank is a
 * team of one. */
#ifndef TRAIN_RUN_TEAM_H
#define TRAIN_RUN_TEAM_H

#include "muon/comm.h"

typedef struct team team;

/* comm NULL: one rank; else it must outlive the team. timeout: seconds to wait for another rank. stage
 * is what messages call the place where they meet, and keeps teams of the same ranks apart. */
muon_status team_create(team **out, const muon_comm *comm, double timeout, const char *stage);
void team_destroy(team *t); /* NULL is fine */

int team_rank(const team *t);
int team_size(const team *t);
const muon_comm *team_comm(const team *t); /* NULL: one rank */
double team_timeout(const team *t);

/* After something that each rank did alone: MUON_OK if all have succeeded; else every rank fails with
 * what the lowest of those that failed had to say. `status` is that of this rank's last call. */
muon_status team_agree(team *t, muon_status status);

/* all[rank][count] = what each rank gave in mine[count]. */
muon_status team_share(team *t, const double *mine, double *all, size_t count);
/* values[i] becomes the sum over all ranks: x alone among zeros stays x, to the bit. */
muon_status team_sum(team *t, double *values, size_t count);

/* Between this rank and another one, which calls it for the other direction; the only one that is not
 * collective. Bytes may be 0. */
muon_status team_move(team *t, muon_direction direction, void *data, size_t bytes, int rank);

#endif
