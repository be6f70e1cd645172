/* bench_train.c - how fast the model of `muonctl train` runs forward and backward, against the machine's
 * own matrix product, measured in turns so that both see the same neighbours.
 *
 *     bench_train [SIZE] [BATCH] [THREADS] [TURNS]        medium 16 0 5 */
#include "base/clock.h"
#include "base/pool.h"
#include "train/model/blas.h"
#include "train/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 2048, AREA = SIDE * SIDE }; /* of the product that stands for the machine */

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "bench_train: no memory for %zu bytes\n", count * size);
        exit(1);
    }
    return memory;
}

/* ---- the machine ------------------------------------------------------------------------------- */

typedef struct machine {
    pool *threads;
    float *a, *b, *c;
} machine;

/* A band of rows for each thread. */
static void multiply_band(void *arg, int64_t index, int worker)
{
    (void)worker;
    const machine *m = arg;
    int threads = muon__pool_threads(m->threads);
    int64_t first = SIDE * index / threads, rows = SIDE * (index + 1) / threads - first;
    blas_gemm(rows, SIDE, SIDE, 1, (mat){m->a + first * SIDE, SIDE, 1}, (mat){m->b, SIDE, 1}, 0,
              m->c + first * SIDE, SIDE);
}

static double machine_rate(machine *m)
{
    double start = muon__seconds();
    muon__pool_run(m->threads, muon__pool_threads(m->threads), multiply_band, m);
    return 2.0 * SIDE * SIDE * SIDE / (muon__seconds() - start);
}

/* ---- the model --------------------------------------------------------------------------------- */

typedef struct trainee {
    model *m;
    float **weights, **grads;
    uint8_t *text;
    int batch, length;
} trainee;

static trainee make(const model_config *config, int batch, int threads)
{
    trainee t = {
        .m = model_create(config, batch, threads), .batch = batch, .length = config->context};
    if (!t.m) {
        fprintf(stderr, "bench_train: %s\n", muon_last_error());
        exit(1);
    }
    size_t count = model_ntensors(t.m);
    t.weights = allocate(count, sizeof *t.weights);
    t.grads = allocate(count, sizeof *t.grads);
    for (size_t i = 0; i < count; i++) {
        int64_t numel = model_tensor_at(t.m, i)->numel;
        t.weights[i] = allocate((size_t)numel, sizeof(float));
        t.grads[i] = allocate((size_t)numel, sizeof(float));
        model_fill(t.m, i, t.weights[i], 0, numel, 1);
    }
    size_t tokens = (size_t)batch * (size_t)config->context;
    t.text = allocate(tokens + 1, 1);
    for (size_t i = 0; i <= tokens; i++)
        t.text[i] = (uint8_t)(i * 2654435761u >> 13);
    return t;
}

static double model_rate(trainee *t, double *seconds)
{
    model_result result;
    double start = muon__seconds();
    model_run(t->m, (const float *const *)t->weights, t->grads, t->text, t->text + 1, t->batch,
              t->length, 1, NULL, &result);
    *seconds = muon__seconds() - start;
    return result.flops / *seconds;
}

/* ---- both -------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const char *size = argc > 1 ? argv[1] : "medium";
    int batch = argc > 2 ? atoi(argv[2]) : 16, threads = argc > 3 ? atoi(argv[3]) : 0;
    int turns = argc > 4 ? atoi(argv[4]) : 5;
    model_config config;
    machine host = {0};
    if (!model_config_named(&config, size) || turns < 1 ||
        muon__pool_create(&host.threads, threads) != MUON_OK) {
        fprintf(stderr, "usage: bench_train [SIZE] [BATCH] [THREADS] [TURNS]\n");
        return 2;
    }
    host.a = allocate(AREA, sizeof(float));
    host.b = allocate(AREA, sizeof(float));
    host.c = allocate(AREA, sizeof(float));
    trainee t = make(&config, batch, threads);
    double *shares = allocate((size_t)turns, sizeof *shares), seconds;
    printf("%s: %.2f M parameters, %d x %d tokens, %.1f MB of activations\n", size,
           (double)model_numel(t.m) / 1e6, batch, t.length, (double)model_bytes(t.m) / 1e6);
    model_rate(&t, &seconds); /* pages, caches */
    for (int i = 0; i < turns; i++) {
        double before = machine_rate(&host), rate = model_rate(&t, &seconds);
        double sgemm = (before + machine_rate(&host)) / 2;
        shares[i] = rate / sgemm;
        printf("%8.3f s  %9.0f tokens/s  %7.1f GFLOP/s  sgemm %7.1f  share %.2f\n", seconds,
               batch * t.length / seconds, rate / 1e9, sgemm / 1e9, shares[i]);
    }
    qsort(shares, (size_t)turns, sizeof *shares, by_value);
    printf("median share of the sgemm rate: %.2f\n", shares[turns / 2]);
    for (size_t i = 0; i < model_ntensors(t.m); i++) {
        free(t.weights[i]);
        free(t.grads[i]);
    }
    free(t.weights);
    free(t.grads);
    free(t.text);
    free(shares);
    free(host.a);
    free(host.b);
    free(host.c);
    muon__pool_destroy(host.threads);
    model_destroy(t.m);
    return 0;
}
