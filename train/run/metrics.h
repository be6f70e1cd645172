/* metrics.h - a run as lines of JSON, one for each step, for programs. docs/training.md has the keys. */
#ifndef TRAIN_RUN_METRICS_H
#define TRAIN_RUN_METRICS_H

#include "train/run/record.h"

typedef struct metrics metrics;

/* Makes the file, so that a bad name is found before the work is done. */
muon_status metrics_open(metrics **out, const char *path);

/* The same, but lines that are there stay: for a run that goes on. */
muon_status metrics_append(metrics **out, const char *path);
/* Ends the file before the first line of this run that is of a later step, or that is not whole: the run
 * is about to take these steps again. */
muon_status metrics_cut(metrics *m, const char *run, int64_t step);

/* The last step of the record. Lines are written at once: who watches the file sees every step. */
void metrics_step(metrics *m, const train_record *record);

/* MUON_E_IO if anything could not be written. m is gone in any case; NULL is fine. */
muon_status metrics_close(metrics *m);

#endif
