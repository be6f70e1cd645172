/* data.h - the tensors of `muonctl step`: where they come from and where they go. */
#ifndef CLI_STEP_DATA_H
#define CLI_STEP_DATA_H

#include "cli/config/config.h"
#include "cli/core/outputs.h"
#include "cli/step/shards.h"
#include "muon/plan.h"

#define STEP_STATE "state" /* beside the weights after a step: a root of checkpoints */

typedef struct step_data {
    config cfg;
    files params;          /* open while cfg is in use: names are borrowed from them */
    files gradients;       /* open until they are read */
    int64_t *grad_at;      /* [nparams] where in `gradients`, or -1 */
    shards parts;          /* what this rank has of them; after step_data_read */
    muon_buffers *buffers; /* [nparams] its own; weights as they are in the file, NULL if frozen */
    float **logits;        /* [nattention], NULL without --max-logits */
} step_data;

/* Reads the config for the params files and what there is of gradients, but no elements; sets
 * grad_dtype of every parameter. On failure step_data_close must still be called, as it must after
 * success. */
int step_data_open(step_data *data, const char *config_path, const char *params_path,
                   const char *grads_path);
int step_data_read_logits(step_data *data, const char *path);
/* Reads this rank's part of all elements, by the optimizer's plan. */
int step_data_read(step_data *data, const muon_plan *plan);
void step_data_close(step_data *data);

/* The names of several files of weights must do for the results, too. */
int step_data_check_names(const step_data *data);
/* params.safetensors, or the files of weights by their names and an index; and copy.safetensors if
 * copies are configured. Collective: rank 0 writes, and the result is the same on every rank. */
int step_data_write(const step_data *data, outputs *out);

#endif
