/* One message of more bytes than an int can count. */
#include "mpi_test.h"

#include "tests/support/testlib.h"

#include <stdio.h>
#include <stdlib.h>

static const int64_t big = 2200000123; /* > 2^31, and not a multiple of anything */

/* A few bytes of every page say where they belong, and so do all around 2^30, 2^31 and the end: to
 * look at each of them would take longer than to send them. */
static int64_t next_mark(int64_t at)
{
    int64_t near = 1000;
    for (int64_t place = (int64_t)1 << 30; place <= (int64_t)1 << 31; place += (int64_t)1 << 30)
        if (at >= place - near && at < place + near) return at + 1;
    return at >= big - near ? at + 1 : at + 701;
}

static unsigned char mark(int64_t at)
{
    return (unsigned char)(1 + at % 251);
}

/* Bytes of memory that can be had without swapping, as Linux estimates it; 0 if it does not say. */
static int64_t available_memory(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[200];
    long long kilobytes = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lld kB", &kilobytes) == 1) break;
    if (file) fclose(file);
    return kilobytes * 1024;
}

TEST(a_message_beyond_2_31_bytes_arrives)
{
    muon_comm *comm = NULL;
    /* Both ranks have it, and MPI may need room of its own; all ranks must decide alike. */
    int enough = available_memory() > 3 * big, all = 0;
    unsigned char *memory = enough && world_rank < 2 ? calloc((size_t)big, 1) : NULL;
    if (world_rank < 2 && !memory) enough = 0;
    MPI_Allreduce(&enough, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!all) {
        free(memory);
        skip_mpi_test("skipped: less than 6.6 GB of free memory");
        return;
    }
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    if (memory) {
        muon_direction direction = comm->rank == 0 ? MUON_SEND : MUON_RECEIVE;
        for (int64_t i = 0; comm->rank == 0 && i < big; i = next_mark(i))
            memory[i] = mark(i);
        muon_batch *batch =
            open_batch(comm, direction, 0, &(muon_message){memory, big, 1 - comm->rank}, 1);
        start(comm, batch);
        wait_for(comm, batch);
        close_batch(comm, batch);
        for (int64_t i = 0; comm->rank == 1 && i < big; i = next_mark(i))
            CHECK(memory[i] == mark(i), "byte %lld is %d, want %d", (long long)i, memory[i],
                  mark(i));
    }
    free(memory);
    muon_mpi_destroy(comm);
}

int main(int argc, char **argv)
{
    return run_mpi_tests(&argc, &argv);
}
