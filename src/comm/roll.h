/* roll.h - who is there? What ranks do when they have waited in vain.
 *
 * The rank that one waits for may be well, and waiting for another one itself. So a rank that gives
 * up tells all others which rank it waited for, and listens for a while to others that give up too.
 * A rank is missing if somebody waits for it and nobody has heard from it; ranks that nobody waits
 * for may be busy elsewhere. So all ranks that give up at about the same time name the same
 * ranks. */
#ifndef COMM_ROLL_H
#define COMM_ROLL_H

#include "comm/comm.h"

enum { ROLL_WAITS = 32, ROLL_NAMES = 160 };

/* Whom a rank waits for. */
typedef struct roll_waits {
    int32_t n, ranks[ROLL_WAITS];
} roll_waits;

void muon__roll_wait(roll_waits *w, int rank); /* one more */

/* What ranks may be apart when they come, in seconds. */
double muon__roll_slack(double timeout);

/* Takes up to twice the slack. names: "rank 2" or "ranks 3, 8, 15"; "" if nobody is missing. If
 * ranks cannot be heard, those that this one waits for. */
void muon__roll_call(const muon_comm *c, const roll_waits *mine, double timeout,
                     char names[ROLL_NAMES]);

#endif
