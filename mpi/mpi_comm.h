/* mpi_comm.h - what the files of libmuon_mpi share. */
#ifndef MPI_MPI_COMM_H
#define MPI_MPI_COMM_H

#include "muon/muon_mpi.h"

/* A message of more bytes than this is cut into several: MPI counts in int, and transports have been
 * seen to fail near its limit. All ranks must be built with the same number. */
#ifndef MUON__MPI_CUT
#define MUON__MPI_CUT (1 << 30)
#endif

typedef struct request {
    MPI_Request mpi;
    int peer, bytes;
} request;

struct muon_batch {
    muon_batch *next; /* among those that are abandoned */
    muon_direction direction;
    int nrequests;
    int ntested, nstarted; /* requests ntested .. nstarted - 1 may be under way */
    request request[];
};

typedef struct kept_memory kept_memory;

typedef struct mpi_comm {
    muon_comm comm; /* what the caller gets; its self is this struct */
    MPI_Comm mpi;   /* a duplicate: ours alone, errors are returned */
    int is_lost;    /* a message has failed, or was abandoned: others may meet the wrong ones now */
    muon_batch *abandoned; /* closed while they were active, and not done since */
    kept_memory *kept;     /* what may be freed when they are */
    struct mpi_comm *next; /* among those that are destroyed, and have some */
} mpi_comm;

extern const muon_comm_ops muon__mpi_ops;

/* Looks at what is under way: is all of it done? After MPI_Finalize it is. */
int muon__mpi_batch_is_over(muon_batch *b);
void muon__mpi_batch_free(muon_batch *b);

/* ---- lost.c */

/* Takes a batch that is active. */
void muon__mpi_abandon(mpi_comm *c, muon_batch *b);
/* `keep` of the table. */
int muon__mpi_keep(void *self, void *memory, size_t bytes, void (*release)(void *memory));
/* Frees a communicator's struct, now or when its messages are done; gives them a moment. */
void muon__mpi_bury(mpi_comm *c);
/* Frees what is left of earlier communicators, as far as their messages are done by now. */
void muon__mpi_tidy(void);

/* Between MPI_Init and MPI_Finalize? */
int muon__mpi_is_up(void);

/* MUON_E_COMM: what was done (a format), and how MPI explains `code`. */
muon_status muon__mpi_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
