#include "cli/plan/models.h"

#include "cli/plan/units.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int plan_models_open(plan_models *m, const char *path)
{
    *m = (plan_models){.source = path ? path : "model-shapes.json"};
    if (path) {
        DO(node_load(&m->root, path));
    } else {
        json_error_t error;
        m->root = json_loadb((const char *)model_shapes, (size_t)(model_shapes_end - model_shapes),
                             JSON_REJECT_DUPLICATES, &error);
        if (!m->root)
            return cli_fail("%s: line %d, column %d: %s", m->source, error.line, error.column,
                            error.text);
    }
    if (json_is_object(m->root)) return CLI_DONE;
    node root = {m->root, NULL, m->source, 0};
    int code = node_fail_type(&root, "an object");
    plan_models_close(m);
    return code;
}

void plan_models_close(plan_models *m)
{
    json_decref(m->root);
    m->root = NULL;
}

/* ---- one tensor of a model ------------------------------------------------------------------- */

typedef struct entry {
    const char *name;
    int64_t layers, expert_matrices, rows, cols; /* expert_matrices 0: dense, one matrix */
    int tp;                                      /* plan_cut */
} entry;

static const char *const cuts[] = {"rows", "cols", "none", NULL}; /* as plan_cut counts */

static const field entry_fields[] = {
    {.key = "name", .type = FIELD_TEXT, .offset = offsetof(entry, name), .required = 1},
    {.key = "layers", .type = FIELD_INT64, .offset = offsetof(entry, layers)},
    {.key = "expert_matrices", .type = FIELD_INT64, .offset = offsetof(entry, expert_matrices)},
    {.key = "rows", .type = FIELD_INT64, .offset = offsetof(entry, rows), .required = 1},
    {.key = "cols", .type = FIELD_INT64, .offset = offsetof(entry, cols), .required = 1},
    {.key = "tp", .type = FIELD_CHOICE, .offset = offsetof(entry, tp), .choices = cuts},
};

/* Far beyond any model, and small enough for all products of them. */
enum { MOST_LAYERS = 10000, MOST_MATRICES = 1000000, MOST_SIDE = 100000000 };

static int check(const node *at, const char *key, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most) return CLI_DONE;
    node where = {NULL, at, key, 0};
    return node_fail(&where, "is %lld, must be %lld..%lld", (long long)value, (long long)least,
                     (long long)most);
}

static int read_entry(const node *at, entry *e)
{
    *e = (entry){.layers = 1, .tp = PLAN_CUT_ROWS};
    DO(node_read(at, entry_fields, sizeof entry_fields / sizeof entry_fields[0], e));
    DO(check(at, "layers", e->layers, 1, MOST_LAYERS));
    DO(check(at, "expert_matrices", e->expert_matrices, 0, MOST_MATRICES));
    DO(check(at, "rows", e->rows, 1, MOST_SIDE));
    return check(at, "cols", e->cols, 1, MOST_SIDE);
}

static int64_t matrices_of(const entry *e)
{
    return e->expert_matrices ? e->expert_matrices : 1;
}

/* ---- a model ---------------------------------------------------------------------------------- */

/* Calls visit for every tensor of a model. */
static int for_entries(const plan_models *m, const char *name,
                       int (*visit)(void *user, const entry *e), void *user)
{
    node root = {m->root, NULL, m->source, 0};
    node model = {json_object_get(m->root, name), &root, name, 0};
    if (!json_is_array(model.value)) return node_fail_type(&model, "a list");
    for (size_t i = 0; i < json_array_size(model.value); i++) {
        node at = node_element(&model, i);
        entry e;
        DO(read_entry(&at, &e));
        DO(visit(user, &e));
    }
    return CLI_DONE;
}

static int add_layers(void *user, const entry *e)
{
    plan_case *c = user;
    char *blocks = NULL;
    if (e->expert_matrices)
        blocks = plan_case_keep(c, cli_format("rows / %lld", (long long)e->expert_matrices));
    for (int64_t layer = 0; layer < e->layers; layer++) {
        muon_param *param = plan_case_add(c);
        param->name = plan_case_keep(c, cli_format("layers.%lld.%s", (long long)layer, e->name));
        param->ndim = 2;
        param->shape[0] = matrices_of(e) * e->rows;
        param->shape[1] = e->cols;
        param->matrices = blocks;
        param->group = PLAN_GROUP_MUON;
        param->expert = e->expert_matrices > 0;
        plan_case_place(param, (plan_cut)e->tp);
    }
    return CLI_DONE;
}

int plan_models_load(plan_case *c, const plan_models *m, const char *name)
{
    c->model = plan_case_keep(c, cli_format("%s", name));
    return for_entries(m, name, add_layers, c);
}

/* ---- names ------------------------------------------------------------------------------------ */

static int answers_to(const char *name, const char *wanted)
{
    for (;; name++, wanted++) {
        while (*wanted == '-')
            wanted++;
        if (!*wanted) return !*name || *name == '-';
        while (*name == '-')
            name++;
        if (tolower((unsigned char)*wanted) != tolower((unsigned char)*name)) return 0;
    }
}

const char *plan_models_find(const plan_models *m, const char *name, const char **several)
{
    const char *key, *found = NULL;
    json_t *value;
    *several = NULL;
    if (json_object_get(m->root, name)) return name;
    json_object_foreach(m->root, key, value)
    {
        if (!answers_to(key, name)) continue;
        if (found) *several = key;
        if (!found) found = key;
    }
    return found;
}

int plan_models_refuse(const plan_models *m, const char *name)
{
    const char *key;
    json_t *value;
    names_nearest nearest;
    names_start(&nearest, name);
    json_object_foreach(m->root, key, value) names_offer(&nearest, key);
    if (nearest.best) return cli_misuse("unknown model '%s'%s", name, names_hint(&nearest));
    return cli_misuse("no model or file '%s'; --list prints the models", name);
}

/* ---- the table -------------------------------------------------------------------------------- */

typedef struct totals {
    int64_t tensors, matrices, rows, cols; /* rows x cols: the largest matrix */
    double elements;
} totals;

static int add_up(void *user, const entry *e)
{
    totals *t = user;
    t->tensors += e->layers;
    t->matrices += e->layers * matrices_of(e);
    t->elements += (double)(e->layers * matrices_of(e)) * (double)(e->rows * e->cols);
    if (e->rows * e->cols > t->rows * t->cols) {
        t->rows = e->rows;
        t->cols = e->cols;
    }
    return CLI_DONE;
}

int plan_models_print(const plan_models *m)
{
    const char *key;
    json_t *value;
    printf("%-20s %10s %8s %9s  %s\n", "model", "parameters", "tensors", "matrices", "largest");
    json_object_foreach(m->root, key, value)
    {
        totals t = {0};
        DO(for_entries(m, key, add_up, &t));
        printf("%-20s %10s %8s %9s  %lldx%lld\n", key, units_elements(t.elements).text,
               units_count(t.tensors).text, units_count(t.matrices).text, (long long)t.rows,
               (long long)t.cols);
    }
    return CLI_DONE;
}
