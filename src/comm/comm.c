#include "comm/comm.h"

#include "base/clock.h"
#include "base/mode.h"
#include "base/pool.h"
#include "base/versioned.h"
#include "comm/roll.h"

#include <assert.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Turns of waiting: first only tests, because a message that is about to come is not worth a switch;
 * then the processor goes to others in between; then naps, each twice as long as the last. */
enum { SPINS = 2000, YIELDS = 2000, DOUBLINGS = 6 };
#define SHORTEST_NAP 1500L /* nanoseconds; the longest is 96 us */

muon_status muon_error_set(muon_status status, const char *format, ...)
{
    char text[MUON__MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return muon__fail(status, "%s", text);
}

static muon_status check_ops(const muon_comm_ops *in)
{
    REQUIRE(in, E_ARG, "muon_comm: ops is NULL");
    muon_comm_ops ops = {0};
    TRY(muon__struct_load(&ops, sizeof ops, offsetof(muon_comm_ops, keep), in, "muon_comm_ops"));
    const struct {
        const char *name;
        int given;
    } needed[] = {{"name", ops.name != NULL},   {"open", ops.open != NULL},
                  {"close", ops.close != NULL}, {"start", ops.start != NULL},
                  {"test", ops.test != NULL},   {"late", ops.late != NULL}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        REQUIRE(needed[i].given, E_ARG, "muon_comm_ops: %s is NULL", needed[i].name);
    return MUON_OK;
}

muon_status muon__comm_load(muon_comm *out, const muon_comm *in)
{
    REQUIRE(in, E_ARG, "muon_comm is NULL");
    muon_comm comm = {0};
    TRY(muon__struct_load(&comm, sizeof comm, offsetof(muon_comm, one_thread), in, "muon_comm"));
    TRY(check_ops(comm.ops));
    REQUIRE(comm.size >= 1, E_ARG, "muon_comm: size is %d, must be at least 1", comm.size);
    REQUIRE(comm.rank >= 0 && comm.rank < comm.size, E_ARG, "muon_comm: rank is %d, must be 0..%d",
            comm.rank, comm.size - 1);
    REQUIRE(comm.sharing >= 0 && comm.sharing <= comm.size, E_ARG,
            "muon_comm: sharing is %d, must be 0..%d", comm.sharing, comm.size);
    *out = comm;
    return MUON_OK;
}

muon_status muon__comm_open(const muon_comm *c, muon_batch **out, muon_direction direction,
                            int channel, const muon_message *messages, size_t nmessages)
{
    assert(channel >= 0 && channel < MUON_CHANNELS);
    muon_batch *batch = NULL;
    muon_status status = MUON_OK;
    if (nmessages > 0)
        IN_HOST_MODE(status =
                         c->ops->open(c->self, &batch, direction, channel, messages, nmessages));
    TRY(status);
    *out = batch;
    return MUON_OK;
}

void muon__comm_close(const muon_comm *c, muon_batch *batch)
{
    if (batch) IN_HOST_MODE(c->ops->close(c->self, batch));
}

size_t muon__comm_free(const muon_comm *c, void *memory, size_t bytes)
{
    const muon_comm_ops *ops = c->ops; /* NULL: one rank */
    int is_kept = 0;
    if (memory && ops && ops->struct_size > offsetof(muon_comm_ops, keep) && ops->keep)
        IN_HOST_MODE(is_kept = ops->keep(c->self, memory, bytes, free));
    if (is_kept) return bytes;
    free(memory);
    return 0;
}

muon_status muon__comm_start(const muon_comm *c, muon_batch *batch)
{
    muon_status status = MUON_OK;
    if (batch) IN_HOST_MODE(status = c->ops->start(c->self, batch));
    return status;
}

muon_status muon__comm_test(const muon_comm *c, muon_batch *batch, int *done)
{
    *done = 1;
    muon_status status = MUON_OK;
    if (batch) IN_HOST_MODE(status = c->ops->test(c->self, batch, done));
    return status;
}

/* Ranks that outnumber the processors they share only keep each other from working when they spin. */
static int is_crowded(const muon_comm *c)
{
    static atomic_int processors; /* 0: not known yet */
    int n = atomic_load(&processors);
    if (n == 0) atomic_store(&processors, n = muon__pool_available());
    return c->sharing > n;
}

void muon__comm_rest(int *turn)
{
    int naps = *turn - SPINS - YIELDS;
    if (naps >= 0)
        nanosleep(&(struct timespec){.tv_nsec = SHORTEST_NAP << naps}, NULL);
    else if (*turn >= SPINS)
        sched_yield();
    if (naps < DOUBLINGS) ++*turn;
}

muon_status muon__comm_poll(const muon_comm *c, muon_batch *batch, double seconds, int *done)
{
    double deadline = muon__seconds() + seconds;
    for (int turn = is_crowded(c) ? SPINS : 0;;) {
        /* The clock first: a process that was stopped for long still looks once at what has come. */
        int late = muon__seconds() >= deadline;
        TRY(muon__comm_test(c, batch, done));
        if (*done || late) return MUON_OK;
        muon__comm_rest(&turn);
    }
}

/* The peer may be well and wait for somebody itself: who is missing comes out when all who wait tell
 * each other. */
__attribute__((format(printf, 4, 0))) static muon_status
fail_late(const muon_comm *c, muon_batch *batch, double timeout, const char *format, va_list args)
{
    int peer;
    char stage[MUON__MESSAGE_MAX];
    vsnprintf(stage, sizeof stage, format, args);
    IN_HOST_MODE(peer = c->ops->late(c->self, batch));
    if (peer < 0) FAIL(E_TIMEOUT, "rank %d waited %g s (%s)", c->rank, timeout, stage);
    roll_waits waits = {0};
    char names[ROLL_NAMES];
    muon__roll_wait(&waits, peer);
    muon__roll_call(c, &waits, timeout, names);
    REQUIRE(!*names, E_TIMEOUT, "no word from %s: rank %d waited %g s for rank %d (%s)", names,
            c->rank, timeout, peer, stage);
    FAIL(E_TIMEOUT,
         "rank %d waited %g s for rank %d (%s); every rank that is waited for waits, too", c->rank,
         timeout, peer, stage);
}

muon_status muon__comm_late(const muon_comm *c, muon_batch *batch, double timeout,
                            const char *stage, ...)
{
    va_list args;
    va_start(args, stage);
    muon_status status = fail_late(c, batch, timeout, stage, args);
    va_end(args);
    return status;
}

muon_status muon__comm_wait(const muon_comm *c, muon_batch *batch, double timeout,
                            const char *stage, ...)
{
    int done = 0;
    TRY(muon__comm_poll(c, batch, timeout, &done));
    if (done) return MUON_OK;
    va_list args;
    va_start(args, stage);
    muon_status status = fail_late(c, batch, timeout, stage, args);
    va_end(args);
    return status;
}
