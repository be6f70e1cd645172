/* record.h - what a training run leaves behind, for whoever shows it: the progress line, JSON lines, the trace
 * and the page.
 *
 * Its size does not depend on how many steps there are. Totals count every step; of steps and validations a
 * history of about TRAIN_HISTORY is kept: when that is full, every second one is dropped, and from then on
 * only every second new one stays. The newest is always the last of it, as a guest if its turn is not due.
 * Whoever wants every step, as metrics and trace do, takes it when it is the newest. */
#ifndef TRAIN_RUN_RECORD_H
#define TRAIN_RUN_RECORD_H

#include "train/run/facts.h"

enum { TRAIN_HISTORY = 2048 }; /* even */

typedef struct train_step {
    int64_t step; /* 1, 2, ... */
    double loss;  /* of the step's batch, in nats per byte, over all ranks */
    double balance;
    double lr; /* of Muon's group (AdamW's in a run without Muon) */
    double grad_norm, clip_coef, update_rms, max_logit;
    int64_t clipped_heads;
    int skipped;              /* a NaN or infinity: nothing changed */
    double begin;             /* seconds since the run began */
    double seconds;           /* all of the step, of the slowest rank */
    double model_seconds;     /* forward and backward, of the slowest rank */
    double exchange_seconds;  /* gradients and weights between ranks */
    double optimizer_seconds; /* muon_step */
    double model_flops;       /* of all ranks */
    double phase[MUON_NPHASES], phase_max[MUON_NPHASES], phase_min[MUON_NPHASES]; /* seconds */
    double phase_flops[MUON_NPHASES], phase_bytes[MUON_NPHASES];                  /* of all ranks */
} train_step;

/* One rank's seconds in one step, in the order in which they pass. phase is inside of optimizer. */
typedef struct train_rank_step {
    double model, reduce, optimizer, gather;
    double phase[MUON_NPHASES];
} train_rank_step;

typedef struct train_validation {
    int64_t step; /* after this one; 0: before the first */
    double loss;
} train_validation;

/* The singular values of one matrix's update before and after orthogonalization, at one step. */
typedef struct train_spectrum {
    const char *name;
    int64_t step;
    int count;
    double *before, *after; /* [count], descending; before is divided by its largest */
} train_spectrum;

typedef struct train_rank { /* what one rank did in the whole run */
    int64_t matrices;
    train_rank_step seconds;
    int64_t bytes_sent;
} train_rank;

typedef struct train_totals { /* of all steps that this run has taken */
    int64_t steps, clipped_heads;
    double seconds, model_seconds, optimizer_seconds; /* of the slowest rank in each step */
    double model_flops;
    double phase_max[MUON_NPHASES], phase_min[MUON_NPHASES]; /* seconds */
    double phase_flops[MUON_NPHASES], phase_bytes[MUON_NPHASES];
    double lr_max, logit_max; /* the largest of any step */
} train_totals;

typedef struct train_record {
    const char *label; /* "Muon", "AdamW", "NorMuon" */
    char *description; /* one line: model, data, ranks, settings */
    char *machine;     /* one line: the CPU, and what multiplies */
    facts settings;
    int64_t parameters, tokens_per_step;
    int nranks, threads;
    int64_t planned;   /* steps of the whole run */
    train_step *steps; /* the history */
    size_t nsteps;
    train_rank_step *rank_steps; /* [nranks] of the newest step */
    train_totals totals;
    train_validation *validations; /* the history */
    size_t nvalidations;
    int64_t validated;     /* how many there were */
    train_validation best; /* of all; a NaN is never best, if there is another */
    train_spectrum *spectra;
    size_t nspectra;
    train_rank *ranks; /* [nranks] */
    char *sample;      /* text at the end, or NULL */
    double seconds;
    int64_t skipped; /* steps */
    int interrupted; /* it ended before its last step */
    /* Of a run that went on from a checkpoint: steps begin after this one. Validations and what was
     * skipped are there from the beginning. */
    int64_t resumed;       /* 0: from the beginning */
    int64_t tokens_before; /* seen until then */
    /* Checkpoints that are complete: how many, the step of the last one, and seconds that the run waited
     * for it and for all of them. */
    int64_t saves, saved;
    double saved_seconds, save_seconds;
} train_record;

/* For a run of so many steps. */
muon_status train_record_create(train_record *record, int64_t steps, int nranks);
void train_record_free(train_record *record); /* zeros are fine */

/* Adds a step, with the seconds of all ranks, or a validation. */
void train_record_add(train_record *record, const train_step *step, const train_rank_step *ranks);
void train_record_validate(train_record *record, const train_validation *validation);
/* to += from, but for what is not a time: clocks may say anything. */
void train_rank_step_add(train_rank_step *to, const train_rank_step *from);

/* The newest step; there must be one. */
const train_step *train_record_last(const train_record *record);

/* Steps that the run has behind it, with those before it was resumed. */
int64_t train_record_done(const train_record *record);
/* The part of all steps' seconds that the optimizer took. */
double train_record_optimizer_share(const train_record *record);

#endif
