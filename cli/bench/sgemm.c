/* The machine's best at matrix products: the library in use on every thread, each with rows or with
 * columns of its own. Which of the two is better depends on the machine's caches. */
#include "cli/bench/bench.h"
#include "train/model/blas.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const blas_backend *backend_in_use;

/* A part of c = a b, where all three are stored n columns wide. */
typedef struct band {
    pthread_t thread;
    int started;
    float *c, *a, *b;
    int64_t rows, cols, n;
} band;

static void *run_band(void *arg)
{
    const band *x = arg;
    int64_t n = x->n;
    blas_gemm_by(backend_in_use, x->rows, x->cols, n, (mat){x->a, n, 1}, (mat){x->b, n, 1}, x->c,
                 n);
    return NULL;
}

/* Plain loops are compared with the fastest that there is. */
int bench_sgemm_exists(const char *backend)
{
    int plain = backend && strcmp(backend, "reference") == 0;
    return blas_find(&backend_in_use, plain ? NULL : backend) == MUON_OK && backend_in_use;
}

double bench_sgemm_seconds(float *c, float *a, float *b, int64_t n, int threads, int by_columns)
{
    band *parts = cli_alloc((size_t)threads, sizeof *parts);
    double start = cli_now();
    for (int t = threads - 1; t >= 0; t--) {
        int64_t first = n * t / threads, count = n * (t + 1) / threads - first;
        band *x = &parts[t];
        *x = by_columns
                 ? (band){.c = c + first, .a = a, .b = b + first, .rows = n, .cols = count, .n = n}
                 : (band){.c = c + first * n,
                          .a = a + first * n,
                          .b = b,
                          .rows = count,
                          .cols = n,
                          .n = n};
        x->started = t > 0 && pthread_create(&x->thread, NULL, run_band, x) == 0;
        if (!x->started) run_band(x);
    }
    for (int t = 0; t < threads; t++)
        if (parts[t].started) pthread_join(parts[t].thread, NULL);
    double seconds = cli_now() - start;
    free(parts);
    return seconds;
}
