/* lost.c - messages that nobody waits for any more, and the memory they are in.
 *
 * A batch that is closed while it is active cannot be called back: MPI reads and writes its memory until
 * the rank at the other end has met it, which may be soon or never. So it stays in a list of its
 * communicator, and with it the memory that would have been freed. Both go when the last of its messages
 * is done. A communicator that is destroyed before that joins a list of the process, which is looked
 * through when others come and go, and at last by MPI_Finalize. */
#include "mpi_comm.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define PATIENCE 0.1 /* seconds for messages that are almost there */

struct kept_memory {
    kept_memory *next;
    void *memory;
    void (*release)(void *memory);
};

/* Communicators that are destroyed and have messages under way. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mpi_comm *buried;
static int is_watched; /* MPI_Finalize will look through them */

/* ---- Of one communicator */

static void release_kept(mpi_comm *c)
{
    while (c->kept) {
        kept_memory *k = c->kept;
        c->kept = k->next;
        k->release(k->memory);
        free(k);
    }
}

/* Is nothing under way any more? */
static int is_drained(mpi_comm *c)
{
    for (muon_batch **at = &c->abandoned; *at;) {
        muon_batch *b = *at;
        if (muon__mpi_batch_is_over(b)) {
            *at = b->next;
            muon__mpi_batch_free(b);
        } else {
            at = &b->next;
        }
    }
    if (c->abandoned) return 0;
    release_kept(c);
    return 1;
}

void muon__mpi_abandon(mpi_comm *c, muon_batch *b)
{
    c->is_lost = 1;
    b->next = c->abandoned;
    c->abandoned = b;
}

int muon__mpi_keep(void *self, void *memory, size_t bytes, void (*release)(void *memory))
{
    mpi_comm *c = self;
    (void)bytes;
    if (is_drained(c)) return 0;
    kept_memory *k = malloc(sizeof *k);
    if (!k) return 1; /* nor can it be freed: MPI writes into it */
    *k = (kept_memory){c->kept, memory, release};
    c->kept = k;
    return 1;
}

/* ---- Of all that are destroyed */

/* Under the lock: is none left? */
static int is_tidy(void)
{
    for (mpi_comm **at = &buried; *at;) {
        mpi_comm *c = *at;
        if (is_drained(c)) {
            *at = c->next;
            free(c);
        } else {
            at = &c->next;
        }
    }
    return !buried;
}

static void tidy(double patience)
{
    pthread_mutex_lock(&lock);
    double begin = patience > 0 ? MPI_Wtime() : 0;
    while (!is_tidy() && MPI_Wtime() - begin < patience)
        sched_yield();
    pthread_mutex_unlock(&lock);
}

/* The first thing MPI_Finalize does. What is not done after that stays in memory, where MPI may look
 * for it to the end. */
static int on_finalize(MPI_Comm self, int key, void *value, void *extra)
{
    (void)self, (void)key, (void)value, (void)extra;
    tidy(PATIENCE);
    return MPI_SUCCESS;
}

static void watch_finalize(void)
{
    int key = MPI_KEYVAL_INVALID;
    if (is_watched) return;
    is_watched =
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, NULL) == MPI_SUCCESS &&
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL) == MPI_SUCCESS;
}

void muon__mpi_bury(mpi_comm *c)
{
    int waits = !is_drained(c);
    pthread_mutex_lock(&lock);
    c->next = buried;
    buried = c;
    if (waits) watch_finalize();
    pthread_mutex_unlock(&lock);
    tidy(waits ? PATIENCE : 0);
}

void muon__mpi_tidy(void)
{
    tidy(0);
}
