/* Groups are found through their parameters: what matters is what happens to a parameter, not how its
 * group is called or where it stands. */
#include "cli/ckpt/diff_settings.h"

#include "cli/ckpt/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char param_prefix[] = "muon.param.";

int ckpt_has_settings(const ckpt_source *source)
{
    return ckpt_metadata(source, "muon.format") != NULL;
}

static int same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Fields of groups may be numbers: 0.1 and 0.10000000000000001 are one. What callers write is theirs,
 * and no number to us. */
static int same_field(const char *a, const char *b)
{
    if (!a || !b) return a == b;
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return strcmp(a, b) == 0 || (x == y && end_a != a && end_b != b && !*end_a && !*end_b);
}

static size_t first_difference(const char *a, const char *b)
{
    size_t at = 0;
    while (a[at] && a[at] == b[at])
        at++;
    return at;
}

static size_t tell_setting(json_t *rows, const char *whose, const char *name, const char *a,
                           const char *b)
{
    if (rows) {
        json_t *row = json_object();
        json_object_set_new(row, "group", *whose ? json_string(whose) : json_null());
        json_object_set_new(row, "name", json_string(name));
        json_object_set_new(row, "a", a ? json_string(a) : json_null());
        json_object_set_new(row, "b", b ? json_string(b) : json_null());
        json_array_append_new(rows, row);
        return 1;
    }
    ckpt_text x = ckpt_pretty(a ? a : "(none)"), y = ckpt_pretty(b ? b : "(none)");
    if (a && b && strcmp(x.text, y.text) == 0) {
        size_t at = first_difference(a, b);
        x = ckpt_excerpt(a, at);
        y = ckpt_excerpt(b, at);
    }
    printf("setting %s%s%s: %s in A, %s in B\n", whose, *whose ? ": " : "", name, x.text, y.text);
    return 1;
}

static size_t compare_texts(json_t *rows, const char *name, const char *a, const char *b)
{
    return same_text(a, b) ? 0 : tell_setting(rows, "", name, a, b);
}

static size_t compare_general(json_t *rows, const ckpt_source *a, const ckpt_source *b)
{
    size_t count = 0;
    const char *key;
    json_t *value;
    json_object_foreach(a->metadata, key, value) if (ckpt_is_general(key)) count +=
        compare_texts(rows, key, json_string_value(value), ckpt_metadata(b, key));
    json_object_foreach(b->metadata, key, value) if (ckpt_is_general(key) && !ckpt_metadata(a, key))
        count += compare_texts(rows, key, NULL, json_string_value(value));
    return count;
}

static size_t compare_groups(json_t *rows, const ckpt_source *a, int64_t i, const ckpt_source *b,
                             int64_t j)
{
    size_t count = 0;
    char whose[400];
    snprintf(whose, sizeof whose, "%s", ckpt_group_label(a, i).text);
    if (strcmp(whose, ckpt_group_label(b, j).text) != 0)
        snprintf(whose, sizeof whose, "%s, in B %s", ckpt_group_label(a, i).text,
                 ckpt_group_label(b, j).text);
    for (size_t k = 0; k < muon_group_count_fields(); k++) {
        const char *name = field_at(k).name;
        const char *x = ckpt_group_value(a, i, name), *y = ckpt_group_value(b, j, name);
        if (!same_field(x, y)) count += tell_setting(rows, whose, name, x, y);
    }
    const char *x = ckpt_group_value(a, i, "custom"), *y = ckpt_group_value(b, j, "custom");
    if (!same_text(x, y)) count += tell_setting(rows, whose, "custom", x, y);
    return count;
}

/* Each pair of groups that a parameter connects, once. */
size_t ckpt_diff_settings(const ckpt_source *a, const ckpt_source *b, json_t *rows)
{
    size_t count = compare_general(rows, a, b);
    char step[2][32];
    snprintf(step[0], sizeof step[0], "%" PRId64, a->step);
    snprintf(step[1], sizeof step[1], "%" PRId64, b->step);
    count += compare_texts(rows, "muon.step", step[0], step[1]);
    json_t *seen = json_object();
    const char *key;
    json_t *value;
    json_object_foreach(a->metadata, key, value)
    {
        if (strncmp(key, param_prefix, sizeof param_prefix - 1) != 0) continue;
        const char *param = key + sizeof param_prefix - 1;
        int64_t i = ckpt_group_of(a, param), j = ckpt_group_of(b, param);
        char both[64];
        snprintf(both, sizeof both, "%" PRId64 " %" PRId64, i, j);
        if (i < 0 || j < 0 || json_object_get(seen, both)) continue;
        json_object_set_new(seen, both, json_true());
        count += compare_groups(rows, a, i, b, j);
    }
    json_decref(seen);
    return count;
}
