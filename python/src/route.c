/* _core.Route: what one rank moves in a step; _core.schedule: how it orthogonalizes (muon/route.h). */
#include "core.h"

#include "muon/route.h"

#include <string.h>

typedef struct route_object {
    PyObject_HEAD muon_route *route;
} route_object;

static PyTypeObject *route_type;

static const muon_route *of(PyObject *self)
{
    return ((route_object *)self)->route;
}

static PyObject *route_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *plan_object;
    int rank;
    static char *names[] = {"plan", "rank", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Oi:Route", names, &plan_object, &rank))
        return NULL;
    const muon_plan *plan = core_plan_of(plan_object);
    if (!plan) return NULL;
    muon_route *route = NULL;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_route_create(&route, plan, rank);
    Py_END_ALLOW_THREADS if (status != MUON_OK) return core_raise(status);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    route_object *self = (route_object *)allocate(type, 0);
    if (self)
        self->route = route;
    else
        muon_route_destroy(route);
    return (PyObject *)self;
}

static void route_free(PyObject *self)
{
    muon_route_destroy(((route_object *)self)->route);
    core_free_object(self);
}

static PyObject *get_waves(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(muon_route_count_waves(of(self)));
}

/* ---- Lists of a wave */

static const char *const list_words[] = {
    [MUON_ROUTE_GATHER_SEND] = "gather_send",
    [MUON_ROUTE_GATHER_RECEIVE] = "gather_receive",
    [MUON_ROUTE_SCATTER_SEND] = "scatter_send",
    [MUON_ROUTE_SCATTER_RECEIVE] = "scatter_receive",
    [MUON_ROUTE_LOCAL] = "local",
    [MUON_ROUTE_SKIPPED] = "skipped",
};

/* A wave that exists; -1 with an exception if it does not. */
static int check_wave(PyObject *self, Py_ssize_t wave)
{
    size_t n = muon_route_count_waves(of(self));
    if (wave >= 0 && (size_t)wave < n) return 0;
    core_refuse("wave %zd does not exist: the route has %zu", wave, n);
    return -1;
}

/* The wave and list of a call (wave, word). */
static int read_list(PyObject *self, PyObject *args, size_t *wave, muon_route_list *list)
{
    Py_ssize_t number;
    const char *word;
    if (!PyArg_ParseTuple(args, "ns", &number, &word)) return -1;
    if (check_wave(self, number) < 0) return -1;
    *wave = (size_t)number;
    for (int i = 0; i < MUON_ROUTE_NLISTS; i++) {
        if (strcmp(list_words[i], word) != 0) continue;
        *list = (muon_route_list)i;
        return 0;
    }
    core_refuse("a route has no list '%s'", word);
    return -1;
}

static PyObject *message_at(PyObject *self, size_t wave, muon_route_list list, size_t index)
{
    muon_route_message m;
    muon_status status = muon_route_get_message(of(self), wave, list, index, &m, sizeof m);
    if (status != MUON_OK) return core_raise(status);
    return Py_BuildValue("(iLLLnn)", m.peer, (long long)m.offset, (long long)m.elements,
                         (long long)m.bytes, (Py_ssize_t)m.first_piece, (Py_ssize_t)m.pieces);
}

static PyObject *piece_at(PyObject *self, size_t wave, muon_route_list list, size_t index)
{
    muon_route_piece p;
    muon_status status = muon_route_get_piece(of(self), wave, list, index, &p, sizeof p);
    if (status != MUON_OK) return core_raise(status);
    Py_ssize_t matrix = p.matrix == MUON_NO_MATRIX ? -1 : (Py_ssize_t)p.matrix;
    return Py_BuildValue("(nnLLLLLLLLL)", (Py_ssize_t)p.param, matrix, (long long)p.rows,
                         (long long)p.cols, (long long)p.matrix_row, (long long)p.matrix_col,
                         (long long)p.tensor_offset, (long long)p.tensor_stride,
                         (long long)p.shard_offset, (long long)p.shard_stride,
                         (long long)p.buffer_offset);
}

static PyObject *owned_at(PyObject *self, size_t wave, muon_route_list list, size_t index)
{
    (void)list;
    size_t matrix = 0;
    muon_status status = muon_route_get_owned(of(self), wave, index, &matrix);
    return status == MUON_OK ? PyLong_FromSize_t(matrix) : core_raise(status);
}

static PyObject *collect(PyObject *self, size_t wave, muon_route_list list, size_t n,
                         PyObject *(*at)(PyObject *, size_t, muon_route_list, size_t))
{
    PyObject *all = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; all && i < n; i++) {
        PyObject *item = at(self, wave, list, i);
        if (!item || PyList_SetItem(all, (Py_ssize_t)i, item) < 0) Py_CLEAR(all);
    }
    return all;
}

static PyObject *messages(PyObject *self, PyObject *args)
{
    size_t wave;
    muon_route_list list;
    if (read_list(self, args, &wave, &list) < 0) return NULL;
    return collect(self, wave, list, muon_route_count_messages(of(self), wave, list), message_at);
}

static PyObject *pieces(PyObject *self, PyObject *args)
{
    size_t wave;
    muon_route_list list;
    if (read_list(self, args, &wave, &list) < 0) return NULL;
    return collect(self, wave, list, muon_route_count_pieces(of(self), wave, list), piece_at);
}

static PyObject *owned(PyObject *self, PyObject *args)
{
    Py_ssize_t wave;
    if (!PyArg_ParseTuple(args, "n:owned", &wave)) return NULL;
    if (check_wave(self, wave) < 0) return NULL;
    size_t n = muon_route_count_owned(of(self), (size_t)wave);
    return collect(self, (size_t)wave, MUON_ROUTE_LOCAL, n, owned_at);
}

static PyMethodDef methods[] = {
    {"owned", owned, METH_VARARGS,
     "owned(wave): the matrices that the rank orthogonalizes, in order."},
    {"messages", messages, METH_VARARGS,
     "messages(wave, list): (peer, offset, elements, bytes, first_piece, pieces) of each. The list "
     "is "
     "gather_send, gather_receive, scatter_send, scatter_receive, local or skipped."},
    {"pieces", pieces, METH_VARARGS,
     "pieces(wave, list): (param, matrix, rows, cols, matrix_row, matrix_col, tensor_offset, "
     "tensor_stride, shard_offset, shard_stride, buffer_offset) of each; matrix -1: in none."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"waves", get_waves, NULL, "Number of waves.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Route(plan, rank): what one rank sends, receives, owns and keeps, wave by wave."},
    {Py_tp_new, route_new},
    {Py_tp_dealloc, route_free},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, NULL},
};

static PyType_Spec route_spec = {"libmuon._core.Route", sizeof(route_object), 0, Py_TPFLAGS_DEFAULT,
                                 slots};

/* ---- The schedule */

static PyObject *coefficients_of(const muon_schedule *s)
{
    PyObject *list = PyList_New((Py_ssize_t)s->steps);
    for (int64_t k = 0; list && k < s->steps; k++) {
        PyObject *abc = Py_BuildValue("(ddd)", s->abc[k][0], s->abc[k][1], s->abc[k][2]);
        if (!abc || PyList_SetItem(list, (Py_ssize_t)k, abc) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *restarts_of(const muon_schedule *s)
{
    PyObject *list = PyList_New((Py_ssize_t)s->steps);
    for (int64_t k = 0; list && k < s->steps; k++)
        if (PyList_SetItem(list, (Py_ssize_t)k, PyBool_FromLong(s->restart[k])) < 0) Py_CLEAR(list);
    return list;
}

/* Words are the library's own: those of the group's fields. */
static PyObject *to_dict(muon_group *group, const muon_schedule *s)
{
    char algorithm[MUON_FIELD_TEXT], eps_mode[MUON_FIELD_TEXT], norm[MUON_FIELD_TEXT];
    group->algorithm = s->algorithm;
    muon_status status = muon_group_get(group, "algorithm", algorithm, sizeof algorithm);
    if (status == MUON_OK) status = muon_group_get(group, "eps_mode", eps_mode, sizeof eps_mode);
    if (status == MUON_OK) status = muon_group_get(group, "normalization", norm, sizeof norm);
    if (status != MUON_OK) return core_raise(status);
    return Py_BuildValue("{s:d,s:s,s:N,s:N,s:d,s:d,s:s,s:d,s:s}", "factor", s->factor, "algorithm",
                         algorithm, "coefficients", coefficients_of(s), "restarts", restarts_of(s),
                         "norm_scale", s->norm_scale, "eps", s->eps, "eps_mode", eps_mode, "flops",
                         s->flops, "normalization", norm);
}

static PyObject *schedule(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *dict, *result = NULL;
    long long rows, cols;
    int transposed = 0;
    if (!PyArg_ParseTuple(args, "OLL|p:schedule", &dict, &rows, &cols, &transposed)) return NULL;
    core_spec spec = {0};
    muon_group group;
    if (core_group_init(&spec, &group, dict, 0) == 0) {
        muon_schedule s;
        muon_status status = muon_group_get_schedule(&group, rows, cols, transposed, &s, sizeof s);
        result = status == MUON_OK ? to_dict(&group, &s) : core_raise(status);
    }
    core_spec_free(&spec);
    return result;
}

static PyMethodDef functions[] = {
    {"schedule", schedule, METH_VARARGS,
     "schedule(group, rows, cols, transposed=False): how a matrix is orthogonalized; restarts[k]: "
     "the "
     "Gram form starts afresh before step k."},
    {NULL, NULL, 0, NULL},
};

int core_add_route(PyObject *module)
{
    if (PyModule_AddFunctions(module, functions) < 0) return -1;
    return core_add_type(module, &route_spec, &route_type);
}
