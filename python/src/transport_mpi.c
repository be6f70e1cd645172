/* MPI without MPI at build time: mpi4py makes persistent requests, and the functions that drive them are
 * those of the library mpi4py has loaded. A request is known by its address, which is the same in every
 * MPI; a type is passed by value, and is an int or a pointer.
 *
 * Requests are started and tested one after the other, as libmuon_mpi does: messages are matched by order
 * alone, and an error of a single request comes back to the caller. */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#include "transport.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { REASON = 2048 }; /* no MPI explains an error in more */

static struct {
    int (*start)(void *request);
    int (*test)(void *request, int *done, void *status);
    int (*finalized)(int *flag);
    int (*error_string)(int code, char *text, int *length);
    void *get_count; /* its second argument is a handle */
    void *byte;      /* MPI_BYTE */
    size_t handle_size;
    void *status;
} mpi;

/* ---- Loading */

static int find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    if (!symbol) PyErr_Format(PyExc_ImportError, "mpi4py's MPI has no %s", name);
    *(void **)function = symbol;
    return symbol ? 0 : -1;
}

PyObject *transport_load_mpi(PyObject *module, PyObject *args)
{
    (void)module;
    const char *file;
    unsigned long long byte;
    Py_ssize_t handle_size, status_size;
    if (!PyArg_ParseTuple(args, "sKnn:load_mpi", &file, &byte, &handle_size, &status_size))
        return NULL;
    if (mpi.status) Py_RETURN_NONE;
    if (handle_size != sizeof(int) && handle_size != sizeof(void *))
        return PyErr_Format(PyExc_ImportError, "MPI handles of %zd bytes are not known",
                            handle_size);
    /* The symbols of an extension's libraries are not global, but they can be found through it. */
    void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    if (!library) return PyErr_Format(PyExc_ImportError, "%s", dlerror());
    if (find(library, "MPI_Start", &mpi.start) < 0 || find(library, "MPI_Test", &mpi.test) < 0 ||
        find(library, "MPI_Finalized", &mpi.finalized) < 0 ||
        find(library, "MPI_Error_string", &mpi.error_string) < 0 ||
        find(library, "MPI_Get_count", &mpi.get_count) < 0)
        return NULL;
    mpi.byte = (void *)(uintptr_t)byte;
    mpi.handle_size = (size_t)handle_size;
    mpi.status = calloc(1, (size_t)status_size);
    if (!mpi.status) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static int is_up(void)
{
    int finalized = 0;
    mpi.finalized(&finalized);
    return !finalized;
}

static int count_bytes(void)
{
    int bytes = 0;
    if (mpi.handle_size == sizeof(int))
        ((int (*)(void *, int, int *))mpi.get_count)(mpi.status, (int)(intptr_t)mpi.byte, &bytes);
    else
        ((int (*)(void *, void *, int *))mpi.get_count)(mpi.status, mpi.byte, &bytes);
    return bytes;
}

static muon_status fail(transport *t, const muon_batch *b, int piece, int code)
{
    char why[REASON] = "";
    int length = 0;
    if (mpi.error_string(code, why, &length) != 0) snprintf(why, sizeof why, "MPI error %d", code);
    for (char *c = why; *c; c++) /* some explain themselves in several lines */
        if (*c == '\n') *c = ' ';
    return transport_lose(t, b, piece, why);
}

/* ---- The functions of the table */

/* Python's requests, by address. */
static int read_requests(muon_batch *b)
{
    Py_ssize_t n = PyList_Check(b->handle) ? PyList_Size(b->handle) : -1;
    if (n != b->npieces) {
        PyErr_Format(PyExc_RuntimeError, "%zd requests for %d messages", n, b->npieces);
        return -1;
    }
    for (int i = 0; i < b->npieces; i++) {
        PyObject *address = PyTuple_GetItem(PyList_GetItem(b->handle, i), 0);
        b->pieces[i].request = address ? PyLong_AsVoidPtr(address) : NULL;
        if (!b->pieces[i].request) return -1;
    }
    return 0;
}

static muon_status open_mpi(void *self, muon_batch **out, muon_direction direction, int channel,
                            const muon_message *messages, size_t nmessages)
{
    muon_status status = transport_open(self, out, direction, channel, messages, nmessages);
    if (status != MUON_OK) return status;
    transport_scope scope = transport_enter();
    if (read_requests(*out) < 0) {
        status = transport_lose_to_python(self, "messages cannot be prepared");
        Py_CLEAR(*out);
    }
    transport_leave(scope);
    return status;
}

static muon_status start_mpi(void *self, muon_batch *b)
{
    muon_status status = transport_check_order(self);
    if (status != MUON_OK) return status;
    atomic_store(&b->ndone, 0);
    atomic_store(&b->is_busy, 1);
    for (b->nstarted = 0; b->nstarted < b->npieces; b->nstarted++) {
        int code = mpi.start(b->pieces[b->nstarted].request);
        if (code != 0) return fail(self, b, b->nstarted, code);
    }
    return MUON_OK;
}

static muon_status test_mpi(void *self, muon_batch *b, int *done)
{
    int n = atomic_load(&b->ndone), one = 1;
    while (n < b->nstarted) {
        const transport_piece *p = &b->pieces[n];
        int code = mpi.test(p->request, &one, mpi.status);
        if (code == 0 && !one) break;
        atomic_store(&b->ndone, ++n); /* after an error too: it is not under way any more */
        if (code != 0) return fail(self, b, n - 1, code);
        /* MPI refuses a message that is longer than its receive; one that is shorter is ours to see. */
        if (b->direction == MUON_SEND || count_bytes() == p->bytes) continue;
        char why[64];
        snprintf(why, sizeof why, "%d bytes came instead", count_bytes());
        return transport_lose(self, b, n - 1, why);
    }
    if (one) atomic_store(&b->is_busy, 0);
    *done = one;
    return MUON_OK;
}

int transport_mpi_is_over(muon_batch *b)
{
    int n = atomic_load(&b->ndone);
    while (n < b->nstarted && is_up()) {
        int one = 0;
        int code = mpi.test(b->pieces[n].request, &one, mpi.status);
        if (code == 0 && !one) return 0;
        atomic_store(&b->ndone, ++n);
    }
    transport_settle(b);
    return 1;
}

/* Python frees the requests, now or, of a batch that is under way, when they are done. */
static void close_mpi(void *self, muon_batch *b)
{
    transport_scope scope = transport_enter();
    PyObject *result = PyObject_CallMethod(self, "_close", "OOO", b, b->handle,
                                           b->direction == MUON_RECEIVE ? Py_True : Py_False);
    if (!result) PyErr_WriteUnraisable(self);
    Py_XDECREF(result);
    transport_abandon(self, b);
    transport_leave(scope);
}

static int keep_mpi(void *self, void *memory, size_t bytes, void (*release)(void *memory))
{
    transport_scope scope = transport_enter();
    PyObject *result = PyObject_CallMethod(self, "_drain", NULL);
    if (!result) PyErr_WriteUnraisable(self);
    Py_XDECREF(result);
    transport_leave(scope);
    return transport_keep(self, memory, bytes, release);
}

const muon_comm_ops transport_mpi_ops = {
    .struct_size = sizeof(muon_comm_ops),
    .name = "mpi",
    .open = open_mpi,
    .close = close_mpi,
    .start = start_mpi,
    .test = test_mpi,
    .late = transport_late,
    .keep = keep_mpi,
};
