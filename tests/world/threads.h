/* threads.h - ranks that are threads of one process: a transport in plain memory.
 *
 * For tests of everything that many ranks do, under sanitizers that see all of it. */
#ifndef TESTS_WORLD_THREADS_H
#define TESTS_WORLD_THREADS_H

#include "muon/comm.h"

typedef struct threads_world threads_world;

muon_status muon__threads_create(threads_world **out, int nranks);
void muon__threads_destroy(threads_world *world); /* when no rank uses it any more */
const muon_comm *muon__threads_comm(threads_world *world, int rank);

/* Messages and bytes that have been started as sends by a rank so far, and batches opened. */
typedef struct threads_count {
    int64_t messages, bytes, batches;
} threads_count;
threads_count muon__threads_count(threads_world *world, int rank);

#endif
