#include "ckpt_group.h"

#include "ckpt_settings.h"

#include <assert.h>
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
} field_place;

#define REAL(FIELD)                                                                                \
    {                                                                                              \
#FIELD, offsetof(muon_group, FIELD), 1, NULL                                               \
    }
#define WHOLE(FIELD)                                                                               \
    {                                                                                              \
#FIELD, offsetof(muon_group, FIELD), 0, NULL                                               \
    }
#define CHOICE(FIELD, WORDS)                                                                       \
    {                                                                                              \
#FIELD, offsetof(muon_group, FIELD), 0, WORDS                                              \
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

static void store_field(ckpt_items *items, int64_t index, const field_place *p,
                        const muon_group *group)
{
    const char *at = (const char *)group + p->offset;
    char text[64];
    double real = 0;
    int number = 0;
    memcpy(p->is_real ? (void *)&real : &number, at, p->is_real ? sizeof real : sizeof number);
    if (p->words)
        snprintf(text, sizeof text, "%s", p->words[number]);
    else if (p->is_real)
        snprintf(text, sizeof text, "%.17g", real);
    else
        snprintf(text, sizeof text, "%d", number);
    ckpt_items_set_group(items, index, p->name, text);
}

void ckpt_group_store(ckpt_items *items, int64_t index, const char *name, const muon_group *group)
{
    ckpt_items_set_group(items, index, "name", name);
    for (size_t i = 0; i < NPLACES; i++) {
        assert(strcmp(places[i].name, muon_group_field(i, NULL)) == 0);
        store_field(items, index, &places[i], group);
    }
    assert(!muon_group_field(NPLACES, NULL));
}

/* ---- momentum ------------------------------------------------------------------------------- */

const char *ckpt_form_word(muon_momentum_form form)
{
    return forms[form];
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
