/* pool.h - the threads of an optimizer.
 *
 * muon__pool_run hands out the indices 0..n-1 in order, one or a few to the next free thread, and returns
 * when all are done. The caller cuts its work into units that do not depend on the number of
 * threads, so results do not depend on it either. Waiting threads spin briefly, then sleep. No
 * OpenMP: a host program has its own runtime, and two of them fight. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/status.h"

typedef struct pool pool;
/* worker is 0..threads-1, for scratch memory that belongs to one thread. */
typedef void (*pool_fn)(void *arg, int64_t index, int worker);

/* As many threads as this process may run on at the same time. */
int muon__pool_available(void);

/* threads = 0: as many as are available. */
muon_status muon__pool_create(pool **out, int threads);
void muon__pool_destroy(pool *p);      /* NULL is fine */
int muon__pool_threads(const pool *p); /* NULL: 1 */

/* The thread that calls muon__pool_run calls fn(arg) after each index it has worked on, for work
 * that only this thread may do. NULL: no more. */
void muon__pool_between(pool *p, void (*fn)(void *arg), void *arg);

/* p NULL: runs in the calling thread as worker 0. Not from inside a pool_fn of the same pool. */
void muon__pool_run(pool *p, int64_t n, pool_fn fn, void *arg);

#endif
