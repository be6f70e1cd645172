/* ranks.h - many ranks in one test: each is a thread, and messages go through memory.
 *
 *     static void exchange(int rank, const muon_comm *comm, void *arg)
 *     {
 *         rank_ok(muon__tree_run(...));
 *         rank_check(sum == 10, "sum is %d, want 10", sum);
 *     }
 *     TEST(ranks_add_up) { ranks_run(4, exchange, &thing); }
 *
 * cmocka's asserts must only fire in the main thread: inside of a rank use those below. A rank that
 * fails one of them leaves its function at once; the test fails when all ranks have returned, with
 * what the lowest of them said. Ranks that wait for it need a timeout to return. */
#ifndef TESTS_WORLD_RANKS_H
#define TESTS_WORLD_RANKS_H

#include "tests/support/testlib.h"
#include "tests/world/threads.h"

typedef void (*rank_fn)(int rank, const muon_comm *comm, void *arg);

/* Runs fn on n ranks at the same time and waits for all of them. */
void ranks_run(int n, rank_fn fn, void *arg);
/* The same in a world of the test's own, for who wants its counts afterwards. */
void ranks_run_in(threads_world *world, int n, rank_fn fn, void *arg);

/* Inside of a rank: everybody waits here for everybody. For turns that a test wants to be certain of. */
void ranks_barrier(void);

#define rank_check(condition, ...)                                                                 \
    ((condition) ? (void)0 : rank_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
/* Expects MUON_OK. */
#define rank_ok(call) rank_expect((call), MUON_OK, NULL, #call, __FILE__, __LINE__)
/* Expects a status and, in the message, a text. */
#define rank_fails(call, status, text)                                                             \
    rank_expect((call), (status), (text), #call, __FILE__, __LINE__)

_Noreturn void rank_fail(const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void rank_expect(muon_status got, muon_status want, const char *text, const char *call,
                 const char *file, int line);

#endif
