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
 * muon_comm_fail sets the message. */
typedef struct muon_comm_ops {
    size_t struct_size;
    const char *name; /* "mpi" */
    /* A batch that can be started again and again. The messages' memory stays where it is. */
    muon_status (*open)(void *self, muon_batch **out, muon_direction direction, int channel,
                        const muon_message *messages, size_t nmessages);
    void (*close)(void *self, muon_batch *batch); /* after a timeout it may still be active */
    muon_status (*start)(void *self, muon_batch *batch); /* only when it is not active */
    /* *done = 1 if all its messages have arrived or may be overwritten. A batch that is not active is
     * done. */
    muon_status (*test)(void *self, muon_batch *batch, int *done);
    /* The peer of a message that is not done, or -1. */
    int (*late)(void *self, muon_batch *batch);
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

enum { MUON_CHANNELS = 4 }; /* channels are 0..MUON_CHANNELS - 1 */

/* For transports: sets muon_last_error() of this thread and returns `status`. */
MUON_API muon_status muon_comm_fail(muon_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

#ifdef __cplusplus
}
#endif
#endif
