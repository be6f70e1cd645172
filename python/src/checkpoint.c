/* Checkpoints without an optimizer: which there are, and what they say of themselves. */
#include "core.h"

#include "muon/checkpoint.h"

#include <stdlib.h>

static PyObject *checkpoint_list(PyObject *self, PyObject *args)
{
    (void)self;
    const char *root;
    if (!PyArg_ParseTuple(args, "s:checkpoint_list", &root)) return NULL;
    int64_t *steps = NULL;
    size_t n = 0;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_checkpoint_list(&steps, &n, root);
    Py_END_ALLOW_THREADS if (status != MUON_OK) return core_raise(status);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(steps[i]);
        if (!number || PyList_SetItem(list, (Py_ssize_t)i, number) < 0) Py_CLEAR(list);
    }
    free(steps);
    return list;
}

static PyObject *metadata_of(const muon_checkpoint *checkpoint)
{
    PyObject *dict = PyDict_New();
    const char *key;
    for (size_t i = 0; dict && (key = muon_checkpoint_get_key(checkpoint, i)); i++) {
        const char *value = muon_checkpoint_get_metadata(checkpoint, key);
        if (value && core_put(dict, key, PyUnicode_FromString(value)) < 0) Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *checkpoint_metadata(PyObject *self, PyObject *args)
{
    (void)self;
    const char *path;
    if (!PyArg_ParseTuple(args, "s:checkpoint_metadata", &path)) return NULL;
    muon_checkpoint *checkpoint = NULL;
    muon_status status;
    Py_BEGIN_ALLOW_THREADS status = muon_checkpoint_open(&checkpoint, path);
    Py_END_ALLOW_THREADS if (status != MUON_OK) return core_raise(status);
    PyObject *dict = metadata_of(checkpoint);
    muon_checkpoint_close(checkpoint);
    return dict;
}

static PyMethodDef functions[] = {
    {"checkpoint_list", checkpoint_list, METH_VARARGS,
     "checkpoint_list(root) -> steps of the complete checkpoints, the newest last."},
    {"checkpoint_metadata", checkpoint_metadata, METH_VARARGS,
     "checkpoint_metadata(path) -> dict: the caller's entries and the library's (muon.*)."},
    {NULL, NULL, 0, NULL},
};

int core_add_checkpoint(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
