#include "mpi_test.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int world_rank = -1, world_size;

static const char *skipped;

_Noreturn void fail_job(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: rank %d: %s: %s\n", file, line, world_rank, condition, text);
    fflush(NULL);
    int up = 0;
    MPI_Initialized(&up);
    if (up) MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

void check_status(muon_status got, muon_status want, const char *text, const char *call,
                  const char *file, int line)
{
    if (got != want)
        fail_job(file, line, call, "want %s, got %s: %s", muon_status_name(want),
                 muon_status_name(got), got == MUON_OK ? "" : muon_last_error());
    if (text && !strstr(muon_last_error(), text))
        fail_job(file, line, call, "want a message with '%s', got '%s'", text, muon_last_error());
}

void skip_mpi_test(const char *why)
{
    skipped = why;
}

int run_mpi_tests(int *argc, char ***argv)
{
    int level = MPI_THREAD_SINGLE;
    size_t nskipped = 0, ntests = 0;
    MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (const testlib_test *t = testlib_first(); t; t = t->next, ntests++) {
        skipped = NULL;
        if (world_rank == 0) printf("[ RUN      ] %s\n", t->name);
        fflush(stdout);
        t->run();
        MPI_Barrier(MPI_COMM_WORLD);
        nskipped += skipped != NULL;
        if (world_rank == 0 && skipped) printf("%s\n", skipped);
        if (world_rank == 0) printf("[  %s ] %s\n", skipped ? "SKIPPED" : "     OK", t->name);
    }
    if (world_rank == 0) {
        printf("[  PASSED  ] %zu test(s) on %d ranks.\n", ntests - nskipped, world_size);
        if (nskipped) printf("[  SKIPPED ] %zu test(s)\n", nskipped);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}

/* ---- A muon_comm by its table of functions */

muon_batch *open_batch(const muon_comm *comm, muon_direction direction, int channel,
                       const muon_message *messages, size_t nmessages)
{
    muon_batch *batch = NULL;
    CHECK_OK(comm->ops->open(comm->self, &batch, direction, channel, messages, nmessages));
    return batch;
}

void start(const muon_comm *comm, muon_batch *batch)
{
    CHECK_OK(comm->ops->start(comm->self, batch));
}

int is_done(const muon_comm *comm, muon_batch *batch)
{
    int done = -1;
    CHECK_OK(comm->ops->test(comm->self, batch, &done));
    CHECK(done == 0 || done == 1, "%d", done);
    return done;
}

void wait_for(const muon_comm *comm, muon_batch *batch)
{
    double begin = MPI_Wtime();
    while (!is_done(comm, batch)) {
        CHECK(MPI_Wtime() - begin < 600, "rank %d of %d waits for rank %d", comm->rank, comm->size,
              comm->ops->late(comm->self, batch));
        sched_yield(); /* there may be more ranks than cores */
    }
}

void close_batch(const muon_comm *comm, muon_batch *batch)
{
    comm->ops->close(comm->self, batch);
}

static unsigned char byte_at(uint64_t seed, int64_t i)
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1342543de82ef95u;
    return (unsigned char)((x ^ (x >> 29)) >> 24);
}

void fill_bytes(unsigned char *bytes, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        bytes[i] = byte_at(seed, i);
}

void check_bytes(const unsigned char *bytes, int64_t n, uint64_t seed, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        CHECK(bytes[i] == byte_at(seed, i), "%s: byte %lld of %lld is %d, want %d", what,
              (long long)i, (long long)n, bytes[i], byte_at(seed, i));
}

static uint64_t seed_of(int from, int to, int channel, size_t message, int round)
{
    return (((uint64_t)from * 64 + (uint64_t)to) * 8 + (uint64_t)channel) * 100000000 +
           (uint64_t)message * 1000 + (uint64_t)round;
}

typedef struct side {
    muon_message *messages; /* [(size - 1) * nmessages], peer after peer in turn */
    size_t n;
    unsigned char *memory;
    muon_batch *batch;
} side;

static side open_side(const muon_comm *comm, muon_direction direction, int channel,
                      const int64_t *sizes, size_t nsizes, size_t nmessages)
{
    side s = {0};
    int64_t bytes = 0, at = 0;
    s.messages = calloc((size_t)comm->size * nmessages, sizeof *s.messages);
    CHECK(s.messages, "out of memory");
    for (size_t i = 0; i < nmessages; i++)
        for (int peer = 0; peer < comm->size; peer++) {
            if (peer == comm->rank) continue;
            s.messages[s.n++] = (muon_message){.bytes = sizes[i % nsizes], .peer = peer};
            bytes += sizes[i % nsizes];
        }
    s.memory = calloc((size_t)bytes + 1, 1);
    CHECK(s.memory, "out of memory");
    for (size_t i = 0; i < s.n; i++) {
        s.messages[i].data = s.memory + at;
        at += s.messages[i].bytes;
    }
    s.batch = open_batch(comm, direction, channel, s.messages, s.n);
    return s;
}

static void close_side(const muon_comm *comm, side *s)
{
    close_batch(comm, s->batch);
    free(s->messages);
    free(s->memory);
}

void exchange(const muon_comm *comm, int channel, const int64_t *sizes, size_t nsizes,
              size_t nmessages, int rounds)
{
    CHECK(comm->size > 1, "nobody to talk to");
    size_t peers = (size_t)comm->size - 1;
    side out = open_side(comm, MUON_SEND, channel, sizes, nsizes, nmessages);
    side in = open_side(comm, MUON_RECEIVE, channel, sizes, nsizes, nmessages);
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < out.n; i++) {
            muon_message *m = &out.messages[i];
            fill_bytes(m->data, m->bytes, seed_of(comm->rank, m->peer, channel, i / peers, round));
            memset(in.messages[i].data, 0, (size_t)in.messages[i].bytes);
        }
        int64_t allocations = testlib_allocations();
        start(comm, in.batch);
        start(comm, out.batch);
        wait_for(comm, in.batch);
        wait_for(comm, out.batch);
        CHECK(testlib_allocations() == allocations, "%lld allocations in start and test",
              (long long)(testlib_allocations() - allocations));
        for (size_t i = 0; i < in.n; i++) {
            const muon_message *m = &in.messages[i];
            char what[100];
            snprintf(what, sizeof what, "round %d, message %zu from rank %d", round, i / peers,
                     m->peer);
            check_bytes(m->data, m->bytes, seed_of(m->peer, comm->rank, channel, i / peers, round),
                        what);
        }
    }
    close_side(comm, &out);
    close_side(comm, &in);
}
