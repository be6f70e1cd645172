#include "cli/ckpt/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ckpt_name ckpt_split(const char *tensor)
{
    ckpt_name name = {cli_format("%s", tensor), ""};
    char *dot = strrchr(name.param, '.');
    if (!dot) return name;
    *dot = '\0';
    name.part = dot + 1;
    return name;
}

/* A whole number from 0 on, -1 for anything else. */
static int64_t whole(const char *text)
{
    if (!text || !*text || strlen(text) > 15 || text[strspn(text, "0123456789")]) return -1;
    return strtoll(text, NULL, 10);
}

int64_t ckpt_group_of(const ckpt_source *source, const char *param)
{
    char *key = cli_format("muon.param.%s", param);
    int64_t group = whole(ckpt_metadata(source, key));
    free(key);
    return group < ckpt_ngroups(source) ? group : -1;
}

int64_t ckpt_ngroups(const ckpt_source *source)
{
    int64_t count = whole(ckpt_metadata(source, "muon.ngroups"));
    return count > 0 ? count : 0;
}

const char *ckpt_group_value(const ckpt_source *source, int64_t group, const char *field)
{
    char key[128];
    snprintf(key, sizeof key, "muon.group.%" PRId64 ".%s", group, field);
    return ckpt_metadata(source, key);
}

ckpt_label ckpt_group_label(const ckpt_source *source, int64_t group)
{
    ckpt_label label;
    const char *name = ckpt_group_value(source, group, "name");
    if (name)
        snprintf(label.text, sizeof label.text, "group %" PRId64 " '%.100s'", group, name);
    else
        snprintf(label.text, sizeof label.text, "group %" PRId64, group);
    return label;
}

static int begins(const char *key, const char *const *prefixes)
{
    for (; *prefixes; prefixes++)
        if (strncmp(key, *prefixes, strlen(*prefixes)) == 0) return 1;
    return 0;
}

int ckpt_is_general(const char *key)
{
    static const char *const others[] = {"muon.group.", "muon.param.", "muon.ngroups",
                                         "muon.version", NULL};
    return !begins(key, others);
}

int ckpt_is_of_param(const char *key)
{
    static const char *const prefixes[] = {"muon.dtype.", "muon.matrices.", "muon.attention.",
                                           NULL};
    return begins(key, prefixes);
}

/* Back to where a character of UTF-8 begins. */
static size_t to_character(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

ckpt_text ckpt_excerpt(const char *value, size_t at)
{
    enum { SHOWN = 150, BEFORE = 20 };
    ckpt_text out;
    size_t start = at > BEFORE ? to_character(value, at - BEFORE) : 0;
    const char *from = value + start;
    size_t length = strlen(from);
    int is_cut = length > SHOWN;
    if (is_cut) length = to_character(from, SHOWN);
    snprintf(out.text, sizeof out.text, "%s%.*s%s", start ? "..." : "", (int)length, from,
             is_cut ? "..." : "");
    return out;
}

/* Whole numbers are shown digit by digit: a double does not hold all of them. */
ckpt_text ckpt_pretty(const char *value)
{
    ckpt_text out;
    char *end = NULL;
    double number = strtod(value, &end);
    int is_real = end != value && !*end && isfinite(number) &&
                  !value[strspn(value, "0123456789+-.eE")] && strpbrk(value, ".eE");
    if (!is_real) return ckpt_excerpt(value, 0);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out.text, sizeof out.text, "%.*g", digits, number);
        if (strtod(out.text, NULL) == number) break;
    }
    return out;
}

int ckpt_field_matters(const muon_field *field, const char *rule, const char *coefficients)
{
    if (strcmp(rule, "lion") == 0) rule = "adamw"; /* whose betas it has */
    return (!field->rule || strcmp(field->rule, rule) == 0) &&
           (!field->coefficients || strcmp(field->coefficients, coefficients) == 0);
}

/* ---- groups --------------------------------------------------------------------------------- */

int ckpt_group_load(const ckpt_source *source, int64_t group, muon_group *out)
{
    muon_group_init(out, sizeof *out);
    for (size_t i = 0; i < muon_group_count_fields(); i++) {
        const char *field = field_at(i).name, *value = ckpt_group_value(source, group, field);
        if (value && muon_group_set(out, field, value) != MUON_OK)
            return cli_fail_library_at("%s: muon.group.%" PRId64, source->path, group);
    }
    return CLI_DONE;
}

int ckpt_group_of_buffer(const ckpt_source *source, const char *param, muon_group *out)
{
    int64_t group = ckpt_group_of(source, param);
    if (group >= 0) return ckpt_group_load(source, group, out);
    return cli_fail("%s: there is no muon.param.%s that says which group it is in", source->path,
                    param);
}

int ckpt_group_store(ckpt_items *items, int64_t index, const char *name, const muon_group *group)
{
    char text[MUON_FIELD_TEXT];
    ckpt_items_set_group(items, index, "name", name);
    for (size_t i = 0; i < muon_group_count_fields(); i++) {
        const char *field = field_at(i).name;
        if (muon_group_get(group, field, text, sizeof text) != MUON_OK)
            return cli_fail_library_at("group '%s'", name);
        ckpt_items_set_group(items, index, field, text);
    }
    return CLI_DONE;
}

/* ---- momentum ------------------------------------------------------------------------------- */

ckpt_label ckpt_form_word(muon_momentum_form form)
{
    ckpt_label label = {""};
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.momentum_form = form;
    cli_must(muon_group_get(&group, "momentum_form", label.text, sizeof label.text) == MUON_OK
                 ? CLI_DONE
                 : cli_fail_library());
    return label;
}

double ckpt_form_scale(muon_momentum_form from, muon_momentum_form to, double mu)
{
    if (from == to) return 1;
    return to == MUON_HEAVY_BALL ? 1 / (1 - mu) : 1 - mu;
}

int ckpt_momentum_check(ckpt_momentum *momentum)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    if (momentum->form_word &&
        muon_group_set(&group, "momentum_form", momentum->form_word) != MUON_OK)
        return cli_misuse("--momentum: %s", muon_last_error());
    if (momentum->dtype_word &&
        muon_group_set(&group, "momentum_dtype", momentum->dtype_word) != MUON_OK)
        return cli_misuse("--momentum-dtype: %s", muon_last_error());
    if (group.momentum_dtype == MUON_I8)
        return cli_misuse("--momentum-dtype: i8 has a scale for parts of each matrix; only f32 and "
                          "bf16 can be converted to");
    momentum->form = group.momentum_form;
    if (momentum->dtype_word) momentum->dtype = group.momentum_dtype == MUON_BF16 ? "BF16" : "F32";
    return CLI_DONE;
}
