/* Messages that are given up while they are under way: their memory stays as long as MPI may touch it,
 * and no longer; the communicator they were on is not used again. */
#include "mpi_test.h"

#include "tests/world/fleet.h"

enum { LARGE = 4 << 20 }; /* bytes that no MPI sends before the receiver is there */

static int released;

static void count_release(void *memory)
{
    released++;
    free(memory);
}

static int keep(const muon_comm *comm, void *memory)
{
    return comm->ops->keep(comm->self, memory, LARGE, count_release);
}

static muon_comm *comm_of_all(void)
{
    muon_comm *comm = NULL;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    return comm;
}

static unsigned char *make_memory(uint64_t seed)
{
    unsigned char *memory = malloc(LARGE);
    CHECK(memory, "out of memory");
    fill_bytes(memory, LARGE, seed);
    return memory;
}

/* Rank 0 gives up a message to rank 1, or one from it; then nothing but `muon_mpi_create` and
 * `muon_mpi_destroy` looks after it until rank 1 comes. */
TEST(memory_stays_until_a_late_rank_has_met_its_message)
{
    enum { SEED = 5 };
    muon_comm *comm = comm_of_all();
    released = 0;
    if (comm->rank == 0) {
        muon_message message = {make_memory(SEED), LARGE, 1};
        muon_batch *batch = open_batch(comm, MUON_SEND, 0, &message, 1);
        start(comm, batch);
        CHECK(!is_done(comm, batch), "nobody receives it");
        close_batch(comm, batch);
        CHECK(keep(comm, message.data) == 1, "its memory is free");
        muon_mpi_destroy(comm);
        comm = NULL;
        CHECK(!released, "it was released");
    }
    muon_comm *next = comm_of_all();
    CHECK(!released, "it was released");
    if (comm && comm->rank == 1) {
        muon_message message = {make_memory(SEED + 1), LARGE, 0};
        muon_batch *batch = open_batch(comm, MUON_RECEIVE, 0, &message, 1);
        start(comm, batch);
        /* Rank 0 is in a call of MPI, and may come out of it before all has arrived. */
        wait_for(comm, batch);
        check_bytes(message.data, LARGE, SEED, "what rank 0 has given up");
        close_batch(comm, batch);
        CHECK(keep(comm, message.data) == 0, "it is done");
        free(message.data);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    muon_mpi_destroy(next);
    muon_mpi_destroy(comm);
    CHECK(released == (world_rank == 0), "released %d times", released);
}

TEST(a_receive_that_meets_nothing_keeps_nothing)
{
    muon_comm *comm = comm_of_all();
    unsigned char *memory = make_memory(1);
    muon_message message = {memory, LARGE, (comm->rank + 1) % comm->size};
    muon_batch *batch = open_batch(comm, MUON_RECEIVE, 0, &message, 1);
    CHECK(keep(comm, memory) == 0, "nothing is under way");
    start(comm, batch);
    CHECK(!is_done(comm, batch), "nobody sends it");
    close_batch(comm, batch);
    CHECK(keep(comm, memory) == 0, "it was cancelled");
    free(memory);
    muon_mpi_destroy(comm);
}

TEST(a_communicator_that_has_lost_messages_is_refused)
{
    muon_comm *comm = comm_of_all();
    static char bytes[8];
    muon_message message = {bytes, sizeof bytes, (comm->rank + 1) % comm->size};
    muon_batch *idle = open_batch(comm, MUON_SEND, 1, &message, 1);
    muon_batch *batch = open_batch(comm, MUON_RECEIVE, 0, &message, 1);
    start(comm, batch);
    close_batch(comm, batch);
    const char *text = "make a new one (muon_mpi_create)";
    CHECK_FAILS(comm->ops->open(comm->self, &batch, MUON_SEND, 0, &message, 1), MUON_E_COMM, text);
    CHECK_FAILS(comm->ops->start(comm->self, idle), MUON_E_COMM, text);
    fleet f;
    ship s;
    fleet_init(&f);
    fleet_add(&f, MUONS, "w", NULL, NULL, SHAPE(8, 8));
    CHECK_FAILS(ship_create(&s, &f, comm), MUON_E_COMM, text);
    close_batch(comm, idle);
    muon_mpi_destroy(comm);
}

/* The last test of this program: nobody ever receives what rank 0 sends, and MPI_Finalize comes. */
TEST(mpi_can_be_finalized_with_messages_under_way)
{
    muon_comm *comm = comm_of_all();
    if (comm->rank == 0) {
        muon_message message = {make_memory(3), LARGE, 1};
        muon_batch *batch = open_batch(comm, MUON_SEND, 0, &message, 1);
        start(comm, batch);
        close_batch(comm, batch);
        CHECK(keep(comm, message.data) == 1, "its memory is free");
    }
    muon_mpi_destroy(comm);
}

int main(int argc, char **argv)
{
    return run_mpi_tests(&argc, &argv);
}
