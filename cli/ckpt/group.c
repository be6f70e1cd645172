#include "cli/ckpt/group.h"

#include "cli/ckpt/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int ckpt_group_load(const ckpt_source *source, int64_t group, muon_group *out)
{
    const char *field;
    muon_group_init(out, sizeof *out);
    for (size_t i = 0; (field = muon_group_field(i, NULL)); i++) {
        const char *value = ckpt_group_value(source, group, field);
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

/* ---- fields as text ------------------------------------------------------------------------- */

/* Words in the order of the enums of muon.h. */
static const char *const rules[] = {"muon", "adamw", "frozen"};
static const char *const forms[] = {"heavy_ball", "ema"};
static const char *const dtypes[] = {"none", "f32", "bf16"};
static const char *const lr_modes[] = {"rms_norm", "spectral_norm", "original", "spectral", "none"};
static const char *const sets[] = {"you",  "original",    "polar_express",
                                   "cans", "deepseek_v4", "custom"};
static const char *const algorithms[] = {"auto", "standard", "symmetric", "gram"};
static const char *const eps_modes[] = {"relative", "add", "clamp"};
static const char *const adam_eps_modes[] = {"corrected", "raw"};

typedef struct field_place {
    const char *name;
    size_t offset;
    int is_real;
    const char *const *words; /* NULL: a number */
    size_t nwords;
} field_place;

#define REAL(FIELD)                                                                                \
    {                                                                                              \
#FIELD, offsetof(muon_group, FIELD), 1, NULL, 0                                            \
    }
#define WHOLE(FIELD)                                                                               \
    {                                                                                              \
#FIELD, offsetof(muon_group, FIELD), 0, NULL, 0                                            \
    }
#define CHOICE(FIELD, WORDS)                                                                       \
    {                                                                                              \
#FIELD, offsetof(muon_group, FIELD), 0, WORDS, sizeof(WORDS) / sizeof(WORDS)[0]            \
    }

static const field_place places[] = {
    CHOICE(rule, rules),
    REAL(lr),
    REAL(weight_decay),
    WHOLE(clip),
    REAL(momentum),
    WHOLE(nesterov),
    CHOICE(momentum_form, forms),
    CHOICE(momentum_dtype, dtypes),
    CHOICE(lr_mode, lr_modes),
    REAL(lr_scale),
    CHOICE(coefficients, sets),
    WHOLE(ns_steps),
    CHOICE(algorithm, algorithms),
    REAL(ns_eps),
    CHOICE(eps_mode, eps_modes),
    REAL(polar_lower),
    REAL(polar_safety),
    REAL(polar_cushion),
    REAL(beta1),
    REAL(beta2),
    REAL(adam_eps),
    CHOICE(adam_eps_mode, adam_eps_modes),
};
enum { NPLACES = sizeof places / sizeof places[0] };

/* "" for a value that has no word here. */
static void write_field(char *text, size_t size, const field_place *p, const muon_group *group)
{
    const char *at = (const char *)group + p->offset;
    double real = 0;
    int number = 0;
    memcpy(p->is_real ? (void *)&real : &number, at, p->is_real ? sizeof real : sizeof number);
    if (p->words)
        snprintf(text, size, "%s", (size_t)number < p->nwords ? p->words[number] : "");
    else if (p->is_real)
        snprintf(text, size, "%.17g", real);
    else
        snprintf(text, size, "%d", number);
}

/* Whether the library reads the text as the value that it was made of. */
static int is_read_back(const field_place *p, const char *text, const muon_group *group)
{
    muon_group back;
    muon_group_init(&back, sizeof back);
    return muon_group_set(&back, p->name, text) == MUON_OK &&
           memcmp((const char *)&back + p->offset, (const char *)group + p->offset,
                  p->is_real ? sizeof(double) : sizeof(int)) == 0;
}

int ckpt_group_store(ckpt_items *items, int64_t index, const char *name, const muon_group *group)
{
    const char *field;
    ckpt_items_set_group(items, index, "name", name);
    for (size_t i = 0; (field = muon_group_field(i, NULL)); i++) {
        char text[64] = "";
        int is_known = i < NPLACES && strcmp(places[i].name, field) == 0;
        if (is_known) write_field(text, sizeof text, &places[i], group);
        if (!is_known || !is_read_back(&places[i], text, group))
            return cli_fail("group '%s': this muonctl cannot write its %s; it is of another "
                            "version than libmuon %s",
                            name, field, muon_version());
        ckpt_items_set_group(items, index, field, text);
    }
    return CLI_DONE;
}

/* ---- momentum ------------------------------------------------------------------------------- */

const char *ckpt_form_word(muon_momentum_form form)
{
    return (size_t)form < sizeof forms / sizeof forms[0] ? forms[form] : "unknown";
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
    momentum->form = group.momentum_form;
    if (momentum->dtype_word) momentum->dtype = group.momentum_dtype == MUON_BF16 ? "BF16" : "F32";
    return CLI_DONE;
}
