/* Many ranks by MPI. MPI's own errors end the program, which is all that a tool could do. */
#include "cli/core/launch.h"

#ifdef MUON_HAVE_MPI

#include "muon/muon_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MPI counts with int. */
static const size_t most_bytes = (size_t)1 << 30;

static void sum(int64_t *values, int count)
{
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static void max(int64_t *values, int count)
{
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
}

static void send(const void *data, size_t bytes, int rank)
{
    const char *from = data;
    while (bytes > 0) {
        size_t part = bytes < most_bytes ? bytes : most_bytes;
        MPI_Send(from, (int)part, MPI_BYTE, rank, 0, MPI_COMM_WORLD);
        from += part;
        bytes -= part;
    }
}

static void receive(void *data, size_t bytes, int rank)
{
    char *to = data;
    while (bytes > 0) {
        size_t part = bytes < most_bytes ? bytes : most_bytes;
        MPI_Recv(to, (int)part, MPI_BYTE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        to += part;
        bytes -= part;
    }
}

static void end_all(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static launch_link world; /* of this process */

/* What was printed goes out first: once a rank has left with an exit code other than 0, the launcher
 * may kill the others before they reach their own exit. (An error of stdout is seen in main.) */
static void end(void)
{
    fflush(stdout);
    muon_mpi_destroy(world.comm);
    MPI_Finalize();
}

int launch_mpi_join(const launch_link **out)
{
    int threads = MPI_THREAD_SINGLE;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &threads);
    world = (launch_link){
        .sum = sum, .max = max, .send = send, .receive = receive, .abort = end_all, .end = end};
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    int code = CLI_DONE;
    if (threads < MPI_THREAD_FUNNELED)
        code = cli_fail("this MPI does not allow threads (MPI_THREAD_FUNNELED)");
    else if (muon_mpi_create(&world.comm, MPI_COMM_WORLD) != MUON_OK)
        code = cli_fail_library();
    if (code != CLI_DONE) end_all(code);
    *out = &world;
    return code;
}

#endif
