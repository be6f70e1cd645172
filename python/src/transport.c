/* _core.Transport: a muon_comm whose messages Python sends; and _core.Batch, a batch of them.
 *
 * A subclass in Python has _open(batch, is_send, channel, pieces), which returns its own side of the
 * batch, and _start(batch, that). They run when batches are opened and started. */
#include "transport.h"

#include <stdlib.h>
#include <string.h>

static PyTypeObject *transport_type, *batch_type;

transport_scope transport_enter(void)
{
    transport_scope scope;
    scope.gil = PyGILState_Ensure();
    PyErr_Fetch(&scope.type, &scope.value, &scope.trace);
    return scope;
}

void transport_leave(transport_scope scope)
{
    PyErr_Restore(scope.type, scope.value, scope.trace);
    PyGILState_Release(scope.gil);
}

/* ---- Memory that lost messages may access */

typedef struct kept_block kept_block;

struct kept_block {
    kept_block *next;
    void *memory;
    void (*release)(void *memory);
};

struct transport_kept {
    int users;    /* the transport, and each batch that was closed while it was busy */
    int is_owned; /* the transport is still there: it is the last user, and has no messages */
    kept_block *blocks;
};

static void leave_kept(transport_kept *kept)
{
    if (--kept->users > kept->is_owned) return;
    while (kept->blocks && kept->users <= kept->is_owned) {
        kept_block *block = kept->blocks;
        kept->blocks = block->next;
        block->release(block->memory);
        free(block);
    }
    if (kept->users == 0) free(kept);
}

int transport_keep(void *self, void *memory, size_t bytes, void (*release)(void *memory))
{
    transport *t = self;
    (void)bytes;
    transport_scope scope = transport_enter();
    int is_kept = t->kept->users > 1;
    kept_block *block = is_kept ? malloc(sizeof *block) : NULL;
    if (block) { /* else it is never freed: messages are written into it */
        *block = (kept_block){t->kept->blocks, memory, release};
        t->kept->blocks = block;
    }
    transport_leave(scope);
    return is_kept;
}

void transport_settle(muon_batch *b)
{
    atomic_store(&b->is_busy, 0);
    if (b->kept) leave_kept(b->kept);
    b->kept = NULL;
}

void transport_abandon(transport *t, muon_batch *b)
{
    if (atomic_load(&b->is_busy)) {
        t->is_lost = 1;
        t->kept->users++;
        b->kept = t->kept;
    }
    Py_DECREF(b);
}

/* ---- Errors */

muon_status transport_check_order(const transport *t)
{
    if (!t->is_lost) return MUON_OK;
    return muon_error_set(MUON_E_COMM,
                          "rank %d: messages between the ranks were lost in an earlier failure: "
                          "make a new optimizer on every rank",
                          t->comm.rank);
}

muon_status transport_lose(transport *t, const muon_batch *b, int piece, const char *why)
{
    const transport_piece *p = &b->pieces[piece];
    t->is_lost = 1;
    return muon_error_set(MUON_E_COMM, "rank %d: message of %lld bytes %s rank %d: %s",
                          t->comm.rank, (long long)p->bytes,
                          b->direction == MUON_SEND ? "to" : "from", p->peer, why);
}

muon_status transport_lose_to_python(transport *t, const char *what)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *why = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    t->is_lost = 1;
    muon_status status = muon_error_set(MUON_E_COMM, "rank %d: %s: %s", t->comm.rank, what,
                                        why ? why : "an exception without a message");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return status;
}

/* ---- Opening */

static int64_t count_pieces(const transport *t, const muon_message *messages, size_t nmessages)
{
    int64_t n = 0;
    for (size_t i = 0; i < nmessages; i++)
        n += (messages[i].bytes - 1) / t->cut + 1;
    return n;
}

static muon_batch *make_batch(const transport *t, const muon_message *messages, size_t nmessages)
{
    int64_t n = count_pieces(t, messages, nmessages);
    if (n > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "a batch of %lld messages is too large", (long long)n);
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(batch_type, Py_tp_alloc);
    muon_batch *b = (muon_batch *)allocate(batch_type, 0);
    if (!b) return NULL;
    b->pieces = calloc((size_t)n + 1, sizeof *b->pieces);
    if (!b->pieces) {
        Py_DECREF(b);
        PyErr_NoMemory();
        return NULL;
    }
    for (size_t i = 0; i < nmessages; i++)
        for (int64_t at = 0; at < messages[i].bytes; at += t->cut) {
            int64_t rest = messages[i].bytes - at;
            b->pieces[b->npieces++] = (transport_piece){.data = (char *)messages[i].data + at,
                                                        .bytes = rest < t->cut ? rest : t->cut,
                                                        .peer = messages[i].peer};
        }
    b->ndone = b->nstarted = b->npieces;
    return b;
}

static PyObject *list_pieces(const muon_batch *b)
{
    PyObject *list = PyList_New(b->npieces);
    for (int i = 0; list && i < b->npieces; i++) {
        const transport_piece *p = &b->pieces[i];
        PyObject *item =
            Py_BuildValue("(NLi)", PyLong_FromVoidPtr(p->data), (long long)p->bytes, p->peer);
        if (!item || PyList_SetItem(list, i, item) < 0) Py_CLEAR(list);
    }
    return list;
}

muon_status transport_open(void *self, muon_batch **out, muon_direction direction, int channel,
                           const muon_message *messages, size_t nmessages)
{
    transport *t = self;
    muon_status status = transport_check_order(t);
    if (status != MUON_OK) return status;
    transport_scope scope = transport_enter();
    muon_batch *b = make_batch(t, messages, nmessages);
    PyObject *pieces = b ? list_pieces(b) : NULL;
    if (pieces) {
        b->direction = direction;
        b->handle = PyObject_CallMethod(
            self, "_open", "OOiO", b, direction == MUON_SEND ? Py_True : Py_False, channel, pieces);
    }
    if (PyErr_Occurred()) {
        status = transport_lose_to_python(t, "messages cannot be prepared");
        Py_CLEAR(b);
    }
    Py_XDECREF(pieces);
    transport_leave(scope);
    *out = b;
    return status;
}

int transport_late(void *self, muon_batch *b)
{
    (void)self;
    int i = atomic_load(&b->ndone);
    return i < b->nstarted ? b->pieces[i].peer : -1;
}

/* ---- gloo: Python starts the messages, its threads wait for them */

static muon_status start_gloo(void *self, muon_batch *b)
{
    transport *t = self;
    muon_status status = transport_check_order(t);
    if (status != MUON_OK || b->npieces == 0) return status;
    atomic_store(&b->ndone, 0);
    atomic_store(&b->is_busy, 1);
    transport_scope scope = transport_enter();
    PyObject *result = PyObject_CallMethod(self, "_start", "OO", b, b->handle);
    if (!result) status = transport_lose_to_python(t, "messages cannot be started");
    Py_XDECREF(result);
    transport_leave(scope);
    return status;
}

static muon_status test_gloo(void *self, muon_batch *b, int *done)
{
    if (atomic_load_explicit(&b->is_failed, memory_order_acquire))
        return transport_lose(self, b, atomic_load(&b->ndone), b->error);
    *done = atomic_load_explicit(&b->ndone, memory_order_acquire) == b->npieces;
    return MUON_OK;
}

static void close_gloo(void *self, muon_batch *b)
{
    transport_scope scope = transport_enter();
    transport_abandon(self, b);
    transport_leave(scope);
}

const muon_comm_ops transport_gloo_ops = {
    .struct_size = sizeof(muon_comm_ops),
    .name = "gloo",
    .open = transport_open,
    .close = close_gloo,
    .start = start_gloo,
    .test = test_gloo,
    .late = transport_late,
    .keep = transport_keep,
};

/* ---- _core.Batch */

static void batch_free(PyObject *self)
{
    muon_batch *b = (muon_batch *)self;
    transport_settle(b);
    Py_XDECREF(b->handle);
    free(b->pieces);
    core_free_object(self);
}

/* The last piece is marked last: from then on the library may start the batch again. */
static PyObject *batch_done(PyObject *self, PyObject *unused)
{
    muon_batch *b = (muon_batch *)self;
    (void)unused;
    if (atomic_load(&b->is_failed)) Py_RETURN_NONE;
    int n = atomic_load(&b->ndone) + 1;
    if (n == b->npieces) transport_settle(b);
    atomic_store_explicit(&b->ndone, n, memory_order_release);
    Py_RETURN_NONE;
}

static PyObject *batch_fail(PyObject *self, PyObject *why)
{
    muon_batch *b = (muon_batch *)self;
    const char *text = PyUnicode_AsUTF8AndSize(why, NULL);
    if (!text) return NULL;
    if (atomic_load(&b->is_failed)) Py_RETURN_NONE;
    strncpy(b->error, text, sizeof b->error - 1);
    atomic_store_explicit(&b->is_failed, 1, memory_order_release);
    Py_RETURN_NONE;
}

static PyObject *batch_settle(PyObject *self, PyObject *unused)
{
    (void)unused;
    transport_settle((muon_batch *)self);
    Py_RETURN_NONE;
}

static PyObject *batch_is_over(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(transport_mpi_is_over((muon_batch *)self));
}

static PyMethodDef batch_methods[] = {
    {"done", batch_done, METH_NOARGS, "The next piece is done."},
    {"fail", batch_fail, METH_O, "The next piece has failed: fail(why)."},
    {"settle", batch_settle, METH_NOARGS, "No piece accesses its memory any more."},
    {"is_over", batch_is_over, METH_NOARGS, "MPI: looks whether anything is under way."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "A batch of messages; only the library makes one."},
    {Py_tp_dealloc, batch_free},
    {Py_tp_methods, batch_methods},
    {0, NULL},
};

static PyType_Spec batch_spec = {"libmuon._core.Batch", sizeof(muon_batch), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 batch_slots};

/* ---- _core.Transport */

static PyObject *transport_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    (void)args, (void)keywords; /* those of the subclass */
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    transport *t = (transport *)allocate(type, 0);
    if (!t) return NULL;
    t->kept = calloc(1, sizeof *t->kept);
    if (!t->kept) {
        Py_DECREF(t);
        return PyErr_NoMemory();
    }
    t->kept->users = t->kept->is_owned = 1;
    return (PyObject *)t;
}

static int transport_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    transport *t = (transport *)self;
    static char *names[] = {"kind", "rank", "size", "sharing", "cut", NULL};
    const char *kind;
    int rank, size, sharing;
    long long cut = 1LL << 30; /* transports have been seen to fail near the limit of int */
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "siii|L:Transport", names, &kind, &rank, &size,
                                     &sharing, &cut))
        return -1;
    int is_mpi = strcmp(kind, transport_mpi_ops.name) == 0;
    if ((!is_mpi && strcmp(kind, transport_gloo_ops.name) != 0) || cut < 1 || cut > 1LL << 30) {
        core_refuse("Transport: kind is '%s' (gloo, mpi), cut is %lld (1 to 2^30)", kind, cut);
        return -1;
    }
    t->cut = cut;
    t->comm = (muon_comm){.struct_size = sizeof t->comm,
                          .ops = is_mpi ? &transport_mpi_ops : &transport_gloo_ops,
                          .self = t,
                          .rank = rank,
                          .size = size,
                          .sharing = sharing};
    return 0;
}

static void transport_free(PyObject *self)
{
    transport *t = (transport *)self;
    if (t->kept) {
        t->kept->is_owned = 0;
        leave_kept(t->kept);
    }
    core_free_object(self);
}

static PyObject *get_rank(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((transport *)self)->comm.rank);
}

static PyObject *get_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((transport *)self)->comm.size);
}

static PyObject *get_sharing(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((transport *)self)->comm.sharing);
}

static PyObject *get_address(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(&((transport *)self)->comm);
}

static PyObject *get_is_lost(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((transport *)self)->is_lost);
}

static PyGetSetDef transport_properties[] = {
    {"rank", get_rank, NULL, "This process.", NULL},
    {"size", get_size, NULL, "Number of processes.", NULL},
    {"sharing", get_sharing, NULL, "How many of them run on the same processors as this one.",
     NULL},
    {"address", get_address, NULL, "The muon_comm.", NULL},
    {"is_lost", get_is_lost, NULL, "A message was lost; a new transport is needed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot transport_slots[] = {
    {Py_tp_doc, "Transport(kind, rank, size, sharing, cut=2**30): messages between ranks."},
    {Py_tp_new, transport_new},
    {Py_tp_init, transport_init},
    {Py_tp_dealloc, transport_free},
    {Py_tp_getset, transport_properties},
    {0, NULL},
};

static PyType_Spec transport_spec = {"libmuon._core.Transport", sizeof(transport), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, transport_slots};

static PyObject *last_error(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_DecodeUTF8(muon_last_error(), (Py_ssize_t)strlen(muon_last_error()),
                                "replace");
}

static PyMethodDef functions[] = {
    {"load_mpi", transport_load_mpi, METH_VARARGS,
     "load_mpi(file, byte, handle_size, status_size): finds MPI."},
    {"last_error", last_error, METH_NOARGS, "What the last call that failed in this thread said."},
    {NULL, NULL, 0, NULL},
};

int core_add_transport(PyObject *module)
{
    if (PyModule_AddFunctions(module, functions) < 0 ||
        core_add_type(module, &batch_spec, &batch_type) < 0)
        return -1;
    return core_add_type(module, &transport_spec, &transport_type);
}

const muon_comm *core_transport_comm(PyObject *object)
{
    int is_one = PyObject_IsInstance(object, (PyObject *)transport_type);
    if (is_one < 0) return NULL;
    const muon_comm *comm = is_one ? &((transport *)object)->comm : NULL;
    if (!comm || !comm->ops)
        return (const muon_comm *)core_refuse(
            "comm is %s", is_one ? "not initialised" : "not a libmuon._core.Transport");
    return comm;
}
