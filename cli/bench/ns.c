/* ns:[Bx]MxN[@setting=value,...] - orthogonalizing a batch of B matrices of M x N. */
#include "cli/bench/bench.h"
#include "cli/core/files.h"
#include "cli/core/options.h"
#include "muon/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t most_elements = (int64_t)1 << 33;

typedef struct ns_problem {
    bench_problem base;
    int64_t batch, rows, cols;
    muon_group settings;
    muon_ortho *ortho;
    double useful; /* flops of the cheapest algorithm: choosing a worse one is not work */
    float *in, *out;
} ns_problem;

/* ---- the grammar ------------------------------------------------------------------------------- */

/* The dims before '@' or the end; returns what follows, or NULL if there are not 2 or 3. */
static const char *parse_dims(ns_problem *p, const char *text)
{
    int64_t dim[3];
    int ndim = 0;
    for (;;) {
        char *end = NULL;
        if (*text < '0' || *text > '9') return NULL;
        long long value = strtoll(text, &end, 10);
        if (ndim == 3 || value < 1 || value > most_elements) return NULL;
        dim[ndim++] = value;
        text = end;
        if (*text != 'x') break;
        text++;
    }
    if (ndim < 2 || (*text && *text != '@')) return NULL;
    p->batch = ndim == 3 ? dim[0] : 1;
    p->rows = dim[ndim - 2];
    p->cols = dim[ndim - 1];
    return text;
}

/* "@name=value,name=value": fields of a group, or the short names of `muonctl ortho`. */
static int parse_settings(muon_group *settings, const char *text)
{
    static const char *const short_names[][2] = {{"steps", "ns_steps"}, {"eps", "ns_eps"}};
    for (const char *rest = text; *rest;) {
        char name[32], value[32];
        int used = 0;
        if (sscanf(rest + 1, "%31[^=,]=%31[^,]%n", name, value, &used) != 2)
            return cli_misuse("'%s' is not @name=value,name=value ...", text);
        const char *field = name;
        for (size_t i = 0; i < sizeof short_names / sizeof short_names[0]; i++)
            if (strcmp(name, short_names[i][0]) == 0) field = short_names[i][1];
        DO(field_set(settings, field, value, ""));
        rest += 1 + used;
    }
    return CLI_DONE;
}

static int parse(ns_problem *p, const char *text)
{
    muon_group_init(&p->settings, sizeof p->settings);
    const char *rest = parse_dims(p, text);
    if (!rest) return cli_misuse("'ns:%s' is not ns:MxN or ns:BxMxN", text);
    if (p->rows > most_elements / p->cols || p->batch > most_elements / (p->rows * p->cols))
        return cli_misuse("'ns:%s' is too large to be measured", text);
    return parse_settings(&p->settings, rest);
}

/* ---- the problem ------------------------------------------------------------------------------- */

static int run(bench_problem *base, bench_sample *sample)
{
    ns_problem *p = (ns_problem *)base;
    double start = cli_now();
    if (muon_ortho_run(p->ortho, p->out, p->in) != MUON_OK) return cli_fail_library();
    *sample = (bench_sample){cli_now() - start, p->useful};
    return CLI_DONE;
}

static int verify(bench_problem *base)
{
    ns_problem *p = (ns_problem *)base;
    int64_t size = p->rows * p->cols;
    for (int64_t i = 0; i < p->batch; i++) {
        char where[48];
        snprintf(where, sizeof where, "matrix %lld", (long long)i);
        DO(bench_matrix_check(p->out + i * size, p->rows, p->cols, (uint64_t)i, &p->settings,
                              where));
    }
    return CLI_DONE;
}

static void destroy(bench_problem *base)
{
    ns_problem *p = (ns_problem *)base;
    muon_ortho_destroy(p->ortho);
    free(p->in);
    free(p->out);
    free(p);
}

/* Which algorithm AUTO takes is the plan's to say. */
static int find_algorithm(ns_problem *p)
{
    static const char *const names[] = {"auto", "standard", "symmetric", "gram"};
    muon_config config;
    muon_param param;
    muon_plan *plan = NULL;
    muon_matrix matrix = {.rows = 0};
    muon_config_init(&config, sizeof config);
    config.groups = &p->settings;
    config.ngroups = 1;
    muon_param_init(&param, sizeof param);
    param.name = "x";
    param.ndim = 2;
    param.shape[0] = p->rows;
    param.shape[1] = p->cols;
    param.group = 0;
    muon_status status = muon_plan_create(&plan, &config, &param, 1);
    if (status == MUON_OK) status = muon_plan_get_matrix(plan, 0, &matrix, sizeof matrix);
    muon_plan_destroy(plan);
    if (status != MUON_OK) return cli_fail_library();
    p->base.algorithm = names[matrix.algorithm];
    return CLI_DONE;
}

static int flops_of(const ns_problem *p, muon_algorithm algorithm, const compute *how, double *out)
{
    muon_group settings = p->settings;
    muon_ortho *ortho = NULL;
    settings.algorithm = algorithm;
    if (muon_ortho_create(&ortho, 1, p->rows, p->cols, &settings, 1, how->backend) != MUON_OK)
        return cli_fail_library();
    *out = muon_ortho_get_flops(ortho) * (double)p->batch;
    muon_ortho_destroy(ortho);
    return CLI_DONE;
}

static int prepare(ns_problem *p, const compute *how)
{
    double own = 0;
    DO(find_algorithm(p));
    DO(flops_of(p, MUON_ALGORITHM_AUTO, how, &p->useful));
    DO(flops_of(p, p->settings.algorithm, how, &own));
    if (own < p->useful) p->useful = own;
    if (muon_ortho_create(&p->ortho, p->batch, p->rows, p->cols, &p->settings, how->threads,
                          how->backend) != MUON_OK)
        return cli_fail_library();
    int64_t n = p->batch * p->rows * p->cols;
    p->in = tensors_alloc((size_t)n * sizeof(float));
    p->out = tensors_alloc((size_t)n * sizeof(float));
    for (int64_t i = 0; i < p->batch; i++)
        bench_matrix_fill(p->in + i * p->rows * p->cols, p->rows, p->cols, (uint64_t)i);
    memset(p->out, 0, (size_t)n * sizeof(float));
    return CLI_DONE;
}

static int check(const char *text)
{
    ns_problem trial = {.batch = 0};
    return parse(&trial, text);
}

static int create(bench_problem **out, const char *text, const compute *how)
{
    ns_problem *p = cli_alloc(1, sizeof *p);
    p->base =
        (bench_problem){.limit = BENCH_SGEMM, .run = run, .verify = verify, .destroy = destroy};
    int code = parse(p, text);
    if (code == CLI_DONE) code = prepare(p, how);
    if (code == CLI_DONE)
        *out = &p->base;
    else
        destroy(&p->base);
    return code;
}

const bench_kind bench_ns = {
    .name = "ns",
    .grammar = "ns:[Bx]MxN[@name=value,...]",
    .help = "orthogonalize B matrices of M x N; names: coefficients, steps, algorithm ...",
    .check = check,
    .create = create,
};
