/* agree_model.h - a small model to agree on, the same on every rank until somebody changes it. */
#ifndef TESTS_STEP_AGREE_MODEL_H
#define TESTS_STEP_AGREE_MODEL_H

#include "step/agree_step.h"
#include "tests/world/model.h"

enum { NPARAMS = 4, HEADS = 4 };
#define PATIENT 120.0 /* seconds for who does not wait in vain */

/* A mesh of all ranks, two layers of attention, and one parameter and one group more than are used. */
static inline void init_model(model *m, int nranks)
{
    model_init(m);
    fleet_mesh(m, "world", "fsdp", nranks, NULL);
    m->groups[0].name = "muon";
    m->groups[1].name = "adamw";
    m->groups[1].rule = MUON_RULE_ADAMW;
    muon_group_init(&m->groups[2], sizeof m->groups[2]);
    model_add(m, 0, "h.0.wq", NULL, SHAPE(8, 16));
    model_add(m, 0, "h.0.wk", NULL, SHAPE(8, 16));
    model_add(m, 0, "h.0.up", NULL, SHAPE(4, 8));
    model_add(m, 1, "embed", NULL, SHAPE(10, 16));
    model_add(m, 1, "head", NULL, SHAPE(10, 16));
    m->nparams = NPARAMS;
    fleet_attend(m, "h.0.wq", "h.0.wk", HEADS, HEADS, 2)->name = "layer 0";
    fleet_attend(m, "h.0.wq", "h.0.wk", HEADS, 2, 2)->name = "layer 1";
    m->config.ngroups = 2;
    m->config.meshes = m->meshes;
    m->config.nmeshes = m->nmeshes;
    m->config.nranks = nranks;
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
