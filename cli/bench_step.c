/* step:MODEL - a whole step over all parameters of a model: Muon on the hidden matrices, AdamW on
 * the rest.
 *
 * The gradient never changes, so U is always a multiple of it and O always the same: from the first
 * and the last weights follows O, which is checked like any orthogonalization. */
#include "bench.h"
#include "names.h"
#include "tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct model {
    const char *name;
    int layers;
    int64_t width, vocabulary, context;
} model;

static const model models[] = {
    {"gpt2-124m", 12, 768, 50257, 1024},
    {"gpt2-350m", 24, 1024, 50257, 1024},
    {"gpt2-tiny", 2, 64, 512, 128},
};

enum { MUON_GROUP, ADAMW_GROUP, NGROUPS };

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

typedef struct step_problem {
    bench_problem base;
    const model *model;
    muon_group groups[NGROUPS];
    muon_opt *opt;
    muon_param *params;
    muon_buffers *buffers;
    float **weights, **grads;
    char **names;
    size_t nparams;
    int steps;
} step_problem;

static const float weight_scale = 0.02f;

static int64_t elements(const muon_param *param)
{
    return param->ndim == 2 ? param->shape[0] * param->shape[1] : param->shape[0];
}

/* Of the gradient's matrices every so many has an orthogonal factor that is known. */
enum { KNOWN_EVERY = 12 };

static int get_matrix(const step_problem *p, size_t index, muon_matrix *out)
{
    if (muon_plan_matrix(muon_get_plan(p->opt), index, out, sizeof *out) == MUON_OK)
        return CLI_DONE;
    return cli_fail_library();
}

/* ---- verification -------------------------------------------------------------------------------- */

static uint64_t weight_seed(size_t param)
{
    return 2 * param;
}

/* W[t] = decay W[t-1] - lr factor O, so O = (decay^t W[0] - W[t]) / (lr factor sum of decay^i). */
static int check_matrix(const step_problem *p, const muon_matrix *matrix, uint64_t seed)
{
    const muon_group *k = &p->groups[MUON_GROUP];
    const muon_param *param = &p->params[matrix->param];
    int64_t rows = matrix->rows, cols = matrix->cols, first = matrix->row * cols;
    double power, sum;
    bench_decay(k, p->steps, &power, &sum);
    float *o = tensors_alloc((size_t)(rows * cols) * sizeof *o);
    const float *weight = p->weights[matrix->param] + first;
    for (int64_t i = 0; i < rows * cols; i++) {
        float start = weight_scale * bench_value(weight_seed(matrix->param), (uint64_t)(first + i));
        double moved = power * (double)start - (double)weight[i];
        o[i] = (float)(moved / (k->lr * matrix->factor * sum));
    }
    int code = bench_matrix_check(o, rows, cols, seed, k, param->name);
    free(o);
    return code;
}

static int check_adamw(const step_problem *p, size_t param)
{
    bench_weights start = {elements(&p->params[param]), weight_seed(param), weight_scale};
    return bench_check_adamw(p->weights[param], p->grads[param], &start, &p->groups[ADAMW_GROUP],
                             p->steps, p->params[param].name);
}

/* AdamW everywhere, and the known matrices. */
static int verify(bench_problem *base)
{
    const step_problem *p = (const step_problem *)base;
    for (size_t i = 0; i < p->nparams; i++)
        if (p->params[i].group == ADAMW_GROUP) DO(check_adamw(p, i));
    for (size_t i = 0; i < muon_plan_nmatrices(muon_get_plan(p->opt)); i += KNOWN_EVERY) {
        muon_matrix matrix;
        DO(get_matrix(p, i, &matrix));
        DO(check_matrix(p, &matrix, i));
    }
    return CLI_DONE;
}

/* ---- the problem ----------------------------------------------------------------------------------- */

static int run(bench_problem *base, bench_sample *sample)
{
    step_problem *p = (step_problem *)base;
    muon_step_args args;
    muon_result result;
    muon_step_args_init(&args, sizeof args);
    args.buffers = p->buffers;
    muon_result_init(&result, sizeof result);
    double start = cli_now();
    if (muon_step(p->opt, &args, &result) != MUON_OK) return cli_fail_library();
    *sample = (bench_sample){.seconds = cli_now() - start};
    if (!result.applied) return cli_fail("wrong result: the step was skipped");
    for (int phase = 0; phase < MUON_NPHASES; phase++)
        sample->work += result.phase[phase].flops;
    p->steps++;
    return CLI_DONE;
}

static void destroy(bench_problem *base)
{
    step_problem *p = (step_problem *)base;
    muon_destroy(p->opt);
    for (size_t i = 0; i < p->nparams; i++) {
        free(p->weights[i]);
        free(p->grads[i]);
        free(p->names[i]);
    }
    free(p->weights);
    free(p->grads);
    free(p->names);
    free(p->params);
    free(p->buffers);
    free(p);
}

static int64_t dim(const model *m, int64_t code)
{
    if (code == VOCABULARY) return m->vocabulary;
    return code == CONTEXT ? m->context : code * m->width;
}

static void add_param(step_problem *p, const layout *tensor, int layer)
{
    size_t index = p->nparams++;
    muon_param *param = &p->params[index];
    muon_param_init(param, sizeof *param);
    const char *hole = strstr(tensor->name, "%d");
    if (hole)
        p->names[index] =
            cli_format("%.*s%d%s", (int)(hole - tensor->name), tensor->name, layer, hole + 2);
    else
        p->names[index] = cli_format("%s", tensor->name);
    param->name = p->names[index];
    param->ndim = tensor->ndim;
    param->shape[0] = dim(p->model, tensor->rows);
    if (tensor->ndim == 2) param->shape[1] = dim(p->model, tensor->cols);
    param->matrices = tensor->matrices;
    param->group = tensor->ndim == 2 && tensor->per_layer ? MUON_GROUP : ADAMW_GROUP;

    int64_t n = elements(param);
    p->weights[index] = tensors_alloc((size_t)n * sizeof(float));
    p->grads[index] = tensors_alloc((size_t)n * sizeof(float));
    bench_fill(p->weights[index], n, weight_seed(index), weight_scale);
    bench_fill(p->grads[index], n, weight_seed(index) + 1, 1e-3f);
    p->buffers[index] = (muon_buffers){p->weights[index], p->grads[index], NULL};
}

static void add_params(step_problem *p)
{
    size_t most = NTENSORS * (size_t)p->model->layers;
    p->params = cli_alloc(most, sizeof *p->params);
    p->buffers = cli_alloc(most, sizeof *p->buffers);
    p->weights = cli_alloc(most, sizeof *p->weights);
    p->grads = cli_alloc(most, sizeof *p->grads);
    p->names = cli_alloc(most, sizeof *p->names);
    for (size_t i = 0; i < NTENSORS; i++)
        for (int layer = 0; layer < (tensors[i].per_layer ? p->model->layers : 1); layer++)
            add_param(p, &tensors[i], layer);
}

static int create_optimizer(step_problem *p, const compute *how)
{
    muon_config config;
    muon_config_init(&config, sizeof config);
    for (int g = 0; g < NGROUPS; g++)
        muon_group_init(&p->groups[g], sizeof p->groups[g]);
    p->groups[MUON_GROUP].lr = 0.02;
    p->groups[ADAMW_GROUP].rule = MUON_RULE_ADAMW;
    p->groups[ADAMW_GROUP].lr = 0.01; /* large, so that everything shows */
    config.groups = p->groups;
    config.ngroups = NGROUPS;
    config.threads = how->threads;
    config.backend = how->backend;
    if (muon_create(&p->opt, &config, p->params, p->nparams) != MUON_OK) return cli_fail_library();
    return CLI_DONE;
}

static int fill_known_matrices(step_problem *p)
{
    for (size_t i = 0; i < muon_plan_nmatrices(muon_get_plan(p->opt)); i += KNOWN_EVERY) {
        muon_matrix matrix;
        DO(get_matrix(p, i, &matrix));
        bench_matrix_fill(p->grads[matrix.param] + matrix.row * matrix.cols, matrix.rows,
                          matrix.cols, i);
    }
    return CLI_DONE;
}

static int find_model(const char *text, const model **out)
{
    names_nearest nearest;
    names_start(&nearest, text);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        *out = &models[i];
        if (strcmp(models[i].name, text) == 0) return CLI_DONE;
        names_offer(&nearest, models[i].name);
    }
    return cli_misuse("there is no model '%s'%s", text, names_hint(&nearest));
}

static int check(const char *text)
{
    const model *found;
    return find_model(text, &found);
}

static int create(bench_problem **out, const char *text, const compute *how)
{
    const model *found = NULL;
    DO(find_model(text, &found));
    step_problem *p = cli_alloc(1, sizeof *p);
    p->base =
        (bench_problem){.limit = BENCH_SGEMM, .run = run, .verify = verify, .destroy = destroy};
    p->model = found;
    add_params(p);
    int code = create_optimizer(p, how);
    if (code == CLI_DONE) code = fill_known_matrices(p);
    if (code == CLI_DONE)
        *out = &p->base;
    else
        destroy(&p->base);
    return code;
}

const bench_kind bench_step = {
    .name = "step",
    .grammar = "step:MODEL",
    .help = "a whole step; models: gpt2-124m, gpt2-350m, gpt2-tiny",
    .check = check,
    .create = create,
};
