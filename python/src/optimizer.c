/* _core.Optimizer: an optimizer (muon/muon.h); its state is in optimizer_state.c. */
#include "optimizer.h"

#include <stdlib.h>
#include <unistd.h>

static PyTypeObject *optimizer_type;

/* ---- Creation */

/* Called by the library, without the GIL. */
static void log_message(void *user, muon_log_level level, const char *message)
{
    optimizer_object *self = user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *result = PyObject_CallFunction(self->log, "is", (int)level, message);
    if (!result) PyErr_WriteUnraisable(self->log);
    Py_XDECREF(result);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
}

static int read_parts(PyObject *list, muon_grad_part *parts, size_t nparts)
{
    size_t n = PyList_Check(list) ? (size_t)PyList_Size(list) : 0;
    if (n != nparts) {
        core_refuse("grad_fetch returned %zu addresses for %zu gradients", n, nparts);
        return -1;
    }
    for (size_t i = 0; i < nparts; i++)
        parts[i].data = PyLong_AsVoidPtr(PyList_GetItem(list, (Py_ssize_t)i));
    return PyErr_Occurred() ? -1 : 0;
}

/* Called by the library, without the GIL. */
static int fetch_grads(void *user, muon_grad_part *parts, size_t nparts)
{
    optimizer_object *self = user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < nparts; i++) {
        PyObject *part = Py_BuildValue("(nLL)", (Py_ssize_t)parts[i].param,
                                       (long long)parts[i].begin, (long long)parts[i].end);
        if (!part || PyList_Append(list, part) < 0) Py_CLEAR(list);
        Py_XDECREF(part);
    }
    PyObject *result = list ? PyObject_CallFunctionObjArgs(self->grad_fetch, list, NULL) : NULL;
    int code = result ? read_parts(result, parts, nparts) : -1;
    if (code < 0 && !self->error[0]) PyErr_Fetch(&self->error[0], &self->error[1], &self->error[2]);
    PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(list);
    PyGILState_Release(state);
    return code;
}

/* Raises what a callback has raised, if it has; NULL. */
static PyObject *raise_step_error(optimizer_object *self, muon_status status)
{
    if (!self->error[0]) return core_raise(status);
    PyErr_Restore(self->error[0], self->error[1], self->error[2]);
    self->error[0] = self->error[1] = self->error[2] = NULL;
    return NULL;
}

static void optimizer_free(PyObject *object)
{
    optimizer_object *self = (optimizer_object *)object;
    /* In the child of a fork, the threads that it would wait for do not exist: it is forgotten. */
    muon_opt *opt = self->process == getpid() ? self->opt : NULL;
    Py_BEGIN_ALLOW_THREADS muon_destroy(opt);
    Py_END_ALLOW_THREADS free(self->buffers);
    free(self->logits);
    free(self->state);
    Py_XDECREF(self->log);
    Py_XDECREF(self->grad_fetch);
    Py_XDECREF(self->comm);
    core_free_object(object);
}

static int create(optimizer_object *self, core_spec *spec, PyObject *state, PyObject *comm)
{
    if (comm != Py_None) {
        spec->config.comm = core_transport_comm(comm);
        if (!spec->config.comm) return -1;
        Py_INCREF(comm);
        self->comm = comm;
    }
    if (spec->log) {
        Py_INCREF(spec->log);
        self->log = spec->log;
        spec->config.log = log_message;
    }
    if (spec->grad_fetch) {
        Py_INCREF(spec->grad_fetch);
        self->grad_fetch = spec->grad_fetch;
        spec->config.grad_fetch = fetch_grads;
    }
    spec->config.user = self;
    self->process = getpid();
    self->nparams = spec->nparams;
    self->ngroups = spec->config.ngroups;
    self->nattention = spec->config.nattention;
    self->buffers = calloc(self->nparams + 1, sizeof *self->buffers);
    self->logits = calloc(self->nattention + 1, sizeof *self->logits);
    self->state = calloc(self->nparams + 1, sizeof *self->state);
    if (!self->buffers || !self->logits || !self->state) {
        PyErr_NoMemory();
        return -1;
    }
    if (state != Py_None) {
        if (core_read_state(self->state, self->nparams, state) < 0) return -1;
        spec->config.state = self->state;
    }
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status =
        muon_create(&self->opt, &spec->config, spec->params, spec->nparams);
    Py_END_ALLOW_THREADS if (status != MUON_OK) core_raise(status);
    return status == MUON_OK ? 0 : -1;
}

static PyObject *optimizer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *config, *params, *state = Py_None, *comm = Py_None;
    static char *names[] = {"config", "params", "state", "comm", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|OO:Optimizer", names, &config, &params,
                                     &state, &comm))
        return NULL;
    core_spec spec;
    if (core_spec_init(&spec, config, params) < 0) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (self && create((optimizer_object *)self, &spec, state, comm) < 0) Py_CLEAR(self);
    core_spec_free(&spec);
    return self;
}

static PyObject *get_plan(PyObject *self, void *unused)
{
    (void)unused;
    muon_opt *opt = core_usable(self);
    return opt ? core_wrap_plan(muon_opt_get_plan(opt), self) : NULL;
}

/* ---- A step */

/* A list of addresses of floats, 0 for a layer without logits; None: no QK-clip. */
static int read_logits(optimizer_object *self, PyObject *list, muon_step_args *args)
{
    if (list == Py_None) return 0;
    size_t n = PyList_Check(list) ? (size_t)PyList_Size(list) : 0;
    if (n != self->nattention) {
        core_refuse("max_logits has %zu layers, the optimizer has %zu attention layers", n,
                    self->nattention);
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        self->logits[i] = PyLong_AsVoidPtr(PyList_GetItem(list, (Py_ssize_t)i));
    args->max_logits = (const float *const *)self->logits;
    return PyErr_Occurred() ? -1 : 0;
}

static const char *const skip_words[] = {"none", "nonfinite_grad", "grad_norm", NULL};
#define R(member, kind) CORE_FIELD(muon_result, member, kind)
static const core_field result_fields[] = {
    R(applied, CORE_INT),
    CORE_FIELD_WORD(muon_result, skip, skip_words),
    R(skip_param, CORE_TEXT),
    R(nonfinite_params, CORE_I64),
    R(missing_params, CORE_I64),
    R(grad_norm, CORE_DOUBLE),
    R(clip_coef, CORE_DOUBLE),
    R(update_rms, CORE_DOUBLE),
    R(matrices, CORE_I64),
    R(nonfinite_matrices, CORE_I64),
    R(clipped_heads, CORE_I64),
    R(max_logit, CORE_DOUBLE),
    R(seconds, CORE_DOUBLE),
    R(messages_sent, CORE_I64),
    R(messages_received, CORE_I64),
    R(bytes_sent, CORE_I64),
    R(bytes_received, CORE_I64),
    R(seconds_max, CORE_DOUBLE),
    R(seconds_min, CORE_DOUBLE),
    R(skipped_steps, CORE_I64),
    CORE_END,
};

static PyObject *result_dict(const muon_result *result)
{
    PyObject *dict = core_to_dict(result, result_fields), *phases = PyDict_New();
    for (int i = 0; dict && phases && i < MUON_NPHASES; i++)
        if (core_put(phases, muon_phase_name((muon_phase)i),
                     PyFloat_FromDouble(result->phase[i].seconds)) < 0)
            Py_CLEAR(phases);
    if (dict && core_put(dict, "phases", phases) < 0) Py_CLEAR(dict);
    return dict;
}

static PyObject *step(PyObject *object, PyObject *args)
{
    optimizer_object *self = (optimizer_object *)object;
    PyObject *buffers, *logits = Py_None;
    muon_step_args step_args;
    muon_step_args_init(&step_args, sizeof step_args);
    if (!PyArg_ParseTuple(args, "O|dOdi:step", &buffers, &step_args.grad_scale, &logits,
                          &step_args.grad_norm, &step_args.finite))
        return NULL;
    muon_opt *opt = core_usable(object);
    if (!opt || core_read_buffers(self, buffers) < 0 || read_logits(self, logits, &step_args) < 0)
        return NULL;
    step_args.buffers = self->buffers;
    muon_result result;
    muon_result_init(&result, sizeof result);
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_step(opt, &step_args, &result);
    Py_END_ALLOW_THREADS return status == MUON_OK ? result_dict(&result)
                                                  : raise_step_error(self, status);
}

static PyObject *grad_norm(PyObject *object, PyObject *args)
{
    optimizer_object *self = (optimizer_object *)object;
    PyObject *buffers;
    muon_step_args step_args;
    muon_step_args_init(&step_args, sizeof step_args);
    if (!PyArg_ParseTuple(args, "O|d:grad_norm", &buffers, &step_args.grad_scale)) return NULL;
    muon_opt *opt = core_usable(object);
    if (!opt || core_read_buffers(self, buffers) < 0) return NULL;
    step_args.buffers = self->buffers;
    double norm = 0;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_grad_norm(opt, &step_args, &norm);
    Py_END_ALLOW_THREADS return status == MUON_OK ? PyFloat_FromDouble(norm)
                                                  : raise_step_error(self, status);
}

static PyObject *check_replicas(PyObject *self, PyObject *list)
{
    muon_opt *opt = core_usable(self);
    optimizer_object *object = (optimizer_object *)self;
    if (!opt || core_read_buffers(object, list) < 0) return NULL;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_opt_check_replicas(opt, object->buffers);
    Py_END_ALLOW_THREADS return core_done(status);
}

/* ---- Settings */

static PyObject *set_lr(PyObject *self, PyObject *args)
{
    Py_ssize_t group;
    double lr;
    if (!PyArg_ParseTuple(args, "nd:set_lr", &group, &lr)) return NULL;
    muon_opt *opt = core_usable(self);
    return opt ? core_done(muon_opt_set_lr(opt, (size_t)group, lr)) : NULL;
}

static PyObject *set_group(PyObject *self, PyObject *args)
{
    Py_ssize_t index;
    PyObject *dict;
    if (!PyArg_ParseTuple(args, "nO:set_group", &index, &dict)) return NULL;
    muon_opt *opt = core_usable(self);
    core_spec spec = {0};
    muon_group group;
    if (!opt) return NULL;
    PyObject *result = NULL;
    if (core_group_init(&spec, &group, dict, (size_t)index) == 0)
        result = core_done(muon_opt_set_group(opt, (size_t)index, &group));
    core_spec_free(&spec);
    return result;
}

static PyObject *custom_of(const muon_group *group)
{
    if (!group->ncustom) Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < group->ncustom; i++) {
        const double *row = group->custom[i];
        PyObject *triple = Py_BuildValue("ddd", row[0], row[1], row[2]);
        if (!triple || PyList_Append(list, triple) < 0) Py_CLEAR(list);
        Py_XDECREF(triple);
    }
    return list;
}

static PyObject *get_group(PyObject *self, PyObject *args)
{
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "n:get_group", &index)) return NULL;
    muon_opt *opt = core_usable(self);
    if (!opt) return NULL;
    muon_group group;
    muon_group_init(&group, sizeof group);
    muon_status status = muon_opt_get_group(opt, (size_t)index, &group);
    if (status != MUON_OK) return core_raise(status);
    PyObject *dict = core_group_values(&group);
    if (dict && core_put(dict, "custom", custom_of(&group)) < 0) Py_CLEAR(dict);
    return dict;
}

static PyObject *set_clip_norm(PyObject *self, PyObject *args)
{
    double clip_norm;
    if (!PyArg_ParseTuple(args, "d:set_clip_norm", &clip_norm)) return NULL;
    muon_opt *opt = core_usable(self);
    return opt ? core_done(muon_opt_set_clip_norm(opt, clip_norm)) : NULL;
}

static PyObject *set_qk_clip(PyObject *self, PyObject *args)
{
    double threshold;
    int log_only;
    if (!PyArg_ParseTuple(args, "dp:set_qk_clip", &threshold, &log_only)) return NULL;
    muon_opt *opt = core_usable(self);
    return opt ? core_done(muon_opt_set_qk_clip(opt, threshold, log_only)) : NULL;
}

/* ---- The type */

static PyMethodDef methods[] = {
    {"step", step, METH_VARARGS,
     "step(buffers, grad_scale=1, max_logits=None, grad_norm=-1, finite=-1) -> dict: one step; "
     "collective. buffers has the addresses of weight, gradient (0: missing) and copy (0: none) of "
     "every parameter; -1 is MUON_UNKNOWN."},
    {"grad_norm", grad_norm, METH_VARARGS,
     "grad_norm(buffers, grad_scale=1) -> float: of all gradients; collective."},
    {"check_replicas", check_replicas, METH_O, "check_replicas(buffers): collective."},
    {"set_lr", set_lr, METH_VARARGS, "set_lr(group, lr)"},
    {"set_group", set_group, METH_VARARGS, "set_group(group, dict)"},
    {"get_group", get_group, METH_VARARGS, "get_group(group) -> dict: its fields, and custom."},
    {"set_clip_norm", set_clip_norm, METH_VARARGS, "set_clip_norm(norm)"},
    {"set_qk_clip", set_qk_clip, METH_VARARGS, "set_qk_clip(threshold, log_only)"},
    {"state", core_optimizer_state, METH_NOARGS,
     "The tensors of the state: name, dtype, bytes, address."},
    {"read_state", core_optimizer_read_state, METH_VARARGS,
     "read_state(index, at, count, address): copies elements of a tensor of the state, wherever it "
     "is."},
    {"bind_state", core_optimizer_bind_state, METH_O,
     "bind_state(addresses): the state is now there; None: memory of its own."},
    {"offload", core_optimizer_offload, METH_VARARGS,
     "offload(dir, budget): collective; None: back to memory."},
    {"offload_info", core_optimizer_offload_info, METH_NOARGS,
     "Bytes of state in memory and in the file."},
    {"save", core_optimizer_save, METH_VARARGS,
     "save(root, step, buffers=None, metadata=None, keep=0, replace=0, file_bytes=...): "
     "collective."},
    {"load", core_optimizer_load, METH_VARARGS,
     "load(path, buffers=None, allow_missing=0, allow_extra=0, restore_settings=0, fall_back=0) -> "
     "step: collective."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"plan", get_plan, NULL, "Its plan.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Optimizer(config, params, state=None): state has the addresses of momentum, exp_avg, "
     "exp_avg_sq, step, second_moment and momentum_scales of every parameter (0: none); None: "
     "memory of its own."},
    {Py_tp_new, optimizer_new},
    {Py_tp_dealloc, optimizer_free},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, NULL},
};

static PyType_Spec optimizer_spec = {"libmuon._core.Optimizer", sizeof(optimizer_object), 0,
                                     Py_TPFLAGS_DEFAULT, slots};

int core_add_optimizer(PyObject *module)
{
    return core_add_type(module, &optimizer_spec, &optimizer_type);
}
