/* A rank dies in the middle of a step. The others cannot go on, and must not hang: the launcher ends
 * the job with an exit code that is not 0 (expect_death.sh looks at it). */
#include "mpi_test.h"

#include "tests/world/fleet.h"

#include <signal.h>

static const char *how = "";
static int steps_done;

/* Called when a gradient has been read: momentum has changed, and others wait for what we have. */
static void die(void *user, size_t index)
{
    (void)user, (void)index;
    if (world_rank != world_size - 1 || steps_done < 2) return;
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "exit") == 0) _Exit(3);
}

int main(int argc, char **argv)
{
    if (argc == 2) how = argv[1];
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    fleet f;
    ship s;
    muon_comm *comm = NULL;
    fleet_init(&f);
    f.config.grad_consumed = die;
    f.config.timeout = 600; /* not what ends the wait */
    fleet_mesh(&f, "mesh", "fsdp", world_size, NULL);
    fleet_add(&f, MUONS, "first", NULL, "0: fsdp", SHAPE(60, 20));
    fleet_add(&f, MUONS, "second", NULL, "0: fsdp", SHAPE(30, 40));
    fleet_add(&f, MUONS, "third", NULL, "0: fsdp", SHAPE(30, 40));
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    CHECK_OK(ship_create(&s, &f, comm));
    for (; steps_done < 5; steps_done++)
        CHECK_OK(ship_run(&s, steps_done + 1, steps_done + 1));
    ship_destroy(&s);
    muon_mpi_destroy(comm);
    MPI_Finalize();
    return 0;
}
