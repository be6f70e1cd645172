#include "rule/group_fields.h"

#include "rule/group.h"
#include "rule/names.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Enums are read and written as ints through the table. */
_Static_assert(sizeof(muon_rule) == sizeof(int) && sizeof(muon_dtype) == sizeof(int) &&
                   sizeof(muon_momentum_form) == sizeof(int) &&
                   sizeof(muon_coefficients) == sizeof(int) &&
                   sizeof(muon_algorithm) == sizeof(int) && sizeof(muon_eps_mode) == sizeof(int) &&
                   sizeof(muon_lr_mode) == sizeof(int) && sizeof(muon_adam_eps) == sizeof(int),
               "an enum of muon_group is not an int");

static const choice rules[] = {
    {"muon", MUON_RULE_MUON}, {"adamw", MUON_RULE_ADAMW}, {"frozen", MUON_RULE_FROZEN}, {NULL, 0}};
static const choice momentum_forms[] = {
    {"heavy_ball", MUON_HEAVY_BALL}, {"ema", MUON_EMA}, {NULL, 0}};
static const choice dtypes[] = {{"f32", MUON_F32}, {"bf16", MUON_BF16}, {NULL, 0}};
static const choice lr_modes[] = {
    {"rms_norm", MUON_LR_RMS_NORM}, {"spectral_norm", MUON_LR_SPECTRAL_NORM},
    {"original", MUON_LR_ORIGINAL}, {"spectral", MUON_LR_SPECTRAL},
    {"none", MUON_LR_NONE},         {NULL, 0}};
static const choice coefficient_sets[] = {{"you", MUON_COEFFICIENTS_YOU},
                                          {"original", MUON_COEFFICIENTS_ORIGINAL},
                                          {"polar_express", MUON_COEFFICIENTS_POLAR_EXPRESS},
                                          {"cans", MUON_COEFFICIENTS_CANS},
                                          {"deepseek_v4", MUON_COEFFICIENTS_DEEPSEEK_V4},
                                          {"custom", MUON_COEFFICIENTS_CUSTOM},
                                          {NULL, 0}};
static const choice algorithms[] = {{"auto", MUON_ALGORITHM_AUTO},
                                    {"standard", MUON_ALGORITHM_STANDARD},
                                    {"symmetric", MUON_ALGORITHM_SYMMETRIC},
                                    {"gram", MUON_ALGORITHM_GRAM},
                                    {NULL, 0}};
static const choice eps_modes[] = {
    {"relative", MUON_EPS_RELATIVE}, {"add", MUON_EPS_ADD}, {"clamp", MUON_EPS_CLAMP}, {NULL, 0}};
static const choice adam_eps_modes[] = {
    {"corrected", MUON_ADAM_EPS_CORRECTED}, {"raw", MUON_ADAM_EPS_RAW}, {NULL, 0}};

#define AT(field)    .name = #field, .offset = offsetof(muon_group, field)
#define NOT_NEGATIVE .kind = FIELD_REAL, .low = 0, .high = HUGE_VAL, .high_open = 1
#define POSITIVE     .kind = FIELD_REAL, .low = 0, .low_open = 1, .high = HUGE_VAL, .high_open = 1
#define BELOW_ONE    .kind = FIELD_REAL, .low = 0, .high = 1, .high_open = 1
#define CHOICE(list) .kind = FIELD_CHOICE, .choices = (list)

/* In the order of the struct. The help ends with the default in brackets. */
static const group_field fields[] = {
    {AT(rule), CHOICE(rules), .fixed = 1, .help = "muon, adamw or frozen [muon]"},
    {AT(lr), NOT_NEGATIVE, .help = "learning rate [0.001]"},
    {AT(weight_decay), NOT_NEGATIVE, .help = "decoupled weight decay, times lr [0.1]"},
    {AT(clip), .kind = FIELD_FLAG,
     .help = "gradients are clipped; false: only counted in the norm [true]"},
    {AT(momentum), BELOW_ONE, .help = "muon: momentum [0.95]"},
    {AT(nesterov), .kind = FIELD_FLAG, .help = "muon: Nesterov's momentum [true]"},
    {AT(momentum_form), CHOICE(momentum_forms),
     .help = "muon: heavy_ball (M = mu M + G) or ema (M = mu M + (1 - mu) G) [heavy_ball]"},
    {AT(momentum_dtype), .kind = FIELD_DTYPE, .choices = dtypes, .fixed = 1,
     .help = "muon: momentum is stored as f32 or bf16 [f32]"},
    {AT(lr_mode), CHOICE(lr_modes),
     .help =
         "muon: factor on lr: rms_norm 0.2 sqrt(max(rows, cols)), spectral_norm sqrt(rows/cols), "
         "original sqrt(max(1, rows/cols)), spectral sqrt(max(rows, cols)), none [rms_norm]"},
    {AT(lr_scale), POSITIVE, .help = "muon: one more factor on lr [1]"},
    {AT(coefficients), CHOICE(coefficient_sets),
     .help =
         "muon: Newton-Schulz set: you, original, polar_express, cans, deepseek_v4, custom [you]"},
    {AT(ns_steps), .kind = FIELD_COUNT, .low = 0, .high = MUON_MAX_NS_STEPS,
     .help = "muon: Newton-Schulz steps; 0: as many as the set has [0]"},
    {AT(algorithm), CHOICE(algorithms),
     .help = "muon: same steps computed by auto, standard, symmetric or gram [auto]"},
    {AT(ns_eps), NOT_NEGATIVE, .help = "muon: keeps the norm of a matrix from being 0 [1e-7]"},
    {AT(eps_mode), CHOICE(eps_modes),
     .help = "muon: ns_eps is relative to the norm, add (to it) or clamp (from below) [relative]"},
    {AT(polar_lower), BELOW_ONE, .low_open = 1,
     .help = "polar_express: smallest singular value that matters, of norm 1 [0.001]"},
    {AT(polar_safety), BELOW_ONE, .help = "polar_express: room for rounding errors [0.01]"},
    {AT(polar_cushion), BELOW_ONE,
     .help = "polar_express: lower bound never below this part of the upper one [0.02]"},
    {AT(beta1), BELOW_ONE, .help = "adamw: decay of the mean of gradients [0.9]"},
    {AT(beta2), BELOW_ONE, .help = "adamw: decay of the mean of their squares [0.95]"},
    {AT(adam_eps), NOT_NEGATIVE, .help = "adamw: keeps the denominator from being 0 [1e-8]"},
    {AT(adam_eps_mode), CHOICE(adam_eps_modes),
     .help = "adamw: adam_eps is added to the corrected or the raw root of the mean [corrected]"},
};

const group_field *muon__group_field_at(size_t i)
{
    return i < sizeof fields / sizeof fields[0] ? &fields[i] : NULL;
}

/* ---- values ------------------------------------------------------------------------------- */

static double real_of(const group_field *field, const muon_group *group)
{
    double value;
    memcpy(&value, (const char *)group + field->offset, sizeof value);
    return value;
}

static int int_of(const group_field *field, const muon_group *group)
{
    int value;
    memcpy(&value, (const char *)group + field->offset, sizeof value);
    return value;
}

int muon__group_field_equal(const group_field *field, const muon_group *a, const muon_group *b)
{
    return field->kind == FIELD_REAL ? real_of(field, a) == real_of(field, b)
                                     : int_of(field, a) == int_of(field, b);
}

/* NULL if the list does not have the value. */
static const char *name_of(const choice *list, int value)
{
    for (; list->name; list++)
        if (list->value == value) return list->name;
    return NULL;
}

static const char *choice_name_at(const void *table, size_t i)
{
    return ((const choice *)table)[i].name;
}

const char *muon__group_field_text(field_text *t, const group_field *field, const muon_group *group)
{
    const char *name = field->choices ? name_of(field->choices, int_of(field, group)) : NULL;
    if (name) return name;
    if (field->kind == FIELD_REAL)
        snprintf(t->text, sizeof t->text, "%.9g", real_of(field, group));
    else
        snprintf(t->text, sizeof t->text, "%d", int_of(field, group));
    return t->text;
}

/* ---- checking ----------------------------------------------------------------------------- */

/* False for NaN too. */
static int in_range(const group_field *field, double value)
{
    return (field->low_open ? value > field->low : value >= field->low) &&
           (field->high_open ? value < field->high : value <= field->high);
}

muon_status muon__group_field_check(const group_field *field, const muon_group *group)
{
    field_text t;
    switch (field->kind) {
    case FIELD_REAL:
        REQUIRE(in_range(field, real_of(field, group)), E_VALUE, "%s is %s, must be in %c%g, %g%c",
                field->name, muon__group_field_text(&t, field, group), field->low_open ? '(' : '[',
                field->low, field->high, field->high_open ? ')' : ']');
        REQUIRE(isfinite((float)real_of(field, group)), E_VALUE,
                "%s is %s, which is infinite in f32", field->name,
                muon__group_field_text(&t, field, group));
        return MUON_OK;
    case FIELD_COUNT:
        REQUIRE(in_range(field, int_of(field, group)), E_VALUE, "%s is %s, must be %g..%g",
                field->name, muon__group_field_text(&t, field, group), field->low, field->high);
        return MUON_OK;
    case FIELD_FLAG:
        REQUIRE(int_of(field, group) == 0 || int_of(field, group) == 1, E_VALUE,
                "%s is %s, must be 0 or 1", field->name, muon__group_field_text(&t, field, group));
        return MUON_OK;
    case FIELD_CHOICE:
    case FIELD_DTYPE:
        break;
    }
    if (name_of(field->choices, int_of(field, group))) return MUON_OK;
    return muon__fail_unknown(field->kind == FIELD_DTYPE ? MUON_E_DTYPE : MUON_E_VALUE, field->name,
                              muon__group_field_text(&t, field, group), choice_name_at,
                              field->choices);
}

/* ---- text --------------------------------------------------------------------------------- */

/* The locale is "C" in here, whatever the program's is (base/mode.h): numbers have a point. */
static muon_status parse_real(double *out, const group_field *field, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    REQUIRE(end != text && !*end && !isspace((unsigned char)*text), E_VALUE,
            "%s is '%.100s', must be a number", field->name, text);
    *out = value;
    return MUON_OK;
}

/* A number too large for a long becomes the largest, which no range here has. */
static muon_status parse_count(int *out, const group_field *field, const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    REQUIRE(end != text && !*end && !isspace((unsigned char)*text) && value >= INT_MIN &&
                value <= INT_MAX,
            E_VALUE, "%s is '%.100s', must be an integer %g..%g", field->name, text, field->low,
            field->high);
    *out = (int)value;
    return MUON_OK;
}

static muon_status parse_flag(int *out, const group_field *field, const char *text)
{
    int yes = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    REQUIRE(yes || strcmp(text, "false") == 0 || strcmp(text, "0") == 0, E_VALUE,
            "%s is '%.100s', must be true or false", field->name, text);
    *out = yes;
    return MUON_OK;
}

static muon_status parse_choice(int *out, const group_field *field, const char *text)
{
    for (const choice *c = field->choices; c->name; c++) {
        if (strcmp(c->name, text) != 0) continue;
        *out = c->value;
        return MUON_OK;
    }
    return muon__fail_unknown(field->kind == FIELD_DTYPE ? MUON_E_DTYPE : MUON_E_VALUE, field->name,
                              text, choice_name_at, field->choices);
}

muon_status muon__group_field_parse(const group_field *field, muon_group *group, const char *text)
{
    void *at = (char *)group + field->offset;
    switch (field->kind) {
    case FIELD_REAL:
        return parse_real(at, field, text);
    case FIELD_COUNT:
        return parse_count(at, field, text);
    case FIELD_FLAG:
        return parse_flag(at, field, text);
    case FIELD_CHOICE:
    case FIELD_DTYPE:
        break;
    }
    return parse_choice(at, field, text);
}

/* ---- names -------------------------------------------------------------------------------- */

const char *muon__rule_name(muon_rule rule)
{
    return name_of(rules, (int)rule);
}

const char *muon__lr_mode_name(muon_lr_mode mode)
{
    return name_of(lr_modes, (int)mode);
}

const char *muon__coefficients_name(muon_coefficients coefficients)
{
    return name_of(coefficient_sets, (int)coefficients);
}

const char *muon__algorithm_name(muon_algorithm algorithm)
{
    return name_of(algorithms, (int)algorithm);
}
