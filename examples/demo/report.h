/* report.h - what the trials found, for people: curves, a table, singular values, conclusions. */
#ifndef DEMO_REPORT_H
#define DEMO_REPORT_H

#include "spectrum.h"
#include "trial.h"

typedef struct contest {
    const trial *best[TRIAL_NRULES];
    int at_edge[TRIAL_NRULES]; /* its learning rate is the first or last of those tried */
    spectrum momentum, update; /* of one matrix, by Muon; filled by report_spectra */
} contest;

void report_curves(const contest *c);
void report_table(const contest *c);
/* Returns 0, or -1 after saying why on standard error. */
int report_spectra(contest *c);
void report_conclusions(const contest *c);

#endif
