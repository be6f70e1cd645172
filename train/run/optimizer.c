#include "train/run/optimizer.h"

#include "base/memory.h"
#include "muon/comm.h"

#include <stdlib.h>
#include <string.h>

enum { MATRICES, TABLES, VECTORS, NGROUPS }; /* VECTORS: norms */

muon_status optimizer_fit_mesh(optimizer_settings *settings, int nranks)
{
    int *axes[] = {&settings->replicate, &settings->fsdp, &settings->ep};
    int given = 0;
    int64_t ranks = 1;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        given |= *axes[i] != 0;
    if (!given) settings->fsdp = nranks;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        if (*axes[i] == 0) *axes[i] = 1;
        REQUIRE(*axes[i] >= 1 && *axes[i] <= nranks, E_LAYOUT,
                "mesh: an axis of %d ranks, but there %s %d", *axes[i], nranks == 1 ? "is" : "are",
                nranks);
        ranks *= *axes[i];
    }
    REQUIRE(ranks == nranks, E_LAYOUT,
            "mesh: fsdp %d x ep %d x replicate %d are %lld ranks, but there %s %d", settings->fsdp,
            settings->ep, settings->replicate, (long long)ranks, nranks == 1 ? "is" : "are",
            nranks);
    return MUON_OK;
}

/* ---- names ------------------------------------------------------------------------------------ */

const char *optimizer_label(const optimizer_settings *settings)
{
    if (!settings->muon) return "AdamW";
    return settings->variant ? settings->variant->label : "Muon";
}

const char *optimizer_name(const optimizer_settings *settings)
{
    if (!settings->muon) return "adamw";
    return settings->variant ? settings->variant->name : "muon";
}

/* ---- what libmuon is told -------------------------------------------------------------------- */

static muon_status describe_groups(muon_group *groups, const optimizer_settings *settings)
{
    static const char *const names[NGROUPS] = {"matrices", "tables", "vectors"};
    for (int i = 0; i < NGROUPS; i++) {
        muon_group_init(&groups[i], sizeof groups[i]);
        groups[i].name = names[i];
        groups[i].rule = MUON_RULE_ADAMW;
        groups[i].lr = settings->adamw_lr;
        groups[i].weight_decay = settings->weight_decay;
    }
    groups[VECTORS].weight_decay = 0;
    if (!settings->muon) return MUON_OK;
    groups[MATRICES].rule = MUON_RULE_MUON;
    groups[MATRICES].lr = settings->lr;
    groups[MATRICES].momentum = settings->momentum;
    for (int i = 0; i < NGROUPS; i++)
        TRY(train_variant_apply(settings->variant, &groups[i]));
    return MUON_OK;
}

static void describe_param(muon_param *param, const model_tensor *tensor)
{
    muon_param_init(param, sizeof *param);
    param->name = tensor->name;
    param->ndim = tensor->ndim;
    memcpy(param->shape, tensor->shape, (size_t)tensor->ndim * sizeof *param->shape);
    param->group = tensor->is_muon ? MATRICES : tensor->ndim > 1 ? TABLES : VECTORS;
    if (tensor->is_muon) param->matrices = tensor->matrices;
    param->expert = tensor->expert;
    param->mesh = "ranks";
    param->placement = tensor->expert ? "0: ep; 1: fsdp" : "0: fsdp, ep";
}

static void describe_mesh(muon_mesh *mesh, const optimizer_settings *settings)
{
    muon_mesh_init(mesh, sizeof *mesh);
    mesh->name = "ranks";
    mesh->naxes = 3;
    mesh->axes[0] = "replicate";
    mesh->axes[1] = "fsdp";
    mesh->axes[2] = "ep";
    mesh->sizes[0] = settings->replicate;
    mesh->sizes[1] = settings->fsdp;
    mesh->sizes[2] = settings->ep;
}

/* Where logits are only watched, the library's own. */
static double qk_threshold(const optimizer_settings *settings)
{
    muon_config config;
    muon_config_init(&config, sizeof config);
    return settings->qk_clip > 0 ? settings->qk_clip : config.qk_threshold;
}

/* ---- the optimizer ------------------------------------------------------------------------------ */

static muon_status describe(optimizer *o, const model *m)
{
    o->nparams = model_ntensors(m);
    TRY(CALLOC(&o->params, o->nparams, "parameters"));
    for (size_t i = 0; i < o->nparams; i++)
        describe_param(&o->params[i], model_tensor_at(m, i));
    o->nattention = model_attention_layers(m, NULL, 0);
    TRY(CALLOC(&o->attention, o->nattention, "attention layers"));
    model_attention_layers(m, o->attention, o->nattention);
    return MUON_OK;
}

muon_status optimizer_describe(optimizer *o, const model *m, const optimizer_settings *settings)
{
    *o = (optimizer){.settings = *settings};
    muon_status status = describe(o, m);
    if (status != MUON_OK) optimizer_close(o);
    return status;
}

muon_status optimizer_open(optimizer *o, const muon_comm *comm)
{
    const optimizer_settings *settings = &o->settings;
    muon_group groups[NGROUPS];
    muon_mesh mesh;
    muon_config config;
    TRY(describe_groups(groups, settings));
    describe_mesh(&mesh, settings);
    muon_config_init(&config, sizeof config);
    config.groups = groups;
    config.ngroups = NGROUPS;
    config.attention = o->attention;
    config.nattention = o->nattention;
    config.qk_log_only = settings->qk_clip <= 0;
    config.qk_threshold = qk_threshold(settings);
    config.clip_norm = settings->clip_norm;
    config.allow_no_muon = !settings->muon;
    config.threads = settings->threads;
    config.backend = settings->backend;
    config.comm = comm;
    config.meshes = &mesh;
    config.nmeshes = 1;
    config.timeout = settings->timeout;
    config.offload_dir = settings->offload_dir;
    config.offload_budget = settings->offload_budget;
    config.log = settings->log;
    config.user = settings->log_user;
    return muon_create(&o->opt, &config, o->params, o->nparams);
}

muon_status optimizer_restore(optimizer *o)
{
    const optimizer_settings *settings = &o->settings;
    muon_group groups[NGROUPS];
    TRY(describe_groups(groups, settings));
    for (size_t i = 0; i < NGROUPS; i++)
        TRY(muon_opt_set_group(o->opt, i, &groups[i]));
    TRY(muon_opt_set_clip_norm(o->opt, settings->clip_norm));
    return muon_opt_set_qk_clip(o->opt, qk_threshold(settings), settings->qk_clip <= 0);
}

void optimizer_close(optimizer *o)
{
    muon_destroy(o->opt);
    free(o->params);
    free(o->attention);
    *o = (optimizer){.opt = NULL};
}

double optimizer_lr(const optimizer *o)
{
    return o->settings.muon ? o->settings.lr : o->settings.adamw_lr;
}

muon_status optimizer_set_factor(optimizer *o, double factor)
{
    TRY(muon_opt_set_lr(o->opt, MATRICES, optimizer_lr(o) * factor));
    double rest = o->settings.adamw_lr * factor;
    if (o->settings.muon) rest *= train_variant_rest_lr(o->settings.variant);
    TRY(muon_opt_set_lr(o->opt, TABLES, rest));
    return muon_opt_set_lr(o->opt, VECTORS, rest);
}
