/* _core.Optimizer: its state (muon/muon.h) and its checkpoints (muon/checkpoint.h). */
#include "optimizer.h"

#include "muon/checkpoint.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- What a method begins and ends with */

muon_opt *core_usable(PyObject *self)
{
    optimizer_object *object = (optimizer_object *)self;
    if (object->process == getpid()) return object->opt;
    core_refuse("this process is a fork: the optimizer belongs to process %ld",
                (long)object->process);
    return NULL;
}

PyObject *core_done(muon_status status)
{
    if (status != MUON_OK) return core_raise(status);
    Py_RETURN_NONE;
}

int core_read_buffers(optimizer_object *self, PyObject *list)
{
    size_t n = PyList_Check(list) ? (size_t)PyList_Size(list) : 0;
    if (n != 3 * self->nparams) {
        core_refuse("%zu addresses, %zu parameters have three each", n, self->nparams);
        return -1;
    }
    for (size_t i = 0; i < self->nparams; i++) {
        void *address[3];
        for (size_t k = 0; k < 3; k++)
            address[k] = PyLong_AsVoidPtr(PyList_GetItem(list, (Py_ssize_t)(3 * i + k)));
        self->buffers[i] = (muon_buffers){address[0], address[1], address[2]};
    }
    return PyErr_Occurred() ? -1 : 0;
}

enum { PARTS = 6 }; /* addresses of a parameter */

int core_read_state(muon_state_buffers *out, size_t nparams, PyObject *list)
{
    size_t n = PyList_Check(list) ? (size_t)PyList_Size(list) : 0;
    if (n != PARTS * nparams) {
        core_refuse("%zu addresses of state, %zu parameters have %d each", n, nparams, PARTS);
        return -1;
    }
    for (size_t i = 0; i < nparams; i++) {
        void *address[PARTS];
        for (size_t k = 0; k < PARTS; k++)
            address[k] = PyLong_AsVoidPtr(PyList_GetItem(list, (Py_ssize_t)(PARTS * i + k)));
        out[i] = (muon_state_buffers){address[0], address[1], address[2],
                                      address[3], address[4], address[5]};
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- State */

#define T(member, kind) CORE_FIELD(muon_tensor, member, kind)
static const core_field tensor_fields[] = {
    T(name, CORE_TEXT),
    CORE_FIELD_WORD(muon_tensor, dtype, core_dtypes),
    T(bytes, CORE_SIZE),
    CORE_END,
};

PyObject *core_optimizer_state(PyObject *self, PyObject *unused)
{
    (void)unused;
    muon_opt *opt = core_usable(self);
    PyObject *list = opt ? PyList_New(0) : NULL;
    for (size_t i = 0; list && i < muon_state_count(opt); i++) {
        muon_tensor tensor;
        muon_status status = muon_state_get(opt, i, &tensor, sizeof tensor);
        PyObject *dict =
            status == MUON_OK ? core_to_dict(&tensor, tensor_fields) : core_raise(status);
        if (!dict || core_put(dict, "data", PyLong_FromVoidPtr(tensor.data)) < 0 ||
            PyList_Append(list, dict) < 0)
            Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

PyObject *core_optimizer_read_state(PyObject *self, PyObject *args)
{
    Py_ssize_t index;
    long long at, count;
    PyObject *address;
    if (!PyArg_ParseTuple(args, "nLLO:read_state", &index, &at, &count, &address)) return NULL;
    muon_opt *opt = core_usable(self);
    void *data = PyLong_AsVoidPtr(address);
    if (!opt || PyErr_Occurred()) return NULL;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_state_read(opt, (size_t)index, at, count, data);
    Py_END_ALLOW_THREADS return core_done(status);
}

PyObject *core_optimizer_bind_state(PyObject *object, PyObject *list)
{
    optimizer_object *self = (optimizer_object *)object;
    muon_opt *opt = core_usable(object);
    if (!opt) return NULL;
    if (list == Py_None) return core_done(muon_state_bind(opt, NULL));
    if (core_read_state(self->state, self->nparams, list) < 0) return NULL;
    return core_done(muon_state_bind(opt, self->state));
}

PyObject *core_optimizer_offload(PyObject *self, PyObject *args)
{
    const char *dir;
    long long budget;
    if (!PyArg_ParseTuple(args, "zL:offload", &dir, &budget)) return NULL;
    muon_opt *opt = core_usable(self);
    if (!opt) return NULL;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_offload(opt, dir, budget);
    Py_END_ALLOW_THREADS return core_done(status);
}

#define O(member) CORE_FIELD(muon_offload_info, member, CORE_I64)
static const core_field offload_fields[] = {
    O(state_bytes),   O(resident), O(resident_most), O(bytes_read),
    O(bytes_written), O(direct),   CORE_END,
};

PyObject *core_optimizer_offload_info(PyObject *self, PyObject *unused)
{
    (void)unused;
    muon_opt *opt = core_usable(self);
    if (!opt) return NULL;
    muon_offload_info info;
    muon_status status = muon_opt_get_offload(opt, &info, sizeof info);
    return status == MUON_OK ? core_to_dict(&info, offload_fields) : core_raise(status);
}

/* ---- Checkpoints */

/* The caller's metadata, a dict of str to str; the strings are borrowed. */
static muon_st_entry *read_metadata(PyObject *dict, size_t *n)
{
    *n = dict == Py_None ? 0 : (size_t)PyDict_Size(dict);
    muon_st_entry *entries = calloc(*n + 1, sizeof *entries);
    if (!entries) return (muon_st_entry *)PyErr_NoMemory();
    PyObject *key, *value;
    Py_ssize_t at = 0;
    for (size_t i = 0; i < *n && PyDict_Next(dict, &at, &key, &value); i++) {
        entries[i].key = core_text(key, "a key of the metadata");
        entries[i].value = entries[i].key ? core_text(value, "a value of the metadata") : NULL;
        if (!entries[i].value) {
            free(entries);
            return NULL;
        }
    }
    return entries;
}

PyObject *core_optimizer_save(PyObject *object, PyObject *args)
{
    optimizer_object *self = (optimizer_object *)object;
    const char *root;
    PyObject *buffers = Py_None, *metadata = Py_None;
    long long step_number, file_bytes;
    muon_save_args save_args;
    muon_save_args_init(&save_args, sizeof save_args);
    file_bytes = save_args.file_bytes;
    if (!PyArg_ParseTuple(args, "sL|OOiiL:save", &root, &step_number, &buffers, &metadata,
                          &save_args.keep, &save_args.replace, &file_bytes))
        return NULL;
    muon_opt *opt = core_usable(object);
    if (!opt || (buffers != Py_None && core_read_buffers(self, buffers) < 0)) return NULL;
    muon_st_entry *entries = read_metadata(metadata, &save_args.nmetadata);
    if (!entries) return NULL;
    save_args.step = step_number;
    save_args.file_bytes = file_bytes;
    save_args.metadata = entries;
    save_args.buffers = buffers == Py_None ? NULL : self->buffers;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_save(opt, root, &save_args);
    Py_END_ALLOW_THREADS free(entries);
    return core_done(status);
}

PyObject *core_optimizer_load(PyObject *object, PyObject *args)
{
    optimizer_object *self = (optimizer_object *)object;
    const char *path;
    PyObject *buffers = Py_None;
    muon_load_args load_args;
    muon_load_args_init(&load_args, sizeof load_args);
    if (!PyArg_ParseTuple(args, "s|Oiiii:load", &path, &buffers, &load_args.allow_missing,
                          &load_args.allow_extra, &load_args.restore_settings,
                          &load_args.fall_back))
        return NULL;
    muon_opt *opt = core_usable(object);
    if (!opt || (buffers != Py_None && core_read_buffers(self, buffers) < 0)) return NULL;
    load_args.buffers = buffers == Py_None ? NULL : self->buffers;
    int64_t step_number = 0;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_load(opt, path, &load_args, &step_number);
    Py_END_ALLOW_THREADS return status == MUON_OK ? PyLong_FromLongLong(step_number)
                                                  : core_raise(status);
}
