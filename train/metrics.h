/* metrics.h - a run as lines of JSON, one for each step, for programs. docs/training.md has the keys. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "record.h"

typedef struct metrics metrics;

/* Makes the file, so that a bad name is found before the work is done. */
muon_status metrics_open(metrics **out, const char *path);

/* The last step of the record. Lines are written at once: who watches the file sees every step. */
void metrics_step(metrics *m, const train_record *record);

/* MUON_E_IO if anything could not be written. m is gone in any case; NULL is fine. */
muon_status metrics_close(metrics *m);

#endif
