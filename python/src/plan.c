/* _core.Plan: what a step will do (muon/plan.h). */
#include "core.h"

#include "muon/route.h"

#include <stdlib.h>
#include <string.h>

typedef struct plan_object {
    PyObject_HEAD muon_plan *made; /* by this object, or NULL */
    const muon_plan *plan;         /* the same, or the optimizer's */
    PyObject *owner;               /* keeps the optimizer alive, or NULL */
} plan_object;

static PyTypeObject *plan_type;

static const muon_plan *of(PyObject *self)
{
    return ((plan_object *)self)->plan;
}

const muon_plan *core_plan_of(PyObject *object)
{
    if (PyObject_TypeCheck(object, plan_type)) return of(object);
    core_refuse("a _core.Plan is needed");
    return NULL;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *config, *params;
    static char *names[] = {"config", "params", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:Plan", names, &config, &params))
        return NULL;
    core_spec spec;
    if (core_spec_init(&spec, config, params) < 0) return NULL;
    muon_plan *plan = NULL;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status =
        muon_plan_create(&plan, &spec.config, spec.params, spec.nparams);
    Py_END_ALLOW_THREADS core_spec_free(&spec);
    if (status != MUON_OK) return core_raise(status);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    plan_object *self = (plan_object *)allocate(type, 0);
    if (!self) {
        muon_plan_destroy(plan);
        return NULL;
    }
    self->made = plan;
    self->plan = plan;
    return (PyObject *)self;
}

PyObject *core_wrap_plan(const muon_plan *plan, PyObject *owner)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(plan_type, Py_tp_alloc);
    plan_object *self = (plan_object *)allocate(plan_type, 0);
    if (!self) return NULL;
    Py_INCREF(owner);
    self->plan = plan;
    self->owner = owner;
    return (PyObject *)self;
}

static void plan_free(PyObject *self)
{
    plan_object *object = (plan_object *)self;
    muon_plan_destroy(object->made);
    Py_XDECREF(object->owner);
    core_free_object(self);
}

/* ---- Numbers */

static PyObject *get_ranks(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(muon_plan_count_ranks(of(self)));
}

static PyObject *get_hash(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(muon_plan_get_hash(of(self)));
}

static const char *const algorithm_words[] = {"auto", "standard", "symmetric", "gram", NULL};
#define M(member, kind) CORE_FIELD(muon_matrix, member, kind)
static const core_field matrix_fields[] = {
    M(param, CORE_SIZE),
    M(rows, CORE_I64),
    M(cols, CORE_I64),
    M(batch, CORE_I64),
    M(row, CORE_I64),
    M(col, CORE_I64),
    M(factor, CORE_DOUBLE),
    M(flops, CORE_DOUBLE),
    CORE_FIELD_WORD(muon_matrix, algorithm, algorithm_words),
    M(owner, CORE_INT),
    M(wave, CORE_INT),
    M(second_moments, CORE_I64),
    M(momentum_scales, CORE_I64),
    CORE_END,
};

static PyObject *matrices(PyObject *self, PyObject *unused)
{
    (void)unused;
    size_t n = muon_plan_count_matrices(of(self));
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < n; i++) {
        muon_matrix matrix;
        muon_status status = muon_plan_get_matrix(of(self), i, &matrix, sizeof matrix);
        PyObject *dict =
            status == MUON_OK ? core_to_dict(&matrix, matrix_fields) : core_raise(status);
        if (!dict || PyList_Append(list, dict) < 0) Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

#define K(member, kind) CORE_FIELD(muon_plan_cost, member, kind)
static const core_field cost_fields[] = {
    K(flops, CORE_DOUBLE),        K(state_bytes, CORE_I64),
    K(workspace_bytes, CORE_I64), K(waves, CORE_I64),
    K(matrices, CORE_I64),        K(muon_elements, CORE_I64),
    K(expert_elements, CORE_I64), K(adamw_elements, CORE_I64),
    K(frozen_elements, CORE_I64), CORE_END,
};

static PyObject *cost(PyObject *self, PyObject *unused)
{
    (void)unused;
    muon_plan_cost c;
    muon_status status = muon_plan_get_cost(of(self), &c, sizeof c);
    return status == MUON_OK ? core_to_dict(&c, cost_fields) : core_raise(status);
}

#define Q(member, kind) CORE_FIELD(muon_prediction, member, kind)
static const core_field prediction_fields[] = {
    Q(ranks, CORE_I64),           Q(matrices, CORE_I64),
    Q(waves, CORE_I64),           Q(makespan, CORE_DOUBLE),
    Q(lower_bound, CORE_DOUBLE),  Q(bound_work, CORE_DOUBLE),
    Q(bound_matrix, CORE_DOUBLE), Q(bound_bytes, CORE_DOUBLE),
    Q(bound_teams, CORE_DOUBLE),  Q(imbalance, CORE_DOUBLE),
    Q(bytes_max, CORE_I64),       Q(bytes_mean, CORE_I64),
    Q(padding_bytes, CORE_I64),   Q(workspace_max, CORE_I64),
    Q(matrices_max, CORE_I64),    CORE_END,
};

static PyObject *predict(PyObject *self, PyObject *unused)
{
    (void)unused;
    muon_prediction p;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_plan_predict(of(self), &p, sizeof p);
    Py_END_ALLOW_THREADS return status == MUON_OK ? core_to_dict(&p, prediction_fields)
                                                  : core_raise(status);
}

#define L(member, kind) CORE_FIELD(muon_rank_load, member, kind)
static const core_field load_fields[] = {
    L(matrices, CORE_I64),
    L(flops, CORE_DOUBLE),
    L(messages_sent, CORE_I64),
    L(messages_received, CORE_I64),
    L(bytes_sent, CORE_I64),
    L(bytes_received, CORE_I64),
    L(state_bytes, CORE_I64),
    L(workspace_bytes, CORE_I64),
    L(work_seconds, CORE_DOUBLE),
    L(message_seconds, CORE_DOUBLE),
    CORE_END,
};

static PyObject *rank_load(PyObject *self, PyObject *args)
{
    int rank;
    if (!PyArg_ParseTuple(args, "i:rank", &rank)) return NULL;
    muon_rank_load load;
    muon_status status = muon_plan_get_rank(of(self), rank, &load, sizeof load);
    return status == MUON_OK ? core_to_dict(&load, load_fields) : core_raise(status);
}

/* ---- Shards */

static PyObject *tuple_of(const int64_t *numbers, int n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyTuple_SetItem(tuple, i, number) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *parts(PyObject *self, PyObject *args)
{
    Py_ssize_t param;
    int rank, ndim;
    if (!PyArg_ParseTuple(args, "nii:parts", &param, &rank, &ndim)) return NULL;
    if (ndim < 0 || ndim > MUON_MAX_DIMS) return core_refuse("parts: %d dims", ndim);
    size_t n = muon_plan_count_parts(of(self), (size_t)param, rank);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < n; i++) {
        muon_part part;
        muon_status status =
            muon_plan_get_part(of(self), (size_t)param, rank, i, &part, sizeof part);
        if (status != MUON_OK) {
            Py_DECREF(list);
            return core_raise(status);
        }
        PyObject *item =
            Py_BuildValue("(NNLii)", tuple_of(part.begin, ndim), tuple_of(part.end, ndim),
                          (long long)part.offset, part.replica, part.replicas);
        if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *elements(PyObject *self, PyObject *args)
{
    Py_ssize_t param;
    int rank;
    if (!PyArg_ParseTuple(args, "ni:elements", &param, &rank)) return NULL;
    return PyLong_FromLongLong(muon_plan_count_elements(of(self), (size_t)param, rank));
}

static PyObject *copy_shard(PyObject *self, PyObject *args, int join)
{
    Py_ssize_t param, size;
    int rank;
    unsigned long long to, from;
    if (!PyArg_ParseTuple(args, "niKKn", &param, &rank, &to, &from, &size)) return NULL;
    void *into = (void *)(uintptr_t)to;
    const void *source = (const void *)(uintptr_t)from;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = (join ? muon_plan_join_shard : muon_plan_cut_shard)(
        of(self), (size_t)param, rank, into, source, (size_t)size);
    Py_END_ALLOW_THREADS if (status != MUON_OK) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *cut_shard(PyObject *self, PyObject *args)
{
    return copy_shard(self, args, 0);
}

static PyObject *join_shard(PyObject *self, PyObject *args)
{
    return copy_shard(self, args, 1);
}

/* ---- QK-clip */

static PyObject *qk_scales(PyObject *self, PyObject *args)
{
    Py_ssize_t attention;
    unsigned long long logits, q, k;
    if (!PyArg_ParseTuple(args, "nKKK:qk_scales", &attention, &logits, &q, &k)) return NULL;
    int64_t above = 0;
    muon_status status =
        muon_plan_get_qk_scales(of(self), (size_t)attention, (const float *)(uintptr_t)logits,
                                (float *)(uintptr_t)q, (float *)(uintptr_t)k, &above);
    return status == MUON_OK ? PyLong_FromLongLong(above) : core_raise(status);
}

/* ---- Text */

typedef struct text {
    char *data;
    size_t length, room;
} text;

static void append(void *user, const char *more, size_t length)
{
    text *t = user;
    if (t->length + length > t->room) {
        size_t room = 2 * (t->length + length);
        char *data = realloc(t->data, room);
        if (!data) return;
        t->data = data;
        t->room = room;
    }
    memcpy(t->data + t->length, more, length);
    t->length += length;
}

static PyObject *print(PyObject *self, PyObject *unused)
{
    (void)unused;
    text t = {0};
    muon_plan_print(of(self), append, &t);
    PyObject *string = PyUnicode_FromStringAndSize(t.data ? t.data : "", (Py_ssize_t)t.length);
    free(t.data);
    return string;
}

static PyMethodDef methods[] = {
    {"matrices", matrices, METH_NOARGS, "Every logical matrix, as a dict."},
    {"cost", cost, METH_NOARGS, "Totals over all ranks."},
    {"predict", predict, METH_NOARGS, "Predicted times, and the bounds no plan can beat."},
    {"rank", rank_load, METH_VARARGS, "rank(r): what one rank does in a step."},
    {"parts", parts, METH_VARARGS,
     "parts(param, rank, ndim): the boxes of a shard: (begin, end, offset, replica, replicas)."},
    {"elements", elements, METH_VARARGS, "elements(param, rank): elements of a shard."},
    {"cut_shard", cut_shard, METH_VARARGS,
     "cut_shard(param, rank, shard, whole, element_size): copies between addresses."},
    {"join_shard", join_shard, METH_VARARGS,
     "join_shard(param, rank, whole, shard, element_size): copies between addresses."},
    {"qk_scales", qk_scales, METH_VARARGS,
     "qk_scales(attention, max_logits, q, k): writes the factor of every row to the addresses q "
     "and "
     "k; returns the number of heads above the threshold."},
    {"text", print, METH_NOARGS, "The table of parameters, matrices and owners."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"ranks", get_ranks, NULL, "Number of ranks.", NULL},
    {"hash", get_hash, NULL, "Equal hashes mean equal plans.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Plan(config, params): what a step will do."},
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_free},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, NULL},
};

static PyType_Spec plan_spec = {"libmuon._core.Plan", sizeof(plan_object), 0, Py_TPFLAGS_DEFAULT,
                                slots};

int core_add_plan(PyObject *module)
{
    return core_add_type(module, &plan_spec, &plan_type);
}
