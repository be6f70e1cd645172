/* muonctl ortho - every matrix of a file replaced by the nearest orthogonal one. */
#include "commands.h"
#include "compute.h"
#include "tensors.h"

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
    COMPUTE_OPTIONS(how),
};

/* What the run did, for the last line. */
typedef struct totals {
    int64_t tensors, copied, matrices;
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
static int orthogonalize(worker *w, const muon_st_tensor *tensor, float *data, totals *sum)
{
    int64_t rows = tensor->shape[tensor->ndim - 2], cols = tensor->shape[tensor->ndim - 1];
    int64_t batch = tensors_elements(tensor) / (rows * cols);
    DO(prepare(w, batch, rows, cols));
    double start = cli_now();
    if (muon_ortho_run(w->ortho, data, data) != MUON_OK)
        return cli_fail_library_at("tensor '%s'", tensor->name);
    sum->seconds += cli_now() - start;
    sum->flops += muon_ortho_flops(w->ortho);
    sum->matrices += batch;
    sum->tensors++;
    return CLI_DONE;
}

static int convert(worker *w, muon_st *in, size_t index, muon_st_tensor *out, float **memory,
                   totals *sum)
{
    DO(tensors_get(in, index, out));
    int64_t count = tensors_elements(out);
    float *data = *memory = tensors_alloc((size_t)count * sizeof *data);
    out->data = data;
    out->dtype = "F32";
    out->bytes = (size_t)count * sizeof *data;
    if (muon_st_read_f32(in, index, data, (size_t)count) != MUON_OK) return cli_fail_library();
    if (out->ndim >= 2 && count > 0) return orthogonalize(w, out, data, sum);
    sum->copied++;
    return CLI_DONE;
}

/* Before anything is computed. */
static int check_dtypes(const muon_st *in)
{
    for (size_t i = 0; i < muon_st_count(in); i++) {
        static const char *const known[] = {"F32", "BF16", "F16", "F64"};
        muon_st_tensor tensor;
        size_t k = 0;
        DO(tensors_get(in, i, &tensor));
        while (k < sizeof known / sizeof known[0] && strcmp(known[k], tensor.dtype) != 0)
            k++;
        if (k == sizeof known / sizeof known[0])
            return cli_fail("tensor '%s': dtype is %s, must be F32, BF16, F16 or F64", tensor.name,
                            tensor.dtype);
    }
    return CLI_DONE;
}

static int convert_all(muon_st *in, const char *path, float **memory, totals *sum)
{
    DO(check_dtypes(in));
    worker w = {.ortho = NULL};
    size_t count = muon_st_count(in);
    muon_st_tensor *out = cli_alloc(count, sizeof *out);
    int code = CLI_DONE;
    for (size_t i = 0; i < count && code == CLI_DONE; i++)
        code = convert(&w, in, i, &out[i], &memory[i], sum);
    if (code == CLI_DONE && muon_st_write(path, out, count, NULL, 0) != MUON_OK)
        code = cli_fail_library();
    muon_ortho_destroy(w.ortho);
    free(out);
    return code;
}

static void report(const totals *sum)
{
    if (sum->copied) cli_note("tensors without a matrix, copied: %lld", (long long)sum->copied);
    printf("%lld tensors, %lld matrices, %.3f s, %.1f GFLOP/s\n", (long long)sum->tensors,
           (long long)sum->matrices, sum->seconds,
           sum->seconds > 0 ? 1e-9 * sum->flops / sum->seconds : 0.0);
}

static int run(int noperands, char **operands)
{
    (void)noperands;
    DO(compute_check_settings(&settings));
    DO(compute_resolve(&how));
    muon_st *in = NULL;
    DO(tensors_open(&in, operands[0]));
    size_t count = muon_st_count(in);
    float **memory = cli_alloc(count, sizeof *memory);
    totals sum = {0};
    int code = convert_all(in, operands[1], memory, &sum);
    if (code == CLI_DONE) report(&sum);
    for (size_t i = 0; i < count; i++)
        free(memory[i]);
    free(memory);
    muon_st_close(in);
    return code;
}

const command cmd_ortho = {
    .name = "ortho",
    .summary = "orthogonalize the matrices of a safetensors file",
    .operands = "IN OUT",
    .least_operands = 2,
    .most_operands = 2,
    .about = "Every tensor of IN with at least 2 dims is orthogonalized by Newton-Schulz steps and "
             "written to OUT under the same name and shape, as F32. The last two dims are a "
             "matrix, leading dims a batch of them. Tensors with fewer dims are copied. A NaN or "
             "infinity is an error, and then OUT is not written.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl ortho gradients.safetensors directions.safetensors --coefficients cans",
    .run = run,
};
