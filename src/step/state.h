/* state.h - the state of this rank's shards, whether it is in memory or in a file.
 *
 * For all code except the stages of a step, which have it in memory when they run. */
#ifndef STEP_STATE_H
#define STEP_STATE_H

#include "step/opt.h"

typedef enum state_part { STATE_MOMENTUM, STATE_EXP_AVG, STATE_EXP_AVG_SQ, STATE_PARTS } state_part;

/* ".momentum_buffer"; a tensor's name is the parameter's with this behind. */
const char *muon__state_suffix(state_part part);
/* MUON_NONE: a parameter of this rule has no such part. */
muon_dtype muon__state_dtype(const muon_opt *opt, size_t param, state_part part);

/* Bytes of an element; MUON_I64 is a step counter's. */
static inline size_t muon__dtype_bytes(muon_dtype dtype)
{
    return dtype == MUON_BF16 ? 2 : dtype == MUON_F32 ? 4 : 8;
}

/* Element `at` of this rank's shard, or NULL while state is in a file. */
void *muon__state_at(const muon_opt *opt, size_t param, state_part part, int64_t at);
/* Elements at .. at + n, between steps. */
muon_status muon__state_read(muon_opt *opt, size_t param, state_part part, int64_t at, int64_t n,
                             void *data);
muon_status muon__state_write(muon_opt *opt, size_t param, state_part part, int64_t at, int64_t n,
                              const void *data);

#endif
