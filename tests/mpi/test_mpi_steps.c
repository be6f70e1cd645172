/* Whole optimizers over MPI: after five steps every rank has the bits that one process has, whatever
 * the mesh; messages and bytes are those of the plan; and a step allocates nothing. */
#include "mpi_test.h"

#include "tests/world/fleet.h"
#include "tests/world/zoo.h"

static void compare(zoo *z, const zoo_run *whole, const muon_comm *comm, zoo_axes axes)
{
    zoo_lay_out(z, axes);
    const char *wrong = zoo_compare(z, comm, whole);
    CHECK(!wrong, "replicate %d, fsdp %d, ep %d, tp %d: %s", axes.replicate, axes.fsdp, axes.ep,
          axes.tp, wrong);
}

/* Every `stride`-th way to write the number of ranks as replicate x fsdp x ep x tp. */
static void compare_layouts(zoo *z, int stride)
{
    muon_comm *comm = NULL;
    zoo_run *whole = NULL;
    const char *wrong = zoo_run_whole(&whole, z);
    CHECK(!wrong, "one process: %s", wrong);
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    int n = world_size, count = 0;
    for (int r = 1; r <= n; r++)
        for (int f = 1; f <= n; f++)
            for (int e = 1; e <= n; e++)
                if (n % (r * f * e) == 0 && count++ % stride == 0)
                    compare(z, whole, comm, (zoo_axes){r, f, e, n / (r * f * e)});
    muon_mpi_destroy(comm);
    zoo_run_free(whole);
}

TEST(every_mesh_gives_the_bits_of_one_process)
{
    zoo z;
    zoo_init(&z);
    compare_layouts(&z, world_size <= 4 ? 1 : 4);
}

TEST(a_narrow_wire_and_skipped_parts_do_too)
{
    zoo z;
    zoo_init(&z);
    z.f.config.wire = MUON_BF16;
    z.f.config.missing_grad = MUON_MISSING_GRAD_SKIP;
    z.skip_grads = 1;
    z.nan_step = 4;
    compare_layouts(&z, world_size <= 4 ? 3 : 9);
}

TEST(the_reference_path_does_too)
{
    zoo z;
    zoo_init(&z);
    z.f.config.path = MUON_PATH_REFERENCE;
    compare_layouts(&z, world_size <= 4 ? 3 : 9);
}

TEST(threads_and_small_waves_do_too)
{
    zoo z;
    zoo_init(&z);
    z.f.config.threads = 2;
    z.f.config.in_flight = 2;
    z.f.config.workspace_budget = 4 << 20;
    compare_layouts(&z, world_size <= 4 ? 4 : 9);
}

/* A few tensors, cut by rows over all ranks but for one that is whole on each. */
static void fill(fleet *f)
{
    fleet_fsdp(f, world_size);
    fleet_add(f, MUONS, "tall", NULL, "0: fsdp", SHAPE(90, 20));
    fleet_add(f, MUONS, "wide", NULL, "0: fsdp", SHAPE(30, 70));
    fleet_add(f, MUONS, "experts", "batch 1", "0: fsdp", SHAPE(5, 16, 24));
    fleet_add(f, MUONS, "whole", NULL, NULL, SHAPE(12, 12));
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(41));
}

TEST(a_step_allocates_nothing)
{
    fleet f;
    ship s;
    muon_comm *comm = NULL;
    fill(&f);
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    CHECK_OK(ship_create(&s, &f, comm));
    CHECK_OK(ship_run(&s, 1, 1));
    int64_t before = testlib_allocations();
    CHECK_OK(ship_run(&s, 2, 6));
    CHECK(testlib_allocations() == before, "%lld allocations in five steps",
          (long long)(testlib_allocations() - before));
    ship_destroy(&s);
    muon_mpi_destroy(comm);
}

/* The caller's messages go on around ours, and between two optimizers that share a communicator. */
TEST(the_callers_messages_and_two_optimizers_do_not_meet)
{
    enum { N = 2, STEPS = 4 };
    fleet f;
    ship whole, ships[N];
    muon_comm *comm = NULL;
    fill(&f);
    CHECK_OK(ship_create(&whole, &f, NULL));
    CHECK_OK(ship_run(&whole, 1, STEPS));
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    for (int k = 0; k < N; k++)
        CHECK_OK(ship_create(&ships[k], &f, comm));
    for (int step = 1; step <= STEPS; step++) {
        int got = -1, sent = 100 * step + world_rank;
        int next = (world_rank + 1) % world_size,
            before = (world_rank + world_size - 1) % world_size;
        MPI_Request receive, send;
        MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receive);
        CHECK_OK(ship_run(&ships[0], step, step));
        MPI_Isend(&sent, 1, MPI_INT, next, 0, MPI_COMM_WORLD, &send);
        CHECK_OK(ship_run(&ships[1], step, step));
        MPI_Wait(&receive, MPI_STATUS_IGNORE);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        CHECK(got == 100 * step + before, "got %d, want %d", got, 100 * step + before);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int k = 0; k < N; k++) {
        const char *wrong = ship_compare(&ships[k], &whole);
        CHECK(!wrong, "optimizer %d: %s", k, wrong);
        ship_destroy(&ships[k]);
    }
    ship_destroy(&whole);
    muon_mpi_destroy(comm);
}

int main(int argc, char **argv)
{
    return run_mpi_tests(&argc, &argv);
}
