/* state.h - the state of this rank's shards, whether it is in memory or in a file.
 *
 * For all code except the stages of a step, which have it in memory when they run. */
#ifndef STEP_STATE_H
#define STEP_STATE_H

#include "step/opt.h"

typedef enum state_part {
    STATE_MOMENTUM,
    STATE_EXP_AVG,
    STATE_EXP_AVG_SQ,
    STATE_SECOND,      /* of elements */
    STATE_SECOND_LIST, /* these are lists of matrices, at their owners (owned.c) */
    STATE_CODES,
    STATE_SCALES,
    STATE_PARTS,
    STATE_SHARDED =
        STATE_SECOND_LIST /* parts before this one are like the shard of the parameter */
} state_part;

/* ".momentum_buffer"; a tensor's name is the parameter's with this behind. */
const char *muon__state_suffix(state_part part);
/* MUON_NONE: a parameter of this rule has no such part. */
muon_dtype muon__state_dtype(const muon_opt *opt, size_t param, state_part part);

/* Of the lists of opt.h, or none of them. */
static inline int muon__state_list(state_part part)
{
    return part < STATE_SHARDED ? -1 : (int)part - STATE_SHARDED;
}

/* Bytes of an element; MUON_I64 is a step counter's. */
static inline size_t muon__dtype_bytes(muon_dtype dtype)
{
    switch (dtype) {
    case MUON_I8:
        return 1;
    case MUON_BF16:
    case MUON_F16:
        return 2;
    case MUON_F32:
        return 4;
    case MUON_I64:
    case MUON_NONE:
        break;
    }
    return 8;
}

static inline void *muon__state_part(const muon_state_buffers *of, state_part part)
{
    switch (part) {
    case STATE_MOMENTUM:
    case STATE_CODES:
        return of->momentum;
    case STATE_EXP_AVG:
        return of->exp_avg;
    case STATE_EXP_AVG_SQ:
        return of->exp_avg_sq;
    case STATE_SECOND:
    case STATE_SECOND_LIST:
        return of->second_moment;
    case STATE_SCALES:
        return of->momentum_scales;
    case STATE_PARTS:
        break;
    }
    return NULL;
}

/* Which rank has what of a part. */
const layout *muon__state_layout(const muon_opt *opt, size_t param, state_part part);
/* Its elements on this rank. */
int64_t muon__state_numel(const muon_opt *opt, size_t param, state_part part);

/* Element `at` of what this rank has, or NULL while it is in a file. */
void *muon__state_at(const muon_opt *opt, size_t param, state_part part, int64_t at);
/* Elements at .. at + n, between steps. */
muon_status muon__state_read(muon_opt *opt, size_t param, state_part part, int64_t at, int64_t n,
                             void *data);
muon_status muon__state_write(muon_opt *opt, size_t param, state_part part, int64_t at, int64_t n,
                              const void *data);

/* ---- Where it is */

/* Memory of our own for all of it, untouched, at the addresses in opt->own; and without it. */
muon_status muon__state_reserve(muon_opt *opt);
void muon__state_release(muon_opt *opt);
/* State is at `where`, opt->own or opt->bound. */
void muon__state_use(muon_opt *opt, muon_state_buffers *where);

/* The caller's memory, if nothing is wrong with it, becomes opt->bound; on failure nothing changes.
 * holds: it has the state in it. */
muon_status muon__state_take(muon_opt *opt, const muon_state_buffers *bound, int holds);
/* Copies all state, wherever it is, to opt->bound, or from there. */
muon_status muon__state_copy_out(muon_opt *opt);
muon_status muon__state_copy_in(muon_opt *opt);

#endif
