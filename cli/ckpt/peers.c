#include "cli/ckpt/peers.h"

#include "cli/ckpt/settings.h"
#include "cli/ckpt/values.h"
#include "cli/core/files.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
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

int ckpt_peer_find(const ckpt_peer **out, const char *which, const char *name)
{
    names_nearest nearest;
    names_start(&nearest, name);
    for (size_t i = 0; i < NPEERS; i++) {
        if (peers[i].is_own && strcmp(which, "from") != 0) continue;
        if (strcmp(peers[i].name, name) == 0) {
            *out = &peers[i];
            return CLI_DONE;
        }
        names_offer(&nearest, peers[i].name);
    }
    return cli_misuse("--%s: '%s' is unknown; known: %s%s", which, name, nearest.known,
                      names_hint(&nearest));
}

/* By what a state tensor's name ends with; any peer's words. */
static ckpt_role role_of(const char *word)
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
        text = cli_grow(text, used, 1);
        text[used++] = (char)c;
    }
    int failed = ferror(file);
    fclose(file);
    text = cli_grow(text, used, 1);
    text[used] = '\0';
    if (!failed && c == EOF) return text;
    free(text);
    cli_fail(failed ? "%s: cannot read it" : "%s: it is not text", path);
    return NULL;
}

static void add(ckpt_names *names, const char *name, size_t length)
{
    names->list = cli_grow(names->list, names->count, sizeof *names->list);
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
            code = cli_fail("%s: entry %zu is not a string", path, i);
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
    return cli_fail("%s: '%s' appears twice", path, names->list[i]);
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

/* ---- a peer's state ----------------------------------------------------------------------------- */

/* Keys are "<param>.<word>", "state.<param>.<word>" or "optimizer.state.<param>.<word>", where <param>
 * may be the number that torch gives a parameter. What does not fit is listed, never guessed. */

void ckpt_state_start(ckpt_state *state)
{
    *state = (ckpt_state){.index = json_object()};
}

void ckpt_state_free(ckpt_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        free(state->params[i].name);
    free(state->params);
    json_decref(state->index);
    *state = (ckpt_state){.params = NULL};
}

static ckpt_param *param_of(ckpt_state *state, const char *name)
{
    json_t *known = json_object_get(state->index, name);
    if (known) return &state->params[json_integer_value(known)];
    state->params = cli_grow(state->params, state->count, sizeof *state->params);
    json_object_set_new(state->index, name, json_integer((json_int_t)state->count));
    ckpt_param *param = &state->params[state->count++];
    *param = (ckpt_param){.name = cli_format("%s", name), .step = -1};
    return param;
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* Without the words in front that say whose state it is; a parameter may begin with such a word
 * itself, if the list of names says so. */
static const char *bare(const char *param, const ckpt_names *names)
{
    static const char *const prefixes[] = {"optimizer.state.", "state."};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        size_t length = strlen(prefixes[i]);
        if (strncmp(param, prefixes[i], length) == 0 && param[length] &&
            ckpt_names_find(names, param) < 0)
            return param + length;
    }
    return param;
}

/* The name for what may be a number. */
static int resolve(const char **out, const char *param, const char *key, const ckpt_source *file,
                   const ckpt_names *names)
{
    *out = param;
    if (param[strspn(param, "0123456789")] || ckpt_names_find(names, param) >= 0) return CLI_DONE;
    if (!names->count)
        return cli_fail("%s: '%s' has the number of a parameter: --names must list their names, in "
                        "the order of the optimizer",
                        file->path, key);
    size_t number = strlen(param) < 10 ? (size_t)strtoull(param, NULL, 10) : SIZE_MAX;
    if (number >= names->count)
        return cli_fail("%s: '%s': --names has %zu names only", file->path, key, names->count);
    *out = names->list[number];
    return CLI_DONE;
}

static int put(ckpt_place *place, const ckpt_source *file, size_t index)
{
    if (place->from)
        return cli_fail("%s: '%s' means the same as '%s' of %s", file->path,
                        file->tensors[index].name, place->from->tensors[place->index].name,
                        place->from->path);
    *place = (ckpt_place){file, index};
    return CLI_DONE;
}

static int sort_in(ckpt_state *state, const ckpt_source *file, size_t index,
                   const ckpt_names *names)
{
    const char *key = file->tensors[index].name, *param = NULL;
    ckpt_name name = ckpt_split(key);
    ckpt_role role = *name.param ? role_of(name.part) : ROLE_UNKNOWN;
    int code = CLI_DONE;
    if (role == ROLE_UNKNOWN) {
        names_add(&state->unknown, key);
    } else if (role != ROLE_DERIVED) {
        code = resolve(&param, bare(name.param, names), key, file, names);
        if (code == CLI_DONE) {
            ckpt_param *p = param_of(state, param);
            code = put(role == ROLE_EITHER ? &p->either : &p->role[role], file, index);
        }
    }
    free(name.param);
    return code;
}

int ckpt_state_add(ckpt_state *state, const ckpt_source *file, const ckpt_names *names)
{
    for (size_t i = 0; i < file->count; i++)
        DO(sort_in(state, file, i, names));
    return CLI_DONE;
}

/* ---- what it amounts to --------------------------------------------------------------------- */

static const muon_checkpoint_tensor *tensor_at(const ckpt_place *place)
{
    return &place->from->tensors[place->index];
}

static int read_step(ckpt_param *p)
{
    const ckpt_place *place = &p->role[ROLE_STEP];
    if (!place->from) return CLI_DONE;
    const muon_checkpoint_tensor *t = tensor_at(place);
    size_t size = values_size(t->dtype);
    tensors_shape shape;
    if (!size || ckpt_elements(t) != 1 || t->ndim > 1)
        return cli_fail("%s: '%s' is %s %s, not a single number", place->from->path, t->name,
                        t->dtype, tensors_shape_text(&shape, t->ndim, t->shape));
    char bytes[8];
    double step;
    if (ckpt_read(place->from, place->index, 0, bytes, size) != MUON_OK) return cli_fail_library();
    values_load(&step, bytes, 1, t->dtype);
    if (!(step >= 0 && step <= 9007199254740992.0 && step == floor(step)))
        return cli_fail("%s: '%s' is %g, not a number of steps", place->from->path, t->name, step);
    p->step = (int64_t)step;
    return CLI_DONE;
}

static int check_numbers(const ckpt_param *p, ckpt_role role)
{
    const ckpt_place *place = &p->role[role];
    const char *dtype = tensor_at(place)->dtype;
    if (strcmp(dtype, "F32") == 0 || strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0 ||
        strcmp(dtype, "F64") == 0)
        return CLI_DONE;
    return cli_fail("%s: '%s' is %s, must be F32, BF16, F16 or F64", place->from->path,
                    tensor_at(place)->name, dtype);
}

static int finish_muon(ckpt_param *p)
{
    const ckpt_place *place = &p->role[ROLE_MOMENTUM];
    p->rule = MUON_RULE_MUON;
    DO(check_numbers(p, ROLE_MOMENTUM));
    if (tensor_at(place)->ndim >= 2) return CLI_DONE;
    return cli_fail("%s: '%s' has %d dims, Muon's momentum has 2 or more (of another rule?)",
                    place->from->path, tensor_at(place)->name, tensor_at(place)->ndim);
}

static int finish_adamw(ckpt_param *p)
{
    const ckpt_place *first = &p->role[ROLE_FIRST], *second = &p->role[ROLE_SECOND];
    const ckpt_place *there = first->from ? first : second;
    p->rule = MUON_RULE_ADAMW;
    if (!first->from || !second->from)
        return cli_fail("%s: '%s' is present, but its counterpart is missing", there->from->path,
                        tensor_at(there)->name);
    DO(check_numbers(p, ROLE_FIRST));
    DO(check_numbers(p, ROLE_SECOND));
    const muon_checkpoint_tensor *a = tensor_at(first), *b = tensor_at(second);
    tensors_shape x, y;
    if (a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof a->shape) == 0) return CLI_DONE;
    return cli_fail("%s: '%s' is %s, but '%s' is %s", first->from->path, a->name,
                    tensors_shape_text(&x, a->ndim, a->shape), b->name,
                    tensors_shape_text(&y, b->ndim, b->shape));
}

static int finish_param(ckpt_state *state, ckpt_param *p)
{
    if (p->either.from)
        DO(put(&p->role[p->role[ROLE_SECOND].from ? ROLE_FIRST : ROLE_MOMENTUM], p->either.from,
               p->either.index));
    int is_muon = p->role[ROLE_MOMENTUM].from != NULL;
    int is_adamw = p->role[ROLE_FIRST].from || p->role[ROLE_SECOND].from;
    DO(read_step(p));
    if (is_muon && is_adamw) return cli_fail("'%s' has the state of Muon and of AdamW", p->name);
    if (is_muon) return finish_muon(p);
    if (is_adamw) return finish_adamw(p);
    p->rule = MUON_RULE_FROZEN; /* a counter alone is no state */
    names_add(&state->unknown, tensor_at(&p->role[ROLE_STEP])->name);
    return CLI_DONE;
}

int ckpt_state_finish(ckpt_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        DO(finish_param(state, &state->params[i]));
    return CLI_DONE;
}
