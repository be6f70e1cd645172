/* "params" and "classify": the tensors of a file become parameters with matrices and a group. */
#include "cli/config/config.h"

#include <stdlib.h>
#include <string.h>

/* ---- tensors -------------------------------------------------------------------------------- */

static muon_dtype dtype_of(const muon_st_tensor *tensor)
{
    if (strcmp(tensor->dtype, "F32") == 0) return MUON_F32;
    if (strcmp(tensor->dtype, "BF16") == 0) return MUON_BF16;
    return MUON_NONE;
}

static int read_tensors(config *c, const files *tensors)
{
    c->nparams = tensors->ntensors;
    c->params = cli_alloc(c->nparams, sizeof *c->params);
    for (size_t i = 0; i < c->nparams; i++) {
        muon_st_tensor tensor;
        DO(files_get(tensors, i, &tensor));
        muon_param *param = &c->params[i];
        muon_param_init(param, sizeof *param);
        param->name = tensor.name;
        param->ndim = tensor.ndim > 0 ? tensor.ndim : 1; /* a scalar is a list of one */
        param->shape[0] = 1;
        for (int d = 0; d < tensor.ndim; d++)
            param->shape[d] = tensor.shape[d];
        if (dtype_of(&tensor) != MUON_NONE) param->dtype = dtype_of(&tensor);
    }
    return CLI_DONE;
}

/* Frozen tensors are never touched: they may be of any kind, and have no copy that could grow old.
 * The others must be weights. */
static int settle_dtypes(config *c, const files *tensors)
{
    for (size_t i = 0; i < c->nparams; i++) {
        muon_st_tensor tensor;
        DO(files_get(tensors, i, &tensor));
        if (c->groups[c->params[i].group].rule == MUON_RULE_FROZEN) {
            c->params[i].copy_dtype = MUON_NONE;
            continue;
        }
        if (dtype_of(&tensor) == MUON_NONE)
            return cli_fail("param '%s': dtype is %s, must be F32 or BF16; a tensor that is not a "
                            "weight can be frozen in the config's \"classify\"",
                            tensor.name, tensor.dtype);
    }
    return CLI_DONE;
}

/* ---- "params" ------------------------------------------------------------------------------- */

typedef struct rule {
    node_texts match;
    const char *matrices, *group;
    int expert, copy_dtype; /* -1: not given */
    config_layout layout;
} rule;

static const char *const copy_dtypes[] = {"none", "", "bf16", NULL}; /* as muon_dtype counts */

static const field rule_fields[] = {
    {.key = "match", .type = FIELD_TEXTS, .offset = offsetof(rule, match), .required = 1},
    {.key = "matrices", .type = FIELD_TEXT, .offset = offsetof(rule, matrices)},
    {.key = "group", .type = FIELD_TEXT, .offset = offsetof(rule, group)},
    {.key = "expert", .type = FIELD_FLAG, .offset = offsetof(rule, expert)},
    {.key = "copy_dtype",
     .type = FIELD_CHOICE,
     .offset = offsetof(rule, copy_dtype),
     .choices = copy_dtypes},
    {.key = "mesh", .type = FIELD_TEXT, .offset = offsetof(rule, layout.mesh)},
    {.key = "placement", .type = FIELD_TEXT, .offset = offsetof(rule, layout.placement)},
    {.key = "boxes", .type = FIELD_ANY, .offset = offsetof(rule, layout.boxes_at)},
    {.key = "ranges", .type = FIELD_ANY, .offset = offsetof(rule, layout.ranges_at)},
};

static int apply(const rule *r, int group, muon_param *param)
{
    if (r->matrices) param->matrices = r->matrices;
    if (r->group) param->group = group;
    if (r->expert >= 0) param->expert = r->expert;
    if (r->copy_dtype >= 0) param->copy_dtype = (muon_dtype)r->copy_dtype;
    return config_apply_layout(&r->layout, param);
}

/* Every pattern of the rule must find something to do. */
static int apply_all(config *c, const node *at, const rule *r, int group)
{
    for (size_t k = 0; k < r->match.count; k++) {
        const char *pattern = r->match.items[k];
        size_t found = 0;
        for (size_t i = 0; i < c->nparams; i++) {
            if (!muon_glob_match(pattern, c->params[i].name)) continue;
            DO(apply(r, group, &c->params[i]));
            found++;
        }
        if (!found)
            return node_fail(at, "'%s' matches none of the %zu parameters", pattern, c->nparams);
    }
    return CLI_DONE;
}

static int read_rule(config *c, const node *at, rule *r)
{
    int group = MUON_AUTO;
    DO(node_read(at, rule_fields, sizeof rule_fields / sizeof rule_fields[0], r));
    node match_at = {NULL, at, "match", 0}, group_at = {NULL, at, "group", 0};
    if (r->group) DO(config_find_group(c, &group_at, r->group, &group));
    DO(config_read_layout(c, at, &r->layout));
    return apply_all(c, &match_at, r, group);
}

static int read_rules(config *c, const node *list)
{
    if (!list->value) return CLI_DONE;
    if (!json_is_array(list->value)) return node_fail_type(list, "a list");
    for (size_t i = 0; i < json_array_size(list->value); i++) {
        node at = node_element(list, i);
        rule r = {.expert = -1, .copy_dtype = -1};
        int code = read_rule(c, &at, &r);
        free(r.match.items);
        DO(code);
    }
    return CLI_DONE;
}

/* ---- "classify" ------------------------------------------------------------------------------ */

typedef struct classes {
    node_texts adamw, expert, frozen;
    const char *muon_group, *expert_group, *adamw_group, *frozen_group;
} classes;

static const field class_fields[] = {
    {.key = "adamw", .type = FIELD_TEXTS, .offset = offsetof(classes, adamw)},
    {.key = "expert", .type = FIELD_TEXTS, .offset = offsetof(classes, expert)},
    {.key = "frozen", .type = FIELD_TEXTS, .offset = offsetof(classes, frozen)},
    {.key = "muon_group", .type = FIELD_TEXT, .offset = offsetof(classes, muon_group)},
    {.key = "expert_group", .type = FIELD_TEXT, .offset = offsetof(classes, expert_group)},
    {.key = "adamw_group", .type = FIELD_TEXT, .offset = offsetof(classes, adamw_group)},
    {.key = "frozen_group", .type = FIELD_TEXT, .offset = offsetof(classes, frozen_group)},
};

static int group_of(const config *c, const node *classify, const char *key, const char *name,
                    int *out)
{
    node at = {NULL, classify, key, 0};
    return config_find_group(c, &at, name, out);
}

static int classify_params(config *c, const node *classify, const classes *k)
{
    muon_classifier classifier;
    muon_classifier_init(&classifier, sizeof classifier);
    DO(group_of(c, classify, "muon_group", k->muon_group, &classifier.muon_group));
    DO(group_of(c, classify, "expert_group", k->expert_group ? k->expert_group : k->muon_group,
                &classifier.expert_group));
    DO(group_of(c, classify, "adamw_group", k->adamw_group, &classifier.adamw_group));
    DO(group_of(c, classify, "frozen_group", k->frozen_group, &classifier.frozen_group));
    classifier.adamw_patterns = k->adamw.items; /* NULL: the library's own */
    classifier.nadamw_patterns = k->adamw.count;
    classifier.expert_patterns = k->expert.items;
    classifier.nexpert_patterns = k->expert.count;
    classifier.frozen_patterns = k->frozen.items;
    classifier.nfrozen_patterns = k->frozen.count;
    if (muon_classify(c->params, c->nparams, &classifier) == MUON_OK) return CLI_DONE;
    return classify->value ? node_fail(classify, "%s", muon_last_error()) : cli_fail_library();
}

static int read_classes(config *c, const node *classify)
{
    classes k = {.muon_group = "muon", .adamw_group = "adamw", .frozen_group = "frozen"};
    int code = CLI_DONE;
    if (classify->value)
        code = node_read(classify, class_fields, sizeof class_fields / sizeof class_fields[0], &k);
    if (code == CLI_DONE) code = classify_params(c, classify, &k);
    free(k.adamw.items);
    free(k.expert.items);
    free(k.frozen.items);
    return code;
}

int config_read_params(config *c, const node *list, const node *classify, const files *tensors)
{
    DO(read_tensors(c, tensors));
    DO(read_rules(c, list));
    DO(read_classes(c, classify));
    return settle_dtypes(c, tensors);
}
