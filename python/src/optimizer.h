/* optimizer.h - the object of _core.Optimizer, whose methods are in optimizer.c and optimizer_state.c. */
#ifndef OPTIMIZER_H
#define OPTIMIZER_H

#include "core.h"

#include <sys/types.h>

typedef struct optimizer_object {
    PyObject_HEAD muon_opt *opt;
    pid_t process; /* that made it */
    size_t nparams, nattention, ngroups;
    muon_buffers *buffers;     /* [nparams] of the call in progress */
    float **logits;            /* [nattention] */
    muon_state_buffers *state; /* [nparams] */
    PyObject *log;
    PyObject *grad_fetch;
    PyObject *error[3]; /* that grad_fetch raised in this step: type, value, traceback */
    PyObject *comm;     /* the transport, or NULL */
} optimizer_object;

/* Its optimizer; NULL with an exception in the child of a fork, which must not touch it. */
muon_opt *core_usable(PyObject *self);
/* None, or NULL with the exception of a status. */
PyObject *core_done(muon_status status);
/* Reads weight, gradient and copy of every parameter: a list of 3 nparams addresses. */
int core_read_buffers(optimizer_object *self, PyObject *list);
/* Reads momentum, exp_avg, exp_avg_sq, step, second_moment and momentum_scales of every parameter: a
 * list of 6 nparams addresses. */
int core_read_state(muon_state_buffers *out, size_t nparams, PyObject *list);

/* Methods (optimizer_state.c) */
PyObject *core_optimizer_state(PyObject *self, PyObject *unused);
PyObject *core_optimizer_read_state(PyObject *self, PyObject *args);
PyObject *core_optimizer_bind_state(PyObject *self, PyObject *list);
PyObject *core_optimizer_offload(PyObject *self, PyObject *args);
PyObject *core_optimizer_offload_info(PyObject *self, PyObject *unused);
PyObject *core_optimizer_save(PyObject *self, PyObject *args);
PyObject *core_optimizer_load(PyObject *self, PyObject *args);

#endif
