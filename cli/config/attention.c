/* "qk_clip": attention layers. A {n} in the names stands for the number of a layer, so that one entry
 * describes all layers of a model: it is matched against the parameters that exist. */
#include "cli/config/config.h"

#include <stdlib.h>
#include <string.h>

typedef struct clip {
    double threshold;
    int log_only;
    node layers;
} clip;

static const field clip_fields[] = {
    {.key = "threshold", .type = FIELD_NUMBER, .offset = offsetof(clip, threshold)},
    {.key = "log_only", .type = FIELD_FLAG, .offset = offsetof(clip, log_only)},
    {.key = "layers", .type = FIELD_ANY, .offset = offsetof(clip, layers), .required = 1},
};

static const char *const kinds[] = {"gqa", "mla", NULL};
static const char *const rules[] = {"kv_min", "group", NULL};

#define LAYER(KEY, TYPE) .key = #KEY, .type = (TYPE), .offset = offsetof(muon_attention, KEY)
static const field layer_fields[] = {
    {LAYER(name, FIELD_TEXT), .required = 1},
    {LAYER(q, FIELD_TEXT), .required = 1},
    {LAYER(k, FIELD_TEXT), .required = 1},
    {LAYER(kind, FIELD_CHOICE), .choices = kinds},
    {LAYER(q_row, FIELD_INT64)},
    {LAYER(k_row, FIELD_INT64)},
    {LAYER(group_stride, FIELD_INT64)},
    {LAYER(heads, FIELD_INT), .required = 1},
    {LAYER(kv_heads, FIELD_INT)},
    {LAYER(head_dim, FIELD_INT)},
    {LAYER(nope_dim, FIELD_INT)},
    {LAYER(rope_dim, FIELD_INT)},
    {LAYER(v_dim, FIELD_INT)},
    {LAYER(rule, FIELD_CHOICE), .choices = rules},
    {LAYER(alpha, FIELD_NUMBER)},
};

static const char hole[] = "{n}";

/* ---- {n} -------------------------------------------------------------------------------------- */

/* The digits that stand in `name` where `pattern` has {n}: their place and length, or 0. */
static size_t match_number(const char *pattern, const char *name, const char **digits)
{
    size_t before = (size_t)(strstr(pattern, hole) - pattern);
    if (strncmp(pattern, name, before) != 0) return 0;
    *digits = name + before;
    size_t length = strspn(*digits, "0123456789");
    return strcmp(pattern + before + strlen(hole), *digits + length) == 0 ? length : 0;
}

static char *fill_number(config *c, const char *pattern, const char *digits, size_t length)
{
    size_t before = (size_t)(strstr(pattern, hole) - pattern);
    return config_keep(c, cli_format("%.*s%.*s%s", (int)before, pattern, (int)length, digits,
                                     pattern + before + strlen(hole)));
}

static int is_param(const config *c, const char *name)
{
    for (size_t i = 0; i < c->nparams; i++)
        if (strcmp(c->params[i].name, name) == 0) return 1;
    return 0;
}

/* The library checks this too, but cannot say where it is written, nor what was meant. */
static int check_param(const config *c, const node *layer, const char *key, const char *name)
{
    if (is_param(c, name)) return CLI_DONE;
    node at = {NULL, layer, key, 0};
    names_nearest nearest;
    names_start(&nearest, name);
    for (size_t i = 0; i < c->nparams; i++)
        names_offer(&nearest, c->params[i].name);
    return node_fail(&at, "unknown parameter '%s'%s", name, names_hint(&nearest));
}

/* ---- layers ----------------------------------------------------------------------------------- */

static int add_layer(config *c, const node *at, const muon_attention *layer)
{
    DO(check_param(c, at, "q", layer->q));
    DO(check_param(c, at, "k", layer->k));
    size_t count = c->muon.nattention;
    muon_attention *grown = cli_alloc(count + 1, sizeof *grown);
    for (size_t i = 0; i < count; i++)
        grown[i] = c->attention[i];
    grown[count] = *layer;
    free(c->attention);
    c->attention = grown;
    c->muon.nattention++;
    return CLI_DONE;
}

static int holes(const char *text)
{
    const char *first = strstr(text, hole);
    return first ? 1 + (strstr(first + 1, hole) != NULL) : 0;
}

/* One layer for every number that a parameter has at {n} in q, in the order of the file. */
static int expand_layer(config *c, const node *at, const muon_attention *pattern)
{
    if (holes(pattern->name) != 1 || holes(pattern->k) != 1 || holes(pattern->q) != 1)
        return node_fail(at, "{n} must be in 'name', 'q' and 'k', once in each");
    size_t found = 0;
    for (size_t i = 0; i < c->nparams; i++) {
        const char *digits = NULL;
        size_t length = match_number(pattern->q, c->params[i].name, &digits);
        if (!length) continue;
        muon_attention layer = *pattern;
        layer.name = fill_number(c, pattern->name, digits, length);
        layer.q = fill_number(c, pattern->q, digits, length);
        layer.k = fill_number(c, pattern->k, digits, length);
        DO(add_layer(c, at, &layer));
        found++;
    }
    node q = {NULL, at, "q", 0};
    if (!found)
        return node_fail(&q, "'%s' matches none of the %zu parameters", pattern->q, c->nparams);
    return CLI_DONE;
}

static int read_layer(config *c, const node *at)
{
    muon_attention layer;
    muon_attention_init(&layer, sizeof layer);
    DO(node_read(at, layer_fields, sizeof layer_fields / sizeof layer_fields[0], &layer));
    if (!json_object_get(at->value, "kv_heads")) layer.kv_heads = layer.heads;
    if (holes(layer.name) || holes(layer.q) || holes(layer.k)) return expand_layer(c, at, &layer);
    return add_layer(c, at, &layer);
}

/* max_logits are found by a layer's name. */
static int check_names(const config *c, const node *layers)
{
    for (size_t i = 0; i < c->muon.nattention; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(c->attention[i].name, c->attention[j].name) == 0)
                return node_fail(layers, "two layers are called '%s'", c->attention[i].name);
    return CLI_DONE;
}

int config_read_attention(config *c, const node *object)
{
    if (!object->value) return CLI_DONE;
    clip qk = {.threshold = c->muon.qk_threshold, .log_only = c->muon.qk_log_only};
    DO(node_read(object, clip_fields, sizeof clip_fields / sizeof clip_fields[0], &qk));
    c->muon.qk_threshold = qk.threshold;
    c->muon.qk_log_only = qk.log_only;
    if (json_array_size(qk.layers.value) == 0)
        return node_fail(&qk.layers, "must be a list of at least one layer");
    for (size_t i = 0; i < json_array_size(qk.layers.value); i++) {
        node at = node_element(&qk.layers, i);
        DO(read_layer(c, &at));
    }
    return check_names(c, &qk.layers);
}
