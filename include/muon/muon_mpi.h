/* muon_mpi.h - libmuon over MPI. Link with libmuon_mpi and libmuon.
 *
 *     muon_comm *comm = NULL;
 *     muon_mpi_create(&comm, MPI_COMM_WORLD);        // collective; duplicates the communicator
 *     config.comm = comm;
 *     ... muon_create, muon_step ..., muon_destroy
 *     muon_mpi_destroy(comm);                        // collective; before MPI_Finalize
 *
 * The caller must have initialised MPI with MPI_THREAD_FUNNELED or more. Call libmuon from the
 * thread that initialised MPI (FUNNELED), or from one thread at a time (SERIALIZED). muon_step_start needs
 * SERIALIZED, or MULTIPLE if you call MPI while a step is in flight. The library communicates only on its duplicate, so its messages never match those of the caller.
 *
 * After MUON_E_TIMEOUT or MUON_E_COMM, destroy the optimizers and the muon_comm on every rank, and
 * make new ones; destroying does not wait for a rank that is late. A muon_comm that has lost
 * messages returns MUON_E_COMM. Memory that MPI may still access is kept until the messages are
 * done; see docs/mpi.md. */
#ifndef MUON_MUON_MPI_H
#define MUON_MUON_MPI_H

#include "muon/comm.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

MUON_API muon_status muon_mpi_create(muon_comm **out, MPI_Comm comm);
/* For Fortran, and for languages that keep a communicator as an integer handle. */
MUON_API muon_status muon_mpi_create_f(muon_comm **out, MPI_Fint comm);
/* comm may be NULL. After a failure it does not wait for other ranks. */
MUON_API void muon_mpi_destroy(muon_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
