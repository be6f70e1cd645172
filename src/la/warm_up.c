/* Pools that have served every thread at once.
 *
 * A BLAS packs its operands into blocks from pools of the process, which grow when more threads
 * multiply at the same time than ever before. Creation makes them grow, so that a step need not: all
 * threads multiply, again and again, until a watcher has seen them all in a product at once. Where
 * processors are few, threads take turns, and a thread that waits for its turn counts: it is in the
 * middle of a product and keeps its blocks. The watcher looks at what they write: a product of ones, as
 * deep as its factors are long, is added up block by block, and an element that is no longer zero and
 * not yet the depth is one whose product is under way. All under way, looked at twice: all have their
 * blocks. */
#include "base/clock.h"
#include "base/memory.h"
#include "la/la.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE = 96,
    DEPTH = 8192,      /* a millisecond a product */
    PATIENCE_MS = 2000 /* then threads outnumber processors beyond reason */
};

typedef struct warm_up {
    const la_ops *la;
    int threads;
    float *ones;    /* SIDE x DEPTH */
    float *results; /* SIDE x SIDE for each thread */
    double until;   /* by the clock of base/clock.h */
    atomic_int arrived, seen;
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
    do {
        w->la->gemmt(SIDE, DEPTH, 1, a, b, w->results + index * SIDE * SIDE, SIDE);
    } while (!atomic_load(&w->seen) && muon__seconds() < w->until);
}

static int all_under_way(const warm_up *w)
{
    for (int i = 0; i < w->threads; i++) {
        float sum = *(const volatile float *)(w->results + (ptrdiff_t)i * SIDE * SIDE);
        if (!(sum > 0 && sum < DEPTH)) return 0;
    }
    return 1;
}

static void *watch(void *arg)
{
    warm_up *w = arg;
    while (!atomic_load(&w->seen) && muon__seconds() < w->until) {
        if (all_under_way(w) && all_under_way(w)) atomic_store(&w->seen, 1);
        sched_yield();
    }
    return NULL;
}

static muon_status run_watched(warm_up *w, pool *p)
{
    size_t ones = (size_t)SIDE * DEPTH, each = (size_t)SIDE * SIDE;
    TRY(CALLOC(&w->ones, ones, "warm-up"));
    muon_status status = CALLOC(&w->results, (size_t)w->threads * each, "warm-up");
    if (status == MUON_OK) {
        for (size_t i = 0; i < ones; i++)
            w->ones[i] = 1;
        pthread_t watcher;
        w->until = muon__seconds() + PATIENCE_MS * 1e-3;
        int watched = w->threads > 1 && pthread_create(&watcher, NULL, watch, w) == 0;
        if (!watched)
            w->until = 0; /* once is enough for one thread, and has to be without a watcher */
        if (w->threads == 1) atomic_store(&w->seen, 1);
        muon__pool_run(p, w->threads, warm_one, w);
        if (watched) pthread_join(watcher, NULL);
    }
    free(w->results);
    free(w->ones);
    return status;
}

muon_status muon__la_warm_up(const la_ops *la, pool *p, int *reserved)
{
    warm_up w = {.la = la, .threads = muon__pool_threads(p)};
    if (la->reserve) {
        TRY(la->reserve(w.threads));
        *reserved = w.threads;
    }
    if (!la->served || atomic_load(la->served) >= w.threads) {
        muon__pool_run(p, w.threads, warm_one, &w);
        return MUON_OK;
    }
    TRY(run_watched(&w, p));
    int before = atomic_load(la->served);
    while (atomic_load(&w.seen) && before < w.threads &&
           !atomic_compare_exchange_weak(la->served, &before, w.threads))
        ;
    return MUON_OK;
}

void muon__la_release(const la_ops *la, int reserved)
{
    if (reserved) la->release(reserved);
}
