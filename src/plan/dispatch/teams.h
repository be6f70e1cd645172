/* teams.h - which matrices are shared by several ranks, and by whom.
 *
 * A makespan T is possible if every matrix, the costliest first, finds the fewest ranks that can do it
 * together before T: one if one is fast enough, else more. The smallest such T is found by trying. Ranks
 * of one node are preferred, since a team exchanges what it computes after every product. If teams make
 * a step hardly shorter, there are none. */
#ifndef PLAN_DISPATCH_TEAMS_H
#define PLAN_DISPATCH_TEAMS_H

#include "plan/dispatch/dispatch.h"

typedef struct team_choice {
    uint32_t item;
    int32_t size;
    size_t first;   /* members[first] .. */
    double seconds; /* of multiplying and exchanging */
} team_choice;

typedef struct team_choices {
    team_choice *list; /* in the order in which their members work on them */
    size_t n, capacity;
    int32_t *members;
    size_t nmembers, member_capacity;
} team_choices;

muon_status muon__teams_choose(team_choices *out, const cost_model *m, const cost_order *order);
void muon__team_choices_free(team_choices *c); /* zeroed is fine */

/* Adds what members do to the loads that owners of the other matrices are chosen by. */
void muon__teams_load(rank_load *loads, const team_choices *c, const cost_model *m);

/* Replaces each chosen matrix by the strips of its team's members (split.c). */
muon_status muon__teams_split(muon_plan *plan, const team_choices *c);

#endif
