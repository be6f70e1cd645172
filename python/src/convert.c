/* Structs to dicts and back, by tables. */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const core_dtypes[] = {[MUON_NONE] = "none", [MUON_F32] = "f32", [MUON_BF16] = "bf16",
                                   [MUON_I8] = "i8",     [MUON_I64] = "i64", [MUON_F16] = "f16",
                                   [MUON_F16 + 1] = NULL};

/* ---- Errors */

static PyObject *raise_status(const char *status, const char *message)
{
    PyObject *errors = PyImport_ImportModule("libmuon._errors");
    PyObject *made = errors ? PyObject_CallMethod(errors, "make", "ss", status, message) : NULL;
    if (made) PyErr_SetObject((PyObject *)Py_TYPE(made), made);
    Py_XDECREF(made);
    Py_XDECREF(errors);
    return NULL;
}

PyObject *core_raise(muon_status status)
{
    return raise_status(muon_status_name(status), muon_last_error());
}

PyObject *core_refuse(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return raise_status("MUON_E_ARG", text);
}

/* ---- From Python */

const char *core_text(PyObject *value, const char *what)
{
    if (PyUnicode_Check(value)) return PyUnicode_AsUTF8AndSize(value, NULL);
    core_refuse("%s must be a str", what);
    return NULL;
}

static int set_word(int *out, const core_field *field, PyObject *value, const char *what)
{
    const char *text = core_text(value, field->name);
    if (!text) return -1;
    for (int i = 0; field->words[i]; i++) {
        if (strcmp(field->words[i], text) == 0) {
            *out = i;
            return 1;
        }
    }
    char known[256] = "";
    size_t length = 0;
    for (int i = 0; field->words[i] && length < sizeof known; i++)
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "",
                                   field->words[i]);
    core_refuse("%s: %s is '%s', must be one of %s", what, field->name, text, known);
    return -1;
}

int core_set_field(void *object, const core_field *fields, const char *key, PyObject *value,
                   const char *what)
{
    const core_field *f = fields;
    while (f->name && strcmp(f->name, key) != 0)
        f++;
    if (!f->name) return 0;
    void *at = (char *)object + f->offset;
    switch (f->kind) {
    case CORE_TEXT:
        *(const char **)at = value == Py_None ? NULL : core_text(value, f->name);
        break;
    case CORE_INT:
        *(int *)at = (int)PyLong_AsLong(value);
        break;
    case CORE_I64:
        *(int64_t *)at = PyLong_AsLongLong(value);
        break;
    case CORE_U64:
        *(uint64_t *)at = PyLong_AsUnsignedLongLong(value);
        break;
    case CORE_SIZE:
        *(size_t *)at = PyLong_AsSize_t(value);
        break;
    case CORE_DOUBLE:
        *(double *)at = PyFloat_AsDouble(value);
        break;
    case CORE_WORD:
        return set_word(at, f, value, what);
    }
    if (!PyErr_Occurred()) return 1;
    if (f->kind != CORE_TEXT) {
        PyErr_Clear();
        core_refuse("%s: %s must be %s", what, f->name,
                    f->kind == CORE_DOUBLE ? "a number" : "an integer in its range");
    }
    return -1;
}

int core_refuse_key(const char *what, const char *key, const core_field *fields)
{
    const char *names[64];
    size_t n = 0;
    for (; fields[n].name && n < sizeof names / sizeof *names; n++)
        names[n] = fields[n].name;
    const char *near = muon_name_suggest(key, names, n);
    if (near)
        core_refuse("%s: '%s' is unknown; did you mean '%s'?", what, key, near);
    else
        core_refuse("%s: '%s' is unknown", what, key);
    return -1;
}

int core_ints(PyObject *list, int64_t *out, size_t room, const char *what)
{
    Py_ssize_t n = PySequence_Size(list);
    if (n < 0) return -1;
    if ((size_t)n > room) {
        core_refuse("%s: %zd numbers, at most %zu are possible", what, n, room);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        if (!item) return -1;
        out[i] = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (PyErr_Occurred()) return -1;
    }
    return (int)n;
}

/* ---- To Python */

int core_put(PyObject *dict, const char *key, PyObject *value)
{
    int status = value ? PyDict_SetItemString(dict, key, value) : -1;
    Py_XDECREF(value);
    return status;
}

static PyObject *none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *to_python(const void *at, const core_field *f)
{
    switch (f->kind) {
    case CORE_TEXT: {
        const char *text = *(const char *const *)at;
        return text ? PyUnicode_FromString(text) : none();
    }
    case CORE_INT:
        return PyLong_FromLong(*(const int *)at);
    case CORE_I64:
        return PyLong_FromLongLong(*(const int64_t *)at);
    case CORE_U64:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case CORE_SIZE:
        return PyLong_FromSize_t(*(const size_t *)at);
    case CORE_DOUBLE:
        return PyFloat_FromDouble(*(const double *)at);
    case CORE_WORD:
        return PyUnicode_FromString(f->words[*(const int *)at]);
    }
    return NULL;
}

PyObject *core_to_dict(const void *object, const core_field *fields)
{
    PyObject *dict = PyDict_New();
    for (const core_field *f = fields; dict && f->name; f++)
        if (core_put(dict, f->name, to_python((const char *)object + f->offset, f)) < 0)
            Py_CLEAR(dict);
    return dict;
}

/* ---- Types */

int core_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    PyObject *made = PyType_FromSpec(spec);
    if (!made) return -1;
    if (PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, made) < 0) {
        Py_DECREF(made);
        return -1;
    }
    *type = (PyTypeObject *)made;
    return 0;
}

void core_free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}
