#include "tests/world/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct seat { /* of one rank */
    int rank;
    const muon_comm *comm;
    rank_fn fn;
    void *arg;
    pthread_barrier_t *barrier;
    jmp_buf leave;
    char failure[4096]; /* "": none */
} seat;

static _Thread_local seat *mine;

void rank_fail(const char *file, int line, const char *what, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(mine->failure, sizeof mine->failure, "%s:%d: rank %d: %s\n  %s", file, line,
             mine->rank, what, text);
    longjmp(mine->leave, 1);
}

void rank_expect(muon_status got, muon_status want, const char *text, const char *call,
                 const char *file, int line)
{
    if (got != want)
        rank_fail(file, line, call, "gave %s, not %s: %s", muon_status_name(got),
                  muon_status_name(want), got == MUON_OK ? "" : muon_last_error());
    if (text && !strstr(muon_last_error(), text))
        rank_fail(file, line, call, "message \"%s\"\n  lacks   \"%s\"", muon_last_error(), text);
}

void ranks_barrier(void)
{
    pthread_barrier_wait(mine->barrier);
}

static void *run_rank(void *arg)
{
    mine = arg;
    if (!setjmp(mine->leave)) mine->fn(mine->rank, mine->comm, mine->arg);
    return NULL;
}

void ranks_run_in(threads_world *world, int n, rank_fn fn, void *arg)
{
    seat *seats = calloc((size_t)n, sizeof *seats);
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    assert_true(seats && threads);
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, (unsigned)n), 0);
    for (int i = 0; i < n; i++) {
        seats[i].rank = i;
        seats[i].comm = muon__threads_comm(world, i);
        seats[i].fn = fn;
        seats[i].arg = arg;
        seats[i].barrier = &barrier;
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &seats[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    char failure[sizeof seats->failure] = "";
    for (int i = n - 1; i >= 0; i--)
        if (*seats[i].failure) memcpy(failure, seats[i].failure, sizeof failure);
    free(seats);
    free(threads);
    if (*failure) fail_msg("%s", failure);
}

void ranks_run(int n, rank_fn fn, void *arg)
{
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, n));
    ranks_run_in(world, n, fn, arg);
    muon__threads_destroy(world);
}
