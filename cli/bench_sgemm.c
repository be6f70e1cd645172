/* The machine's own single-precision matrix product, by BLIS: on its own threads, or on ours with a
 * band of rows each. The first is the better one on an idle machine, the second on a busy one. */
#include "bench.h"

#ifdef MUON_HAVE_BLIS

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* The header of a library we do not own: its own style is not our warnings' business. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <blis.h>
#pragma GCC diagnostic pop

/* Rows of c = a b, all n columns wide. */
typedef struct band {
    pthread_t thread;
    int started;
    float *c, *a, *b;
    int64_t rows, n;
} band;

static void multiply(const band *part, int threads)
{
    float one = 1, zero = 0;
    int64_t n = part->n;
    rntm_t runtime = BLIS_RNTM_INITIALIZER;
    bli_rntm_set_num_threads(threads, &runtime);
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, part->rows, n, n, &one, part->a, n, 1,
                 part->b, n, 1, &zero, part->c, n, 1, NULL, &runtime);
}

static void *run_band(void *arg)
{
    multiply(arg, 1);
    return NULL;
}

static void multiply_in_bands(const band *all, int threads)
{
    band *parts = cli_alloc((size_t)threads, sizeof *parts);
    for (int t = threads - 1; t >= 0; t--) {
        int64_t first = all->rows * t / threads, end = all->rows * (t + 1) / threads;
        parts[t] = *all;
        parts[t].rows = end - first;
        parts[t].a += first * all->n;
        parts[t].c += first * all->n;
        parts[t].started =
            t > 0 && pthread_create(&parts[t].thread, NULL, run_band, &parts[t]) == 0;
        if (!parts[t].started) multiply(&parts[t], 1);
    }
    for (int t = 0; t < threads; t++)
        if (parts[t].started) pthread_join(parts[t].thread, NULL);
    free(parts);
}

int bench_sgemm_exists(void)
{
    return 1;
}

double bench_sgemm_seconds(float *c, float *a, float *b, int64_t n, int threads, int in_bands)
{
    band all = {.c = c, .a = a, .b = b, .rows = n, .n = n};
    double start = cli_now();
    if (in_bands)
        multiply_in_bands(&all, threads);
    else
        multiply(&all, threads);
    double seconds = cli_now() - start;
    /* BLIS's threads spin on for a while; what is measured next must not pay for that. */
    if (!in_bands) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return seconds;
}

#else

int bench_sgemm_exists(void)
{
    return 0;
}

double bench_sgemm_seconds(float *c, float *a, float *b, int64_t n, int threads, int in_bands)
{
    (void)c, (void)a, (void)b, (void)n, (void)threads, (void)in_bands;
    return 0;
}

#endif
