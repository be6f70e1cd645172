/* plan.h - what a step will do, as a value.
 *
 * Parameters become items: one per logical matrix, and idle ones for rows and columns that are in no
 * matrix. Every item gets an owner, the rank that orthogonalizes it, and a wave: all ranks go through
 * the waves in the same order, and what an owner has in one of them fits its workspace. A plan is a
 * pure function of config and parameters, the same on every rank, and never changes; settings that a
 * caller may change between steps live in the optimizer, which starts from the plan's. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "matrix/matrix.h"
#include "muon/plan.h"
#include "ns/newton_schulz.h"
#include "plan/layout/fold.h"
#include "plan/layout/layout.h"
#include "plan/team/shape.h"

typedef struct plan_param {
    char *name;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    int64_t numel;
    muon_dtype dtype, grad_dtype, copy_dtype;
    int group, expert;
    muon_rule rule;
    matrix_spec spec; /* Muon only */
    layout *layout;
    /* Muon: as the spec folds it, so that batch, rows and cols are the same. Others: no batch, rows of
     * dim 0. */
    fold fold;
} plan_param;

/* Items of one shape in one group share a Newton-Schulz plan and an lr factor. */
typedef struct plan_class {
    int group;
    int64_t rows, cols;
    int transposed;
    int whole;     /* a variant, or momentum in 8 bits, needs whole matrices: no teams */
    int small;     /* runs on one thread beside others; else all threads share it */
    double flops;  /* of one orthogonalization, with the settings the plan was made with */
    int64_t alone; /* so many matrices have one owner */
} plan_class;

enum { PLAN_IDLE = -1 };

typedef struct plan_item {
    uint32_t param;
    int32_t class; /* PLAN_IDLE: in no matrix; momentum and weight decay only */
    int64_t batch;
    band rows, cols; /* of the matrix, or of what is in none */
    rectangle strip; /* the part of it that this item is: all, unless a team shares the matrix */
    int32_t owner, wave; /* an idle item has no owner (-1): every holder decays its own part */
    int32_t team;        /* PLAN_NO_TEAM, or an index of plan->teams */
    double flops;        /* that its owner spends on the matrix */
    /* Floats into the owner's buffer of the wave, where U and then O of the strip are
     * [strip.nrows][strip.ncols]. */
    int64_t slot;
} plan_item;

enum { PLAN_NO_TEAM = -1 };

/* Ranks that share a matrix: the owners of its strips. A rank works on its teams' matrices in the order of
 * plan->teams, so that no two ranks wait for each other. */
typedef struct plan_team {
    uint32_t first; /* items[first] .. are the strips, one for each member */
    int32_t shape;  /* of plan->shapes */
} plan_team;

typedef struct plan_attention {
    muon_attention settings;
    size_t q, k; /* parameters */
} plan_attention;

struct muon_plan {
    muon_config config; /* groups, attention and backend point to nothing: they are below; nor does
                           offload_dir: the optimizer has it */
    const la_ops *la;
    muon_group *groups; /* names and lists are ours */
    size_t ngroups;
    plan_attention *attention;
    size_t nattention;
    plan_param *params;
    size_t nparams;
    plan_class *classes;
    size_t nclasses;
    plan_item *items; /* in the order of parameters */
    size_t nitems;
    uint32_t
        *matrix_item; /* [cost.matrices] the items that are matrices; of a team, the first strip */
    plan_team *teams;
    size_t nteams;
    team_shape *shapes;
    size_t nshapes;
    int nranks;
    mesh *meshes;
    size_t nmeshes;
    uint32_t
        *order;   /* items by wave, in each by index; wave w has order[wave[w]] .. [wave[w + 1]] */
    size_t *wave; /* [nwaves + 1] */
    size_t nwaves;
    /* [nodes][nranks] 1: the holders of the node exchange messages with this owner through one of them
     * (plan/route/relays.h). NULL: nobody does. */
    unsigned char *relayed;
    /* 1: a result goes to a node once, to one of its holders there, who passes it on to the others. */
    int results_once;
    int in_flight; /* waves, as config.in_flight says, or as it was chosen; 0: all */
    int threads;
    int64_t wave_floats;   /* of the buffer that holds what any owner has in any wave */
    int64_t scratch_large; /* floats for one matrix that all threads share */
    int64_t scratch_small; /* floats for each thread that runs matrices of its own */
    int64_t scratch_team;  /* floats for one matrix that a team shares */
    muon_plan_cost cost;
    uint64_t hash;
};

/* A plan in which every matrix is one item, nothing is relayed, and no budget counts: to see what other owners and waves would
 * make of it. It borrows everything from `plan` but items and classes, which waves change. */
muon_status muon__plan_without_teams(muon_plan *out, const muon_plan *plan);
void muon__plan_free_items(muon_plan *plan); /* of such a plan */

/* The stages of muon_plan_create, in order. Each leaves the plan destroyable when it fails. */
muon_status muon__plan_load_groups(muon_plan *plan, const muon_config *config);
muon_status muon__plan_load_meshes(muon_plan *plan, const muon_config *config); /* and nranks */
muon_status muon__plan_load_params(muon_plan *plan, const muon_param *params, size_t nparams);
muon_status muon__plan_load_attention(muon_plan *plan, const muon_config *config);
muon_status muon__plan_make_items(muon_plan *plan);
muon_status muon__plan_choose_owners(muon_plan *plan);
muon_status muon__plan_choose_relays(muon_plan *plan);
muon_status muon__plan_make_waves(muon_plan *plan);
muon_status muon__plan_choose_depth(muon_plan *plan);
void muon__plan_make_hash(muon_plan *plan);

/* What ranks must agree on, each part for itself so that a message can say which differs: a parameter
 * (name, shape, dtypes, group, matrices, layout), a group, the attention layers, all the rest. */
uint64_t muon__plan_hash_param(const muon_plan *plan, size_t index);
uint64_t muon__plan_hash_group(const muon_group *group);
uint64_t muon__plan_hash_attention(const muon_plan *plan);
uint64_t muon__plan_hash_config(const muon_plan *plan);

/* A group's copy with its own name and list; *into is only written on success. */
muon_status muon__plan_copy_group(muon_group *into, const muon_group *from, size_t index);
void muon__plan_free_group(muon_group *group);

/* The Newton-Schulz plan and the lr factor of a class under these settings. */
muon_status muon__plan_class_ns(ns_plan *out, const plan_class *class, const muon_group *group);
double muon__plan_class_factor(const plan_class *class, const muon_group *group);
/* Floats of scratch for the iteration; those of variants follow them. */
int64_t muon__plan_class_scratch(const muon_plan *plan, const plan_class *class);

static inline int64_t muon__plan_momentum_bytes(const muon_group *group)
{
    return group->momentum_dtype == MUON_F32 ? 4 : group->momentum_dtype == MUON_BF16 ? 2 : 0;
}

/* Bytes of state per element of a shard, without the step counter and what a matrix's owner keeps
 * (plan/owned.h). */
static inline int64_t muon__plan_state_bytes(const muon_plan *plan, const plan_param *param)
{
    switch (param->rule) {
    case MUON_RULE_MUON:
        return muon__plan_momentum_bytes(&plan->groups[param->group]) +
               (plan->groups[param->group].second_moment == MUON_SECOND_ELEMENTS ? 4 : 0);
    case MUON_RULE_ADAMW:
        return 8;
    case MUON_RULE_LION:
        return 4;
    case MUON_RULE_FROZEN:
        break;
    }
    return 0;
}

/* Which member of its team an item's owner is. */
static inline int muon__item_member(const muon_plan *plan, const plan_item *item)
{
    return (int)(item - plan->items - plan->teams[item->team].first);
}

static inline const team_shape *muon__item_shape(const muon_plan *plan, const plan_item *item)
{
    return &plan->shapes[plan->teams[item->team].shape];
}

static inline int64_t muon__item_numel(const plan_item *item)
{
    return item->strip.nrows * item->strip.ncols;
}

/* Where in the slot an element of the matrix is. */
static inline int64_t muon__item_place(const plan_item *item, int64_t row, int64_t col)
{
    return item->slot + (row - item->strip.row) * item->strip.ncols + (col - item->strip.col);
}

/* What an item and a patch of its parameter have in common, in rows and columns of the matrix; 0 if
 * nothing. */
int muon__item_overlap(rectangle *out, const plan_item *item, const patch *p);

/* A box of the tensor that has all of the item in it. */
void muon__item_box(box *out, const muon_plan *plan, const plan_item *item);

#endif
