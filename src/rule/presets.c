/* presets.c - the update rules of other Muon implementations, as settings of ours.
 *
 * Each entry is what that project does when its user sets nothing; docs/presets.md says where a
 * preset and its peer still differ. */
#include "base/mode.h"
#include "base/versioned.h"
#include "rule/group.h"
#include "rule/group_fields.h"
#include "rule/names.h"

#include <string.h>

typedef struct muon_side {
    double lr, weight_decay;
    int clip, nesterov;
    muon_momentum_form form;
    muon_lr_mode lr_mode;
    muon_coefficients coefficients;
    muon_eps_mode eps_mode;
    double eps;
} muon_side;

typedef struct adamw_side {
    double lr, weight_decay;
    double beta1, beta2, eps;
    muon_adam_eps eps_mode;
} adamw_side;

typedef struct preset {
    const char *name;
    muon_side muon;
    adamw_side adamw;
} preset;

#define YOU      MUON_COEFFICIENTS_YOU
#define ORIGINAL MUON_COEFFICIENTS_ORIGINAL
#define POLAR    MUON_COEFFICIENTS_POLAR_EXPRESS
#define DEEPSEEK MUON_COEFFICIENTS_DEEPSEEK_V4

/* Fields in the order of the structs above. */
static const preset presets[] = {
    {"torch",
     {1e-3, 0.1, 1, 1, MUON_EMA, MUON_LR_ORIGINAL, ORIGINAL, MUON_EPS_CLAMP, 1e-7},
     {1e-3, 0.01, 0.9, 0.999, 1e-8, MUON_ADAM_EPS_CORRECTED}},
    {"keller",
     {0.02, 0, 1, 1, MUON_EMA, MUON_LR_ORIGINAL, ORIGINAL, MUON_EPS_ADD, 1e-7},
     {3e-4, 0, 0.9, 0.95, 1e-10, MUON_ADAM_EPS_CORRECTED}},
    {"moonlight",
     {1e-3, 0.1, 1, 1, MUON_HEAVY_BALL, MUON_LR_RMS_NORM, ORIGINAL, MUON_EPS_ADD, 1e-7},
     {1e-3, 0.1, 0.9, 0.95, 1e-8, MUON_ADAM_EPS_RAW}},
    {"megatron",
     {3e-4, 0.01, 1, 0, MUON_EMA, MUON_LR_SPECTRAL, YOU, MUON_EPS_CLAMP, 1e-15},
     {3e-4, 0.01, 0.9, 0.999, 1e-8, MUON_ADAM_EPS_CORRECTED}},
    {"dion",
     {0.01, 0.01, 1, 0, MUON_HEAVY_BALL, MUON_LR_SPECTRAL_NORM, POLAR, MUON_EPS_ADD, 1e-8},
     {0.01, 0.01, 0.9, 0.95, 1e-8, MUON_ADAM_EPS_CORRECTED}},
    {"xtuner",
     {1e-5, 0.1, 0, 1, MUON_HEAVY_BALL, MUON_LR_RMS_NORM, YOU, MUON_EPS_ADD, 1e-8},
     {1e-5, 0.1, 0.9, 0.95, 1e-8, MUON_ADAM_EPS_CORRECTED}},
    {"motif",
     {1e-3, 0.1, 1, 1, MUON_HEAVY_BALL, MUON_LR_RMS_NORM, YOU, MUON_EPS_ADD, 1e-7},
     {1e-3, 0.1, 0.9, 0.95, 1e-8, MUON_ADAM_EPS_CORRECTED}},
    {"optax", /* has no default lr */
     {1e-3, 0, 1, 1, MUON_EMA, MUON_LR_ORIGINAL, ORIGINAL, MUON_EPS_ADD, 1e-8},
     {1e-3, 0, 0.9, 0.999, 1e-8, MUON_ADAM_EPS_CORRECTED}},
    {"deepseek_v4",
     {2e-4, 0.1, 1, 1, MUON_HEAVY_BALL, MUON_LR_SPECTRAL, DEEPSEEK, MUON_EPS_CLAMP, 1e-15},
     {2e-4, 0.1, 0.9, 0.95, 1e-20, MUON_ADAM_EPS_CORRECTED}},
    {"normuon", /* dion's */
     {0.01, 0.01, 1, 0, MUON_HEAVY_BALL, MUON_LR_SPECTRAL_NORM, POLAR, MUON_EPS_ADD, 1e-8},
     {0.01, 0.01, 0.9, 0.95, 1e-8, MUON_ADAM_EPS_CORRECTED}},
    {"nanochat", /* AdamW: as for its lm_head */
     {0.02, 0.2, 1, 1, MUON_EMA, MUON_LR_ORIGINAL, POLAR, MUON_EPS_ADD, 1e-6},
     {0.004, 0.01, 0.8, 0.96, 1e-10, MUON_ADAM_EPS_CORRECTED}},
    {"adaptive_muon", /* Emerging-Optimizers', as Megatron has it */
     {3e-4, 0.01, 1, 0, MUON_EMA, MUON_LR_SPECTRAL, YOU, MUON_EPS_CLAMP, 1e-15},
     {3e-4, 0.01, 0.9, 0.999, 1e-8, MUON_ADAM_EPS_CORRECTED}},
};

/* What only few have. */
static const struct {
    const char *preset;
    muon_rule rule;
    const char *field, *value;
} extras[] = {
    {"optax", MUON_RULE_MUON, "bias_correction", "1"},
    {"deepseek_v4", MUON_RULE_MUON, "ns_steps", "10"},
    {"deepseek_v4", MUON_RULE_MUON, "lr_scale", "0.18"},
    {"normuon", MUON_RULE_MUON, "second_moment", "rows"},
    {"nanochat", MUON_RULE_MUON, "equalize", "1"},
    {"nanochat", MUON_RULE_MUON, "norm_scale", "1.01"},
    {"nanochat", MUON_RULE_MUON, "renormalize", "1"},
    {"nanochat", MUON_RULE_MUON, "second_moment", "long_side"},
    {"nanochat", MUON_RULE_MUON, "second_beta", "0.9"},
    {"nanochat", MUON_RULE_MUON, "second_eps", "1e-10"},
    {"nanochat", MUON_RULE_MUON, "second_eps_mode", "clamp"},
    {"nanochat", MUON_RULE_MUON, "cautious_decay", "1"},
    {"adaptive_muon", MUON_RULE_MUON, "second_moment", "elements"},
    {"dion", MUON_RULE_LION, "beta2", "0.95"},
    {"normuon", MUON_RULE_LION, "beta2", "0.95"},
    {"adaptive_muon", MUON_RULE_LION, "beta1", "0.95"},
    {"adaptive_muon", MUON_RULE_LION, "beta2", "0.98"},
    {"megatron", MUON_RULE_LION, "beta1", "0.95"},
    {"megatron", MUON_RULE_LION, "beta2", "0.98"},
};

static const char *preset_name_at(const void *table, size_t i)
{
    return i < sizeof presets / sizeof presets[0] ? ((const preset *)table)[i].name : NULL;
}

/* Storage, and how the same polynomial is evaluated, are no part of an update rule. */
static int is_kept(const group_field *field)
{
    static const char *const kept[] = {"rule", "momentum_dtype", "algorithm"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strcmp(field->public.name, kept[i]) == 0) return 1;
    return 0;
}

/* Every field of the group's rule gets its default, so that no variant of before stays switched on. */
static muon_status reset(muon_group *group)
{
    const group_field *field;
    const char *rule = muon__rule_name(group->rule);
    for (size_t i = 0; (field = muon__group_field_at(i)); i++) {
        const char *only = field->public.rule;
        if (is_kept(field) || (only && strcmp(only, rule) != 0)) continue;
        TRY(muon__group_field_parse(field, group, field->public.default_value));
    }
    return MUON_OK;
}

static muon_status apply_extras(muon_group *group, const char *name)
{
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        if (extras[i].rule == group->rule && strcmp(extras[i].preset, name) == 0)
            TRY(muon_group_set(group, extras[i].field, extras[i].value));
    return MUON_OK;
}

static void apply_muon(muon_group *group, const muon_side *side)
{
    group->lr = side->lr;
    group->weight_decay = side->weight_decay;
    group->clip = side->clip;
    group->nesterov = side->nesterov;
    group->momentum_form = side->form;
    group->lr_mode = side->lr_mode;
    group->coefficients = side->coefficients;
    group->eps_mode = side->eps_mode;
    group->ns_eps = side->eps;
    /* The same for nearly all; only dion looks at the last three. */
    group->momentum = 0.95;
    group->ns_steps = 5;
    group->polar_lower = 1e-3;
    group->polar_safety = 0.02;
    group->polar_cushion = 0.02;
}

static void apply_adamw(muon_group *group, const adamw_side *side)
{
    group->lr = side->lr;
    group->weight_decay = side->weight_decay;
    group->beta1 = side->beta1;
    group->beta2 = side->beta2;
    group->adam_eps = side->eps;
    group->adam_eps_mode = side->eps_mode;
}

muon_status muon_group_set_preset(muon_group *group, const char *name)
{
    OWN_MODE;
    REQUIRE(name, E_ARG, "the name of the preset is NULL");
    muon_group changed;
    muon_group_init(&changed, sizeof changed);
    TRY(muon__struct_load(&changed, sizeof changed, sizeof changed, group, "muon_group"));
    size_t i = 0;
    const char *known;
    while ((known = preset_name_at(presets, i)) && strcmp(known, name) != 0)
        i++;
    if (!known) return muon__fail_unknown(MUON_E_NAME, "preset", name, preset_name_at, presets);
    REQUIRE(changed.rule != MUON_RULE_FROZEN, E_VALUE,
            "preset '%s': the rule of the group must be muon, adamw or lion", name);
    TRY(reset(&changed));
    if (changed.rule == MUON_RULE_MUON)
        apply_muon(&changed, &presets[i].muon);
    else
        apply_adamw(&changed, &presets[i].adamw);
    if (changed.rule == MUON_RULE_LION) { /* those of its paper; most presets have no Lion */
        changed.beta1 = 0.9;
        changed.beta2 = 0.99;
    }
    TRY(apply_extras(&changed, name));
    changed.struct_size = group->struct_size;
    return muon__struct_store(group, group->struct_size, &changed, sizeof changed, "muon_group");
}
