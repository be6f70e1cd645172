/* transport.h - what the two transports of the Python package share: torch's gloo and MPI.
 *
 * Python makes the messages (tensors over C memory, or requests of mpi4py) when a batch is opened. While
 * a step polls, nothing of Python runs: `test` reads flags that waiter threads set (gloo), or calls MPI. */
#ifndef LIBMUON_PYTHON_TRANSPORT_H
#define LIBMUON_PYTHON_TRANSPORT_H

#include "core.h"

#include "muon/comm.h"

#include <stdatomic.h>

/* A message, or a part of a large one. */
typedef struct transport_piece {
    char *data;
    int64_t bytes;
    int peer;
    void *request; /* an MPI_Request *, which mpi4py owns */
} transport_piece;

/* Memory that lost messages may still access. It is freed when `users` is back to 1: the transport. */
typedef struct transport_kept transport_kept;

/* A batch is a Python object, _core.Batch: the library has a reference, and so has who waits for it.
 * Whatever is not atomic is only accessed with the GIL, or by the thread that calls the library. */
struct muon_batch {
    PyObject_HEAD muon_direction direction;
    int npieces, nstarted;
    atomic_int ndone;     /* pieces 0 .. ndone - 1 are done, in this order */
    atomic_int is_busy;   /* a piece may still access its memory */
    atomic_int is_failed; /* piece `ndone` was the first to fail; `error` says why */
    char error[400];
    transport_piece *pieces;
    PyObject *handle;     /* what _open returned: Python's side of the pieces */
    transport_kept *kept; /* once it is closed while it is busy */
};

typedef struct transport {
    PyObject_HEAD muon_comm comm;
    int64_t cut; /* a larger message is sent in pieces of this size */
    int is_lost; /* a message has failed, or was abandoned: others may meet the wrong ones now */
    transport_kept *kept;
} transport;

extern const muon_comm_ops transport_gloo_ops, transport_mpi_ops;

/* ---- transport.c */

/* Into Python and back, from a thread with or without the GIL, keeping an exception that is set. */
typedef struct transport_scope {
    PyGILState_STATE gil;
    PyObject *type, *value, *trace;
} transport_scope;

transport_scope transport_enter(void);
void transport_leave(transport_scope scope);

muon_status transport_open(void *self, muon_batch **out, muon_direction direction, int channel,
                           const muon_message *messages, size_t nmessages);
/* The batch, if it is busy, keeps the memory of its messages from being freed. Takes a reference. */
void transport_abandon(transport *t, muon_batch *b);
int transport_late(void *self, muon_batch *b);
int transport_keep(void *self, void *memory, size_t bytes, void (*release)(void *memory));

/* MUON_E_COMM after messages were lost, because later ones might meet them. */
muon_status transport_check_order(const transport *t);
/* MUON_E_COMM for a piece, with the reason; nothing can be sent any more. */
muon_status transport_lose(transport *t, const muon_batch *b, int piece, const char *why);
/* The same for the Python exception that is set. */
muon_status transport_lose_to_python(transport *t, const char *what);
/* With the GIL: no piece accesses its memory any more. */
void transport_settle(muon_batch *b);

/* ---- transport_mpi.c */

/* load_mpi(file, byte, handle_size, status_size): finds the functions of the MPI that mpi4py uses. */
PyObject *transport_load_mpi(PyObject *module, PyObject *args);
/* Looks at the requests that are under way: is none left? */
int transport_mpi_is_over(muon_batch *b);

#endif
