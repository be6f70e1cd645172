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

/* The library's line for a field begins with whose it is: "muon: momentum [0.95]". */
int ckpt_field_matters(const char *help, const char *rule, const char *coefficients)
{
    static const char *const owners[] = {"muon: ", "adamw: ", "polar_express: "};
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        size_t length = strlen(owners[i]);
        if (strncmp(help, owners[i], length) != 0) continue;
        const char *owner = i < 2 ? rule : coefficients;
        return strncmp(owner, owners[i], length - 2) == 0 && strlen(owner) == length - 2 &&
               (i < 2 || strcmp(rule, "muon") == 0);
    }
    return 1;
}
