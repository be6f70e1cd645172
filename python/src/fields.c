/* What the library knows of groups and names: its field table, presets, globs, suggestions. */
#include "core.h"

#include <stdlib.h>

static PyObject *to_list(const char *const *words)
{
    PyObject *list = PyList_New(0);
    for (; list && words && *words; words++) {
        PyObject *word = PyUnicode_FromString(*words);
        if (!word || PyList_Append(list, word) < 0) Py_CLEAR(list);
        Py_XDECREF(word);
    }
    return list;
}

#define F(member) CORE_FIELD(muon_field, member, CORE_TEXT)
static const char *const type_words[] = {"double", "int", "bool", "enum", NULL};
static const core_field field_fields[] = {
    F(name),
    CORE_FIELD_WORD(muon_field, type, type_words),
    CORE_FIELD(muon_field, is_fixed, CORE_INT),
    F(help),
    F(default_value),
    F(rule),
    F(coefficients),
    CORE_END,
};

static PyObject *fields(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < muon_group_count_fields(); i++) {
        muon_field field;
        muon_status status = muon_group_get_field(i, &field, sizeof field);
        PyObject *dict =
            status == MUON_OK ? core_to_dict(&field, field_fields) : core_raise(status);
        if (!dict || core_put(dict, "words", to_list(field.words)) < 0 ||
            PyList_Append(list, dict) < 0)
            Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

/* A field's value as a Python object of its type. */
static PyObject *value_of(const muon_group *group, const muon_field *field)
{
    char text[MUON_FIELD_TEXT];
    muon_status status = muon_group_get(group, field->name, text, sizeof text);
    if (status != MUON_OK) return core_raise(status);
    switch (field->type) {
    case MUON_FIELD_DOUBLE: {
        PyObject *string = PyUnicode_FromString(text);
        PyObject *number = string ? PyFloat_FromString(string) : NULL;
        Py_XDECREF(string);
        return number;
    }
    case MUON_FIELD_INT:
        return PyLong_FromString(text, NULL, 10);
    case MUON_FIELD_BOOL:
        return PyBool_FromLong(text[0] == '1');
    case MUON_FIELD_ENUM:
        return PyUnicode_FromString(text);
    }
    return NULL;
}

PyObject *core_group_values(const muon_group *group)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < muon_group_count_fields(); i++) {
        muon_field field;
        muon_status status = muon_group_get_field(i, &field, sizeof field);
        if (status != MUON_OK) {
            core_raise(status);
            Py_CLEAR(dict);
        } else if (core_put(dict, field.name, value_of(group, &field)) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *group_defaults(PyObject *self, PyObject *args)
{
    (void)self;
    const char *rule, *preset = NULL;
    if (!PyArg_ParseTuple(args, "s|z:group_defaults", &rule, &preset)) return NULL;
    muon_group group;
    muon_group_init(&group, sizeof group);
    muon_status status = muon_group_set(&group, "rule", rule);
    if (status == MUON_OK && preset) status = muon_group_set_preset(&group, preset);
    return status == MUON_OK ? core_group_values(&group) : core_raise(status);
}

static PyObject *check_group(PyObject *self, PyObject *dict)
{
    (void)self;
    core_spec spec = {0};
    muon_group group;
    PyObject *values = NULL;
    if (core_group_init(&spec, &group, dict, 0) == 0) values = core_group_values(&group);
    core_spec_free(&spec);
    return values;
}

static PyObject *glob_match(PyObject *self, PyObject *args)
{
    (void)self;
    const char *pattern, *name;
    if (!PyArg_ParseTuple(args, "ss:glob_match", &pattern, &name)) return NULL;
    return PyBool_FromLong(muon_glob_match(pattern, name));
}

static PyObject *name_suggest(PyObject *self, PyObject *args)
{
    (void)self;
    const char *name;
    PyObject *known;
    if (!PyArg_ParseTuple(args, "sO:name_suggest", &name, &known)) return NULL;
    Py_ssize_t n = PyList_Check(known) ? PyList_Size(known) : -1;
    if (n < 0) return core_refuse("name_suggest: known must be a list of str");
    const char **names = calloc((size_t)n + 1, sizeof *names);
    if (!names) return PyErr_NoMemory();
    PyObject *result = NULL;
    Py_ssize_t i = 0;
    while (i < n && (names[i] = core_text(PyList_GetItem(known, i), "a name")))
        i++;
    if (i == n) {
        const char *near = muon_name_suggest(name, names, (size_t)n);
        result = near ? PyUnicode_FromString(near) : Py_None;
        if (!near) Py_INCREF(Py_None);
    }
    free(names);
    return result;
}

static PyObject *backend(PyObject *self, PyObject *args)
{
    (void)self;
    const char *name = NULL;
    if (!PyArg_ParseTuple(args, "|z:backend", &name)) return NULL;
    muon_backend_info info;
    muon_status status = muon_backend_get(name, &info, sizeof info);
    if (status != MUON_OK) return core_raise(status);
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:s,s:s}", "name", info.name, "library", info.library,
                         "version", info.version, "kernels", info.kernels, "cpu", info.cpu,
                         "warning", info.warning);
}

static PyMethodDef methods[] = {
    {"fields", fields, METH_NOARGS, "The library's table of group fields, as dicts."},
    {"group_defaults", group_defaults, METH_VARARGS,
     "group_defaults(rule, preset=None): every field of a group of that rule."},
    {"check_group", check_group, METH_O,
     "check_group(dict): every field of the group that the dict describes; raises if it is wrong."},
    {"glob_match", glob_match, METH_VARARGS, "glob_match(pattern, name) -> bool"},
    {"name_suggest", name_suggest, METH_VARARGS,
     "name_suggest(name, known): the name that was probably meant, or None."},
    {"backend", backend, METH_VARARGS, "backend(name=None): the linear algebra library in use."},
    {NULL, NULL, 0, NULL},
};

int core_add_fields(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
