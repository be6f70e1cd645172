/* step:MODEL - a whole step over all parameters of a model: Muon on the hidden matrices, AdamW on
 * the rest.
 *
 * The gradient never changes, so U is always a multiple of it and O always the same: from the first
 * and the last weights follows O, which is checked like any orthogonalization. */
#include "cli/bench/bench.h"
#include "cli/core/files.h"
#include "muon/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct step_problem {
    bench_problem base;
    bench_params m;
    const train_variant *variant; /* NULL: none */
    muon_opt *opt;
    muon_buffers *buffers;
    float **weights, **grads;
    int steps;
} step_problem;

static const float weight_scale = 0.02f;

/* Of the gradient's matrices every so many has an orthogonal factor that is known. */
enum { KNOWN_EVERY = 12 };

static int get_matrix(const step_problem *p, size_t index, muon_matrix *out)
{
    if (muon_plan_get_matrix(muon_opt_get_plan(p->opt), index, out, sizeof *out) == MUON_OK)
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
    const muon_group *k = &p->m.groups[BENCH_MUON];
    const muon_param *param = &p->m.params[matrix->param];
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

/* The same for a variant: O changes from step to step, so all of them are taken again. */
static int check_variant(const step_problem *p, const muon_matrix *matrix)
{
    int64_t n = matrix->rows * matrix->cols, first = matrix->row * matrix->cols;
    float *start = tensors_alloc((size_t)n * sizeof *start);
    for (int64_t i = 0; i < n; i++)
        start[i] = weight_scale * bench_value(weight_seed(matrix->param), (uint64_t)(first + i));
    bench_replay r = {.group = &p->m.groups[BENCH_MUON],
                      .factor = matrix->factor,
                      .rows = matrix->rows,
                      .cols = matrix->cols,
                      .grad = p->grads[matrix->param] + first,
                      .weight = p->weights[matrix->param] + first,
                      .start = start,
                      .steps = p->steps,
                      .what = p->m.params[matrix->param].name};
    int code = bench_replay_check(&r);
    free(start);
    return code;
}

static int check_rest(const step_problem *p, size_t param)
{
    const muon_group *group = &p->m.groups[BENCH_ADAMW];
    bench_weights start = {bench_params_numel(&p->m.params[param]), weight_seed(param),
                           weight_scale};
    return (group->rule == MUON_RULE_LION ? bench_check_lion : bench_check_adamw)(
        p->weights[param], p->grads[param], &start, group, p->steps, p->m.params[param].name);
}

/* What is not Muon's everywhere, and the known matrices. */
static int verify(bench_problem *base)
{
    const step_problem *p = (const step_problem *)base;
    for (size_t i = 0; i < p->m.count; i++)
        if (p->m.params[i].group == BENCH_ADAMW) DO(check_rest(p, i));
    for (size_t i = 0; i < muon_plan_count_matrices(muon_opt_get_plan(p->opt)); i += KNOWN_EVERY) {
        muon_matrix matrix;
        DO(get_matrix(p, i, &matrix));
        DO(p->variant ? check_variant(p, &matrix) : check_matrix(p, &matrix, i));
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
    for (size_t i = 0; i < p->m.count; i++) {
        free(p->weights[i]);
        free(p->grads[i]);
    }
    free(p->weights);
    free(p->grads);
    free(p->buffers);
    bench_params_destroy(&p->m);
    free(p);
}

static void allocate(step_problem *p)
{
    size_t n = p->m.count;
    p->buffers = cli_alloc(n, sizeof *p->buffers);
    p->weights = cli_alloc(n, sizeof *p->weights);
    p->grads = cli_alloc(n, sizeof *p->grads);
    for (size_t i = 0; i < n; i++) {
        int64_t numel = bench_params_numel(&p->m.params[i]);
        p->weights[i] = tensors_alloc((size_t)numel * sizeof(float));
        p->grads[i] = tensors_alloc((size_t)numel * sizeof(float));
        bench_fill(p->weights[i], numel, weight_seed(i), weight_scale);
        bench_fill(p->grads[i], numel, weight_seed(i) + 1, 1e-3f);
        p->buffers[i] = (muon_buffers){p->weights[i], p->grads[i], NULL};
    }
}

static int create_optimizer(step_problem *p, const compute *how)
{
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = p->m.groups;
    config.ngroups = BENCH_NGROUPS;
    config.threads = how->threads;
    config.backend = how->backend;
    if (muon_create(&p->opt, &config, p->m.params, p->m.count) != MUON_OK)
        return cli_fail_library();
    return CLI_DONE;
}

static int fill_known_matrices(step_problem *p)
{
    for (size_t i = 0; i < muon_plan_count_matrices(muon_opt_get_plan(p->opt)); i += KNOWN_EVERY) {
        muon_matrix matrix;
        DO(get_matrix(p, i, &matrix));
        bench_matrix_fill(p->grads[matrix.param] + matrix.row * matrix.cols, matrix.rows,
                          matrix.cols, i);
    }
    return CLI_DONE;
}

static int check(const char *text)
{
    const model *found;
    return bench_model_find(text, &found);
}

int bench_step_create(bench_problem **out, const model *m, const train_variant *variant,
                      const compute *how)
{
    step_problem *p = cli_alloc(1, sizeof *p);
    p->variant = variant;
    p->base =
        (bench_problem){.limit = BENCH_SGEMM, .run = run, .verify = verify, .destroy = destroy};
    bench_params_create(&p->m, m);
    allocate(p);
    int code = CLI_DONE;
    for (int g = 0; g < BENCH_NGROUPS; g++)
        if (train_variant_apply(variant, &p->m.groups[g]) != MUON_OK) code = cli_fail_library();
    if (code == CLI_DONE) code = create_optimizer(p, how);
    if (code == CLI_DONE) code = fill_known_matrices(p);
    if (code == CLI_DONE)
        *out = &p->base;
    else
        destroy(&p->base);
    return code;
}

static int create(bench_problem **out, const char *text, const compute *how)
{
    const model *found = NULL;
    DO(bench_model_find(text, &found));
    return bench_step_create(out, found, NULL, how);
}

const bench_kind bench_step = {
    .name = "step",
    .grammar = "step:MODEL",
    .help = "a whole step; models: gpt2-124m, gpt2-350m, gpt2-tiny, qwen3-30b-layer",
    .check = check,
    .create = create,
};
