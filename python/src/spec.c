/* A muon_config and its parameters, from dicts. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tables */

static const char *const missing_words[] = {"error", "skip", NULL};
static const char *const path_words[] = {"pipeline", "reference", NULL};
static const char *const kind_words[] = {"gqa", "mla", NULL};
static const char *const qk_words[] = {"kv_min", "group", NULL};

#define P(member, kind) CORE_FIELD(muon_param, member, kind)
static const core_field param_fields[] = {
    P(name, CORE_TEXT),
    P(matrices, CORE_TEXT),
    P(group, CORE_INT),
    P(expert, CORE_INT),
    CORE_FIELD_WORD(muon_param, dtype, core_dtypes),
    CORE_FIELD_WORD(muon_param, grad_dtype, core_dtypes),
    CORE_FIELD_WORD(muon_param, copy_dtype, core_dtypes),
    P(mesh, CORE_TEXT),
    P(placement, CORE_TEXT),
    CORE_END,
};

#define C(member, kind) CORE_FIELD(muon_config, member, kind)
static const core_field config_fields[] = {
    C(qk_threshold, CORE_DOUBLE),
    C(qk_log_only, CORE_INT),
    C(clip_norm, CORE_DOUBLE),
    C(skip_norm, CORE_DOUBLE),
    CORE_FIELD_WORD(muon_config, wire, core_dtypes),
    C(seed, CORE_U64),
    CORE_FIELD_WORD(muon_config, missing_grad, missing_words),
    C(allow_no_muon, CORE_INT),
    C(threads, CORE_INT),
    C(backend, CORE_TEXT),
    C(workspace_budget, CORE_I64),
    C(nranks, CORE_I64),
    CORE_FIELD_WORD(muon_config, path, path_words),
    C(in_flight, CORE_INT),
    C(team_max, CORE_I64),
    C(team_min, CORE_I64),
    C(peers_max, CORE_I64),
    C(timeout, CORE_DOUBLE),
    C(offload_dir, CORE_TEXT),
    C(offload_budget, CORE_I64),
    C(offload_cached, CORE_I64),
    C(grad_budget, CORE_I64),
    CORE_END,
};

#define M(member, kind) CORE_FIELD(muon_machine, member, kind)
static const core_field machine_fields[] = {
    M(flops, CORE_DOUBLE),
    M(node_bandwidth, CORE_DOUBLE),
    M(bandwidth, CORE_DOUBLE),
    M(ranks_per_node, CORE_I64),
    M(latency, CORE_DOUBLE),
    M(processor_bandwidth, CORE_DOUBLE),
    CORE_END,
};

#define A(member, kind) CORE_FIELD(muon_attention, member, kind)
static const core_field attention_fields[] = {
    A(name, CORE_TEXT),        CORE_FIELD_WORD(muon_attention, kind, kind_words),
    A(q, CORE_TEXT),           A(k, CORE_TEXT),
    A(q_row, CORE_I64),        A(k_row, CORE_I64),
    A(group_stride, CORE_I64), A(heads, CORE_INT),
    A(kv_heads, CORE_INT),     A(head_dim, CORE_INT),
    A(nope_dim, CORE_INT),     A(rope_dim, CORE_INT),
    A(v_dim, CORE_INT),        CORE_FIELD_WORD(muon_attention, rule, qk_words),
    A(alpha, CORE_DOUBLE),     CORE_END,
};

/* ---- Memory */

/* `count` zeroed elements that live as long as the spec; NULL with an exception. */
static void *take(core_spec *spec, size_t count, size_t size)
{
    void **blocks = realloc(spec->blocks, (spec->nblocks + 1) * sizeof *blocks);
    if (!blocks) return PyErr_NoMemory();
    spec->blocks = blocks;
    void *block = calloc(count ? count : 1, size);
    if (!block) return PyErr_NoMemory();
    spec->blocks[spec->nblocks++] = block;
    return block;
}

void core_spec_free(core_spec *spec)
{
    for (size_t i = 0; i < spec->nblocks; i++)
        free(spec->blocks[i]);
    free(spec->blocks);
    *spec = (core_spec){0};
}

/* The list under `key`, borrowed, and its length; absent and None are empty. */
static PyObject *list_of(PyObject *dict, const char *key, Py_ssize_t *n)
{
    PyObject *list = PyDict_GetItemString(dict, key);
    *n = 0;
    if (!list || list == Py_None) return NULL;
    if (!PyList_Check(list)) {
        core_refuse("%s must be a list", key);
        return NULL;
    }
    *n = PyList_Size(list);
    return list;
}

/* Sets every key of a dict that is in the table; `others` has those that are taken elsewhere. */
static int fill(void *object, const core_field *fields, PyObject *dict, const char *what,
                const char *const *others)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (!PyDict_Check(dict)) {
        core_refuse("%s must be a dict", what);
        return -1;
    }
    while (PyDict_Next(dict, &at, &key, &value)) {
        const char *name = core_text(key, "a key");
        if (!name) return -1;
        int set = core_set_field(object, fields, name, value, what);
        if (set < 0) return -1;
        if (set) continue;
        const char *const *other = others;
        while (other && *other && strcmp(*other, name) != 0)
            other++;
        if (!other || !*other) return core_refuse_key(what, name, fields);
    }
    return 0;
}

/* ---- Groups */

static int set_from(muon_group *group, const char *field, PyObject *value)
{
    PyObject *text = NULL;
    if (PyBool_Check(value))
        text = PyUnicode_FromString(value == Py_True ? "1" : "0");
    else
        text = PyUnicode_Check(value) ? PyObject_Str(value) : PyObject_Repr(value);
    const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    muon_status status = utf8 ? muon_group_set(group, field, utf8) : MUON_E_ARG;
    Py_XDECREF(text);
    if (utf8 && status != MUON_OK) core_raise(status);
    return status == MUON_OK ? 0 : -1;
}

static int set_custom(core_spec *spec, muon_group *group, PyObject *list)
{
    Py_ssize_t n = PySequence_Size(list);
    double(*custom)[3] = n < 0 ? NULL : take(spec, (size_t)n, sizeof *custom);
    if (!custom) return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        int ok = item && PySequence_Size(item) == 3;
        for (int k = 0; ok && k < 3; k++) {
            PyObject *number = PySequence_GetItem(item, k);
            custom[i][k] = number ? PyFloat_AsDouble(number) : 0;
            Py_XDECREF(number);
            ok = !PyErr_Occurred();
        }
        Py_XDECREF(item);
        if (!ok) {
            PyErr_Clear();
            core_refuse("custom coefficients: entry %zd is not three numbers", i);
            return -1;
        }
    }
    group->custom = (const double(*)[3])custom;
    group->ncustom = (int)n;
    return 0;
}

int core_group_init(core_spec *spec, muon_group *group, PyObject *dict, size_t index)
{
    muon_group_init(group, sizeof *group);
    if (!PyDict_Check(dict)) {
        core_refuse("group %zu must be a dict", index);
        return -1;
    }
    PyObject *rule = PyDict_GetItemString(dict, "rule");
    if (rule && set_from(group, "rule", rule) < 0) return -1;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        const char *name = core_text(key, "a key");
        if (!name) return -1;
        int status = 0;
        if (strcmp(name, "name") == 0) {
            group->name = value == Py_None ? NULL : core_text(value, "name");
            status = PyErr_Occurred() ? -1 : 0;
        } else if (strcmp(name, "custom") == 0) {
            if (value != Py_None) status = set_custom(spec, group, value);
        } else if (value != rule) {
            status = set_from(group, name, value);
        }
        if (status < 0) return -1;
    }
    return 0;
}

static int load_groups(core_spec *spec, PyObject *config)
{
    Py_ssize_t n;
    PyObject *list = list_of(config, "groups", &n);
    muon_group *groups = PyErr_Occurred() ? NULL : take(spec, (size_t)n, sizeof *groups);
    if (!groups) return -1;
    for (Py_ssize_t i = 0; i < n; i++)
        if (core_group_init(spec, &groups[i], PyList_GetItem(list, i), (size_t)i) < 0) return -1;
    spec->config.groups = groups;
    spec->config.ngroups = (size_t)n;
    return 0;
}

/* ---- Attention, meshes */

static int load_attention(core_spec *spec, PyObject *config)
{
    Py_ssize_t n;
    PyObject *list = list_of(config, "attention", &n);
    muon_attention *layers = PyErr_Occurred() ? NULL : take(spec, (size_t)n, sizeof *layers);
    if (!layers) return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        char what[32];
        snprintf(what, sizeof what, "attention %zd", i);
        muon_attention_init(&layers[i], sizeof layers[i]);
        if (fill(&layers[i], attention_fields, PyList_GetItem(list, i), what, NULL) < 0) return -1;
    }
    spec->config.attention = layers;
    spec->config.nattention = (size_t)n;
    return 0;
}

static int load_mesh(core_spec *spec, muon_mesh *mesh, PyObject *dict)
{
    PyObject *name = PyDict_GetItemString(dict, "name");
    PyObject *axes = PyDict_GetItemString(dict, "axes");
    PyObject *sizes = PyDict_GetItemString(dict, "sizes");
    PyObject *ranks = PyDict_GetItemString(dict, "ranks");
    muon_mesh_init(mesh, sizeof *mesh);
    if (!name || !axes || !sizes || !PyList_Check(axes)) {
        core_refuse("a mesh needs a name, a list of axes and a list of sizes");
        return -1;
    }
    mesh->name = core_text(name, "the name of a mesh");
    int64_t numbers[MUON_MAX_AXES];
    int n = mesh->name ? core_ints(sizes, numbers, MUON_MAX_AXES, mesh->name) : -1;
    if (n < 0) return -1;
    if (PyList_Size(axes) != n) {
        core_refuse("mesh '%s': %zd axes, %d sizes", mesh->name, PyList_Size(axes), n);
        return -1;
    }
    mesh->naxes = n;
    for (int i = 0; i < n; i++) {
        mesh->axes[i] = core_text(PyList_GetItem(axes, i), "the name of an axis");
        if (!mesh->axes[i]) return -1;
        mesh->sizes[i] = (int)numbers[i];
    }
    if (!ranks || ranks == Py_None) return 0;
    Py_ssize_t count = PySequence_Size(ranks);
    int64_t *wide = count < 0 ? NULL : take(spec, (size_t)count, sizeof *wide);
    int *list = wide ? take(spec, (size_t)count, sizeof *list) : NULL;
    if (!list || core_ints(ranks, wide, (size_t)count, mesh->name) < 0) return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        list[i] = (int)wide[i];
    mesh->ranks = list;
    return 0;
}

static int load_meshes(core_spec *spec, PyObject *config)
{
    Py_ssize_t n;
    PyObject *list = list_of(config, "meshes", &n);
    muon_mesh *meshes = PyErr_Occurred() ? NULL : take(spec, (size_t)n, sizeof *meshes);
    if (!meshes) return -1;
    for (Py_ssize_t i = 0; i < n; i++)
        if (load_mesh(spec, &meshes[i], PyList_GetItem(list, i)) < 0) return -1;
    spec->config.meshes = meshes;
    spec->config.nmeshes = (size_t)n;
    return 0;
}

/* ---- Parameters */

/* Each box is (rank, begin, end) with tuples of the tensor's coordinates. */
static int load_boxes(core_spec *spec, muon_param *param, PyObject *dict)
{
    Py_ssize_t n;
    PyObject *list = list_of(dict, "boxes", &n);
    muon_box *boxes = PyErr_Occurred() ? NULL : take(spec, (size_t)n, sizeof *boxes);
    if (!boxes) return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *begin, *end, *item = PyList_GetItem(list, i);
        if (!PyArg_ParseTuple(item, "iOO:box", &boxes[i].rank, &begin, &end)) return -1;
        if (core_ints(begin, boxes[i].begin, MUON_MAX_DIMS, "box") < 0) return -1;
        if (core_ints(end, boxes[i].end, MUON_MAX_DIMS, "box") < 0) return -1;
    }
    param->boxes = n ? boxes : NULL;
    param->nboxes = (size_t)n;
    return 0;
}

static int load_ranges(core_spec *spec, muon_param *param, PyObject *dict)
{
    Py_ssize_t n;
    PyObject *list = list_of(dict, "ranges", &n);
    muon_range *ranges = PyErr_Occurred() ? NULL : take(spec, (size_t)n, sizeof *ranges);
    if (!ranges) return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        long long begin, end;
        PyObject *item = PyList_GetItem(list, i);
        if (!PyArg_ParseTuple(item, "iLL:range", &ranges[i].rank, &begin, &end)) return -1;
        ranges[i].begin = begin;
        ranges[i].end = end;
    }
    param->ranges = n ? ranges : NULL;
    param->nranges = (size_t)n;
    return 0;
}

static int load_param(core_spec *spec, muon_param *param, PyObject *dict, size_t index)
{
    static const char *const others[] = {"shape", "boxes", "ranges", NULL};
    char what[32];
    snprintf(what, sizeof what, "param %zu", index);
    muon_param_init(param, sizeof *param);
    if (fill(param, param_fields, dict, what, others) < 0) return -1;
    PyObject *shape = PyDict_GetItemString(dict, "shape");
    if (shape) {
        param->ndim = core_ints(shape, param->shape, MUON_MAX_DIMS, param->name);
        if (param->ndim < 0) return -1;
    }
    if (load_boxes(spec, param, dict) < 0) return -1;
    return load_ranges(spec, param, dict);
}

static int load_params(core_spec *spec, PyObject *list)
{
    if (!PyList_Check(list)) {
        core_refuse("params must be a list of dicts");
        return -1;
    }
    spec->nparams = (size_t)PyList_Size(list);
    spec->params = take(spec, spec->nparams, sizeof *spec->params);
    if (!spec->params) return -1;
    for (size_t i = 0; i < spec->nparams; i++)
        if (load_param(spec, &spec->params[i], PyList_GetItem(list, (Py_ssize_t)i), i) < 0)
            return -1;
    return 0;
}

static int load(core_spec *spec, PyObject *config, PyObject *params)
{
    static const char *const others[] = {"groups", "attention",  "meshes", "machine",
                                         "log",    "grad_fetch", NULL};
    muon_config_init(&spec->config, sizeof spec->config);
    if (fill(&spec->config, config_fields, config, "config", others) < 0) return -1;
    PyObject *machine = PyDict_GetItemString(config, "machine");
    if (machine && fill(&spec->config.machine, machine_fields, machine, "machine", NULL) < 0)
        return -1;
    PyObject *log = PyDict_GetItemString(config, "log");
    spec->log = log == Py_None ? NULL : log;
    spec->grad_fetch = PyDict_GetItemString(config, "grad_fetch");
    if (load_groups(spec, config) < 0 || load_attention(spec, config) < 0) return -1;
    if (load_meshes(spec, config) < 0) return -1;
    return load_params(spec, params);
}

int core_spec_init(core_spec *spec, PyObject *config, PyObject *params)
{
    *spec = (core_spec){0};
    int status = load(spec, config, params);
    if (status < 0) core_spec_free(spec);
    return status;
}
