/* "groups": names and their settings. The fields of a group are the library's own, by name, so a
 * field added there needs no change here. */
#include "cli/config/config.h"
#include "cli/core/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys of a group that are not fields of muon_group. "rule" is one, but must be known first. */
static const char *const own_keys[] = {"like", "rule", "preset", "custom"};
enum { NOWN_KEYS = sizeof own_keys / sizeof own_keys[0] };

static int is_own(const char *key)
{
    for (size_t i = 0; i < NOWN_KEYS; i++)
        if (strcmp(own_keys[i], key) == 0) return 1;
    return 0;
}

static int find(const config *c, const char *name)
{
    for (size_t i = 0; i < c->muon.ngroups; i++)
        if (strcmp(c->groups[i].name, name) == 0) return (int)i;
    return -1;
}

int config_find_group(const config *c, const node *at, const char *name, int *index)
{
    *index = find(c, name);
    if (*index >= 0) return CLI_DONE;
    names_nearest nearest;
    names_start(&nearest, name);
    for (size_t i = 0; i < c->muon.ngroups; i++)
        names_offer(&nearest, c->groups[i].name);
    return node_fail(at, "unknown group '%s'%s", name, names_hint(&nearest));
}

/* A group called like a rule follows that rule; all others start as Muon's. */
static void start_group(muon_group *group, const char *name)
{
    muon_group_init(group, sizeof *group);
    group->name = name;
    muon_group trial = *group;
    if (muon_group_set(&trial, "rule", name) == MUON_OK) *group = trial;
}

static int get_text(const node *group, const char *key, node *at, const char **text)
{
    *text = NULL;
    *at = (node){json_object_get(group->value, key), group, key, 0};
    if (!at->value) return CLI_DONE;
    if (!json_is_string(at->value)) return node_fail_type(at, "a string");
    *text = json_string_value(at->value);
    return CLI_DONE;
}

/* The settings a group starts from: another group, its rule, a preset. */
static int read_basis(const config *c, muon_group *group, const node *object, const char *preset)
{
    node at;
    const char *text;
    DO(get_text(object, "like", &at, &text));
    int liked = text != NULL;
    if (liked) {
        int index;
        DO(config_find_group(c, &at, text, &index));
        const char *name = group->name;
        *group = c->groups[index];
        group->name = name;
    }
    DO(get_text(object, "rule", &at, &text));
    if (text && muon_group_set(group, "rule", text) != MUON_OK)
        return node_fail(&at, "%s", muon_last_error());
    DO(get_text(object, "preset", &at, &text));
    if (!text && liked) return CLI_DONE; /* what it is like has the file's preset already */
    if (!text && group->rule != MUON_RULE_FROZEN) text = preset;
    if (text && muon_group_set_preset(group, text) != MUON_OK)
        return node_fail(&at, "%s", muon_last_error());
    return CLI_DONE;
}

/* The library reads every value as text and so would take "0.02" in quotes; a file should not. */
static int looks_like_other_type(const char *text)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) return 1;
    char *end = NULL;
    strtod(text, &end);
    return end != text && !*end;
}

static int value_text(const node *at, char *text, size_t size)
{
    switch (json_typeof(at->value)) {
    case JSON_STRING:
        if (looks_like_other_type(json_string_value(at->value)))
            return node_fail(at, "\"%s\" must be written without quotes",
                             json_string_value(at->value));
        snprintf(text, size, "%s", json_string_value(at->value));
        return CLI_DONE;
    case JSON_INTEGER:
        snprintf(text, size, "%" JSON_INTEGER_FORMAT, json_integer_value(at->value));
        return CLI_DONE;
    case JSON_REAL:
        snprintf(text, size, "%.17g", json_real_value(at->value));
        return CLI_DONE;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(text, size, "%s", json_is_true(at->value) ? "true" : "false");
        return CLI_DONE;
    case JSON_OBJECT:
    case JSON_ARRAY:
    case JSON_NULL:
        break;
    }
    return node_fail_type(at, "a number, a string, true or false");
}

static int is_field(const char *key)
{
    for (size_t i = 0; i < muon_group_count_fields(); i++)
        if (strcmp(field_at(i).name, key) == 0) return 1;
    return 0;
}

static int refuse_key(const node *at)
{
    names_nearest nearest;
    names_start(&nearest, at->key);
    for (size_t i = 0; i < muon_group_count_fields(); i++)
        names_offer(&nearest, field_at(i).name);
    for (size_t i = 0; i < NOWN_KEYS; i++)
        names_offer(&nearest, own_keys[i]);
    return node_fail(at, "unknown key%s", names_hint(&nearest));
}

static int read_fields(muon_group *group, const node *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object->value, key, value)
    {
        node at = {value, object, key, 0};
        char text[128];
        if (is_own(key)) continue;
        if (!is_field(key)) return refuse_key(&at);
        DO(value_text(&at, text, sizeof text));
        if (muon_group_set(group, key, text) != MUON_OK)
            return node_fail(&at, "%s", muon_last_error());
    }
    return CLI_DONE;
}

/* A list of triples (a, b, c), one for each step. */
static int read_custom(config *c, muon_group *group, const node *object)
{
    node list = {json_object_get(object->value, "custom"), object, "custom", 0};
    if (!list.value) return CLI_DONE;
    size_t count = json_array_size(list.value); /* 0 for what is no list */
    if (count == 0 || count > MUON_MAX_NS_STEPS)
        return node_fail(&list, "must be a list of 1..%d triples [a, b, c]", MUON_MAX_NS_STEPS);
    if (json_object_get(object->value, "coefficients") &&
        group->coefficients != MUON_COEFFICIENTS_CUSTOM)
        return node_fail(&list, "is given, but coefficients is not \"custom\"");

    double(*steps)[3] = config_keep(c, cli_alloc(count, sizeof *steps));
    for (size_t i = 0; i < count; i++) {
        node triple = node_element(&list, i);
        if (json_array_size(triple.value) != 3)
            return node_fail(&triple, "must be a triple [a, b, c]");
        for (size_t k = 0; k < 3; k++) {
            node number = node_element(&triple, k);
            if (!json_is_number(number.value)) return node_fail_type(&number, "a number");
            steps[i][k] = json_number_value(number.value);
        }
    }
    group->coefficients = MUON_COEFFICIENTS_CUSTOM;
    group->custom = (const double(*)[3])steps;
    group->ncustom = (int)count;
    return CLI_DONE;
}

static int read_group(config *c, const node *object, const char *preset)
{
    if (!json_is_object(object->value)) return node_fail_type(object, "an object");
    muon_group *group = &c->groups[c->muon.ngroups];
    start_group(group, object->key);
    DO(read_basis(c, group, object, preset));
    DO(read_fields(group, object));
    DO(read_custom(c, group, object));
    c->muon.ngroups++;
    return CLI_DONE;
}

int config_read_groups(config *c, const node *object, const char *preset)
{
    static const char *const always[] = {"muon", "adamw", "frozen"};
    enum { NALWAYS = sizeof always / sizeof always[0] };
    if (object->value && !json_is_object(object->value)) return node_fail_type(object, "an object");
    c->groups = cli_alloc(json_object_size(object->value) + NALWAYS, sizeof *c->groups);
    const char *key;
    json_t *value;
    json_object_foreach(object->value, key, value)
    {
        node group = {value, object, key, 0};
        DO(read_group(c, &group, preset));
    }

    json_t *empty = json_object();
    int code = CLI_DONE;
    for (size_t i = 0; i < NALWAYS && code == CLI_DONE; i++) {
        node group = {empty, object, always[i], 0};
        if (find(c, always[i]) < 0) code = read_group(c, &group, preset);
    }
    json_decref(empty);
    return code;
}
