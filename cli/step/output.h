/* step_output.h - a file of tensors that all ranks have parts of and rank 0 writes. */
#ifndef CLI_STEP_OUTPUT_H
#define CLI_STEP_OUTPUT_H

#include "cli/core/outputs.h"
#include "cli/step/shards.h"

typedef struct step_output {
    const shards *parts;
    muon_st_tensor *tensors; /* their data on rank 0 only */
    void **memory;           /* what was made for them */
    size_t count;
} step_output;

void step_output_start(step_output *o, const shards *parts, size_t most_tensors);

/* Adds a tensor whose elements all ranks have, as they have those of a parameter. Collective. */
void step_output_gather(step_output *o, const muon_st_tensor *tensor, size_t param,
                        const void *shard);
/* Adds one that rank 0 has; memory: to be freed with the rest, or NULL. */
void step_output_add(step_output *o, const muon_st_tensor *tensor, const void *data, void *memory);

/* Collective: writes the file if no rank has failed before (code), and ends the output. The same on
 * every rank. */
int step_output_finish(step_output *o, int code, outputs *out, const char *name,
                       const muon_st_entry *metadata, size_t nmetadata);

#endif
