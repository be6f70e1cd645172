#include "cli/ckpt/peers.h"

#include "cli/core/grow.h"
#include "cli/core/names.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a peer counts steps per group (xtuner) or in a Python integer (keller, moonlight), a tensor
 * for each parameter is the nearest that a file can have. */
static const ckpt_peer peers[] = {
    {"torch", "momentum_buffer", "exp_avg", "exp_avg_sq", "step", "F32", 0},
    {"keller", "momentum_buffer", "exp_avg", "exp_avg_sq", "step", "I64", 0},
    {"moonlight", "momentum_buffer", "moment1", "moment2", "step", "I64", 0},
    {"megatron", "momentum_buffer", "exp_avg", "exp_avg_sq", "step", "F32", 0},
    {"dion", "momentum", "momentum", "variance", "step_dev", "F32", 0},
    {"xtuner", "momentum", "momentum", "variance", "step", "I64", 0},
    {"motif", "momentum_buffer", "moment1", "moment2", "step", "F32", 0},
    {"muonctl", "momentum_buffer", "exp_avg", "exp_avg_sq", "step", "I64", 1},
};
enum { NPEERS = sizeof peers / sizeof peers[0] };

int ckpt_peer_find(const ckpt_peer **out, const char *option, const char *name)
{
    names_nearest nearest;
    char known[128] = "";
    names_start(&nearest, name);
    for (size_t i = 0; i < NPEERS; i++) {
        if (peers[i].is_own && strcmp(option, "from") != 0) continue;
        if (strcmp(peers[i].name, name) == 0) {
            *out = &peers[i];
            return CLI_DONE;
        }
        names_offer(&nearest, peers[i].name);
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 peers[i].name);
    }
    return cli_misuse("--%s: '%s' is unknown; known: %s%s", option, name, known,
                      names_hint(&nearest));
}

ckpt_role ckpt_role_of(const char *word)
{
    static const struct {
        const char *word;
        ckpt_role role;
    } words[] = {
        {"momentum_buffer", ROLE_MOMENTUM},
        {"momentum", ROLE_EITHER},
        {"exp_avg", ROLE_FIRST},
        {"moment1", ROLE_FIRST},
        {"exp_avg_sq", ROLE_SECOND},
        {"moment2", ROLE_SECOND},
        {"variance", ROLE_SECOND},
        {"step", ROLE_STEP},
        {"step_dev", ROLE_STEP},
        {"lr_ratio", ROLE_DERIVED},
        {"use_muon", ROLE_DERIVED},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i].word, word) == 0) return words[i].role;
    return ROLE_UNKNOWN;
}

const char *ckpt_role_word(ckpt_role role)
{
    static const char *const words[NROLES] = {"momentum_buffer", "exp_avg", "exp_avg_sq", "step"};
    return words[role];
}

/* ---- lists of names ------------------------------------------------------------------------- */

/* For free; NULL, after a message, if it cannot be read or is no text. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        cli_fail("%s: %s", path, strerror(errno));
        return NULL;
    }
    size_t used = 0;
    char *text = NULL;
    int c;
    while ((c = getc(file)) != EOF && c != '\0') {
        text = grow(text, used, 1);
        text[used++] = (char)c;
    }
    int failed = ferror(file);
    fclose(file);
    text = grow(text, used, 1);
    text[used] = '\0';
    if (!failed && c == EOF) return text;
    free(text);
    cli_fail(failed ? "%s: cannot read it" : "%s: it is not text", path);
    return NULL;
}

static void add(ckpt_names *names, const char *name, size_t length)
{
    names->list = grow(names->list, names->count, sizeof *names->list);
    names->list[names->count++] = cli_format("%.*s", (int)length, name);
}

static void add_lines(ckpt_names *names, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\r\n");
        if (length) add(names, text, length);
        text += length;
        text += strspn(text, "\r\n");
    }
}

static int add_json(ckpt_names *names, const char *text, const char *path)
{
    json_error_t error;
    json_t *list = json_loads(text, 0, &error);
    if (!list) return cli_fail("%s: line %d: %s", path, error.line, error.text);
    size_t i;
    json_t *item;
    int code = CLI_DONE;
    json_array_foreach(list, i, item)
    {
        if (json_is_string(item))
            add(names, json_string_value(item), json_string_length(item));
        else
            code = cli_fail("%s: entry %zu is no string", path, i);
        if (code != CLI_DONE) break;
    }
    json_decref(list);
    return code;
}

/* One name twice would give two parameters one state. */
static int check_unique(const ckpt_names *names, const char *path)
{
    json_t *seen = json_object();
    size_t i = 0;
    while (i < names->count && !json_object_get(seen, names->list[i]))
        json_object_set_new(seen, names->list[i++], json_true());
    json_decref(seen);
    if (i == names->count) return CLI_DONE;
    return cli_fail("%s: '%s' is there twice", path, names->list[i]);
}

int ckpt_names_load(ckpt_names *out, const char *path)
{
    ckpt_names names = {NULL, 0};
    char *text = read_text(path);
    if (!text) return CLI_FAILED;
    int code = CLI_DONE;
    if (text[strspn(text, " \t\r\n")] == '[')
        code = add_json(&names, text, path);
    else
        add_lines(&names, text);
    free(text);
    if (code == CLI_DONE) code = check_unique(&names, path);
    if (code == CLI_DONE)
        *out = names;
    else
        ckpt_names_free(&names);
    return code;
}

void ckpt_names_free(ckpt_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
    *names = (ckpt_names){NULL, 0};
}

int64_t ckpt_names_find(const ckpt_names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->list[i], name) == 0) return (int64_t)i;
    return -1;
}
