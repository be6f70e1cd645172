#include "cli/core/launch.h"

#include "train/run/team.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef MUON_HAVE_MPI
#include "muon/muon_mpi.h"
#endif

/* What one rank does alone may take as long as it likes; a rank that dies is the launcher's business. */
static const double patience = 1e9;

static team *others; /* NULL if alone */

/* ---- what the launcher says -------------------------------------------------------------------- */

typedef struct launcher {
    const char *name;
    const char *rank, *size; /* variables of the environment; size NULL: it does not say */
} launcher;

/* The first that fits: mpirun may have been started by srun. A script of Slurm's that is not under
 * srun has a rank, but no step with tasks. */
static const launcher launchers[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE"}, /* MPICH and its family, srun --mpi=pmi2 */
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"a launcher", "PMIX_RANK", NULL},
};

static const launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        if (getenv(launchers[i].rank) && (!launchers[i].size || getenv(launchers[i].size)))
            return &launchers[i];
    return NULL;
}

/* 0: it is not said, or not as a number. */
static int number_in(const char *variable)
{
    const char *text = variable ? getenv(variable) : NULL;
    return text ? (int)strtol(text, NULL, 10) : 0;
}

/* Many processes that know nothing of each other would write the same files. Nor can they agree who
 * says so: each of them does. */
static int refuse(const launcher *by, const char *why)
{
    return cli_fail("%s has started more than one process, but %s", by->name, why);
}

/* ---- MPI, whose own errors end the program: that is all that a tool could do ----------------------- */

#ifdef MUON_HAVE_MPI

static muon_comm *world;

static void end_all(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

/* What was printed goes out first: once a rank has left with an exit code other than 0, the launcher
 * may kill the others before they reach their own exit. (An error of stdout is seen in main.) */
static void end_mpi(void)
{
    fflush(stdout);
    muon_mpi_destroy(world);
    MPI_Finalize();
}

static int join(const launcher *by)
{
    int threads = MPI_THREAD_SINGLE;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &threads);
    int code = CLI_DONE;
    if (threads < MPI_THREAD_FUNNELED)
        code = cli_fail("this MPI does not allow threads (MPI_THREAD_FUNNELED)");
    else if (muon_mpi_create(&world, MPI_COMM_WORLD) != MUON_OK ||
             (world->size > 1 && team_create(&others, world, patience, "muonctl") != MUON_OK))
        code = cli_fail_library();
    if (code != CLI_DONE) end_all(code);
    if (code != CLI_DONE || others) return code;
    end_mpi();
    if (number_in(by->size) == 0) return CLI_DONE;
    return refuse(
        by, "its MPI knows of only one: start muonctl with the mpirun of the MPI it was built "
            "with, or with srun --mpi=pmix");
}

#else /* there is never another rank */

static void end_all(int code)
{
    exit(code);
}

static void end_mpi(void)
{
}

static int join(const launcher *by)
{
    if (number_in(by->size) == 0 && number_in(by->rank) == 0) return CLI_DONE;
    return refuse(by, "this muonctl was built without MPI and runs in one");
}

#endif

/* ---- beginning and end -------------------------------------------------------------------------------- */

/* A program that ends while others wait, for lack of memory, must not leave them waiting. */
static void leave(void)
{
    if (others) launch_give_up(CLI_FAILED);
}

int launch_start(void)
{
    const launcher *by = find_launcher();
    if (!by || number_in(by->size) == 1) return CLI_DONE;
    DO(join(by));
    if (!others) return CLI_DONE;
    cli_set_rank(team_rank(others));
    return launch_agree(atexit(leave) == 0 ? CLI_DONE : cli_fail("out of memory"));
}

void launch_end(void)
{
    if (!others) return;
    team_destroy(others);
    others = NULL;
    end_mpi();
}

/* ---- together ------------------------------------------------------------------------------------ */

int launch_rank(void)
{
    return others ? team_rank(others) : 0;
}

int launch_size(void)
{
    return others ? team_size(others) : 1;
}

int launch_sharing(void)
{
    return others && team_comm(others)->sharing ? team_comm(others)->sharing : 1;
}

const muon_comm *launch_comm(void)
{
    return others ? team_comm(others) : NULL;
}

/* [size] one number of every rank's; free it. */
static double *share(double mine)
{
    double *all = cli_alloc((size_t)launch_size(), sizeof *all);
    if (team_share(others, &mine, all, 1) != MUON_OK) launch_give_up(cli_fail_library());
    return all;
}

int launch_agree(int code)
{
    if (!others) return code;
    double *codes = share(code);
    int first = -1, worst = CLI_DONE;
    for (int rank = 0; rank < launch_size(); rank++) {
        if (codes[rank] > worst) worst = (int)codes[rank];
        if (first < 0 && worst != CLI_DONE) first = rank;
    }
    free(codes);
    if (first == launch_rank()) cli_print_kept();
    cli_drop_kept();
    return worst;
}

int launch_give_up(int code)
{
    if (!others) return code;
    cli_print_kept();
    end_all(code);
    return code;
}

/* Of counts, which doubles hold exactly up to 2^53. */
static void combine(int64_t *values, int count, int largest)
{
    for (int i = 0; others && i < count; i++) {
        double *all = share((double)values[i]);
        values[i] = (int64_t)all[0];
        for (int rank = 1; rank < launch_size(); rank++) {
            int64_t one = (int64_t)all[rank];
            values[i] = !largest ? values[i] + one : one > values[i] ? one : values[i];
        }
        free(all);
    }
}

void launch_sum(int64_t *values, int count)
{
    combine(values, count, 0);
}

void launch_max(int64_t *values, int count)
{
    combine(values, count, 1);
}

void launch_send(const void *data, size_t bytes)
{
    union { /* it is only read */
        const void *in;
        void *out;
    } pointer = {data};
    if (team_move(others, MUON_SEND, pointer.out, bytes, 0) != MUON_OK)
        launch_give_up(cli_fail_library());
}

void launch_receive(void *data, size_t bytes, int rank)
{
    if (team_move(others, MUON_RECEIVE, data, bytes, rank) != MUON_OK)
        launch_give_up(cli_fail_library());
}
