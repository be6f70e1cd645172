/* Communicators: the caller's own messages never meet ours, subsets and several at once work, and a
 * rank that fails to create one fails all. */
#include "mpi_test.h"

#include "tests/support/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
}

static const int64_t mixed_sizes[] = {1, 12, 4096, 200000};

TEST(a_wildcard_receive_of_the_caller_meets_only_the_callers_message)
{
    muon_comm *comm = NULL;
    int got = 0, sent = 1000 + world_rank;
    int next = (world_rank + 1) % world_size, before = (world_rank + world_size - 1) % world_size;
    MPI_Request wildcard = MPI_REQUEST_NULL;
    /* Posted before anything of ours exists, and there all the time. */
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &wildcard);
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    for (int channel = 0; channel < MUON_CHANNELS; channel++)
        exchange(comm, channel, mixed_sizes, COUNT(mixed_sizes), 10, 3);
    int done = 1;
    MPI_Test(&wildcard, &done, MPI_STATUS_IGNORE);
    CHECK(!done, "the caller's receive got %d from us", got);
    MPI_Barrier(MPI_COMM_WORLD); /* nobody has sent yet */

    MPI_Status status;
    MPI_Send(&sent, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
    exchange(comm, 0, mixed_sizes, COUNT(mixed_sizes), 10, 3);
    MPI_Wait(&wildcard, &status);
    CHECK(got == 1000 + status.MPI_SOURCE && status.MPI_SOURCE == before, "got %d from rank %d",
          got, status.MPI_SOURCE);
    muon_mpi_destroy(comm);
}

TEST(a_probe_of_the_caller_does_not_see_our_messages)
{
    muon_comm *comm = NULL;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    int value = 5, peer = world_rank ^ 1;
    if (peer < world_size) {
        int in = 0, seen = 1;
        muon_batch *send =
            open_batch(comm, MUON_SEND, 0, &(muon_message){&value, sizeof value, peer}, 1);
        muon_batch *receive =
            open_batch(comm, MUON_RECEIVE, 0, &(muon_message){&in, sizeof in, peer}, 1);
        start(comm, send);
        for (int i = 0; i < 1000; i++) {
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &seen, MPI_STATUS_IGNORE);
            CHECK(!seen, "probe %d sees a message", i);
        }
        start(comm, receive);
        wait_for(comm, receive);
        wait_for(comm, send);
        CHECK(in == 5, "got %d", in);
        close_batch(comm, send);
        close_batch(comm, receive);
    }
    muon_mpi_destroy(comm);
}

TEST(ranks_are_those_of_the_communicator_given)
{
    /* Two halves at once, each with its ranks in reverse. */
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &half);
    int rank = -1, size = 0;
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    muon_comm *comm = NULL;
    CHECK_OK(muon_mpi_create(&comm, half));
    MPI_Comm_free(&half); /* ours is a duplicate */
    CHECK(comm->rank == rank && comm->size == size, "rank %d of %d, want %d of %d", comm->rank,
          comm->size, rank, size);
    if (size > 1) exchange(comm, 1, mixed_sizes, COUNT(mixed_sizes), 9, 2);
    muon_mpi_destroy(comm);
}

TEST(ranks_outside_of_a_subset_are_not_needed)
{
    MPI_Comm some = MPI_COMM_NULL;
    int last = world_size - 1;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == last ? MPI_UNDEFINED : 0, 0, &some);
    muon_comm *comm = NULL;
    if (world_rank == last) {
        CHECK_FAILS(muon_mpi_create(&comm, some), MUON_E_ARG, "MPI_COMM_NULL");
        CHECK(!comm, "written on failure");
        return;
    }
    CHECK_OK(muon_mpi_create(&comm, some));
    CHECK(comm->size == last, "size %d", comm->size);
    if (comm->size > 1) exchange(comm, 0, mixed_sizes, COUNT(mixed_sizes), 5, 2);
    muon_mpi_destroy(comm);
    MPI_Comm_free(&some);
}

TEST(two_of_the_same_communicator_do_not_mix)
{
    enum { N = 2 };
    muon_comm *comm[N] = {NULL, NULL};
    muon_batch *sends[N], *receives[N];
    int out[N], in[N] = {0};
    int next = (world_rank + 1) % world_size, before = (world_rank + world_size - 1) % world_size;
    for (int k = 0; k < N; k++) {
        CHECK_OK(muon_mpi_create(&comm[k], MPI_COMM_WORLD));
        out[k] = 100 * k + world_rank;
        sends[k] =
            open_batch(comm[k], MUON_SEND, 0, &(muon_message){&out[k], sizeof out[k], next}, 1);
        receives[k] =
            open_batch(comm[k], MUON_RECEIVE, 0, &(muon_message){&in[k], sizeof in[k], before}, 1);
    }
    start(comm[0], sends[0]);
    start(comm[1], receives[1]); /* the same channel and peer: only the communicator differs */
    start(comm[1], sends[1]);
    start(comm[0], receives[0]);
    for (int k = N - 1; k >= 0; k--) {
        wait_for(comm[k], receives[k]);
        wait_for(comm[k], sends[k]);
        CHECK(in[k] == 100 * k + before, "communicator %d got %d", k, in[k]);
        close_batch(comm[k], sends[k]);
        close_batch(comm[k], receives[k]);
    }
    muon_mpi_destroy(comm[0]);
    exchange(comm[1], 0, mixed_sizes, COUNT(mixed_sizes), 3, 1); /* the other one lives on */
    muon_mpi_destroy(comm[1]);
}

/* Rank 0 gives up while its message to rank 1, which has no communicator any more, is on its way. */
TEST(what_nobody_received_does_not_reach_the_next_communicator)
{
    for (int round = 0; round < 3; round++) {
        muon_comm *first = NULL, *second = NULL;
        int stale = 666, good = 7, got = 0;
        CHECK_OK(muon_mpi_create(&first, MPI_COMM_WORLD));
        if (world_rank == 0) {
            muon_batch *send =
                open_batch(first, MUON_SEND, 0, &(muon_message){&stale, sizeof stale, 1}, 1);
            muon_batch *receive =
                open_batch(first, MUON_RECEIVE, 0, &(muon_message){&got, sizeof got, 1}, 1);
            nap(); /* rank 1 is napping too, and does not look at what comes */
            start(first, receive);
            start(first, send);
            close_batch(first, receive);
            close_batch(first, send);
        }
        muon_mpi_destroy(first);
        if (world_rank == 1) {
            nap();
            nap();
            nap();
        }
        CHECK_OK(muon_mpi_create(&second, MPI_COMM_WORLD));
        if (world_rank < 2) {
            muon_message message = {world_rank == 0 ? &good : &got, sizeof got, 1 - world_rank};
            muon_batch *batch =
                open_batch(second, world_rank == 0 ? MUON_SEND : MUON_RECEIVE, 0, &message, 1);
            start(second, batch);
            wait_for(second, batch);
            CHECK(world_rank == 0 || got == good, "got %d, want %d", got, good);
            close_batch(second, batch);
        }
        muon_mpi_destroy(second);
    }
}

TEST(creation_that_fails_on_one_rank_fails_on_all)
{
    for (int culprit = 0; culprit < world_size; culprit++) {
        muon_comm *comm = NULL;
        char text[100];
        if (world_rank == culprit) testlib_allow_allocations(0);
        muon_status status = muon_mpi_create(&comm, MPI_COMM_WORLD);
        testlib_allow_allocations(-1);
        snprintf(text, sizeof text, "muon_mpi_create on rank %d: out of memory", culprit);
        CHECK_FAILS(status, MUON_E_NOMEM, text);
        CHECK(!comm, "written on failure");

        snprintf(text, sizeof text, "muon_mpi_create on rank %d: out is NULL", culprit);
        CHECK_FAILS(muon_mpi_create(world_rank == culprit ? NULL : &comm, MPI_COMM_WORLD),
                    MUON_E_ARG, text);
        CHECK(!comm, "written on failure");
    }
    muon_comm *comm = NULL;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    muon_mpi_destroy(comm);
}

TEST(an_intercommunicator_is_refused)
{
    MPI_Comm half = MPI_COMM_NULL, both = MPI_COMM_NULL;
    int odd = world_rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, odd, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - odd, 9, &both);
    muon_comm *comm = NULL;
    CHECK_FAILS(muon_mpi_create(&comm, both), MUON_E_ARG, "inter-communicator");
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

TEST(a_fortran_handle_works_as_well)
{
    muon_comm *comm = NULL;
    CHECK_OK(muon_mpi_create_f(&comm, MPI_Comm_c2f(MPI_COMM_WORLD)));
    CHECK(comm->rank == world_rank && comm->size == world_size, "rank %d of %d", comm->rank,
          comm->size);
    exchange(comm, 0, mixed_sizes, COUNT(mixed_sizes), 2, 1);
    muon_mpi_destroy(comm);
}

/* The caller's communicator keeps its error handler and its name. */
TEST(the_callers_communicator_stays_as_it_is)
{
    MPI_Comm theirs = MPI_COMM_NULL;
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    muon_comm *comm = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &theirs);
    MPI_Comm_set_name(theirs, "theirs");
    CHECK_OK(muon_mpi_create(&comm, theirs));
    MPI_Comm_get_errhandler(theirs, &handler);
    MPI_Comm_get_name(theirs, name, &length);
    CHECK(handler == MPI_ERRORS_ARE_FATAL, "another error handler");
    CHECK(strcmp(name, "theirs") == 0, "name '%s'", name);
    MPI_Errhandler_free(&handler);
    muon_mpi_destroy(comm);
    MPI_Comm_free(&theirs);
}

int main(int argc, char **argv)
{
    return run_mpi_tests(&argc, &argv);
}
