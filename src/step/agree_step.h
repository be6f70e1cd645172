/* agree_step.h - where ranks agree: when an optimizer is created, and once in every step before
 * anything changes. If ranks disagree or one fails, every rank returns the same status and
 * message. */
#ifndef STEP_AGREE_STEP_H
#define STEP_AGREE_STEP_H

#include "base/sumsq.h"
#include "comm/agree.h"
#include "plan/plan.h"

/* At creation. All plans are the same: parameters, layouts, groups, the rest of the config, owners.
 * plan is NULL if status is a failure. The message names what differs, where, and on which two
 * ranks. *number is one that no other optimizer of these ranks has. */
muon_status muon__agree_on_plan(agree *a, muon_status status, const muon_plan *plan,
                                int64_t *number);

/* ---- In a step */

enum { AGREE_PRESENT = 1, AGREE_ABSENT = 2, AGREE_NONFINITE = 4 }; /* of a parameter's gradient */

typedef struct step_agree step_agree;

/* comm of one rank: everything below works, and only says what this rank has said. `questions` are
 * asked when ranks disagree. */
muon_status muon__step_agree_create(step_agree **out, const muon_comm *comm, const muon_plan *plan,
                                    int64_t number, agree *questions);
size_t
muon__step_agree_destroy(step_agree *a); /* NULL is fine; returns what muon__comm_free does */

typedef struct step_setting {
    const char *name;
    double value;
} step_setting;

/* What this rank brings, and after muon__agree_step what all have brought together. */
typedef struct step_word {
    const char *call;          /* "muon_grad_norm"; NULL: "muon_step" */
    sumsq sum;                 /* added */
    int want_result;           /* somebody's */
    uint64_t settings;         /* hash of what must be equal but for groups: grad_scale, ... */
    const step_setting *named; /* [nnamed] the same by name, for the message; may be NULL */
    size_t nnamed;
    const muon_group *groups;       /* [ngroups] as they are now; compared, not changed */
    unsigned char *flags;           /* [nparams] or-ed; a rank without elements leaves it 0 */
    const float *const *max_logits; /* [nattention] or NULL, of the caller */
    const float *const
        *agreed_logits; /* out: [nattention], each [heads]: the largest finite value of
                                          any rank, NaN if no rank gave one; NULL if no rank gave the
                                          layer */
} step_word;

/* status: how it went on this rank so far. MUON_E_GRAD if a gradient is present on one rank and
 * absent on another; MUON_E_DISAGREE if settings differ ("group 'muon': lr is 0.02 on rank 0, 0.03
 * on rank 2"). Nothing has been changed when this fails, and after anything but MUON_E_TIMEOUT and
 * MUON_E_COMM the next step can go on. */
muon_status muon__agree_step(step_agree *a, muon_status status, step_word *word);

/* What a rank did, at the end of a step: sums, and the extremes of seconds. */
typedef struct step_sums {
    int64_t nonfinite_matrices, matrices; /* summed */
    sumsq *class_sum;                     /* [nclasses] merged */
    double seconds, phase[MUON_MAX_PHASES];
    double seconds_max, seconds_min, phase_max[MUON_MAX_PHASES],
        phase_min[MUON_MAX_PHASES]; /* out */
} step_sums;

/* Only if some rank wanted a result, or a callback could fail. */
muon_status muon__agree_end(step_agree *a, muon_status status, step_sums *sums);

#endif
