/* case.h - what `muonctl plan` plans: the tensors of a model, where they are on a mesh, and the
 * machine. It is filled in this order: init, mesh, tensors, settings.
 *
 * The mesh has the axes replicate, fsdp, ep and tp, the last one fastest: ranks next to each other are
 * of one tp group, then of one ep group. Sizes of 1 cut nothing, so every case has all four. Where the
 * tensors are is what trainers do with them:
 *
 *     dense                 over fsdp and ep together on dim 0; tp first cuts the dim it parallelizes
 *     experts, fused        over ep, then fsdp; then tp
 *     replicate             holds replicas of everything                                            */
#ifndef CLI_PLAN_CASE_H
#define CLI_PLAN_CASE_H

#include "cli/config/config.h"

enum { PLAN_REPLICATE, PLAN_FSDP, PLAN_EP, PLAN_TP, PLAN_AXES };

/* Which dim of a matrix tensor parallelism cuts: its rows (out features, as in q, gate, up), its
 * columns (in features, as in o and down), or none (routers). */
typedef enum plan_cut { PLAN_CUT_ROWS, PLAN_CUT_COLS, PLAN_CUT_NONE } plan_cut;

enum { PLAN_GROUP_MUON, PLAN_GROUP_ADAMW, PLAN_GROUP_FROZEN, PLAN_GROUPS };

typedef struct plan_case {
    const char *model;   /* what it is called in titles */
    const char *profile; /* of the machine */
    muon_config config;  /* points to what is below */
    muon_group groups[PLAN_GROUPS];
    muon_mesh mesh;
    muon_param *params;
    size_t nparams;
    config file; /* where groups and parameters come from instead, if has_file */
    int has_file;
    files tensors; /* what its names are borrowed from */
    void **kept;   /* memory that names and texts are in */
    size_t nkept;
} plan_case;

void plan_case_init(plan_case *c);
void plan_case_destroy(plan_case *c);

/* "fsdp=64,ep=8"; NULL: one rank. */
int plan_case_set_mesh(plan_case *c, const char *text);

/* The axes larger than 1, "fsdp 64 x ep 8", for titles; meshes of a config are separated by "; ". */
typedef struct plan_axes {
    char text[192];
} plan_axes;
plan_axes plan_case_axes(const plan_case *c);

/* A new parameter with defaults; valid until the next one. */
muon_param *plan_case_add(plan_case *c);
/* Where it is, by its dims and param->expert. */
void plan_case_place(muon_param *param, plan_cut cut);
/* Frees the memory with the case. */
void *plan_case_keep(plan_case *c, void *memory);

/* All tensors of files, of which only the headers are read (files.c). */
int plan_case_read_files(plan_case *c, char **paths, int npaths);
/* The same, as a config for `muonctl step` describes them. Its meshes, if it has any, take
 * the place of the case's; `mesh_given` says that there must be none. */
int plan_case_read_config(plan_case *c, const char *path, char **paths, int npaths, int mesh_given);

#endif
