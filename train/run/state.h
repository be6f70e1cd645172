/* state.h - what a run has in memory; for run.c, which makes it, and step.c, which runs it. */
#ifndef TRAIN_RUN_STATE_H
#define TRAIN_RUN_STATE_H

#include "base/memory.h"
#include "train/run/facts.h"
#include "train/run/run.h"
#include "train/run/shards.h"
#include "train/run/text.h"

enum { MOST_LEVELS = 4 }; /* of sums of units: 2^(MOST_LEVELS - 1) units on a rank at most */

struct train_run {
    train_settings settings;
    team *team;
    int rank, size;
    text text;
    model *model;
    optimizer opt;
    train_shards *shards;
    train_record *record;

    int64_t units, first_unit, my_units;
    int micro_batch;
    int64_t validations;

    arena memory;
    size_t ntensors;
    float **weights;                    /* [ntensors], whole */
    float **grads[MOST_LEVELS];         /* the same; the sum is in level 0 */
    float *shard_weights, *shard_grads; /* NULL with one rank: the whole tensors are its shard */
    muon_buffers *buffers;              /* [ntensors] */
    float *logits, *chunk_logits;       /* [layers][heads], of a step and of one call */
    const float **logit_rows;           /* [layers] */
    uint8_t *tokens, *next;             /* [micro_batch][context] */
    double *words;        /* [2 * units + 2] losses and balances of units, interrupts, writers */
    double *seen;         /* [size][RUN_NUMBERS] of all ranks after a step */
    double *chunk_losses; /* of validation */
    train_rank_step *rank_steps; /* [size] of the step in work */

    int64_t step; /* done */
    int skips;    /* in a row */
    int stopped;
    double begin;
    int64_t bytes_sent;

    int is_starting; /* the library's warnings are of interest */
    int64_t saving;  /* the step that is being saved beside the run; 0: none */
    int is_written;  /* by all ranks */
    double saving_seconds;
};

/* What ranks tell each other after a step. */
enum {
    RUN_RANK_STEP, /* train_rank_step */
    RUN_FLOPS = RUN_RANK_STEP + sizeof(train_rank_step) / sizeof(double),
    RUN_PHASE_FLOPS,
    RUN_PHASE_BYTES = RUN_PHASE_FLOPS + MUON_NPHASES,
    RUN_NUMBERS = RUN_PHASE_BYTES + MUON_NPHASES
};

/* The loss on the validation text goes to the record. Collective. */
muon_status train_run_validate(train_run *run);
/* Goes on from a checkpoint, if the settings say so and there is one. Collective. */
muon_status train_run_resume(train_run *run);
/* Singular values of updates of the last step. Collective. */
muon_status train_run_fill_spectra(train_run *run);

#endif
