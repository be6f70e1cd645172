/* agree_model.h - a small model to agree on, the same on every rank until somebody changes it. */
#ifndef TESTS_AGREE_MODEL_H
#define TESTS_AGREE_MODEL_H

#include "step/agree_step.h"

#include <string.h>

enum { NPARAMS = 4, NGROUPS = 2, HEADS = 4 };
#define PATIENT 120.0 /* seconds for who does not wait in vain */

typedef struct model {
    muon_param params[NPARAMS + 1];
    size_t nparams;
    muon_group groups[NGROUPS + 1];
    muon_attention attention[2];
    muon_mesh mesh;
    muon_config config;
    double custom[2][3];
} model;

static inline void init_model(model *m, int nranks)
{
    static const struct {
        const char *name;
        int64_t rows, cols;
        int group;
    } tensors[NPARAMS + 1] = {{"h.0.wq", 8, 16, 0},
                              {"h.0.wk", 8, 16, 0},
                              {"h.0.up", 4, 8, 0},
                              {"embed", 10, 16, 1},
                              {"head", 10, 16, 1}};
    memset(m, 0, sizeof *m);
    for (int i = 0; i < NPARAMS + 1; i++) {
        muon_param *p = &m->params[i];
        muon_param_init(p, sizeof *p);
        p->name = tensors[i].name;
        p->ndim = 2;
        p->shape[0] = tensors[i].rows;
        p->shape[1] = tensors[i].cols;
        p->group = tensors[i].group;
    }
    m->nparams = NPARAMS;
    for (int i = 0; i < NGROUPS + 1; i++)
        muon_group_init(&m->groups[i], sizeof *m->groups);
    m->groups[0].name = "muon";
    m->groups[0].lr = 0.02;
    m->groups[1].name = "adamw";
    m->groups[1].rule = MUON_RULE_ADAMW;
    for (int i = 0; i < 2; i++) {
        muon_attention *a = &m->attention[i];
        muon_attention_init(a, sizeof *a);
        a->q = "h.0.wq";
        a->k = "h.0.wk";
        a->heads = a->kv_heads = HEADS;
        a->head_dim = 2;
    }
    m->attention[0].name = "layer 0";
    m->attention[1].name = "layer 1";
    m->attention[1].kv_heads = 2;
    muon_mesh_init(&m->mesh, sizeof m->mesh);
    m->mesh.name = "world";
    m->mesh.naxes = 1;
    m->mesh.axes[0] = "fsdp";
    m->mesh.sizes[0] = nranks;
    muon_config_init(&m->config, sizeof m->config);
    m->config.groups = m->groups;
    m->config.ngroups = NGROUPS;
    m->config.attention = m->attention;
    m->config.nattention = 2;
    m->config.meshes = &m->mesh;
    m->config.nmeshes = 1;
    m->config.nranks = nranks;
    m->config.threads = 1;
    m->config.timeout = PATIENT;
}

/* What a creation asks, each with messages of its own. */
static inline muon_status ask_status(const muon_comm *comm, double timeout, muon_status status)
{
    agree a = {0};
    TRY(muon__agree_open(&a, comm, CHANNEL_AGREE, timeout));
    status = muon__agree_status(&a, "muon_create", status);
    muon__agree_close(&a);
    return status;
}

static inline muon_status ask_plan(const muon_comm *comm, muon_status status, const muon_plan *plan)
{
    agree a = {0};
    int64_t number;
    TRY(muon__agree_open(&a, comm, CHANNEL_AGREE, PATIENT));
    status = muon__agree_on_plan(&a, status, plan, &number);
    muon__agree_close(&a);
    return status;
}

#endif
