/* launch.h - one process, or one of many ranks that a launcher (mpirun, srun) has started.
 *
 * A process that no launcher has started never calls MPI, and everything here is then as with one
 * rank. With many, each rank does its part; what is done alone on a rank (reading files, writing
 * them) can fail on one rank only, so ranks agree before they go on together. Results and messages
 * are printed once. */
#ifndef CLI_CORE_LAUNCH_H
#define CLI_CORE_LAUNCH_H

#include "cli/core/cli.h"

#include "muon/comm.h"

/* Joins the other ranks, if there are any. Collective, as is everything below that says so. */
int launch_start(void);
/* Collective. */
void launch_end(void);

int launch_rank(void); /* 0 if alone */
int launch_size(void); /* 1 if alone */
/* Ranks of this machine that may use the same processors as this one, itself among them. */
int launch_sharing(void);
const muon_comm *launch_comm(void); /* for muon_config; NULL if alone */

/* Collective. CLI_DONE if `code` is that on every rank; else the lowest rank that has failed prints
 * its message, and all return a failure. */
int launch_agree(int code);
/* After a failure of communication itself, when there is no agreeing any more: prints this rank's
 * message and ends all ranks. Alone it returns `code`. */
int launch_give_up(int code);

/* Collective: sums and maxima over all ranks, on every rank. */
void launch_sum(int64_t *values, int count);
void launch_max(int64_t *values, int count);

/* From another rank to rank 0, in the same order on both sides. */
void launch_send(const void *data, size_t bytes);
void launch_receive(void *data, size_t bytes, int rank);

#endif
