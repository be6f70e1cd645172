#define _GNU_SOURCE /* sched_getaffinity */
#include "base/pool.h"

#include "base/memory.h"
#include "base/mode.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    SPINS = 4000, /* about 50 us: longer than the gap between two products, shorter than a nap */
    RUN = 8,      /* indices that a thread takes at a time, at most, */
    FAIR = 32     /* and of what is left no more than its share over this */
};

struct pool {
    int threads;
    int started; /* workers that exist: threads - 1 once created */
    int spins;   /* 0 where threads outnumber cores: spinning would keep the others from working */
    void (*between)(void *arg);
    void *between_arg;
    pthread_t *thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_uint round; /* one more for each job; workers wait for it to change */
    atomic_int asleep;
    atomic_int quit;
    /* The job, written before round changes. */
    pool_fn fn;
    void *arg;
    int64_t n;
    _Atomic int64_t next; /* first index nobody has */
    atomic_int busy;      /* workers that have not finished this round */
};

typedef struct worker_start {
    pool *p;
    int worker;
} worker_start;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* How many indices a thread takes at a time. Units that lie beside each other in memory are faster on one
 * thread; a few at the end, or few large ones, are taken one by one. */
static int64_t run_length(const pool *p)
{
    int64_t left = p->n - atomic_load(&p->next), fair = left / ((int64_t)FAIR * p->threads);
    return fair < 1 ? 1 : fair < RUN ? fair : RUN;
}

static void work(pool *p, int worker)
{
    for (;;) {
        int64_t run = run_length(p), index = atomic_fetch_add(&p->next, run);
        int64_t end = index + run < p->n ? index + run : p->n;
        if (index >= p->n) return;
        for (; index < end; index++) {
            p->fn(p->arg, index, worker);
            if (worker == 0 && p->between) p->between(p->between_arg);
        }
    }
}

/* Waits until the round is not `seen` any more. A sleeper announces itself before it looks at the
 * round, and a starter changes the round before it looks for sleepers: one of them sees the other. */
static unsigned await_round(pool *p, unsigned seen)
{
    for (int i = 0; i < p->spins; i++) {
        unsigned now = atomic_load(&p->round);
        if (now != seen) return now;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->asleep, 1);
    while (atomic_load(&p->round) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->asleep, 1);
    pthread_mutex_unlock(&p->lock);
    return atomic_load(&p->round);
}

static void start_round(pool *p)
{
    atomic_fetch_add(&p->round, 1);
    if (atomic_load(&p->asleep) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    worker_start start = *(worker_start *)arg;
    free(arg);
    pool *p = start.p;
    muon__mode_set();
    unsigned seen = 0;
    for (;;) {
        seen = await_round(p, seen);
        if (atomic_load(&p->quit)) return NULL;
        work(p, start.worker);
        atomic_fetch_sub(&p->busy, 1);
    }
}

int muon__pool_available(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static muon_status start_worker(pool *p, int worker)
{
    worker_start *start = NULL;
    TRY(CALLOC(&start, 1, "thread"));
    *start = (worker_start){p, worker};
    if (pthread_create(&p->thread[worker - 1], NULL, worker_main, start) != 0) {
        free(start);
        FAIL(E_NOMEM, "thread %d of %d could not be started", worker + 1, p->threads);
    }
    p->started++;
    return MUON_OK;
}

muon_status muon__pool_create(pool **out, int threads)
{
    int available = muon__pool_available();
    if (threads == 0) threads = available;
    pool *p = NULL;
    TRY(CALLOC(&p, 1, "thread pool"));
    p->threads = threads;
    p->spins = threads <= available ? SPINS : 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    muon_status status = CALLOC(&p->thread, (size_t)threads, "threads");
    for (int worker = 1; status == MUON_OK && worker < threads; worker++)
        status = start_worker(p, worker);
    if (status != MUON_OK) {
        muon__pool_destroy(p);
        return status;
    }
    *out = p;
    return MUON_OK;
}

void muon__pool_destroy(pool *p)
{
    if (!p) return;
    atomic_store(&p->quit, 1);
    start_round(p);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->thread);
    free(p);
}

int muon__pool_threads(const pool *p)
{
    return p ? p->threads : 1;
}

void muon__pool_between(pool *p, void (*fn)(void *arg), void *arg)
{
    p->between = fn;
    p->between_arg = arg;
}

void muon__pool_run(pool *p, int64_t n, pool_fn fn, void *arg)
{
    if (!p || p->threads == 1 || n <= 1) {
        for (int64_t i = 0; i < n; i++) {
            fn(arg, i, 0);
            if (p && p->between) p->between(p->between_arg);
        }
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    atomic_store(&p->next, 0);
    atomic_store(&p->busy, p->threads - 1);
    start_round(p);
    work(p, 0);
    for (int i = 0; atomic_load(&p->busy) != 0; i++) {
        if (i < p->spins)
            relax();
        else
            sched_yield();
    }
}
