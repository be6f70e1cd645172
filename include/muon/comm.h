/* comm.h - the messages between ranks, as a table of functions.
 *
 * libmuon sends messages through a muon_comm. muon/muon_mpi.h makes one from an MPI communicator.
 * To use another transport, fill in the table below. Creation opens the batches of a step; a step
 * only starts them and tests whether they are done. muon_save and muon_load open and close their
 * own batches. */
#ifndef MUON_COMM_H
#define MUON_COMM_H

#include "muon/muon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct muon_message {
    void *data;    /* a send only reads it */
    int64_t bytes; /* at least 1; may exceed 2^31 */
    int peer;      /* never the rank itself */
} muon_message;

typedef struct muon_batch muon_batch; /* defined by the transport */

typedef enum muon_direction { MUON_SEND, MUON_RECEIVE } muon_direction;

/* Matching: between two ranks and on one channel, the n-th message started as a send matches the
 * n-th started as a receive; both have the same size. The messages of a batch start in order. No
 * function may block until another rank acts; progress happens in test. All functions are called
 * from the thread that called the library, never from the library's own threads; but in a step that
 * muon_step_start has begun, from the thread that makes it. Set the message of
 * an error with muon_error_set.
 *
 * After MUON_E_TIMEOUT or MUON_E_COMM, batches are closed while messages are in transit, and a
 * message started later could match one of those. So this muon_comm can no longer be used, on any
 * rank: destroy all optimizers that share it, and make a new one. A transport should then refuse to
 * open and start batches with MUON_E_COMM, as libmuon_mpi does. */
typedef struct muon_comm_ops {
    size_t struct_size;
    const char *name; /* "mpi" */
    /* Opens a batch that can be started again and again. The memory of the messages does not move;
     * it belongs to the library and is never a caller's weights or gradients. */
    muon_status (*open)(void *self, muon_batch **out, muon_direction direction, int channel,
                        const muon_message *messages, size_t nmessages);
    /* After a failure the batch may still be active. Once this returns, the memory of the messages
     * must not be accessed any more, unless there is a `keep`. */
    void (*close)(void *self, muon_batch *batch);
    muon_status (*start)(void *self, muon_batch *batch); /* only if it is not active */
    /* Sets *done to 1 if all messages have arrived (receives) or may be overwritten (sends). A
     * batch that is not active is done. */
    muon_status (*test)(void *self, muon_batch *batch, int *done);
    /* The peer of a message that is not done, or -1. */
    int (*late)(void *self, muon_batch *batch);
    /* For a transport that cannot cancel messages; otherwise NULL. Called after batches are closed,
     * before the memory of their messages is freed. Return 0 if none of the messages can access it
     * any more; it is then freed at once. Return 1 if one might: the memory then belongs to the
     * transport, which calls release(memory) when no message can access it any more, from any
     * thread, or never. */
    int (*keep)(void *self, void *memory, size_t bytes, void (*release)(void *memory));
} muon_comm_ops;

struct muon_comm {
    size_t struct_size;
    const muon_comm_ops *ops;
    void *self; /* passed to the functions */
    int rank, size;
    /* The number of ranks that may run on the same processors as this one, including itself; they
     * share these processors when config.threads is 0. 0: not known. */
    int sharing;
    int one_thread; /* 1: only the thread that made it may use it, so there is no muon_step_start */
};

/* Channels are 0..MUON_CHANNELS - 1. The last one is used only after a timeout, when each rank that
 * has waited in vain tells all others which rank it waited for. */
enum { MUON_CHANNELS = 6 };

#ifdef __cplusplus
}
#endif
#endif
