/* plan_cases.h - plans of whole models over many ranks: shapes only, nothing is allocated for them.
 *
 *     planned c;
 *     planned_init(&c, 1, 64, 8, 1);              // replicate, fsdp, ep, tp
 *     planned_add_model(&c, &glm_45);
 *     muon_plan *plan = planned_make(&c);
 *     ...
 *     muon_plan_destroy(plan);
 *     planned_free(&c);
 */
#ifndef TESTS_PLAN_PLAN_CASES_H
#define TESTS_PLAN_PLAN_CASES_H

#include "muon/plan.h"
#include "tests/support/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

typedef struct tensor_kind {
    const char *name;
    int layers, matrices; /* matrices: in one tensor, one under the other */
    int64_t rows, cols;   /* of a matrix */
} tensor_kind;

typedef struct known_model {
    const char *name;
    const tensor_kind *tensors;
    size_t n;
} known_model;

#define KNOWN_MODEL(id, text, ...)                                                                 \
    static const tensor_kind id##_tensors[] = {__VA_ARGS__};                                       \
    static const known_model id __attribute__((unused)) = {text, id##_tensors, COUNT(id##_tensors)}

KNOWN_MODEL(gpt2, "gpt2-124m", {"attn", 48, 1, 768, 768}, {"fc", 12, 1, 3072, 768},
            {"proj", 12, 1, 768, 3072});
KNOWN_MODEL(llama_8b, "llama3-8b", {"q", 32, 1, 4096, 4096}, {"k", 32, 1, 1024, 4096},
            {"v", 32, 1, 1024, 4096}, {"o", 32, 1, 4096, 4096}, {"gate", 32, 1, 14336, 4096},
            {"up", 32, 1, 14336, 4096}, {"down", 32, 1, 4096, 14336});
KNOWN_MODEL(llama_70b, "llama3-70b", {"q", 80, 1, 8192, 8192}, {"k", 80, 1, 1024, 8192},
            {"v", 80, 1, 1024, 8192}, {"o", 80, 1, 8192, 8192}, {"gate", 80, 1, 28672, 8192},
            {"up", 80, 1, 28672, 8192}, {"down", 80, 1, 8192, 28672});
KNOWN_MODEL(qwen3_30b, "qwen3-30b-a3b", {"q", 48, 1, 4096, 2048}, {"k", 48, 1, 512, 2048},
            {"v", 48, 1, 512, 2048}, {"o", 48, 1, 2048, 4096}, {"w1w3", 48, 256, 768, 2048},
            {"w2", 48, 128, 2048, 768}, {"router", 48, 1, 128, 2048});
KNOWN_MODEL(qwen35_397b, "qwen3.5-397b-a17b", {"q", 15, 1, 16384, 4096}, {"k", 15, 1, 512, 4096},
            {"v", 15, 1, 512, 4096}, {"o", 15, 1, 4096, 8192}, {"gdn_q", 45, 1, 2048, 4096},
            {"gdn_k", 45, 1, 2048, 4096}, {"gdn_v", 45, 1, 8192, 4096},
            {"gdn_z", 45, 1, 8192, 4096}, {"gdn_a", 45, 1, 64, 4096}, {"gdn_b", 45, 1, 64, 4096},
            {"gdn_out", 45, 1, 4096, 8192}, {"w1w3", 60, 1024, 1024, 4096},
            {"w2", 60, 512, 4096, 1024}, {"router", 60, 1, 512, 4096},
            {"sh_gate", 60, 1, 1024, 4096}, {"sh_up", 60, 1, 1024, 4096},
            {"sh_down", 60, 1, 4096, 1024});
KNOWN_MODEL(glm_45, "glm-4.5", {"q", 92, 1, 12288, 5120}, {"k", 92, 1, 1024, 5120},
            {"v", 92, 1, 1024, 5120}, {"o", 92, 1, 5120, 12288}, {"d_gate", 3, 1, 12288, 5120},
            {"d_up", 3, 1, 12288, 5120}, {"d_down", 3, 1, 5120, 12288},
            {"w1w3", 89, 320, 1536, 5120}, {"w2", 89, 160, 5120, 1536},
            {"router", 89, 1, 160, 5120}, {"sh_gate", 89, 1, 1536, 5120},
            {"sh_up", 89, 1, 1536, 5120}, {"sh_down", 89, 1, 5120, 1536});
KNOWN_MODEL(kimi_k2, "kimi-k2", {"q_a", 61, 1, 1536, 7168}, {"q_b", 61, 1, 12288, 1536},
            {"kv_a", 61, 1, 576, 7168}, {"kv_b", 61, 1, 16384, 512}, {"o", 61, 1, 7168, 8192},
            {"d_gate", 1, 1, 18432, 7168}, {"d_up", 1, 1, 18432, 7168},
            {"d_down", 1, 1, 7168, 18432}, {"w1w3", 60, 768, 2048, 7168},
            {"w2", 60, 384, 7168, 2048}, {"router", 60, 1, 384, 7168},
            {"sh_gate", 60, 1, 2048, 7168}, {"sh_up", 60, 1, 2048, 7168},
            {"sh_down", 60, 1, 7168, 2048});

enum { PLANNED_PARAMS = 1024, PLANNED_TEXT = 48 };

typedef struct planned {
    muon_config config;
    muon_group group;
    muon_mesh mesh;
    muon_param *params; /* [PLANNED_PARAMS] */
    char (*names)[PLANNED_TEXT], (*matrices)[PLANNED_TEXT];
    size_t nparams;
} planned;

/* A plan case points into itself: init it where it stays. */
static inline void planned_init(planned *c, int replicate, int fsdp, int ep, int tp)
{
    *c = (planned){0};
    muon_group_init(&c->group, sizeof c->group);
    muon_config_init(&c->config, sizeof c->config);
    muon_mesh_init(&c->mesh, sizeof c->mesh);
    static const char *const axes[] = {"replicate", "fsdp", "ep", "tp"};
    const int sizes[] = {replicate, fsdp, ep, tp};
    c->mesh.name = "mesh";
    c->mesh.naxes = (int)COUNT(axes);
    c->config.nranks = 1;
    for (size_t i = 0; i < COUNT(axes); i++) {
        c->mesh.axes[i] = axes[i];
        c->mesh.sizes[i] = sizes[i];
        c->config.nranks *= sizes[i];
    }
    c->config.groups = &c->group;
    c->config.ngroups = 1;
    c->config.meshes = &c->mesh;
    c->config.nmeshes = 1;
    c->config.threads = 1;
    c->params = calloc(PLANNED_PARAMS, sizeof *c->params);
    c->names = calloc(PLANNED_PARAMS, sizeof *c->names);
    c->matrices = calloc(PLANNED_PARAMS, sizeof *c->matrices);
    assert_true(c->params && c->names && c->matrices);
}

static inline void planned_free(planned *c)
{
    free(c->params);
    free(c->names);
    free(c->matrices);
}

/* Dense matrices are cut by all axes, fused experts by ep first. */
static inline muon_param *planned_add(planned *c, const tensor_kind *t, int layer)
{
    assert_true(c->nparams < PLANNED_PARAMS);
    muon_param *p = &c->params[c->nparams];
    muon_param_init(p, sizeof *p);
    snprintf(c->names[c->nparams], PLANNED_TEXT, "%s.%d", t->name, layer);
    snprintf(c->matrices[c->nparams], PLANNED_TEXT, "rows / %d", t->matrices);
    p->name = c->names[c->nparams];
    p->matrices = c->matrices[c->nparams];
    p->ndim = 2;
    p->shape[0] = t->rows * t->matrices;
    p->shape[1] = t->cols;
    p->group = 0;
    p->expert = t->matrices > 1;
    p->mesh = "mesh";
    p->placement = p->expert ? "0: ep, fsdp, tp" : "0: tp, fsdp, ep";
    c->nparams++;
    return p;
}

static inline void planned_add_model(planned *c, const known_model *m)
{
    for (size_t i = 0; i < m->n; i++)
        for (int layer = 0; layer < m->tensors[i].layers; layer++)
            planned_add(c, &m->tensors[i], layer);
}

static inline muon_plan *planned_make(const planned *c)
{
    muon_plan *plan = NULL;
    assert_ok(muon_plan_create(&plan, &c->config, c->params, c->nparams));
    return plan;
}

static inline muon_prediction planned_predict(const muon_plan *plan)
{
    muon_prediction p;
    assert_ok(muon_plan_predict(plan, &p, sizeof p));
    return p;
}

static inline muon_scheme_cost planned_scheme(const muon_plan *plan, muon_scheme scheme)
{
    muon_scheme_cost cost;
    assert_ok(muon_plan_predict_scheme(plan, scheme, &cost, sizeof cost));
    return cost;
}

/* Flops that every rank has; free it. */
static inline double *planned_work(const muon_plan *plan)
{
    double *work = calloc((size_t)plan->nranks, sizeof *work);
    assert_non_null(work);
    for (size_t i = 0; i < muon_plan_count_matrices(plan); i++) {
        muon_matrix m;
        assert_ok(muon_plan_get_matrix(plan, i, &m, sizeof m));
        if (m.owner < 0 || m.owner >= plan->nranks)
            fail_msg("matrix %zu has owner %d of %d ranks", i, m.owner, plan->nranks);
        work[m.owner] += m.flops;
    }
    return work;
}

#endif
