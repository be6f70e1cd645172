/* optimizer.h - libmuon's optimizer for the tensors of a model.
 *
 * Matrices go to Muon; embedding, head and routers to AdamW; norms to AdamW without weight decay. In a
 * run without Muon the matrices are AdamW's too. A variant of Muon changes the rule of some of them. Ranks are a mesh of three axes: tensors are cut along
 * their rows by fsdp and ep together, experts are dealt out by ep and each cut by fsdp, and replicate
 * has copies. */
#ifndef TRAIN_RUN_OPTIMIZER_H
#define TRAIN_RUN_OPTIMIZER_H

#include "train/model/model.h"
#include "train/run/variants.h"

typedef struct optimizer_settings {
    int muon;                     /* 0: AdamW for all */
    const train_variant *variant; /* of Muon; NULL: none */
    double lr, adamw_lr;          /* of Muon's matrices; of all that is AdamW's */
    double weight_decay, momentum;
    double clip_norm;        /* 0: off */
    double qk_clip;          /* threshold; 0: logits are only watched */
    int replicate, fsdp, ep; /* all 0: fsdp over all ranks */
    int threads;
    const char *backend;
    double timeout;
    const char *offload_dir; /* NULL: state is in memory */
    int64_t offload_budget;  /* bytes of it in memory, on this rank */
    muon_log_fn log;         /* what the library has to tell; NULL: nobody listens */
    void *log_user;
} optimizer_settings;

typedef struct optimizer {
    muon_opt *opt;
    muon_param *params; /* one for each tensor of the model, whose names they borrow */
    size_t nparams;
    muon_attention *attention; /* layers, for QK-clip */
    size_t nattention;
    optimizer_settings settings;
} optimizer;

/* What people and checkpoints call it: "Muon" and "muon", or those of the variant. */
const char *optimizer_label(const optimizer_settings *settings);
const char *optimizer_name(const optimizer_settings *settings);

/* All of it but opt, which is made by optimizer_open. */
muon_status optimizer_describe(optimizer *o, const model *m, const optimizer_settings *settings);
/* Collective. comm NULL: one rank. */
muon_status optimizer_open(optimizer *o, const muon_comm *comm);
void optimizer_close(optimizer *o); /* zeros are fine */

/* Puts the settings back after others were loaded. */
muon_status optimizer_restore(optimizer *o);

double optimizer_lr(const optimizer *o); /* of the matrices, before any factor */
/* The learning rates of the next step: a factor on all. */
muon_status optimizer_set_factor(optimizer *o, double factor);

/* Fills in the axes for so many ranks, or says how they do not fit. */
muon_status optimizer_fit_mesh(optimizer_settings *settings, int nranks);

#endif
