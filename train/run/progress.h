/* progress.h - how a run is going, for people: in a terminal one line that is rewritten, in a file a line
 * every now and then. */
#ifndef TRAIN_RUN_PROGRESS_H
#define TRAIN_RUN_PROGRESS_H

#include "train/run/record.h"

#include <stdio.h>

typedef struct progress {
    FILE *out;      /* NULL: nothing is shown */
    int is_live;    /* a terminal */
    int width;      /* of the line that is there */
    double printed; /* when: seconds since the run began */
} progress;

void progress_start(progress *p, FILE *out, const train_record *record);
/* After a step. */
void progress_step(progress *p, const train_record *record);
/* After a checkpoint is complete. */
void progress_saved(progress *p, const train_record *record);
/* Ends the line, so that others can print. */
void progress_end(progress *p);

/* "1:05", "2:03:44" */
typedef struct progress_time {
    char text[32];
} progress_time;
progress_time progress_time_of(double seconds);

#endif
