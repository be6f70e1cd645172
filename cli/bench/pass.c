/* adamw:N, momentum:N, update:N, norm:N - the passes over memory of a step, each on N elements.
 *
 * Every run is a real step of a real optimizer; the phase in question is what counts. The gradient
 * never changes, so that weights and state after t steps are known in closed form, every element. */
#include "cli/bench/bench.h"
#include "cli/core/files.h"
#include "muon/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t block = 1000; /* side of the matrices of a Muon parameter */
enum { WEIGHT_SEED = 3, GRAD_SEED = 4 };
static const int64_t least_elements = 1000000, most_elements = (int64_t)1 << 34;

typedef struct pass_problem pass_problem;

/* What is different from pass to pass. */
typedef struct pass {
    muon_rule rule;
    muon_phase phase;
    bench_limit limit;
    int floats; /* per element in the problem's memory: weight, gradient, state ... */
    int (*check)(const pass_problem *); /* all elements, after p->steps steps */
} pass;

struct pass_problem {
    bench_problem base;
    const pass *pass;
    muon_group group;
    muon_opt *opt;
    int64_t n;
    int steps;
    double grad_norm, factor;
    float *weight, *grad;
};

/* ---- verification ------------------------------------------------------------------------------- */

static int check_adamw(const pass_problem *p)
{
    bench_weights start = {p->n, WEIGHT_SEED, 1};
    return bench_check_adamw(p->weight, p->grad, &start, &p->group, p->steps, "weight");
}

static const float *momentum_buffer(const pass_problem *p)
{
    for (size_t i = 0; i < muon_state_count(p->opt); i++) {
        muon_tensor tensor;
        if (muon_state_get(p->opt, i, &tensor, sizeof tensor) == MUON_OK &&
            strstr(tensor.name, "momentum_buffer"))
            return tensor.data;
    }
    return NULL;
}

static int check_momentum(const pass_problem *p)
{
    double sum = 0; /* of the powers of the momentum */
    for (int t = 0; t < p->steps; t++)
        sum = p->group.momentum * sum + 1;
    const float *buffer = momentum_buffer(p);
    if (!buffer) return cli_fail("wrong result: there is no momentum_buffer");
    for (int64_t i = 0; i < p->n; i++) {
        double want = sum * (double)p->grad[i];
        DO(bench_check_near((double)buffer[i], want, want, p->steps, "momentum_buffer", i));
    }
    return CLI_DONE;
}

/* With an orthogonalizer that does nothing, the update is U itself: a multiple of the gradient. */
static int check_update(const pass_problem *p)
{
    const muon_group *k = &p->group;
    double decayed = 1, moved = 0, m = 0;
    for (int t = 0; t < p->steps; t++) {
        m = k->momentum * m + 1;
        decayed *= 1 - k->lr * k->weight_decay;
        moved = moved * (1 - k->lr * k->weight_decay) + k->lr * p->factor * (1 + k->momentum * m);
    }
    for (int64_t i = 0; i < p->n; i++) {
        double w = decayed * (double)bench_value(WEIGHT_SEED, (uint64_t)i);
        double change = moved * (double)p->grad[i];
        DO(bench_check_near((double)p->weight[i], w - change, fabs(w) + fabs(change), p->steps,
                            "weight", i));
    }
    return CLI_DONE;
}

static int check_norm(const pass_problem *p)
{
    double sum = 0;
    for (int64_t i = 0; i < p->n; i++)
        sum += (double)p->grad[i] * (double)p->grad[i];
    double error = fabs(p->grad_norm / sqrt(sum) - 1);
    if (error <= 1e-8) return CLI_DONE; /* false for NaN */
    return cli_fail("wrong result: the norm is %.17g, must be %.17g", p->grad_norm, sqrt(sum));
}

static int verify(bench_problem *base)
{
    const pass_problem *p = (const pass_problem *)base;
    return p->pass->check(p);
}

/* ---- the problem -------------------------------------------------------------------------------- */

static int run(bench_problem *base, bench_sample *sample)
{
    pass_problem *p = (pass_problem *)base;
    muon_buffers buffers = {p->weight, p->grad, NULL};
    muon_step_args args;
    muon_result result;
    muon_step_args_init(&args, sizeof args);
    args.buffers = &buffers;
    muon_result_init(&result, sizeof result);
    if (muon_step(p->opt, &args, &result) != MUON_OK) return cli_fail_library();
    if (!result.applied) return cli_fail("wrong result: the step was skipped");
    const muon_phase_cost *cost = &result.phase[p->pass->phase];
    *sample = (bench_sample){cost->seconds, cost->bytes};
    p->grad_norm = result.grad_norm;
    p->steps++;
    return CLI_DONE;
}

static void destroy(bench_problem *base)
{
    pass_problem *p = (pass_problem *)base;
    muon_destroy(p->opt);
    free(p->weight);
    free(p->grad);
    free(p);
}

static int leave_alone(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    (void)user, (void)x, (void)rows, (void)cols, (void)ld;
    return 0;
}

static int create_optimizer(pass_problem *p, const compute *how)
{
    int muon = p->pass->rule == MUON_RULE_MUON;
    muon_config config;
    muon_param param;
    char *blocks = cli_format("rows / %lld", (long long)(p->n / (block * block)));
    muon_group_init(&p->group, sizeof p->group);
    p->group.rule = p->pass->rule;
    p->group.lr = 0.05; /* large, so that everything shows */
    muon_config_init(&config, sizeof config);
    config.groups = &p->group;
    config.ngroups = 1;
    config.allow_no_muon = 1;
    config.threads = how->threads;
    config.backend = how->backend;
    config.orthogonalize = leave_alone;
    muon_param_init(&param, sizeof param);
    param.name = "x";
    param.ndim = 2;
    param.shape[0] = p->n / block;
    param.shape[1] = block;
    param.group = 0;
    if (muon) param.matrices = blocks;

    muon_matrix matrix = {.factor = 1};
    muon_status status = muon_create(&p->opt, &config, &param, 1);
    if (status == MUON_OK && muon)
        status = muon_plan_get_matrix(muon_opt_get_plan(p->opt), 0, &matrix, sizeof matrix);
    p->factor = matrix.factor;
    free(blocks);
    return status == MUON_OK ? CLI_DONE : cli_fail_library();
}

/* A number of elements: "50M", "1.5G", "2000000". */
static int parse_count(const char *text, int64_t *out)
{
    static const char units[] = "kMG";
    char *end = NULL;
    double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        value *= 1000;
    if (end == text || (*end && (!unit || end[1])))
        return cli_misuse("'%s' is not a number of elements like 50M", text);
    if (!(value >= (double)least_elements && value <= (double)most_elements) ||
        fmod(value, (double)least_elements) != 0)
        return cli_misuse("'%s' is not a multiple of 1M up to 17179M", text);
    *out = (int64_t)value;
    return CLI_DONE;
}

static int check(const char *text)
{
    int64_t n;
    return parse_count(text, &n);
}

static int create(bench_problem **out, const char *text, const compute *how, const pass *what)
{
    int64_t n = 0;
    DO(parse_count(text, &n));
    pass_problem *p = cli_alloc(1, sizeof *p);
    p->base = (bench_problem){.limit = what->limit,
                              .bytes = (size_t)n * sizeof(float) * (size_t)what->floats,
                              .run = run,
                              .verify = verify,
                              .destroy = destroy};
    p->pass = what;
    p->n = n;
    p->weight = tensors_alloc((size_t)n * sizeof(float));
    p->grad = tensors_alloc((size_t)n * sizeof(float));
    bench_fill(p->weight, n, WEIGHT_SEED, 1);
    bench_fill(p->grad, n, GRAD_SEED, 1);
    int code = create_optimizer(p, how);
    if (code == CLI_DONE)
        *out = &p->base;
    else
        destroy(&p->base);
    return code;
}

#define PASS(NAME, HELP, ...)                                                                      \
    static const pass NAME##_pass = {__VA_ARGS__};                                                 \
    static int create_##NAME(bench_problem **out, const char *text, const compute *how)            \
    {                                                                                              \
        return create(out, text, how, &NAME##_pass);                                               \
    }                                                                                              \
    const bench_kind bench_##NAME = {#NAME, #NAME ":N", HELP, check, create_##NAME}

PASS(adamw, "AdamW on N elements (50M)", MUON_RULE_ADAMW, MUON_PHASE_ADAMW, BENCH_STREAM, 4,
     check_adamw);
PASS(momentum, "momentum of N elements", MUON_RULE_MUON, MUON_PHASE_MOMENTUM, BENCH_STREAM, 3,
     check_momentum);
PASS(update, "weights of N elements, given their update", MUON_RULE_MUON, MUON_PHASE_UPDATE,
     BENCH_STREAM, 2, check_update);
PASS(norm, "finiteness and norm of a gradient of N elements", MUON_RULE_ADAMW, MUON_PHASE_CHECK,
     BENCH_READ, 1, check_norm);
