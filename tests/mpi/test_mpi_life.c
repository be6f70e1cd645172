/* Before MPI_Init, after MPI_Finalize, and with the wrong threads: refused with a message, or harmless;
 * never a crash. Each case needs a process of its own: its name is the argument. */
#include "mpi_test.h"

#include "tests/support/testlib.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void init(int level)
{
    int got = 0;
    MPI_Init_thread(NULL, NULL, level, &got);
    CHECK(got >= level, "thread level %d, want %d", got, level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
}

static void before_init(void)
{
    muon_comm *comm = NULL;
    CHECK_FAILS(muon_mpi_create(&comm, MPI_COMM_WORLD), MUON_E_COMM,
                "MPI has not been initialised");
    CHECK_FAILS(muon_mpi_create_f(&comm, 0), MUON_E_COMM, "MPI has not been initialised");
    CHECK(!comm, "written on failure");
    muon_mpi_destroy(NULL);
    init(MPI_THREAD_FUNNELED);
    MPI_Finalize();
}

static void after_finalize(void)
{
    muon_comm *comm = NULL;
    init(MPI_THREAD_FUNNELED);
    MPI_Finalize();
    CHECK_FAILS(muon_mpi_create(&comm, MPI_COMM_WORLD), MUON_E_COMM, "finalised already");
    CHECK(!comm, "written on failure");
}

/* A program that cleans up in the wrong order. */
static void destroy_after_finalize(void)
{
    muon_comm *comm = NULL;
    int value = 1;
    init(MPI_THREAD_FUNNELED);
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    muon_batch *idle =
        open_batch(comm, MUON_SEND, 0, &(muon_message){&value, sizeof value, 1 - comm->rank}, 1);
    MPI_Finalize();
    close_batch(comm, idle);
    muon_mpi_destroy(comm);
}

static int released;

static void count_release(void *memory)
{
    released++;
    free(memory);
}

/* What was still under way when its communicator was destroyed, and is done when MPI ends. */
static void release_in_finalize(void)
{
    enum { BYTES = 4 << 20 };
    muon_comm *comm = NULL;
    init(MPI_THREAD_FUNNELED);
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    muon_message message = {calloc(1, BYTES), BYTES, 1 - comm->rank};
    muon_batch *batch =
        open_batch(comm, world_rank == 0 ? MUON_SEND : MUON_RECEIVE, 0, &message, 1);
    if (world_rank == 0) {
        start(comm, batch);
        close_batch(comm, batch);
        int kept = comm->ops->keep(comm->self, message.data, BYTES, count_release);
        CHECK(kept == 1, "nobody has received it, and its memory is free");
        muon_mpi_destroy(comm);
        CHECK(!released, "it was released");
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        start(comm, batch);
        wait_for(comm, batch);
        close_batch(comm, batch);
        free(message.data);
        muon_mpi_destroy(comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    CHECK(released == (world_rank == 0), "released %d times", released);
}

static void thread_single(void)
{
    muon_comm *comm = NULL;
    int level = -1;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Query_thread(&level);
    muon_status status = muon_mpi_create(&comm, MPI_COMM_WORLD);
    if (level == MPI_THREAD_SINGLE)
        CHECK_FAILS(status, MUON_E_COMM, "MPI_THREAD_FUNNELED");
    else
        CHECK_OK(status); /* an MPI may give more than was asked for */
    muon_mpi_destroy(comm);
    MPI_Finalize();
}

static void *create_here(void *comm)
{
    static muon_status status;
    static char message[200];
    status = muon_mpi_create(comm, MPI_COMM_WORLD);
    snprintf(message, sizeof message, "%s", muon_last_error());
    return status == MUON_E_COMM ? message : NULL;
}

static void another_thread(void)
{
    muon_comm *comm = NULL;
    pthread_t thread;
    void *message = NULL;
    int level = -1;
    init(MPI_THREAD_FUNNELED);
    MPI_Query_thread(&level);
    CHECK(pthread_create(&thread, NULL, create_here, &comm) == 0, "pthread_create");
    pthread_join(thread, &message);
    if (level == MPI_THREAD_FUNNELED)
        CHECK(message && strstr(message, "another thread"), "got '%s'",
              message ? (char *)message : "success");
    muon_mpi_destroy(comm);
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    static const mpi_test cases[] = {
        MPI_TEST(before_init),         MPI_TEST(after_finalize), MPI_TEST(destroy_after_finalize),
        MPI_TEST(release_in_finalize), MPI_TEST(thread_single),  MPI_TEST(another_thread),
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        if (argc == 2 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            printf("%s: ok\n", cases[i].name);
            return 0;
        }
    fprintf(stderr, "test_mpi_life: which case?\n");
    return 2;
}
