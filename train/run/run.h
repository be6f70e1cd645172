/* run.h - one training run, step by step, on one rank or many.
 *
 * Every rank has the whole model and takes a share of each batch; gradients are summed onto the
 * optimizer's shards, and the weights gathered after the step. A batch is made of units: one for each
 * rank, or, if the bits are not to depend on how many ranks there are, a fixed number that the ranks
 * share. Gradients are summed in pairs of units, pairs of pairs, and so on: inside of a rank or between
 * ranks makes no difference.
 *
 *     train_record record = {0};
 *     train_run *run = NULL;
 *     train_run_create(&run, &settings, comm, &record);
 *     while (!train_run_is_over(run)) {
 *         train_run_step(run);
 *         train_run_save(run);
 *     }
 *     train_run_finish(run);
 *     train_run_destroy(run);
 *
 * With settings.saving, a run that was stopped at any moment goes on with the same bits as if it never
 * was: everything that a step depends on is in the checkpoint.
 *
 * All of these are collective, and fail on all ranks or on none, unless the ranks have lost each other
 * (MUON_E_COMM, MUON_E_TIMEOUT). */
#ifndef TRAIN_RUN_RUN_H
#define TRAIN_RUN_RUN_H

#include "train/run/optimizer.h"
#include "train/run/record.h"
#include "train/run/schedule.h"

#include <signal.h>

enum {
    TRAIN_UNITS = 8,      /* of a batch, with settings.deterministic */
    TRAIN_MOST_SKIPS = 10 /* in a row; then the run has failed */
};

/* Checkpoints of a run, by which another can go on where this one ends. All zeros: none. */
typedef struct train_saving {
    const char *dir;  /* a directory of checkpoints; NULL: nothing is saved */
    int every;        /* steps from one to the next; 0: only one, when the run ends */
    int keep;         /* older ones are removed until so many are left; 0: all are kept */
    int async;        /* they are written while the run goes on */
    int resume;       /* the run begins with the newest of dir, if there is one */
    const char *from; /* else with this one, or the newest of this directory; NULL: from scratch */
} train_saving;

typedef struct train_settings {
    model_config model;
    const char *model_name;
    const char *data; /* a file; NULL: the built-in text */
    schedule schedule;
    int batch;       /* sequences of a step, of all ranks */
    int micro_batch; /* sequences at a time, for memory; 0: about 4096 tokens */
    int seed;
    optimizer_settings optimizer;
    int deterministic;
    int validate_every;
    int validations; /* sequences at most */
    int threads;
    double timeout; /* seconds to wait for another rank */
    /* Not 0 on any rank: the run is over after the step that it is in. NULL: nobody interrupts. */
    const volatile sig_atomic_t *interrupted;
    train_saving saving;
    /* Where the run begins (MUON_LOG_INFO), what has changed since it was saved, and damaged checkpoints
     * that were passed over (MUON_LOG_WARN). On every rank. NULL: nobody listens. */
    muon_log_fn log;
    void *log_user;
} train_settings;

/* All but the model: a run that takes a few minutes on two cores with the model "small". */
#define TRAIN_DEFAULTS                                                                             \
    {                                                                                              \
        .schedule = {.steps = 200, .warmup = 0.05, .decay = 0.5}, .batch = 16, .seed = 1,          \
        .optimizer = {.muon = 1,                                                                   \
                      .lr = 0.01,                                                                  \
                      .adamw_lr = 0.004,                                                           \
                      .weight_decay = 0.1,                                                         \
                      .momentum = 0.95,                                                            \
                      .clip_norm = 1},                                                             \
        .validate_every = 25, .validations = 64, .timeout = 600                                    \
    }

typedef struct train_run train_run;

/* record must be zeros; it is filled as the run goes on, and outlives it. */
muon_status train_run_create(train_run **out, const train_settings *settings, const muon_comm *comm,
                             train_record *record);
void train_run_destroy(train_run *run); /* NULL is fine */

int train_run_is_over(const train_run *run);
/* One step, and a validation if one is due. A NaN or infinity skips the step and is counted;
 * MUON_E_NONFINITE after TRAIN_MOST_SKIPS in a row. */
muon_status train_run_step(train_run *run);
/* After each step: saves, if a checkpoint is due, and completes one that was written meanwhile. Whatever the
 * caller keeps of the step itself should be on its way by then: a run that is resumed does not take it
 * again. */
muon_status train_run_save(train_run *run);
/* What the ranks have done, and what orthogonalization did in the last step, for the record. */
muon_status train_run_finish(train_run *run);

/* The whole model, the same on every rank between steps. */
model *train_run_model(train_run *run);
float *const *train_run_weights(train_run *run);

#endif
