/* Batches over MPI: what arrives, in which order, what a test says meanwhile, and what happens to
 * those that never end. Built a second time with a library that cuts messages at 1,000 bytes. */
#include "mpi_test.h"

#include "tests/support/testlib.h"

#include <string.h>

static muon_comm *comm_of_all(void)
{
    muon_comm *comm = NULL;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    return comm;
}

TEST(a_comm_knows_ranks_and_machine)
{
    muon_comm *comm = comm_of_all();
    CHECK(comm->rank == world_rank && comm->size == world_size, "rank %d of %d", comm->rank,
          comm->size);
    CHECK(comm->sharing >= 1 && comm->sharing <= world_size, "%d of %d ranks share processors",
          comm->sharing, world_size);
    CHECK(comm->struct_size == sizeof *comm && comm->ops->struct_size == sizeof *comm->ops,
          "sizes %zu and %zu", comm->struct_size, comm->ops->struct_size);
    CHECK(strcmp(comm->ops->name, "mpi") == 0, "name %s", comm->ops->name);
    muon_mpi_destroy(comm);
}

TEST(messages_of_every_size_arrive_in_order)
{
    /* Around the cut of the second build, around what transports treat as small, and far above. */
    static const int64_t sizes[] = {1,    7,    999,   1000,  1001,  2000,  3005,
                                    4096, 8191, 65536, 65537, 70001, 300000};
    muon_comm *comm = comm_of_all();
    for (int channel = 0; channel < MUON_CHANNELS; channel++)
        exchange(comm, channel, sizes, COUNT(sizes), 2 * COUNT(sizes) + 1, 2);
    muon_mpi_destroy(comm);
}

TEST(many_small_messages_arrive)
{
    static const int64_t sizes[] = {8, 4, 60};
    muon_comm *comm = comm_of_all();
    exchange(comm, 0, sizes, COUNT(sizes), 1500, 4);
    muon_mpi_destroy(comm);
}

/* Rank 0 and the last one only, from here on; others take part in creation alone. */
static int other(const muon_comm *comm)
{
    return comm->rank == 0 ? comm->size - 1 : comm->rank == comm->size - 1 ? 0 : -1;
}

TEST(channels_do_not_mix)
{
    muon_comm *comm = comm_of_all();
    int peer = other(comm);
    if (peer >= 0) {
        int out[MUON_CHANNELS], in[MUON_CHANNELS];
        muon_batch *sends[MUON_CHANNELS], *receives[MUON_CHANNELS];
        for (int k = 0; k < MUON_CHANNELS; k++) {
            out[k] = 100 * (comm->rank + 1) + k;
            in[k] = 0;
            sends[k] =
                open_batch(comm, MUON_SEND, k, &(muon_message){&out[k], sizeof out[k], peer}, 1);
            receives[k] =
                open_batch(comm, MUON_RECEIVE, k, &(muon_message){&in[k], sizeof in[k], peer}, 1);
        }
        /* Sent in one order, expected in the other. */
        for (int k = 0; k < MUON_CHANNELS; k++) {
            start(comm, receives[k]);
            start(comm, sends[MUON_CHANNELS - 1 - k]);
        }
        for (int k = 0; k < MUON_CHANNELS; k++) {
            wait_for(comm, sends[k]);
            wait_for(comm, receives[k]);
            CHECK(in[k] == 100 * (peer + 1) + k, "channel %d got %d", k, in[k]);
            close_batch(comm, sends[k]);
            close_batch(comm, receives[k]);
        }
    }
    muon_mpi_destroy(comm);
}

TEST(batches_of_one_channel_meet_in_the_order_they_start)
{
    enum { N = 5 };
    muon_comm *comm = comm_of_all();
    int peer = other(comm);
    if (peer >= 0) {
        int out[N], in[N] = {0};
        muon_batch *sends[N], *receives[N];
        for (int k = 0; k < N; k++) {
            out[k] = 10 * comm->rank + k;
            sends[k] =
                open_batch(comm, MUON_SEND, 1, &(muon_message){&out[k], sizeof out[k], peer}, 1);
            /* Opened backwards: only the order of start counts. */
            receives[N - 1 - k] = open_batch(
                comm, MUON_RECEIVE, 1, &(muon_message){&in[N - 1 - k], sizeof in[0], peer}, 1);
        }
        for (int k = 0; k < N; k++) {
            start(comm, sends[k]);
            start(comm, receives[k]);
        }
        for (int k = 0; k < N; k++) {
            wait_for(comm, sends[k]);
            wait_for(comm, receives[k]);
            CHECK(in[k] == 10 * peer + k, "batch %d got %d", k, in[k]);
            close_batch(comm, sends[k]);
            close_batch(comm, receives[k]);
        }
    }
    muon_mpi_destroy(comm);
}

TEST(nothing_to_do_is_done)
{
    muon_comm *comm = comm_of_all();
    muon_batch *empty = open_batch(comm, MUON_SEND, 0, NULL, 0);
    CHECK(is_done(comm, empty), "before it starts");
    start(comm, empty);
    CHECK(is_done(comm, empty), "an empty batch");
    CHECK(comm->ops->late(comm->self, empty) == -1, "late %d", comm->ops->late(comm->self, empty));
    close_batch(comm, empty);

    char byte = 0;
    int peer = (comm->rank + 1) % comm->size;
    muon_batch *idle = open_batch(comm, MUON_RECEIVE, 0, &(muon_message){&byte, 1, peer}, 1);
    CHECK(is_done(comm, idle), "a batch that was not started");
    CHECK(comm->ops->late(comm->self, idle) == -1, "late %d", comm->ops->late(comm->self, idle));
    close_batch(comm, idle);
    muon_mpi_destroy(comm);
}

TEST(a_test_returns_and_says_who_is_late)
{
    muon_comm *comm = comm_of_all();
    int last = comm->size - 1, rounds = 3;
    if (comm->rank == 0) {
        int values[2] = {0};
        muon_message messages[2] = {{&values[0], sizeof values[0], last},
                                    {&values[1], sizeof values[1], last}};
        muon_batch *batch = open_batch(comm, MUON_RECEIVE, 2, messages, 2);
        for (int round = 0; round < rounds; round++) {
            start(comm, batch);
            for (int i = 0; i < 1000; i++)
                CHECK(!is_done(comm, batch), "nothing was sent");
            CHECK(comm->ops->late(comm->self, batch) == last, "late %d",
                  comm->ops->late(comm->self, batch));
            MPI_Barrier(MPI_COMM_WORLD);
            wait_for(comm, batch);
            CHECK(values[0] == 7 && values[1] == 8, "got %d and %d", values[0], values[1]);
            CHECK(comm->ops->late(comm->self, batch) == -1, "late %d",
                  comm->ops->late(comm->self, batch));
        }
        close_batch(comm, batch);
    } else {
        int values[2] = {7, 8};
        muon_message messages[2] = {{&values[0], sizeof values[0], 0},
                                    {&values[1], sizeof values[1], 0}};
        muon_batch *batch = NULL;
        if (comm->rank == last) batch = open_batch(comm, MUON_SEND, 2, messages, 2);
        for (int round = 0; round < rounds; round++) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (batch) start(comm, batch);
            if (batch) wait_for(comm, batch);
        }
        if (batch) close_batch(comm, batch);
    }
    muon_mpi_destroy(comm);
}

TEST(a_message_of_the_wrong_size_is_an_error)
{
    static const struct {
        int64_t sent, expected;
        const char *text;
    } cases[] = {
        {5, 8, "rank 0: 5 bytes came from rank "},
        {8, 5, "rank 0: message of 5 bytes from rank "},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_comm *comm = comm_of_all();
        char bytes[8] = {0};
        int peer = other(comm);
        if (comm->rank == 0) {
            muon_batch *batch = open_batch(comm, MUON_RECEIVE, 0,
                                           &(muon_message){bytes, cases[i].expected, peer}, 1);
            start(comm, batch);
            muon_status status = MUON_OK;
            int done = 0;
            while (status == MUON_OK && !done)
                status = comm->ops->test(comm->self, batch, &done);
            CHECK_FAILS(status, MUON_E_COMM, cases[i].text);
            CHECK(!strchr(muon_last_error(), '\n'), "several lines: %s", muon_last_error());
            close_batch(comm, batch);
        } else if (peer == 0) {
            muon_batch *batch =
                open_batch(comm, MUON_SEND, 0, &(muon_message){bytes, cases[i].sent, peer}, 1);
            start(comm, batch);
            wait_for(comm, batch);
            close_batch(comm, batch);
        }
        muon_mpi_destroy(comm);
    }
}

/* Small and large (which MPI holds back until the receiver is there), and many. */
TEST(active_batches_can_be_closed)
{
    enum { N = 12, LARGE = 200000 };
    static const int64_t sizes[] = {16, LARGE};
    /* MPI may read a send's memory for as long as it is under way: here it always exists. */
    static unsigned char memory[2][LARGE];
    for (size_t k = 0; k < COUNT(sizes); k++) {
        muon_comm *comm = comm_of_all();
        muon_message out[N], in[N];
        for (int i = 0; i < N; i++) {
            int peer = (comm->rank + 1 + i % (comm->size - 1)) % comm->size;
            out[i] = (muon_message){memory[0], sizes[k], peer};
            in[i] = (muon_message){memory[1], sizes[k], peer};
        }
        muon_batch *sends = open_batch(comm, MUON_SEND, 0, out, N);
        muon_batch *receives = open_batch(comm, MUON_RECEIVE, 3, in, N);
        start(comm, receives);
        start(comm, sends);
        is_done(comm, sends);
        CHECK(!is_done(comm, receives), "nothing was sent on channel 3");
        close_batch(comm, receives);
        close_batch(comm, sends);
        MPI_Barrier(MPI_COMM_WORLD);
        muon_mpi_destroy(comm);

        comm = comm_of_all();
        exchange(comm, 3, sizes, COUNT(sizes), 2, 1);
        muon_mpi_destroy(comm);
    }
}

TEST(opening_without_memory_fails_and_leaves_nothing)
{
    muon_comm *comm = comm_of_all();
    char bytes[4000];
    muon_message messages[2] = {{bytes, sizeof bytes, (comm->rank + 1) % comm->size},
                                {bytes, 1, (comm->rank + 1) % comm->size}};
    int64_t failures = 0;
    for (;;) {
        muon_batch *batch = NULL;
        testlib_allow_allocations(failures);
        muon_status status =
            comm->ops->open(comm->self, &batch, MUON_RECEIVE, 0, messages, COUNT(messages));
        testlib_allow_allocations(-1);
        if (status == MUON_OK) {
            close_batch(comm, batch);
            break;
        }
        CHECK_FAILS(status, MUON_E_NOMEM, "out of memory for ");
        CHECK(!batch, "a batch was written with allocation %lld failing", (long long)failures);
        failures++;
    }
    CHECK(failures >= 1, "%lld allocations", (long long)failures);
    muon_mpi_destroy(comm);
}

int main(int argc, char **argv)
{
    return run_mpi_tests(&argc, &argv);
}
