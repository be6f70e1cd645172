/* The machine's best at matrix products: BLIS on every thread, each with rows of its own. */
#include "bench.h"
#include "train/blas.h"

#include <pthread.h>
#include <stdlib.h>

/* Rows of c = a b, all n columns wide. */
typedef struct band {
    pthread_t thread;
    int started;
    float *c, *a, *b;
    int64_t rows, n;
} band;

static void *run_band(void *arg)
{
    const band *part = arg;
    int64_t n = part->n;
    blas_gemm(part->rows, n, n, 1, (mat){part->a, n, 1}, (mat){part->b, n, 1}, 0, part->c, n);
    return NULL;
}

int bench_sgemm_exists(void)
{
#ifdef MUON_HAVE_BLIS
    return blas_check() == MUON_OK;
#else
    return 0;
#endif
}

double bench_sgemm_seconds(float *c, float *a, float *b, int64_t n, int threads)
{
    band *parts = cli_alloc((size_t)threads, sizeof *parts);
    double start = cli_now();
    for (int t = threads - 1; t >= 0; t--) {
        int64_t first = n * t / threads, end = n * (t + 1) / threads;
        parts[t] =
            (band){.c = c + first * n, .a = a + first * n, .b = b, .rows = end - first, .n = n};
        parts[t].started =
            t > 0 && pthread_create(&parts[t].thread, NULL, run_band, &parts[t]) == 0;
        if (!parts[t].started) run_band(&parts[t]);
    }
    for (int t = 0; t < threads; t++)
        if (parts[t].started) pthread_join(parts[t].thread, NULL);
    double seconds = cli_now() - start;
    free(parts);
    return seconds;
}
