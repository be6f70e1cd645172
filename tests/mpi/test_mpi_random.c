/* Random cases (random_case.h) over MPI, drawn for as many ranks as there are.
 *
 *     mpirun -n RANKS test_mpi_random [CASES [SEED]]     so many cases, from this seed on
 *
 * Without a seed, other cases for each number of ranks. */
#include "mpi_test.h"

#include "tests/support/scratch.h"
#include "tests/world/random_case.h"

static uint64_t first_seed;
static int ncases = 20;

static void run_layout(const random_case *c, int layout, const muon_comm *comm, const char *root,
                       const random_whole *whole)
{
    char wrong[CASE_WRONG] = "";
    if (!random_run_rank(c, layout, comm, root, whole, wrong)) return;
    random_case_print(c, stderr);
    fail_job(__FILE__, __LINE__, "the bits of one process", "case %llu on %d ranks: %s",
             (unsigned long long)c->seed, world_size, wrong);
}

static void run_case(const random_case *c, const muon_comm *comm)
{
    static random_whole whole;
    char wrong[CASE_WRONG] = "";
    CHECK(!random_run_whole(&whole, c, wrong), "case %llu: %s", (unsigned long long)c->seed, wrong);
    scratch root = {.path = ""};
    if (world_rank == 0) root = scratch_make();
    MPI_Bcast(root.path, sizeof root.path, MPI_CHAR, 0, MPI_COMM_WORLD);
    run_layout(c, 0, comm, root.path, &whole);
    if (c->save_at >= 0) run_layout(c, 1, comm, root.path, &whole);
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0) scratch_remove(&root);
    random_whole_free(&whole);
}

TEST(any_layout_gives_the_bits_of_one_process)
{
    static random_case c;
    muon_comm *comm = NULL;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    uint64_t first = first_seed ? first_seed : 1000 * (uint64_t)world_size;
    for (int i = 0; i < ncases; i++) {
        random_case_draw(&c, first + (uint64_t)i, world_size);
        run_case(&c, comm);
    }
    muon_mpi_destroy(comm);
}

int main(int argc, char **argv)
{
    if (testlib_quick()) ncases = 5;
    if (argc > 1) ncases = atoi(argv[1]);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 10);
    return run_mpi_tests(&argc, &argv);
}
