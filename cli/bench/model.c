#include "cli/bench/bench.h"

#include "muon/comm.h"

#include <stdlib.h>
#include <string.h>

struct model {
    const char *name;
    int layers;
    int64_t width, vocabulary, context;
    const char *planned; /* or the experts of a layer of this model of `muonctl plan` */
};

static const model models[] = {
    {"gpt2-124m", 12, 768, 50257, 1024, NULL},
    {"gpt2-350m", 24, 1024, 50257, 1024, NULL},
    {"gpt2-tiny", 2, 64, 512, 128, NULL},
    {.name = "qwen3-30b-layer", .planned = "qwen3-30b-a3b"},
};

/* The tensors of GPT-2, the way torch stores them (out, in); dims in widths. */
typedef struct layout {
    const char *name; /* %d: the layer */
    int per_layer, ndim;
    int64_t rows, cols; /* in units of the width; see dim() for the others */
    const char *matrices;
} layout;

enum { VOCABULARY = -1, CONTEXT = -2 };

static const layout tensors[] = {
    {"wte", 0, 2, VOCABULARY, 1, NULL},
    {"wpe", 0, 2, CONTEXT, 1, NULL},
    {"h.%d.ln_1.weight", 1, 1, 1, 0, NULL},
    {"h.%d.ln_1.bias", 1, 1, 1, 0, NULL},
    {"h.%d.attn.c_attn.weight", 1, 2, 3, 1, "rows / 3"},
    {"h.%d.attn.c_attn.bias", 1, 1, 3, 0, NULL},
    {"h.%d.attn.c_proj.weight", 1, 2, 1, 1, NULL},
    {"h.%d.attn.c_proj.bias", 1, 1, 1, 0, NULL},
    {"h.%d.ln_2.weight", 1, 1, 1, 0, NULL},
    {"h.%d.ln_2.bias", 1, 1, 1, 0, NULL},
    {"h.%d.mlp.c_fc.weight", 1, 2, 4, 1, NULL},
    {"h.%d.mlp.c_fc.bias", 1, 1, 4, 0, NULL},
    {"h.%d.mlp.c_proj.weight", 1, 2, 1, 4, NULL},
    {"h.%d.mlp.c_proj.bias", 1, 1, 1, 0, NULL},
    {"ln_f.weight", 0, 1, 1, 0, NULL},
    {"ln_f.bias", 0, 1, 1, 0, NULL},
};
enum { NTENSORS = sizeof tensors / sizeof tensors[0] };

static int64_t dim(const model *m, int64_t code)
{
    if (code == VOCABULARY) return m->vocabulary;
    return code == CONTEXT ? m->context : code * m->width;
}

static void add_param(bench_params *p, const model *m, const layout *tensor, int layer)
{
    muon_param *param = &p->params[p->count];
    char **name = &p->names[p->count++];
    muon_param_init(param, sizeof *param);
    const char *hole = strstr(tensor->name, "%d");
    if (hole)
        *name = cli_format("%.*s%d%s", (int)(hole - tensor->name), tensor->name, layer, hole + 2);
    else
        *name = cli_format("%s", tensor->name);
    param->name = *name;
    param->ndim = tensor->ndim;
    param->shape[0] = dim(m, tensor->rows);
    if (tensor->ndim == 2) param->shape[1] = dim(m, tensor->cols);
    param->matrices = tensor->matrices;
    param->group = tensor->ndim == 2 && tensor->per_layer ? BENCH_MUON : BENCH_ADAMW;
}

static void add_layers(bench_params *p, const model *m)
{
    size_t most = NTENSORS * (size_t)m->layers;
    p->params = cli_alloc(most, sizeof *p->params);
    p->names = cli_alloc(most, sizeof *p->names);
    for (size_t i = 0; i < NTENSORS; i++)
        for (int layer = 0; layer < (tensors[i].per_layer ? m->layers : 1); layer++)
            add_param(p, m, &tensors[i], layer);
}

void bench_params_create(bench_params *p, const model *m)
{
    *p = (bench_params){.count = 0};
    if (m->planned)
        bench_params_experts(p, m->planned);
    else
        add_layers(p, m);
    for (int g = 0; g < BENCH_NGROUPS; g++)
        muon_group_init(&p->groups[g], sizeof p->groups[g]);
    p->groups[BENCH_MUON].lr = 0.02;
    p->groups[BENCH_ADAMW].rule = MUON_RULE_ADAMW;
    p->groups[BENCH_ADAMW].lr = 0.01; /* large, so that everything shows */
}

void bench_params_destroy(bench_params *p)
{
    for (size_t i = 0; p->names && i < p->count; i++)
        free(p->names[i]);
    free(p->names);
    if (p->planned)
        bench_params_forget(p);
    else
        free(p->params);
}

int64_t bench_params_numel(const muon_param *param)
{
    return param->ndim == 2 ? param->shape[0] * param->shape[1] : param->shape[0];
}

int bench_params_optimizer(bench_params *p, muon_opt **out, const compute *how,
                           const muon_comm *comm)
{
    muon_mesh mesh;
    muon_config config;
    muon_config_init(&config, sizeof config);
    muon_mesh_init(&mesh, sizeof mesh);
    mesh.name = "ranks";
    mesh.naxes = 1;
    mesh.axes[0] = "all";
    mesh.sizes[0] = comm ? comm->size : 1;
    config.groups = p->groups;
    config.ngroups = BENCH_NGROUPS;
    config.threads = how->threads;
    config.backend = how->backend;
    config.comm = comm;
    config.meshes = &mesh;
    config.nmeshes = 1;
    for (size_t i = 0; i < p->count; i++) {
        p->params[i].mesh = "ranks";
        p->params[i].placement = "0: all";
    }
    if (muon_create(out, &config, p->params, p->count) != MUON_OK) return cli_fail_library();
    return CLI_DONE;
}

int bench_model_find(const char *text, const model **out)
{
    names_nearest nearest;
    names_start(&nearest, text);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        *out = &models[i];
        if (strcmp(models[i].name, text) == 0) return CLI_DONE;
        names_offer(&nearest, models[i].name);
    }
    return cli_misuse("unknown model '%s'%s", text, names_hint(&nearest));
}
