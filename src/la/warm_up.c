/* Pools that have served every thread at once.
 *
 * A BLAS packs its operands into blocks from pools of the process, which grow when more threads
 * multiply at the same time than ever before. Creation makes them grow, so that a step need not: all
 * threads multiply together, and a watcher makes sure that they did. Threads that only start together
 * may still take turns, so the watcher looks at what they write: a product of ones, as deep as its
 * factors are long, is added up block by block, and an element that is no longer zero and not yet the
 * depth is one whose product is under way. All under way, looked at twice: all have their blocks. */
#include "base/memory.h"
#include "la/la.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH = 8192,
    LEAST_SIDE = 96, /* a millisecond */
    MOST_SIDE = 384,
    ROUNDS = 20 /* then threads outnumber processors beyond reason */
};

typedef struct warm_up {
    const la_ops *la;
    int threads;
    int64_t side;
    float *ones;    /* side x DEPTH */
    float *results; /* side x side for each thread */
    atomic_int arrived, finished;
    int seen;
} warm_up;

static void meet(warm_up *w)
{
    atomic_fetch_add(&w->arrived, 1);
    while (atomic_load(&w->arrived) < w->threads)
        sched_yield();
}

/* One for each thread: nobody leaves before all have come. */
static void warm_one(void *arg, int64_t index, int worker)
{
    warm_up *w = arg;
    (void)worker;
    meet(w);
    if (!w->ones) return;
    la_view a = {w->ones, DEPTH, 1}, b = {w->ones, 1, DEPTH};
    w->la->gemmt(w->side, DEPTH, 1, a, b, w->results + index * w->side * w->side, w->side);
}

static int all_under_way(const warm_up *w)
{
    for (int i = 0; i < w->threads; i++) {
        float sum = *(const volatile float *)(w->results + i * w->side * w->side);
        if (!(sum > 0 && sum < DEPTH)) return 0;
    }
    return 1;
}

static void *watch(void *arg)
{
    warm_up *w = arg;
    while (!atomic_load(&w->finished) && !w->seen) {
        w->seen = all_under_way(w) && all_under_way(w);
        sched_yield();
    }
    return NULL;
}

static void run(warm_up *w, pool *p)
{
    atomic_store(&w->arrived, 0);
    muon__pool_run(p, w->threads, warm_one, w);
}

static muon_status run_watched(warm_up *w, pool *p)
{
    size_t ones = (size_t)w->side * DEPTH, each = (size_t)(w->side * w->side);
    TRY(CALLOC(&w->ones, ones, "warm-up"));
    muon_status status = CALLOC(&w->results, (size_t)w->threads * each, "warm-up");
    if (status == MUON_OK) {
        for (size_t i = 0; i < ones; i++)
            w->ones[i] = 1;
        pthread_t watcher;
        atomic_store(&w->finished, 0);
        int watched = w->threads > 1 && pthread_create(&watcher, NULL, watch, w) == 0;
        run(w, p);
        atomic_store(&w->finished, 1);
        if (watched) pthread_join(watcher, NULL);
    }
    free(w->results);
    free(w->ones);
    w->ones = w->results = NULL;
    return status;
}

muon_status muon__la_warm_up(const la_ops *la, pool *p)
{
    warm_up w = {.la = la, .threads = muon__pool_threads(p), .side = LEAST_SIDE};
    if (!la->served || atomic_load(la->served) >= w.threads) {
        run(&w, p);
        return MUON_OK;
    }
    w.seen = 0;
    for (int round = 0; round < ROUNDS && !w.seen; round++) {
        TRY(run_watched(&w, p));
        if (w.threads == 1) w.seen = 1;
        if (w.side < MOST_SIDE) w.side *= 2;
    }
    int before = atomic_load(la->served);
    while (w.seen && before < w.threads &&
           !atomic_compare_exchange_weak(la->served, &before, w.threads))
        ;
    return MUON_OK;
}
