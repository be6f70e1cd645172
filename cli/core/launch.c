#include "cli/core/launch.h"

#include <stdio.h>
#include <stdlib.h>

static const launch_link *others; /* NULL if alone */

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

#ifdef MUON_HAVE_MPI
static int join(const launcher *by)
{
    DO(launch_mpi_join(&others));
    if (others->size > 1) return CLI_DONE;
    launch_end();
    if (number_in(by->size) == 0) return CLI_DONE;
    return refuse(by,
                  "MPI here knows of one: start muonctl with the mpirun of the MPI it was built "
                  "with, or with srun --mpi=pmix");
}
#else
static int join(const launcher *by)
{
    if (number_in(by->size) == 0 && number_in(by->rank) == 0) return CLI_DONE;
    return refuse(by, "this muonctl was built without MPI and runs in one");
}
#endif

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
    cli_set_rank(others->rank);
    return launch_agree(atexit(leave) == 0 ? CLI_DONE : cli_fail("out of memory"));
}

void launch_end(void)
{
    if (others) others->end();
    others = NULL;
}

/* ---- together ------------------------------------------------------------------------------------ */

int launch_rank(void)
{
    return others ? others->rank : 0;
}

int launch_size(void)
{
    return others ? others->size : 1;
}

int launch_sharing(void)
{
    return others && others->comm->sharing ? others->comm->sharing : 1;
}

const muon_comm *launch_comm(void)
{
    return others ? others->comm : NULL;
}

int launch_agree(int code)
{
    if (!others) return code;
    int64_t mine = others->size - others->rank; /* the lowest rank has the largest */
    int64_t word[] = {code == CLI_DONE ? 0 : mine, code};
    others->max(word, 2);
    if (word[0] == mine) cli_print_kept();
    cli_drop_kept();
    return (int)word[1];
}

int launch_give_up(int code)
{
    if (!others) return code;
    cli_print_kept();
    others->abort(code);
    return code;
}

void launch_sum(int64_t *values, int count)
{
    if (others) others->sum(values, count);
}

void launch_max(int64_t *values, int count)
{
    if (others) others->max(values, count);
}

void launch_send(const void *data, size_t bytes)
{
    others->send(data, bytes, 0);
}

void launch_receive(void *data, size_t bytes, int rank)
{
    others->receive(data, bytes, rank);
}
