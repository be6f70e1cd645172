/* schedule.h - the learning rate over a run: warmup, stable, decay.
 *
 *     1 |   __________
 *       |  /          \
 *       | /            \
 *     0 |/              \ ___ final
 *        warmup      decay
 *
 * Warmup rises in a straight line and reaches 1 with its last step. Decay falls in a straight line and
 * would reach `final` in the step after the last: at 0 a step would be lost. */
#ifndef TRAIN_RUN_SCHEDULE_H
#define TRAIN_RUN_SCHEDULE_H

#include "muon/muon.h"

typedef struct schedule {
    int steps;
    double warmup, decay; /* parts of the steps, together at most 1 */
    double final;         /* of the learning rate, 0..1 */
} schedule;

muon_status schedule_check(const schedule *s);

/* The factor on the learning rate in step 1..steps. */
double schedule_factor(const schedule *s, int64_t step);

#endif
