/* comm.h - the messages between ranks, as a table of functions.
 *
 * libmuon sends through a muon_comm. muon/muon_mpi.h makes one of an MPI communicator; who has another
 * transport fills in the table below. Creation opens the batches of a step, which only starts them and
 * tests whether they are done; muon_save and muon_load open and close batches of their own. */
#ifndef MUON_COMM_H
#define MUON_COMM_H

#include "muon/muon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct muon_message {
    void *data;    /* a send only reads it */
    int64_t bytes; /* at least 1; may be beyond 2^31 */
    int peer;      /* never the rank itself */
} muon_message;

typedef struct muon_batch muon_batch; /* a transport's own */

typedef enum muon_direction { MUON_SEND, MUON_RECEIVE } muon_direction;

/* Matching: between two ranks and on one channel, the n-th message started as a send meets the n-th
 * started as a receive; both have the same size. Within a batch messages start in their order. No
 * function may block until another rank acts; test is where progress happens. All are called from the
 * thread that is in a function of the library, never from one that the library has started. Errors:
 * muon_error_set sets the message.
 *
 * After MUON_E_TIMEOUT or MUON_E_COMM batches are closed with messages under way, and a message that is
 * started later could meet one of those. So this muon_comm cannot be used any more, on any rank: destroy
 * all optimizers that share it, and make a new one. A transport should refuse to open and start batches
 * on it with MUON_E_COMM; libmuon_mpi does. */
typedef struct muon_comm_ops {
    size_t struct_size;
    const char *name; /* "mpi" */
    /* A batch that can be started again and again. The messages' memory stays where it is; all of it is
     * the library's own, never a caller's weights or gradients. */
    muon_status (*open)(void *self, muon_batch **out, muon_direction direction, int channel,
                        const muon_message *messages, size_t nmessages);
    /* After a failure it may still be active. When this returns nobody may touch the messages' memory
     * any more, unless there is a `keep`. */
    void (*close)(void *self, muon_batch *batch);
    muon_status (*start)(void *self, muon_batch *batch); /* only when it is not active */
    /* *done = 1 if all its messages have arrived or may be overwritten. A batch that is not active is
     * done. */
    muon_status (*test)(void *self, muon_batch *batch, int *done);
    /* The peer of a message that is not done, or -1. */
    int (*late)(void *self, muon_batch *batch);
    /* For a transport that cannot stop what is under way; else NULL. Asked before memory is freed that
     * messages were in, when their batches are closed: 0 if none of these can touch it any more, and it
     * is freed at once. 1 if one might: from now on the memory is the transport's, which calls
     * release(memory) when that has come to an end, from any thread, or never. */
    int (*keep)(void *self, void *memory, size_t bytes, void (*release)(void *memory));
} muon_comm_ops;

struct muon_comm {
    size_t struct_size;
    const muon_comm_ops *ops;
    void *self; /* handed to the functions */
    int rank, size;
    /* Ranks that may run on the same processors as this one, itself among them, and so share them when
     * config.threads is 0; 0: not known. */
    int sharing;
};

/* Channels are 0..MUON_CHANNELS - 1. The last one is used only after a timeout: all ranks that have
 * waited in vain then tell all others for whom. */
enum { MUON_CHANNELS = 5 };

#ifdef __cplusplus
}
#endif
#endif
