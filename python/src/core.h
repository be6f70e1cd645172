/* core.h - the extension libmuon._core: libmuon's C objects as Python objects.
 *
 * It is a client of the public headers and adds nothing of its own. Structs go to and from dicts by
 * tables (convert.c); addresses of tensors are ints; a failed call raises libmuon.Error. One binary
 * serves every Python from 3.10 on (the limited API, which has no buffer protocol before 3.11). */
#ifndef LIBMUON_PYTHON_CORE_H
#define LIBMUON_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>

#include "muon/plan.h"

/* ---- Errors */

/* Raises the exception for a status other than MUON_OK, with muon_last_error(); returns NULL. */
PyObject *core_raise(muon_status status);
/* The same for a fault of the Python side: an ArgumentError. */
PyObject *core_refuse(const char *format, ...);

/* ---- Structs and dicts (convert.c) */

typedef enum core_kind {
    CORE_TEXT,   /* const char *; None is NULL; borrowed from the str */
    CORE_INT,    /* int; True and False, too */
    CORE_I64,    /* int64_t */
    CORE_U64,    /* uint64_t */
    CORE_SIZE,   /* size_t */
    CORE_DOUBLE, /* double */
    CORE_WORD    /* an enum, as one of the words */
} core_kind;

typedef struct core_field {
    const char *name;
    core_kind kind;
    size_t offset;
    const char *const *words; /* of a CORE_WORD, in the order of the enum; ends with NULL */
} core_field;

#define CORE_FIELD(type, member, kind)                                                             \
    {                                                                                              \
#member, kind, offsetof(type, member), NULL                                                \
    }
#define CORE_FIELD_WORD(type, member, words)                                                       \
    {                                                                                              \
#member, CORE_WORD, offsetof(type, member), words                                          \
    }
#define CORE_END                                                                                   \
    {                                                                                              \
        NULL, CORE_INT, 0, NULL                                                                    \
    }

extern const char *const core_dtypes[]; /* none, f32, bf16, i64, f16 */

/* 1: `key` is a field, and was set; 0: it is not; -1: an exception is set. `what` names the thing in
 * messages: "param 'h.0.wq'". */
int core_set_field(void *object, const core_field *fields, const char *key, PyObject *value,
                   const char *what);
/* An ArgumentError for a key that is unknown, with what was probably meant; returns -1. */
int core_refuse_key(const char *what, const char *key, const core_field *fields);
PyObject *core_to_dict(const void *object, const core_field *fields);
/* dict[key] = value; takes the reference; -1 if value is NULL or it fails. */
int core_put(PyObject *dict, const char *key, PyObject *value);
/* The text of a str, or NULL with an exception that says what it should have been. */
const char *core_text(PyObject *value, const char *what);
int core_ints(PyObject *list, int64_t *out, size_t room, const char *what);

/* ---- A config and parameters, from dicts (spec.c) */

typedef struct core_spec {
    muon_config config;
    muon_param *params;
    size_t nparams;
    void **blocks; /* memory of lists, freed with it */
    size_t nblocks;
    PyObject *log; /* borrowed from the config dict: called with (level, message), or NULL */
    /* Likewise: called with a list of (param, begin, end), returns a list of addresses; or NULL. */
    PyObject *grad_fetch;
} core_spec;

/* The dicts must outlive the spec: it borrows their strings. */
int core_spec_init(core_spec *spec, PyObject *config, PyObject *params);
void core_spec_free(core_spec *spec);
/* A group from a dict of its fields; `index` is for messages. */
int core_group_init(core_spec *spec, muon_group *group, PyObject *dict, size_t index);

/* ---- Objects: each file adds its own to the module; -1 with an exception on failure */

int core_add_fields(PyObject *module);
int core_add_plan(PyObject *module);
int core_add_route(PyObject *module);
int core_add_optimizer(PyObject *module);
int core_add_checkpoint(PyObject *module);
int core_add_transport(PyObject *module);

/* All fields of a group, under their names. */
PyObject *core_group_values(const muon_group *group);
/* A plan that belongs to `owner`. */
PyObject *core_wrap_plan(const muon_plan *plan, PyObject *owner);
/* The plan of a _core.Plan; NULL with an exception if it is none. */
const muon_plan *core_plan_of(PyObject *object);
/* The muon_comm of a _core.Transport; NULL with an exception if it is none. */
const muon_comm *core_transport_comm(PyObject *object);

/* Makes a heap type from a spec, adds it to the module, and keeps it in *type. */
int core_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type);
/* For tp_dealloc: frees an instance of a heap type. */
void core_free_object(PyObject *self);

#endif
