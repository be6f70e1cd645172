/* Keys are "<param>.<word>", "state.<param>.<word>" or "optimizer.state.<param>.<word>", where <param>
 * may be the number that torch gives a parameter. What does not fit is listed, never guessed. */
#include "cli/ckpt/state.h"

#include "cli/ckpt/settings.h"
#include "cli/ckpt/values.h"
#include "cli/core/grow.h"
#include "cli/core/tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    state->params = grow(state->params, state->count, sizeof *state->params);
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
    ckpt_role role = *name.param ? ckpt_role_of(name.part) : ROLE_UNKNOWN;
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
        return cli_fail("%s: '%s' is %s %s, no single number", place->from->path, t->name, t->dtype,
                        tensors_shape_text(&shape, t->ndim, t->shape));
    char bytes[8];
    double step;
    if (ckpt_read(place->from, place->index, 0, bytes, size) != MUON_OK) return cli_fail_library();
    values_load(&step, bytes, 1, t->dtype);
    if (!(step >= 0 && step <= 9007199254740992.0 && step == floor(step)))
        return cli_fail("%s: '%s' is %g, no number of steps", place->from->path, t->name, step);
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
        return cli_fail("%s: '%s' is there, but not its other half", there->from->path,
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
