/* muonctl ortho - every matrix of a file replaced by the nearest orthogonal one. */
#include "cli/core/commands.h"
#include "cli/core/compute.h"
#include "cli/core/files.h"
#include "cli/core/launch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static muon_group settings;
static compute how;

static const option options[] = {
    {.name = "coefficients", .argument = "NAME", .type = OPTION_FIELD, .target = &settings},
    {.name = "steps",
     .argument = "N",
     .type = OPTION_FIELD,
     .target = &settings,
     .field = "ns_steps"},
    {.name = "algorithm", .argument = "NAME", .type = OPTION_FIELD, .target = &settings},
    {.name = "eps", .argument = "X", .type = OPTION_FIELD, .target = &settings, .field = "ns_eps"},
    {.name = "eps-mode",
     .argument = "NAME",
     .type = OPTION_FIELD,
     .target = &settings,
     .field = "eps_mode"},
    {.name = "normalization", .argument = "NAME", .type = OPTION_FIELD, .target = &settings},
    {.name = "norm-scale",
     .argument = "X",
     .type = OPTION_FIELD,
     .target = &settings,
     .field = "norm_scale"},
    COMPUTE_OPTIONS(how),
};

/* ---- who does what --------------------------------------------------------------------------- */

/* A tensor of the file. Of many ranks each takes a share of a batch, while a single matrix is one
 * rank's, and a tensor without a matrix is rank 0's to copy. */
typedef struct job {
    muon_st_tensor tensor; /* as it is written */
    int64_t batch, matrix; /* how many matrices, and the elements of one; no matrix: 1 of all */
    int owner;             /* -1: all ranks */
    float *data;           /* the tensor on rank 0, this rank's share on others */
} job;

typedef struct work {
    job *jobs;
    size_t count;
    int64_t copied;
} work;

static int has_matrix(const job *j)
{
    return j->tensor.ndim >= 2 && j->batch > 0;
}

/* The first matrix that is not of a rank below. */
static int64_t first_of(const job *j, int rank)
{
    if (j->owner >= 0) return rank > j->owner ? j->batch : 0;
    return j->batch * rank / launch_size();
}

static int64_t share_of(const job *j, int rank)
{
    return first_of(j, rank + 1) - first_of(j, rank);
}

/* To the rank with the least to do so far. */
static int deal(const job *j, double *load)
{
    const int64_t *shape = j->tensor.shape + j->tensor.ndim - 2;
    int least = 0;
    for (int rank = 1; rank < launch_size(); rank++)
        if (load[rank] < load[least]) least = rank;
    load[least] += (double)j->matrix * (double)(shape[0] < shape[1] ? shape[0] : shape[1]);
    return least;
}

/* Before anything is computed. */
static int check_dtype(const muon_st_tensor *tensor)
{
    static const char *const known[] = {"F32", "BF16", "F16", "F64"};
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (strcmp(known[k], tensor->dtype) == 0) return CLI_DONE;
    return cli_fail("tensor '%s': dtype is %s, must be F32, BF16, F16 or F64", tensor->name,
                    tensor->dtype);
}

static int plan_job(job *j, const muon_st *in, size_t index, double *load)
{
    DO(tensors_get(in, index, &j->tensor));
    DO(check_dtype(&j->tensor));
    int64_t count = tensors_elements(j->tensor.ndim, j->tensor.shape);
    const int64_t *shape = j->tensor.shape + j->tensor.ndim;
    j->tensor.dtype = "F32";
    j->tensor.bytes = (size_t)count * sizeof(float);
    j->batch = count > 0;
    j->matrix = count;
    if (!has_matrix(j)) return CLI_DONE;
    j->matrix = shape[-2] * shape[-1];
    j->batch = count / j->matrix;
    j->owner = j->batch > 1 ? -1 : deal(j, load);
    return CLI_DONE;
}

static int plan(work *w, const muon_st *in)
{
    double *load = cli_alloc((size_t)launch_size(), sizeof *load);
    int code = CLI_DONE;
    w->count = muon_st_count(in);
    w->jobs = cli_alloc(w->count, sizeof *w->jobs);
    for (size_t i = 0; i < w->count && code == CLI_DONE; i++) {
        code = plan_job(&w->jobs[i], in, i, load);
        w->copied += !has_matrix(&w->jobs[i]);
    }
    free(load);
    return code;
}

/* ---- doing it ----------------------------------------------------------------------------------- */

/* What the run did, for the last line. */
typedef struct totals {
    int64_t matrices;
    double seconds, flops;
} totals;

/* An orthogonalizer for one shape, kept while tensors of that shape follow each other. */
typedef struct worker {
    muon_ortho *ortho;
    int64_t batch, rows, cols;
} worker;

static int prepare(worker *w, int64_t batch, int64_t rows, int64_t cols)
{
    if (w->ortho && w->batch == batch && w->rows == rows && w->cols == cols) return CLI_DONE;
    muon_ortho_destroy(w->ortho);
    *w = (worker){NULL, batch, rows, cols};
    if (muon_ortho_create(&w->ortho, batch, rows, cols, &settings, how.threads, how.backend) !=
        MUON_OK)
        return cli_fail_library();
    return CLI_DONE;
}

/* Leading dims are a batch; the last two are a matrix. */
static int orthogonalize(worker *w, const job *j, int64_t batch, float *data, totals *sum)
{
    const int64_t *shape = j->tensor.shape + j->tensor.ndim - 2;
    DO(prepare(w, batch, shape[0], shape[1]));
    double start = cli_now();
    int64_t first = first_of(j, launch_rank());
    if (muon_ortho_run(w->ortho, data, data) != MUON_OK)
        return first ? cli_fail_library_at("tensor '%s', counted from matrix %lld", j->tensor.name,
                                           (long long)first)
                     : cli_fail_library_at("tensor '%s'", j->tensor.name);
    sum->seconds += cli_now() - start;
    sum->flops += muon_ortho_get_flops(w->ortho);
    sum->matrices += batch;
    return CLI_DONE;
}

/* Reads the tensor; others than rank 0 keep their share only. */
static int read_share(job *j, muon_st *in, size_t index, float **share)
{
    int rank = launch_rank();
    size_t count = (size_t)tensors_elements(j->tensor.ndim, j->tensor.shape);
    float *whole = j->data = tensors_alloc(j->tensor.bytes);
    if (rank == 0 && share_of(j, 0) == 0 && count > 0) return CLI_DONE; /* it will be sent */
    if (muon_st_read_f32(in, index, whole, count) != MUON_OK) return cli_fail_library();
    *share = whole + first_of(j, rank) * j->matrix;
    if (rank == 0) return CLI_DONE;
    size_t bytes = (size_t)(share_of(j, rank) * j->matrix) * sizeof *whole;
    j->data = tensors_alloc(bytes);
    *share = memcpy(j->data, *share, bytes);
    free(whole);
    return CLI_DONE;
}

static int convert_all(work *w, muon_st *in, totals *sum)
{
    worker solver = {.ortho = NULL};
    int rank = launch_rank(), code = CLI_DONE;
    for (size_t i = 0; i < w->count && code == CLI_DONE; i++) {
        job *j = &w->jobs[i];
        float *share = NULL;
        if (rank > 0 && share_of(j, rank) == 0) continue;
        code = read_share(j, in, i, &share);
        if (code == CLI_DONE && share && has_matrix(j))
            code = orthogonalize(&solver, j, share_of(j, rank), share, sum);
    }
    muon_ortho_destroy(solver.ortho);
    return code;
}

static void collect(job *j)
{
    if (launch_rank() > 0) {
        launch_send(j->data, (size_t)(share_of(j, launch_rank()) * j->matrix) * sizeof *j->data);
        return;
    }
    for (int rank = 1; rank < launch_size(); rank++)
        launch_receive(j->data + first_of(j, rank) * j->matrix,
                       (size_t)(share_of(j, rank) * j->matrix) * sizeof *j->data, rank);
}

static int write_all(work *w, const char *path)
{
    muon_st_tensor *out = cli_alloc(w->count, sizeof *out);
    for (size_t i = 0; i < w->count; i++) {
        collect(&w->jobs[i]);
        out[i] = w->jobs[i].tensor;
        out[i].data = w->jobs[i].data;
    }
    int code = CLI_DONE;
    if (launch_rank() == 0 && muon_st_write(path, out, w->count, NULL, 0) != MUON_OK)
        code = cli_fail_library();
    free(out);
    return launch_agree(code);
}

static void report(const work *w, const totals *mine)
{
    int64_t sums[] = {mine->matrices, llround(mine->flops)}, slowest = llround(1e9 * mine->seconds);
    launch_sum(sums, 2);
    launch_max(&slowest, 1);
    if (launch_rank() > 0) return;
    double seconds = 1e-9 * (double)slowest;
    if (w->copied) cli_note("tensors without a matrix, copied: %lld", (long long)w->copied);
    printf("%lld tensors, %lld matrices, %.3f s, %.1f GFLOP/s\n",
           (long long)((int64_t)w->count - w->copied), (long long)sums[0], seconds,
           seconds > 0 ? 1e-9 * (double)sums[1] / seconds : 0.0);
}

static int start(work *w, muon_st **in, const char *path)
{
    DO(compute_resolve(&how));
    muon_backend_info computes;
    DO(compute_ask(how.backend, &computes));
    DO(tensors_open(in, path));
    return plan(w, *in);
}

static int run_all(work *w, muon_st **in, char **paths)
{
    totals sum = {0};
    DO(launch_agree(start(w, in, paths[0])));
    DO(launch_agree(convert_all(w, *in, &sum)));
    DO(write_all(w, paths[1]));
    report(w, &sum);
    return CLI_DONE;
}

static int run(int noperands, char **operands)
{
    (void)noperands;
    DO(launch_start());
    work w = {.jobs = NULL};
    muon_st *in = NULL;
    int code = run_all(&w, &in, operands);
    for (size_t i = 0; i < w.count; i++)
        free(w.jobs[i].data);
    free(w.jobs);
    muon_st_close(in);
    launch_end();
    return code;
}

const command cmd_ortho = {
    .name = "ortho",
    .summary = "orthogonalize the matrices of a safetensors file",
    .operands = "IN OUT",
    .least_operands = 2,
    .most_operands = 2,
    .about = "Orthogonalizes every tensor of IN with at least 2 dims by Newton-Schulz steps and "
             "writes it to OUT with the same name and shape, as F32. The last two dims are a "
             "matrix, and leading dims a batch of matrices. Tensors with fewer dims are copied. A "
             "NaN or infinity is an error, and OUT is not written. Under mpirun or srun the ranks "
             "share the matrices, and OUT is the same.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl ortho gradients.safetensors directions.safetensors --coefficients cans",
    .run = run,
};
