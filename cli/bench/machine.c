/* What the machine can do at its best, measured without an optimizer: matrix products by the backend
 * alone, and memory by loops in the manner of STREAM. Bytes are those the loops read and write. */
#include "cli/bench/bench.h"
#include "cli/core/files.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 2048 };
static const size_t least_bytes = (size_t)256 << 20; /* well beyond any cache */

typedef float lanes __attribute__((vector_size(32), may_alias)); /* vector code at any -O level */

struct bench_machine {
    bench_limit limit;
    int threads;
    int turn; /* how often it was measured: the two ways to multiply take turns */
    size_t bytes;
    float *block; /* three matrices, or memory to be cut into arrays */
};

/* ---- memory ------------------------------------------------------------------------------------ */

/* One thread's part of a loop over arrays of n vectors. */
enum { MOST_ARRAYS = 4 };
typedef void (*loop_fn)(lanes *const *x, size_t n);

static void fill(lanes *const *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[0][i] = (lanes){1, 2, 3, 4, 5, 6, 7, 8};
}

static void copy(lanes *const *x, size_t n)
{
    memcpy(x[0], x[1], n * sizeof *x[0]);
}

static void triad(lanes *const *x, size_t n)
{
    lanes *a = x[0], *b = x[1], *c = x[2];
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + 0.25f * c[i];
}

static void in_place(lanes *const *x, size_t n)
{
    lanes *a = x[0], *b = x[1];
    for (size_t i = 0; i < n; i++)
        a[i] = 0.5f * a[i] + b[i];
}

/* As many streams as an AdamW pass has: some machines need that many for their best. */
static void three_in_place(lanes *const *x, size_t n)
{
    lanes *a = x[0], *b = x[1], *c = x[2], *d = x[3];
    for (size_t i = 0; i < n; i++) {
        lanes v = d[i];
        a[i] = 0.5f * a[i] + v;
        b[i] = 0.5f * b[i] + v;
        c[i] = 0.5f * c[i] + v;
    }
}

static volatile float sink; /* makes the sums below needed */

static void sum(lanes *const *x, size_t n)
{
    const lanes *a = x[0], *b = x[1], *c = x[2], *d = x[3];
    lanes s[4] = {{0}};
    for (size_t i = 0; i < n; i++) {
        s[0] += a[i];
        s[1] += b[i];
        s[2] += c[i];
        s[3] += d[i];
    }
    sink = s[0][0] + s[1][0] + s[2][0] + s[3][0];
}

static const struct loop {
    loop_fn fn;
    size_t arrays, passes; /* arrays it needs, and how often it moves the length of one */
    bench_limit limit;
} loops[] = {
    {copy, 2, 2, BENCH_STREAM},     {triad, 3, 3, BENCH_STREAM},
    {in_place, 2, 3, BENCH_STREAM}, {three_in_place, 4, 7, BENCH_STREAM},
    {sum, 4, 4, BENCH_READ},
};

typedef struct part {
    pthread_t thread;
    loop_fn fn;
    lanes *array[MOST_ARRAYS];
    size_t n;
} part;

static void *run_part(void *arg)
{
    part *p = arg;
    p->fn(p->array, p->n);
    return NULL;
}

/* The loop over the whole block, cut into equal parts for the threads. Returns the seconds. */
static double run_loop(const bench_machine *m, loop_fn fn, size_t arrays, size_t *length)
{
    size_t n = m->bytes / sizeof(lanes) / arrays, slice = n / (size_t)m->threads;
    part *parts = cli_alloc((size_t)m->threads, sizeof *parts);
    double start = cli_now();
    for (int t = m->threads - 1; t >= 0; t--) {
        part *p = &parts[t];
        p->fn = fn;
        p->n = slice;
        for (size_t k = 0; k < arrays; k++)
            p->array[k] = (lanes *)m->block + k * n + (size_t)t * slice;
        if (t == 0 || pthread_create(&p->thread, NULL, run_part, p) != 0) {
            p->fn(p->array, p->n);
            p->fn = NULL;
        }
    }
    for (int t = 0; t < m->threads; t++)
        if (parts[t].fn) pthread_join(parts[t].thread, NULL);
    double seconds = cli_now() - start;
    free(parts);
    *length = slice * (size_t)m->threads * sizeof(lanes);
    return seconds;
}

static double memory_rate(const bench_machine *m)
{
    double best = 0;
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        if (loops[i].limit != m->limit) continue;
        size_t length;
        double seconds = run_loop(m, loops[i].fn, loops[i].arrays, &length);
        double rate = (double)(length * loops[i].passes) / seconds;
        if (rate > best) best = rate;
    }
    return best;
}

/* ---- both -------------------------------------------------------------------------------------- */

bench_machine *bench_machine_create(bench_limit limit, size_t bytes, const compute *how)
{
    if (limit == BENCH_SGEMM && !bench_sgemm_exists(how->backend)) return NULL;
    bench_machine *m = cli_alloc(1, sizeof *m);
    *m = (bench_machine){.limit = limit, .threads = how->threads};
    if (limit == BENCH_SGEMM) {
        m->bytes = (size_t)3 * SIDE * SIDE * sizeof(float);
        m->block = tensors_alloc(m->bytes);
        bench_fill(m->block, (int64_t)3 * SIDE * SIDE, 1, 1);
    } else {
        size_t length;
        m->bytes = bytes > least_bytes ? bytes : least_bytes;
        m->block = tensors_alloc(m->bytes);
        run_loop(m, fill, 1, &length); /* every page is touched by the thread that will use it */
    }
    return m;
}

double bench_machine_rate(bench_machine *m)
{
    if (m->limit != BENCH_SGEMM) return memory_rate(m);
    const size_t size = (size_t)SIDE * SIDE;
    float *a = m->block, *b = a + size, *c = b + size;
    return 2.0 * SIDE * SIDE * SIDE / bench_sgemm_seconds(c, a, b, SIDE, m->threads, m->turn++ % 2);
}

void bench_machine_destroy(bench_machine *m)
{
    if (m) free(m->block);
    free(m);
}
