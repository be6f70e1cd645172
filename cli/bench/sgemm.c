/* The machine's best at matrix products: the library in use on every thread, each with rows or with
 * columns of its own. Which of the two is better depends on the machine's caches. */
#define _GNU_SOURCE
#include "cli/bench/bench.h"
#include "train/model/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef void (*cblas_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c,
                         int ldc);

enum { ROW_MAJOR = 101, NO_TRANS = 111 };

static cblas_fn cblas; /* NULL: BLIS */

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
    if (cblas)
        cblas(ROW_MAJOR, NO_TRANS, NO_TRANS, (int)x->rows, (int)x->cols, (int)n, 1, x->a, (int)n,
              x->b, (int)n, 0, x->c, (int)n);
    else
        blas_gemm(x->rows, x->cols, n, 1, (mat){x->a, n, 1}, (mat){x->b, n, 1}, 0, x->c, n);
    return NULL;
}

/* The library that libmuon has loaded and set to one thread. */
static cblas_fn find_cblas(const char *file)
{
    union {
        void *data;
        cblas_fn function;
    } found = {NULL};
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library) found.data = dlsym(library, "cblas_sgemm");
    return found.function;
}

int bench_sgemm_exists(const char *backend)
{
    muon_backend_info info;
    cblas = NULL;
    if (muon_backend_get(backend, &info, sizeof info) != MUON_OK) return 0;
    if (strcmp(info.name, "cblas") == 0) {
        cblas = find_cblas(info.library);
        return cblas != NULL;
    }
#ifdef MUON_HAVE_BLIS
    return blas_check() == MUON_OK;
#else
    return 0;
#endif
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
