/* opt.h - an optimizer: a plan, this rank's route through it, its memory, its threads, and the settings
 * that may change.
 *
 * A step runs the stages declared at the end, in that order, on what creation has laid out. Stages
 * cut their work into units that depend on plan and route alone and hand them to the pool. */
#ifndef STEP_OPT_H
#define STEP_OPT_H

#include "base/memory.h"
#include "base/sumsq.h"
#include "io/tier/tier.h"
#include "plan/owned.h"
#include "plan/route/rings.h"
#include "rule/qk_clip.h"
#include "step/agree_step.h"
#include "step/overlap.h"

#include <stdatomic.h>

enum { STUCK_NEW = 1, STUCK_SAID }; /* whether the log has heard of it */

typedef struct flat_unit { /* elements begin..end of a parameter's shard */
    uint32_t param;
    int counts; /* in the norm; another rank counts a replica */
    int64_t begin, end;
} flat_unit;

typedef struct patch_unit { /* rows begin..end of one batch entry of a patch */
    uint32_t param, patch;
    int64_t batch, begin, end;
} patch_unit;

typedef struct part_unit { /* rows begin..end of a piece, or of a copy */
    uint32_t index;
    int64_t begin, end;
} part_unit;

typedef struct part_units { /* wave w has units[first[w]] .. units[first[w + 1]] */
    part_unit *units;
    size_t *first; /* [nwaves + 1] */
} part_units;

typedef struct qk_task { /* rows of a parameter to be scaled */
    uint32_t param;
    qk_range range;
    int64_t elements; /* that were, of this rank's */
} qk_task;

/* State in a file: what of it a step needs when. The first stages of the tier are those of Muon: the
 * momentum of each wave, or of each parameter of the reference path, and between them their updates, if
 * these have state. */
typedef struct offload {
    tier *t;   /* NULL: state is in memory */
    char *dir; /* where it is, and the budget; for the way back if another place fails */
    int64_t ram_budget;
    int has_updates; /* and the update of each wave has a stage of its own */
    size_t muon_stages, adamw_stages;
    size_t *adamw_first; /* [adamw_stages + 1] the units of each */
} offload;

typedef struct grad_view { /* of a gradient, as much as is in memory: elements from `begin` on */
    const void *data;
    int64_t begin;
} grad_view;

/* Gradients that the caller brings: what was asked for last. */
typedef struct fetch {
    muon_grad_part *parts; /* [nparams] of which nparts are in use; NULL: gradients are in memory */
    size_t nparts;
    size_t *part_of;       /* [nparams] where in parts it is, if it is there */
    int64_t bytes, budget; /* of all parts */
} fetch;

/* A kind of list of plan/owned.h. A rank has the part of the matrices that it owns; on the reference path
 * all ranks have all. */
typedef struct owned_list {
    layout **layouts; /* [nparams] of the lists; NULL: none */
    int64_t *shape;   /* [nparams] of the whole list */
    void **data;      /* [nparams] in memory, or the caller's */
    int64_t *at;      /* [nitems] where in data the item's part begins, in elements */
    int64_t *index;   /* [nitems] the same in the whole list */
    size_t element;   /* bytes */
    void *memory;
} owned_list;

/* Norms of whole matrices that a stage asks for (norms.c). */
typedef struct norms {
    size_t n;              /* matrices; 0: nobody asks */
    int32_t *of;           /* [nitems] which of them an item is, or -1 */
    int has_grads;         /* norms of gradients are asked for, too */
    double *weight, *grad; /* [n] of W, and of the gradient as it came, squared */
    atomic_uchar *locks;   /* [n] of sums that threads merge into */
    struct tree *t;
} norms;

typedef struct exchange exchange;   /* messages of the pipeline */
typedef struct teams teams;         /* the matrices that this rank shares with others */
typedef struct reference reference; /* memory of the reference path */

/* Why an optimizer can only be destroyed. */
enum {
    OPT_FAILED = 1, /* a step failed half-way; the ranks know it of each other */
    OPT_PARTED      /* they have lost each other: nothing can be agreed on any more */
};

enum { UNLOADED_STATE = 1, UNLOADED_WEIGHTS = 2 };

struct muon_opt {
    muon_plan *plan;
    muon_comm comm;
    route *route;
    agree agree; /* on whatever is not of a step */
    step_agree *step_agree;
    exchange *messages;
    teams *teams;     /* NULL: none */
    reference *plain; /* MUON_PATH_REFERENCE, else NULL */
    const la_ops *la;
    int la_reserved; /* by muon__la_warm_up */
    pool *p;
    int64_t number;                /* the same on all ranks, another one for every optimizer */
    int broken;                    /* OPT_..., or 0 */
    char cause[MUON__MESSAGE_MAX]; /* of its being broken: the first one */
    int unloaded;                  /* what a load that failed half-way has spoiled: UNLOADED_... */
    struct background *background; /* NULL: no muon_step_start */
    struct saving *saving; /* a save beside training that is under way (src/save), or NULL */

    /* Settings; the plan has what they were at creation. */
    muon_group *groups;
    ns_plan *ns;    /* [nclasses] */
    double *factor; /* [nclasses] */
    double clip_norm, skip_norm, qk_threshold;
    int qk_log_only;

    /* State is in memory that the caller has bound, or in our own, which may have gone to a file. While
     * it is offloaded, bound memory is only where it will come back to. */
    muon_state_buffers *state; /* [nparams] where it is: own or bound; NULL: the rule has none */
    muon_state_buffers *own;   /* [nparams] in `memory` and `steps` */
    muon_state_buffers *bound; /* [nparams] valid if is_bound */
    int is_bound;
    owned_list lists[OWNED_LISTS]; /* always in memory */
    norms norms;
    region memory;  /* its addresses stay when it goes to a file; none while state is in bound */
    int64_t *steps; /* [nparams] always in memory */
    offload offload;
    int offloaded;        /* what all ranks have agreed on; then state is own */
    int64_t state_bytes;  /* without steps */
    muon_tensor *tensors; /* the state's list for the caller */
    size_t ntensors;
    char *tensor_names;

    arena workspace;
    /* What is sent and received, [ROUTE_ALL_LISTS + 1][of muon__rings_of_list]; the last are slots, what this
     * rank owns of a wave. A relay's IN and OUT are one buffer; for results that is SCATTER_RECEIVE's. */
    char **wave_buffers[ROUTE_ALL_LISTS + 1];
    route_rings rings;
    float *scratch;       /* for one large matrix, or a small one per thread */
    float *team_scratch;  /* for a matrix that a team shares, and */
    float *team_verdicts; /* [TEAM_MAX] at its end */

    flat_unit *check_units;
    size_t ncheck_units;
    patch_unit *adamw_units;
    size_t nadamw_units;
    part_units piece_units, copy_units[2]; /* of the route's pieces and copies */
    sumsq *worker_sum;                     /* [threads] of gradients */
    sumsq *class_sum;  /* [threads][nclasses] of O; the first row is the total at the end */
    qk_task *qk_tasks; /* room for any one attention layer, like the next two */
    qk_range *qk_q, *qk_k;
    range_list ranges;       /* room for 4 nparams; of a step's buffers */
    range_list bound_ranges; /* the same of bound state, sorted */
    muon_buffers *checked;   /* [nparams] the buffers that were last found not to overlap */
    int checked_valid;
    unsigned char *active;   /* [nparams] has a gradient in this step */
    unsigned char *flags;    /* [nparams] AGREE_... */
    atomic_uchar *nonfinite; /* [nparams] in this rank's shard */
    unsigned char *stuck;    /* [nitems] not finite in the last step; STUCK_... */

    /* The step in progress. */
    const muon_buffers *buffers;
    grad_view *grads; /* [nparams] what a stage reads of gradients */
    fetch fetch;
    int want_check;     /* gradients must be read before anything changes: for their finiteness */
    int want_norm;      /* and for their norm, which somebody will see, or clip by */
    double grad_factor; /* 1 / grad_scale */
    double clip_coef;
    double team_seconds; /* waiting for the members of teams */
    muon_result result;
    int64_t skipped_steps;
    muon_status kept; /* the first failure that waits for the end of the step, and its message */
    char kept_text[MUON__MESSAGE_MAX];
};

static inline int muon__opt_is_parting(muon_status status)
{
    return status == MUON_E_TIMEOUT || status == MUON_E_COMM;
}

/* A failure, with this thread's message, after which this optimizer can only be destroyed. what: "an
 * earlier step of this optimizer failed half-way"; NULL: ranks were parted, and nothing else. */
void muon__opt_break(muon_opt *opt, muon_status status, const char *what);
/* Passes on how it went, and breaks the optimizer if that has parted the ranks. */
muon_status muon__opt_settle(muon_opt *opt, muon_status status);
/* Nobody has failed (comm/agree.h). */
muon_status muon__opt_agree(muon_opt *opt, const char *stage, muon_status status);
/* There is one, and no step is in flight. */
muon_status muon__opt_check_idle(const muon_opt *opt, const char *call);
/* And it is not broken; the first thing that a collective call asks. Whatever else may be
 * wrong on one rank alone is for all to hear. */
muon_status muon__opt_check(const muon_opt *opt, const char *stage);

/* What a gradient element of this group is multiplied by in this step. */
float muon__grad_multiplier(const muon_opt *opt, const muon_group *group);

/* While state is in a file: then it is read while matrices are multiplied, not before. */
static inline size_t muon__offload_ahead(const muon_opt *opt)
{
    return opt->rings.ahead > 1 ? 1 : opt->rings.ahead;
}

static inline char *muon__opt_buffer(const muon_opt *opt, int list, size_t wave)
{
    return opt->wave_buffers[list][wave % (size_t)muon__rings_of_list(opt->rings, list)];
}

static inline float *muon__opt_slots(const muon_opt *opt, size_t wave)
{
    return (float *)(void *)muon__opt_buffer(opt, ROUTE_ALL_LISTS, wave);
}

/* Cuts all work into units. */
muon_status muon__opt_make_units(muon_opt *opt);
/* Takes the caller's state, or lays it out in memory that nobody has touched yet (bound NULL), and
 * names its tensors; step/state.h is how others get at it. */
muon_status muon__opt_make_state(muon_opt *opt, const muon_state_buffers *bound);
muon_status muon__owned_create(muon_opt *opt);
void muon__owned_destroy(muon_opt *opt);
/* On this rank. */
int64_t muon__owned_numel(const muon_opt *opt, int list, size_t param);
/* The item's part, if this rank has it; else NULL. */
void *muon__owned_at(const muon_opt *opt, int list, const plan_item *item);
/* To the caller's memory where he has some, with what is in it; from there to our own where he has none.
 * bound NULL: all. */
void muon__owned_bind(muon_opt *opt, const muon_state_buffers *bound);
/* Opens the batches of all waves; the workspace is there. */
muon_status muon__exchange_create(muon_opt *opt);
void muon__exchange_destroy(muon_opt *opt);
/* Opens the batches of all teams of this rank (step/team.h). */
muon_status muon__teams_create(muon_opt *opt);
void muon__teams_destroy(muon_opt *opt);
/* Lets a team's messages progress. */
void muon__teams_look(muon_opt *opt);
/* Collective: a first message to every rank that steps send to (warm.c). */
muon_status muon__opt_connect(muon_opt *opt);
/* From now on the pool lets messages progress between two units of work. */
void muon__exchange_look_after(muon_opt *opt);
muon_status muon__reference_create(muon_opt *opt);
size_t muon__reference_destroy(muon_opt *opt); /* returns what muon__comm_free does */

/* status: what is wrong with the other arguments, if anything; every rank must hear of it. */
muon_status muon__opt_create(muon_opt **out, const muon_config *config, const muon_param *params,
                             size_t nparams, muon_status status);
void muon__opt_destroy(muon_opt *opt);

/* ---- State in a file */

/* Collective, at creation. dir NULL: only hears that it is so on every rank. */
muon_status muon__offload_create(muon_opt *opt, const char *dir);
void muon__offload_destroy(muon_opt *opt);

/* The blocks of all stages; sets the numbers of stages, and adamw_first. */
muon_status muon__offload_make_stages(muon_opt *opt, tier_stages *out);
void muon__offload_free_stages(tier_stages *stages);

/* The stage of wave k's momentum, or of its update, if that has one; with opt->plain k counts
 * parameters. */
size_t muon__offload_stage(const muon_opt *opt, size_t k, int is_update);
/* Around what reads and writes state in a step; in memory they do nothing. What is waited for is
 * MUON_PHASE_OFFLOAD. */
muon_status muon__offload_enter(muon_opt *opt, size_t stage, double *clock);
void muon__offload_leave(muon_opt *opt, size_t stage);

/* ---- Gradients that the caller brings */

muon_status muon__fetch_create(muon_opt *opt);
void muon__fetch_destroy(muon_opt *opt);

/* Has in opt->grads what units first..end of a stage read. Sets *end to fewer of them if that would be
 * more than the budget. Where gradients are in memory it does nothing. */
muon_status muon__fetch_check(muon_opt *opt, size_t first, size_t *end);
muon_status muon__fetch_pieces(muon_opt *opt, size_t first, size_t *end);
muon_status muon__fetch_adamw(muon_opt *opt, size_t first, size_t *end);
/* All that this rank has of one parameter, whatever the budget. */
muon_status muon__fetch_shard(muon_opt *opt, size_t param);

/* ---- The stages of a step */

/* Buffers present, aligned, apart from each other; which gradients there are. The last errors that a
 * caller can cause. */
muon_status muon__step_inputs(muon_opt *opt, const muon_step_args *args);
/* Finiteness and norm of this rank's gradients, into word->sum and opt->flags. Fails only where the
 * caller fails to bring one. */
muon_status muon__step_check(muon_opt *opt, step_word *word);
/* Sets want_check and want_norm: what the caller does not know yet, and somebody must. */
void muon__step_ask(muon_opt *opt, const muon_step_args *args, int want_result);
/* What all ranks have found together, or the caller has said. Returns 0 if the step must be skipped. */
int muon__step_judge(muon_opt *opt, const step_word *word, const muon_step_args *args);

muon_status muon__step_momentum(muon_opt *opt, size_t wave); /* fails like the check */
/* Of an item that this rank has whole: [rows][cols] of G at x becomes U, and its momentum changes. */
void muon__momentum_i8(const muon_opt *opt, const plan_item *item, float *x, pool *p);
muon_status muon__step_ortho(muon_opt *opt, size_t wave);
void muon__step_update(muon_opt *opt, size_t wave);

/* The messages between them. start_gather also makes room: it waits until what was in these buffers
 * has gone. After finish_gather the slots of the wave's owned matrices hold U, after finish_scatter
 * every piece of the wave has its O. */
muon_status muon__exchange_make_room(muon_opt *opt, size_t wave);
muon_status muon__exchange_start_gather(muon_opt *opt, size_t wave);
muon_status muon__exchange_finish_gather(muon_opt *opt, size_t wave);
muon_status muon__exchange_start_scatter(muon_opt *opt, size_t wave);
muon_status muon__exchange_finish_scatter(muon_opt *opt, size_t wave);
/* After the last wave: nothing is on its way any more. */
muon_status muon__exchange_finish(muon_opt *opt);

/* Collective, if anybody asks for norms: those of weights and gradients before anything changes, and
 * afterwards weights back to theirs. The first fails only where the caller fails to bring a gradient. */
muon_status muon__norms_create(muon_opt *opt);
size_t muon__norms_destroy(muon_opt *opt); /* returns what muon__comm_free does */
muon_status muon__norms_find(muon_opt *opt);
muon_status muon__norms_restore(muon_opt *opt);

/* All waves of the pipeline, or the reference path. */
muon_status muon__step_pipeline(muon_opt *opt, double *clock);
muon_status muon__step_reference(muon_opt *opt, double *clock);

muon_status muon__step_adamw(muon_opt *opt, double *clock);
void muon__step_qk_clip(muon_opt *opt, const float *const *max_logits);

/* status: what is wrong with the arguments, if anything; every rank must hear of it. args are valid
 * if it is MUON_OK. */
muon_status muon__step_run(muon_opt *opt, const muon_step_args *args, muon_status status,
                           int want_result);

/* The norm of all gradients, in opt->result; status and args as above. */
muon_status muon__step_norm(muon_opt *opt, const muon_step_args *args, muon_status status);

/* For the stages: one more stretch of time has passed. */
void muon__step_clock(muon_opt *opt, muon_phase phase, double *since);
/* A failure in the middle of a step. With other ranks waiting for our messages it is kept for the end,
 * and this is MUON_OK. */
muon_status muon__step_keep(muon_opt *opt, muon_status status);
/* The caller hears that a parameter's gradient is not needed any more. */
void muon__step_consumed(const muon_opt *opt, size_t wave);

/* Orthogonalizes the [rows][cols] at x of a class and adds up what comes out; what is not finite
 * becomes 0 and counts. */
typedef struct ortho_task {
    muon_opt *opt;
    atomic_llong nonfinite;
} ortho_task;
void muon__ortho_matrix(ortho_task *task, const plan_item *item, float *x, pool *p, float *scratch,
                        int worker);
/* Tells the log of an item that has just become one that is not finite. */
void muon__ortho_say_stuck(muon_opt *opt, const plan_item *item);
/* The same by the caller's function. */
muon_status muon__ortho_callback(ortho_task *task, const plan_item *item, float *x);

/* Tells the caller's log that memory stays behind, if some does. */
void muon__opt_say_kept(const muon_opt *opt, const char *call, size_t bytes);
/* Tells the caller's log, if there is one. */
void muon__opt_log(const muon_opt *opt, muon_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
