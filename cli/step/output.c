#include "cli/step/output.h"

#include "cli/core/launch.h"

#include <stdlib.h>

void step_output_start(step_output *o, const shards *parts, size_t most_tensors)
{
    *o = (step_output){.parts = parts};
    o->tensors = cli_alloc(most_tensors, sizeof *o->tensors);
    o->memory = cli_alloc(most_tensors, sizeof *o->memory);
}

void step_output_add(step_output *o, const muon_st_tensor *tensor, const void *data, void *memory)
{
    o->tensors[o->count] = *tensor;
    o->tensors[o->count].data = data;
    o->memory[o->count++] = memory;
}

void step_output_gather(step_output *o, const muon_st_tensor *tensor, size_t param,
                        const void *shard)
{
    size_t size = tensor->bytes / (size_t)tensors_elements(tensor);
    void *memory = NULL;
    const void *whole = shards_gather(o->parts, param, shard, size, &memory);
    step_output_add(o, tensor, whole, memory);
}

int step_output_finish(step_output *o, int code, outputs *out, const char *name,
                       const muon_st_entry *metadata, size_t nmetadata)
{
    code = launch_agree(code);
    if (code == CLI_DONE && launch_rank() == 0)
        code = outputs_add(out, name, o->tensors, o->count, metadata, nmetadata);
    for (size_t i = 0; i < o->count; i++)
        free(o->memory[i]);
    free(o->memory);
    free(o->tensors);
    *o = (step_output){.parts = NULL};
    return launch_agree(code);
}
