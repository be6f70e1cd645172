/* muon_mpi.c - a muon_comm from an MPI communicator.
 *
 * The caller's communicator is used once, to duplicate it. On the duplicate all ranks agree on how
 * creation went, so that a failure on one of them is the same failure on all. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "mpi_comm.h"

#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int muon__mpi_is_up(void)
{
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized && !finalized;
}

muon_status muon__mpi_fail(int code, const char *format, ...)
{
    char what[160], why[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (MPI_Error_string(code, why, &length) != MPI_SUCCESS)
        snprintf(why, sizeof why, "MPI error %d", code);
    for (char *c = why; *c; c++) /* some explain themselves in several lines */
        if (*c == '\n') *c = ' ';
    return muon_error_set(MUON_E_COMM, "%s: %s", what, why);
}

/* May this thread call MPI at all? Without that, the other ranks cannot be told either. */
static muon_status check_caller(MPI_Comm comm)
{
    if (!muon__mpi_is_up())
        return muon_error_set(MUON_E_COMM, "muon_mpi_create: MPI has not been initialised, or has "
                                           "been finalised already");
    int level = MPI_THREAD_SINGLE, is_main = 1;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED) MPI_Is_thread_main(&is_main);
    if (!is_main)
        return muon_error_set(MUON_E_COMM,
                              "muon_mpi_create: MPI was initialised by another thread, "
                              "and only that one may call it (MPI_THREAD_FUNNELED)");
    if (comm == MPI_COMM_NULL)
        return muon_error_set(MUON_E_ARG,
                              "muon_mpi_create: the communicator is MPI_COMM_NULL; a rank "
                              "that is not part of one must not call this");
    int inter = 0;
    int code = MPI_Comm_test_inter(comm, &inter);
    if (code != MPI_SUCCESS) return muon__mpi_fail(code, "muon_mpi_create: the communicator");
    if (inter)
        return muon_error_set(MUON_E_ARG,
                              "muon_mpi_create: an inter-communicator has two groups of "
                              "ranks; merge them first (MPI_Intercomm_merge)");
    return MUON_OK;
}

/* The processors this process may run on, as one number. */
static int hash_processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof set, &set);
    uint32_t hash = 0x811c9dc5u;
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set)) hash = (hash ^ (uint32_t)i) * 0x01000193u;
    return (int)(hash & INT_MAX);
}

/* Launchers bind ranks to processors, or do not: ranks of a machine with the same set share it.
 * Collective. */
static int count_sharing(MPI_Comm mpi, int rank, int *sharing)
{
    MPI_Comm node = MPI_COMM_NULL, same = MPI_COMM_NULL;
    int code = MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    if (code == MPI_SUCCESS) code = MPI_Comm_split(node, hash_processors(), rank, &same);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(same, sharing);
    if (same != MPI_COMM_NULL) MPI_Comm_free(&same);
    if (node != MPI_COMM_NULL) MPI_Comm_free(&node);
    return code;
}

/* Collective: OK if it is OK on all ranks; else the failure of one of them, in its words. */
static muon_status agree(MPI_Comm mpi, int rank, muon_status status)
{
    struct {
        int status, rank;
    } mine = {(int)status, rank}, worst = {0, 0};
    int code = MPI_Allreduce(&mine, &worst, 1, MPI_2INT, MPI_MINLOC, mpi);
    if (code != MPI_SUCCESS) return muon__mpi_fail(code, "muon_mpi_create: MPI_Allreduce");
    if (worst.status == MUON_OK) return MUON_OK;

    char text[512];
    snprintf(text, sizeof text, "%s", rank == worst.rank ? muon_last_error() : "");
    code = MPI_Bcast(text, (int)sizeof text, MPI_CHAR, worst.rank, mpi);
    if (code != MPI_SUCCESS) return muon__mpi_fail(code, "muon_mpi_create: MPI_Bcast");
    return muon_error_set((muon_status)worst.status, "muon_mpi_create on rank %d: %s", worst.rank,
                          text);
}

/* Everything of creation that only this rank does: what can go wrong here goes wrong alone. */
static muon_status make(mpi_comm **out, MPI_Comm mpi, int rank, int sharing)
{
    int level = MPI_THREAD_SINGLE, size = 0;
    MPI_Query_thread(&level);
    if (level == MPI_THREAD_SINGLE)
        return muon_error_set(MUON_E_COMM,
                              "MPI was initialised for a process without threads, and libmuon has "
                              "threads (that never call MPI): ask MPI_Init_thread for "
                              "MPI_THREAD_FUNNELED");
    int code = MPI_Comm_size(mpi, &size);
    if (code != MPI_SUCCESS) return muon__mpi_fail(code, "MPI_Comm_size");
    mpi_comm *c = calloc(1, sizeof *c);
    if (!c) return muon_error_set(MUON_E_NOMEM, "out of memory");
    c->comm = (muon_comm){.struct_size = sizeof c->comm,
                          .ops = &muon__mpi_ops,
                          .self = c,
                          .rank = rank,
                          .size = size,
                          .sharing = sharing,
                          .one_thread = level < MPI_THREAD_SERIALIZED};
    c->mpi = mpi;
    *out = c;
    return MUON_OK;
}

muon_status muon_mpi_create(muon_comm **out, MPI_Comm comm)
{
    muon_status status = check_caller(comm);
    if (status != MUON_OK) return status;
    muon__mpi_tidy();

    MPI_Comm mpi = MPI_COMM_NULL;
    int code = MPI_Comm_dup(comm, &mpi);
    if (code != MPI_SUCCESS) return muon__mpi_fail(code, "muon_mpi_create: MPI_Comm_dup");
    MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    MPI_Comm_set_name(mpi, "libmuon");

    /* Collective calls first, and on every rank, whatever happens to this one. */
    int rank = 0, sharing = 0;
    mpi_comm *c = NULL;
    code = MPI_Comm_rank(mpi, &rank);
    if (code == MPI_SUCCESS) code = count_sharing(mpi, rank, &sharing);
    if (code != MPI_SUCCESS)
        status = muon__mpi_fail(code, "which ranks share processors");
    else if (!out)
        status = muon_error_set(MUON_E_ARG, "out is NULL");
    else
        status = make(&c, mpi, rank, sharing);
    status = agree(mpi, rank, status);
    if (status == MUON_OK) {
        assert(out && c); /* or it would not be OK on all ranks */
        *out = &c->comm;
    } else {
        free(c);
        MPI_Comm_free(&mpi);
    }
    return status;
}

muon_status muon_mpi_create_f(muon_comm **out, MPI_Fint comm)
{
    /* Converting a handle is a call of MPI too. */
    return muon_mpi_create(out, muon__mpi_is_up() ? MPI_Comm_f2c(comm) : MPI_COMM_NULL);
}

void muon_mpi_destroy(muon_comm *comm)
{
    if (!comm) return;
    mpi_comm *c = comm->self;
    /* MPI_Finalize has taken the duplicate with it. And a message that never met its receive may still
     * come: the next communicator must not get the number it is addressed to, so this one stays. */
    if (muon__mpi_is_up() && !c->is_lost) MPI_Comm_free(&c->mpi);
    muon__mpi_bury(c);
}
