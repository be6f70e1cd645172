/* outcome.h - the plan of a case, and what it says of the ranks. */
#ifndef CLI_PLAN_OUTCOME_H
#define CLI_PLAN_OUTCOME_H

#include "cli/plan/case.h"
#include "muon/plan.h"

#include <jansson.h>

typedef struct plan_share { /* of the work, on one rank */
    int64_t matrices;
    double seconds;
} plan_share;

typedef struct plan_outcome {
    const plan_case *what;
    muon_plan *plan;
    double plan_seconds; /* of one muon_plan_create */
    muon_plan_cost cost;
    muon_prediction prediction;
    muon_scheme_cost padded, round_robin; /* the same with other schemes */
    int64_t tensors; /* of Muon, as are the matrices and elements that are printed */
    int nranks;
    plan_share *shares;            /* [nranks] */
    int *by_work;                  /* [nranks] busiest first */
    double work_mean;              /* seconds */
    muon_rank_load first, busiest; /* of rank 0 and by_work[0] */
} plan_outcome;

int plan_outcome_make(plan_outcome *o, const plan_case *c);
void plan_outcome_destroy(plan_outcome *o);

/* All that one rank has to do. It costs a walk through the plan, so it is for chosen ranks. */
int plan_outcome_rank(const plan_outcome *o, int rank, muon_rank_load *load);

/* Which of the bounds is the lower bound, in words and as a key. */
typedef struct plan_bound {
    const char *key, *text;
} plan_bound;
plan_bound plan_outcome_bound(const plan_outcome *o);

/* Ranks to show, in the order of work: all of them if they are few; else some of the busiest, of the
 * middle and of the idlest. Returns how many; at most PLAN_CHOSEN. */
enum { PLAN_CHOSEN = 64 };
int plan_outcome_choose(const plan_outcome *o, int chosen[PLAN_CHOSEN]);

/* ---- a rank's waves in time -------------------------------------------------------------------- */

typedef struct plan_span { /* seconds from the start of the step's messages */
    double begin, end;
} plan_span;

enum { PLAN_GATHER, PLAN_COMPUTE, PLAN_SCATTER, PLAN_LANES };

typedef struct plan_wave {
    muon_wave_load load;
    plan_span lanes[PLAN_LANES];
} plan_wave;

typedef struct plan_timeline {
    int rank;
    muon_rank_load load;
    size_t nwaves;
    plan_wave *waves; /* [nwaves] */
} plan_timeline;

/* When one rank would gather, compute and scatter each wave if it never waited for another: at the
 * machine's speed, with as many waves in flight as the config allows. */
int plan_timeline_make(plan_timeline *t, const plan_outcome *o, int rank);
void plan_timeline_destroy(plan_timeline *t);

/* ---- what is printed of it ---------------------------------------------------------------------- */

void plan_print_text(const plan_outcome *o);
int plan_print_ranks(const plan_outcome *o);           /* a table of chosen ranks */
int plan_print_json(const plan_outcome *o, int ranks); /* ranks: with the chosen ones */
json_t *plan_json(const plan_outcome *o);              /* what it prints, and of one rank */
json_t *plan_json_rank(int rank, const muon_rank_load *load);
int plan_write_page(const plan_outcome *o, const char *path);

#endif
