/* Before MPI_Init, after MPI_Finalize, and with the wrong threads: refused with a message, or harmless;
 * never a crash. Each case needs a process of its own: its name is the argument. */
#include "mpi_test.h"

#include "tests/support/testlib.h"
#include "tests/world/fleet.h"

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

TEST(before_init)
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

TEST(after_finalize)
{
    muon_comm *comm = NULL;
    init(MPI_THREAD_FUNNELED);
    MPI_Finalize();
    CHECK_FAILS(muon_mpi_create(&comm, MPI_COMM_WORLD), MUON_E_COMM, "finalised already");
    CHECK(!comm, "written on failure");
}

/* A program that cleans up in the wrong order. */
TEST(destroy_after_finalize)
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
TEST(release_in_finalize)
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

TEST(thread_single)
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

TEST(another_thread)
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

static void make_fleet(fleet *f)
{
    fleet_fsdp(f, 2);
    fleet_add(f, MUONS, "dense", NULL, "0: fsdp", SHAPE(40, 30));
    fleet_add(f, ADAMWS, "bias", NULL, "0: fsdp", SHAPE(7));
}

/* While steps are in flight this thread uses MPI, too. */
TEST(background_multiple)
{
    enum { STEPS = 5 };
    int level = -1;
    fleet f;
    ship whole, s;
    muon_comm *comm = NULL;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    CHECK(level == MPI_THREAD_MULTIPLE, "this MPI has thread level %d only", level);
    make_fleet(&f);
    fleet_run_whole(&whole, &f, STEPS);
    f.config.background = 1;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    CHECK_OK(ship_create(&s, &f, comm));
    muon_result_init(&s.result, sizeof s.result);
    for (int step = 1; step <= STEPS; step++) {
        ship_fill_grads(&s, step);
        CHECK_OK(muon_step_start(s.opt, &s.args, &s.result));
        for (int all = 0; !all;) { /* until it is done on both */
            int done = muon_step_is_done(s.opt);
            MPI_Allreduce(&done, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        }
        CHECK_OK(muon_step_wait(s.opt));
    }
    const char *wrong = ship_compare(&s, &whole);
    CHECK(!wrong, "%s", wrong);
    ship_destroy(&s);
    ship_destroy(&whole);
    muon_mpi_destroy(comm);
    MPI_Finalize();
}

TEST(background_funneled)
{
    int level = -1;
    fleet f;
    ship s;
    muon_comm *comm = NULL;
    init(MPI_THREAD_FUNNELED);
    MPI_Query_thread(&level);
    make_fleet(&f);
    f.config.background = 1;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    muon_status status = ship_create(&s, &f, comm);
    if (level < MPI_THREAD_SERIALIZED)
        CHECK_FAILS(status, MUON_E_ARG, "initialise it with MPI_THREAD_SERIALIZED");
    else
        CHECK_OK(status);
    ship_destroy(&s);
    muon_mpi_destroy(comm);
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    for (const testlib_test *t = testlib_first(); t; t = t->next)
        if (argc == 2 && strcmp(argv[1], t->name) == 0) {
            t->run();
            printf("%s: ok\n", t->name);
            return 0;
        }
    fprintf(stderr, "test_mpi_life: which case?\n");
    return 2;
}
