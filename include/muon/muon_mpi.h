/* muon_mpi.h - libmuon over MPI: link libmuon_mpi beside libmuon.
 *
 *     muon_comm *comm = NULL;
 *     muon_mpi_create(&comm, MPI_COMM_WORLD);        // collective; duplicates the communicator
 *     config.comm = comm;
 *     ... muon_create, muon_step ..., muon_destroy
 *     muon_mpi_destroy(comm);                        // collective; before MPI_Finalize
 *
 * MPI must have been initialised by the caller, with MPI_THREAD_FUNNELED or more; the thread that
 * initialised it (FUNNELED), or one at a time (SERIALIZED), calls libmuon. The library never uses the
 * caller's communicator itself, so no message of the caller's can meet one of ours.
 *
 * After MUON_E_TIMEOUT or MUON_E_COMM destroy the optimizers and the muon_comm, on every rank, and make
 * new ones; nobody needs to wait for a rank that is late before. A muon_comm that has lost messages
 * returns MUON_E_COMM. Memory that MPI may still touch is kept until it is done; see docs/mpi.md. */
#ifndef MUON_MUON_MPI_H
#define MUON_MUON_MPI_H

#include "muon/comm.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

MUON_API muon_status muon_mpi_create(muon_comm **out, MPI_Comm comm);
/* For Fortran, and for languages that hold a communicator as an integer handle. */
MUON_API muon_status muon_mpi_create_f(muon_comm **out, MPI_Fint comm);
/* NULL is fine. After a failure it does not wait for others. */
MUON_API void muon_mpi_destroy(muon_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
