/* mpi_comm.h - what the files of libmuon_mpi share. */
#ifndef MPI_MPI_COMM_H
#define MPI_MPI_COMM_H

#include "muon/muon_mpi.h"

/* A message of more bytes than this is cut into several: MPI counts in int, and transports have been
 * seen to fail near its limit. All ranks must be built with the same number. */
#ifndef MUON__MPI_CUT
#define MUON__MPI_CUT (1 << 30)
#endif

typedef struct mpi_comm {
    muon_comm comm; /* what the caller gets; its self is this struct */
    MPI_Comm mpi;   /* a duplicate: ours alone, errors are returned */
    int abandoned;  /* batches were closed while messages were under way */
} mpi_comm;

extern const muon_comm_ops muon__mpi_ops;

/* Between MPI_Init and MPI_Finalize? */
int muon__mpi_is_up(void);

/* MUON_E_COMM: what was done (a format), and how MPI explains `code`. */
muon_status muon__mpi_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
