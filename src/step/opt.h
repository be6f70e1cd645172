/* opt.h - an optimizer: a plan, its memory, its threads, and the settings that may change.
 *
 * A step runs the stages declared at the end, in that order, on what creation has laid out. Stages
 * cut their work into units that depend on the plan alone and hand them to the pool. */
#ifndef STEP_OPT_H
#define STEP_OPT_H

#include "base/memory.h"
#include "base/sumsq.h"
#include "plan/plan.h"
#include "rule/qk_clip.h"

#include <stdatomic.h>

/* The state of one parameter; what its rule does not use is NULL. */
typedef struct param_state {
    void *momentum; /* Muon: f32 or bf16 by the group */
    float *exp_avg, *exp_avg_sq;
    int64_t *step; /* steps applied; NULL for a frozen parameter */
} param_state;

typedef struct flat_unit { /* elements begin..end of a parameter */
    uint32_t param;
    int64_t begin, end;
} flat_unit;

typedef struct row_unit { /* rows begin..end of an item */
    uint32_t item;
    int64_t begin, end;
} row_unit;

typedef struct buffer_range { /* memory of the caller, for the overlap check */
    uintptr_t begin, end;
    uint32_t param;
    unsigned char what; /* 0 param, 1 grad, 2 copy */
} buffer_range;

typedef struct qk_task { /* rows of a parameter to be scaled */
    uint32_t param;
    qk_range range;
} qk_task;

struct muon_opt {
    muon_plan *plan;
    const la_ops *la;
    pool *p;
    int broken;

    /* Settings; the plan has what they were at creation. */
    muon_group *groups;
    ns_plan *ns;    /* [nclasses] */
    double *factor; /* [nclasses] */
    double clip_norm, qk_threshold;
    int qk_log_only;

    arena state_memory;
    param_state *state;   /* [nparams] */
    muon_tensor *tensors; /* the state's list for the caller */
    size_t ntensors;
    char *tensor_names;

    arena workspace;
    float *wave;    /* [plan->wave_floats] */
    float *scratch; /* for one large matrix, or a small one per thread */

    flat_unit *check_units, *adamw_units;
    size_t ncheck_units, nadamw_units;
    row_unit *row_units; /* wave w has row_units[wave_rows[w]] .. [wave_rows[w + 1]] */
    size_t *wave_rows;   /* [nwaves + 1] */
    sumsq *worker_sum;   /* [threads] */
    double *item_sumsq;  /* [nitems] of O */
    qk_task *qk_tasks;   /* room for any one attention layer, like the next two */
    qk_range *qk_q, *qk_k;
    buffer_range *ranges;  /* [3 nparams] */
    muon_buffers *checked; /* [nparams] the buffers that were last found not to overlap */
    int checked_valid;
    unsigned char *active;   /* [nparams] has a gradient in this step */
    atomic_uchar *nonfinite; /* [nparams] */

    /* The step in progress. */
    const muon_buffers *buffers;
    int want_norm; /* somebody will see it, or clip by it; else finiteness is all that is checked */
    double grad_factor; /* 1 / grad_scale */
    double clip_coef;
    muon_result result;
};

/* What a gradient element of this group is multiplied by in this step. */
float muon__grad_multiplier(const muon_opt *opt, const muon_group *group);

/* Cuts all work into units. */
muon_status muon__opt_make_units(muon_opt *opt);
/* Lays out the state and names its tensors. */
muon_status muon__opt_make_state(muon_opt *opt);

muon_status muon__opt_create(muon_opt **out, const muon_config *config, const muon_param *params,
                             size_t nparams);
void muon__opt_destroy(muon_opt *opt);

/* ---- The stages of a step */

/* Buffers present, aligned, apart from each other; which gradients there are. The last errors that a
 * caller can cause. */
muon_status muon__step_inputs(muon_opt *opt, const muon_step_args *args);
/* Finiteness and norm of all gradients, clip coefficient. Returns 0 if the step must be skipped. */
int muon__step_check(muon_opt *opt, double grad_scale);
void muon__step_momentum(muon_opt *opt, size_t wave);
muon_status muon__step_ortho(muon_opt *opt, size_t wave);
void muon__step_update(muon_opt *opt, size_t wave);
void muon__step_adamw(muon_opt *opt);
void muon__step_qk_clip(muon_opt *opt, const float *const *max_logits);

muon_status muon__step_run(muon_opt *opt, const muon_step_args *args);

/* Tells the caller's log, if there is one. */
void muon__opt_log(const muon_opt *opt, muon_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
