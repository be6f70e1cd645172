/* trial.h - one training run: a model, an optimizer, a learning rate, and what came of it.
 *
 * All trials start from the same weights and see the same windows in the same order. They differ in
 * who updates the hidden matrices; everything else is AdamW's in all of them. */
#ifndef DEMO_TRIAL_H
#define DEMO_TRIAL_H

#include "model.h"

#include <muon/muon.h>

typedef enum trial_rule { TRIAL_MUON, TRIAL_ADAMW, TRIAL_NRULES } trial_rule;

enum { MAX_POINTS = 64 };

typedef struct trial {
    trial_rule rule;
    double lr;
    const text *text;
    const unsigned char *validation; /* [VALIDATION] windows */
    int steps, done;
    model *model;
    muon_opt *opt;
    double model_seconds, opt_seconds;
    /* The curve: validation loss, and seconds of training until then. */
    int npoints;
    int point_step[MAX_POINTS];
    double point_loss[MAX_POINTS], point_seconds[MAX_POINTS];
    int failed; /* the optimizer reported an error, now in `error` */
    char error[256];
} trial;

enum { VALIDATION = 2 * BATCH };

extern const char *const trial_rule_name[TRIAL_NRULES];

/* Returns 0, or -1 with the reason in t->error. */
int trial_create(trial *t);
void trial_destroy(trial *t);

/* Trains up to `step` and adds a point to the curve. */
void trial_advance(trial *t, int step);

double trial_loss(const trial *t); /* at the last point */
int trial_diverged(const trial *t);

#endif
