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
                   sizeof(muon_normalization) == sizeof(int) &&
                   sizeof(muon_lr_mode) == sizeof(int) && sizeof(muon_adam_eps) == sizeof(int) &&
                   sizeof(muon_decay_form) == sizeof(int) &&
                   sizeof(muon_second_moment) == sizeof(int) &&
                   sizeof(muon_second_eps) == sizeof(int) &&
                   sizeof(muon_update_norm) == sizeof(int),
               "an enum of muon_group is not an int");

/* Their values count from 0, or from `first`. */
static const char *const rules[] = {"muon", "adamw", "frozen", "lion", NULL};
static const char *const momentum_forms[] = {"heavy_ball", "ema", NULL};
static const char *const dtypes[] = {"f32", "bf16", "i8", NULL};
static const char *const lr_modes[] = {"rms_norm", "spectral_norm", "original",
                                       "spectral", "none",          NULL};
static const char *const coefficient_sets[] = {"you",         "original", "polar_express",   "cans",
                                               "deepseek_v4", "custom",   "polar_express_8", "aol",
                                               "cubic5",      NULL};
static const char *const algorithms[] = {"auto", "standard", "symmetric", "gram", NULL};
static const char *const eps_modes[] = {"relative", "add", "clamp", NULL};
static const char *const normalizations[] = {"frobenius", "schatten4", "aol", NULL};
static const char *const adam_eps_modes[] = {"corrected", "raw", NULL};
static const char *const decay_forms[] = {"decoupled", "independent", "l2", "palm", NULL};
static const char *const second_moments[] = {"none",     "rows",   "long_side",
                                             "elements", "matrix", NULL};
static const char *const second_eps_modes[] = {"add", "clamp", NULL};
static const char *const update_norms[] = {"own", "relative", "hyperball", NULL};

#define AT(field)         .public.name = #field, .offset = offsetof(muon_group, field)
#define REAL              .public.type = MUON_FIELD_DOUBLE, .low = 0
#define NOT_NEGATIVE      REAL, .high = HUGE_VAL, .high_open = 1
#define POSITIVE          NOT_NEGATIVE, .low_open = 1
#define BELOW_ONE         REAL, .high = 1, .high_open = 1
#define FLAG              .public.type = MUON_FIELD_BOOL
#define CHOICE(list)      .public.type = MUON_FIELD_ENUM, .public.words = (list)
#define FIXED             .public.is_fixed = 1
#define OF_MUON           .public.rule = "muon"
#define OF_ADAMW          .public.rule = "adamw"
#define OF_POLAR          OF_MUON, .public.coefficients = "polar_express"
#define SAYS(text, value) .public.help = (text), .public.default_value = (value)

/* In the order of the struct. */
static const group_field fields[] = {
    {AT(rule), CHOICE(rules), FIXED, SAYS("muon, adamw, frozen or lion", "muon")},
    {AT(lr), NOT_NEGATIVE, SAYS("learning rate", "0.001")},
    {AT(weight_decay), NOT_NEGATIVE, SAYS("weight decay, by decay_form", "0.1")},
    {AT(clip), FLAG, SAYS("gradients are clipped; false: they only count in the norm", "true")},
    {AT(momentum), BELOW_ONE, OF_MUON, SAYS("momentum", "0.95")},
    {AT(nesterov), FLAG, OF_MUON, SAYS("Nesterov's momentum", "true")},
    {AT(momentum_form), CHOICE(momentum_forms), OF_MUON,
     SAYS("heavy_ball (M = mu M + G) or ema (M = mu M + (1 - mu) G)", "heavy_ball")},
    {AT(momentum_dtype), CHOICE(dtypes), .first = MUON_F32, FIXED, OF_MUON,
     SAYS("momentum is stored as f32, bf16, or i8 with a scale for 2,048 elements", "f32")},
    {AT(lr_mode), CHOICE(lr_modes), OF_MUON,
     SAYS("factor on lr: rms_norm 0.2 sqrt(max(rows, cols)), spectral_norm sqrt(rows/cols), "
          "original sqrt(max(1, rows/cols)), spectral sqrt(max(rows, cols)), none",
          "rms_norm")},
    {AT(lr_scale), POSITIVE, OF_MUON, SAYS("additional factor on lr", "1")},
    {AT(coefficients), CHOICE(coefficient_sets), OF_MUON,
     SAYS("Newton-Schulz set: you, original, polar_express, cans, deepseek_v4, custom, "
          "polar_express_8, aol, cubic5",
          "you")},
    {AT(ns_steps), .public.type = MUON_FIELD_INT, .low = 0, .high = MUON_MAX_NS_STEPS, OF_MUON,
     SAYS("Newton-Schulz steps; 0: as many as the set has", "0")},
    {AT(algorithm), CHOICE(algorithms), OF_MUON,
     SAYS("how to compute the same steps: auto, standard, symmetric or gram", "auto")},
    {AT(ns_eps), NOT_NEGATIVE, OF_MUON, SAYS("keeps the norm of a matrix from being 0", "1e-7")},
    {AT(eps_mode), CHOICE(eps_modes), OF_MUON,
     SAYS("how ns_eps applies to the norm: relative, add, or clamp (from below)", "relative")},
    {AT(normalization), CHOICE(normalizations), OF_MUON,
     SAYS("norm that a matrix is divided by: frobenius, schatten4, or aol (row by row)",
          "frobenius")},
    {AT(norm_scale), NOT_NEGATIVE, OF_MUON,
     SAYS("factor on that norm; 0: 1, or 1 + polar_safety for polar_express", "0")},
    {AT(polar_lower), BELOW_ONE, .low_open = 1, OF_POLAR,
     SAYS("smallest singular value that matters, for norm 1", "0.001")},
    {AT(polar_safety), BELOW_ONE, OF_POLAR, SAYS("room for rounding errors", "0.01")},
    {AT(polar_cushion), BELOW_ONE, OF_POLAR,
     SAYS("the lower bound is at least this fraction of the upper one", "0.02")},
    {AT(beta1), BELOW_ONE, OF_ADAMW, SAYS("decay of the mean of gradients; also of lion", "0.9")},
    {AT(beta2), BELOW_ONE, OF_ADAMW,
     SAYS("decay of the mean of their squares; of lion: of its state", "0.95")},
    {AT(adam_eps), NOT_NEGATIVE, OF_ADAMW, SAYS("keeps the denominator from being 0", "1e-8")},
    {AT(adam_eps_mode), CHOICE(adam_eps_modes), OF_ADAMW,
     SAYS("adam_eps is added to the corrected or the raw root of the mean", "corrected")},
    {AT(decay_form), CHOICE(decay_forms),
     SAYS("a step takes from W: decoupled lr weight_decay W, independent weight_decay W, palm lr^2 "
          "weight_decay W; l2: weight_decay W is added to the gradient",
          "decoupled")},
    {AT(cautious_decay), FLAG,
     SAYS("W decays only where the update does not grow it; not with l2", "false")},
    {AT(bias_correction), FLAG, OF_MUON,
     SAYS("with ema: momentum and gradient are divided by the sums of their weights", "false")},
    {AT(equalize), FLAG, FIXED, OF_MUON,
     SAYS("rows of a matrix get the same norm before orthogonalization (MuonEq)", "false")},
    {AT(adaptive), FLAG, FIXED, OF_MUON,
     SAYS("O is multiplied by the sum of U O, its matrix's nuclear norm (PolarGrad)", "false")},
    {AT(renormalize), FLAG, FIXED, OF_MUON,
     SAYS("O gets the norm sqrt(min(rows, cols)) (Muon+)", "false")},
    {AT(second_moment), CHOICE(second_moments), FIXED, OF_MUON,
     SAYS("O is divided by roots of second moments: none, rows or long_side (NorMuon), elements "
          "(AdaMuon), matrix (NAMO)",
          "none")},
    {AT(second_beta), BELOW_ONE, OF_MUON, SAYS("decay of second moments", "0.95")},
    {AT(second_eps), POSITIVE, OF_MUON, SAYS("keeps what O is divided by from being 0", "1e-8")},
    {AT(second_eps_mode), CHOICE(second_eps_modes), OF_MUON,
     SAYS("second_eps: add (to the root) or clamp (the second moment from below)", "add")},
    {AT(update_norm), CHOICE(update_norms), FIXED, OF_MUON,
     SAYS("length of an update: own (lr and its factors), relative (lr times the norm of W), "
          "hyperball (the same, and W keeps its norm)",
          "own")},
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

double muon__group_field_value(const group_field *field, const muon_group *group)
{
    return field->public.type == MUON_FIELD_DOUBLE ? real_of(field, group) : int_of(field, group);
}

int muon__group_field_equal(const group_field *field, const muon_group *a, const muon_group *b)
{
    return muon__group_field_value(field, a) == muon__group_field_value(field, b);
}

/* NULL if no word has the value. */
static const char *word_of(const group_field *field, int value)
{
    const char *const *words = field->public.words;
    for (int i = 0; words && words[i]; i++)
        if (field->first + i == value) return words[i];
    return NULL;
}

/* 15 digits are enough for what people write, and 17 for any double. */
static void write_real(field_text *t, double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(t->text, sizeof t->text, "%.*g", digits, value);
        if (strtod(t->text, NULL) == value) break;
    }
}

const char *muon__group_field_text(field_text *t, const group_field *field, const muon_group *group)
{
    const char *word = word_of(field, int_of(field, group));
    if (word) return word;
    if (field->public.type == MUON_FIELD_DOUBLE)
        write_real(t, real_of(field, group));
    else
        snprintf(t->text, sizeof t->text, "%d", int_of(field, group));
    return t->text;
}

/* Of an enum. */
static const char *word_at(const void *words, size_t i)
{
    return ((const char *const *)words)[i];
}

static muon_status refuse_word(const group_field *field, const char *text)
{
    return muon__fail_unknown(field->first ? MUON_E_DTYPE : MUON_E_VALUE, field->public.name, text,
                              word_at, field->public.words);
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
    const char *name = field->public.name;
    switch (field->public.type) {
    case MUON_FIELD_DOUBLE:
        REQUIRE(in_range(field, real_of(field, group)), E_VALUE, "%s is %s, must be in %c%g, %g%c",
                name, muon__group_field_text(&t, field, group), field->low_open ? '(' : '[',
                field->low, field->high, field->high_open ? ')' : ']');
        REQUIRE(isfinite((float)real_of(field, group)), E_VALUE,
                "%s is %s, which is infinite in f32", name,
                muon__group_field_text(&t, field, group));
        return MUON_OK;
    case MUON_FIELD_INT:
        REQUIRE(in_range(field, int_of(field, group)), E_VALUE, "%s is %s, must be %g..%g", name,
                muon__group_field_text(&t, field, group), field->low, field->high);
        return MUON_OK;
    case MUON_FIELD_BOOL:
        REQUIRE(int_of(field, group) == 0 || int_of(field, group) == 1, E_VALUE,
                "%s is %s, must be 0 or 1", name, muon__group_field_text(&t, field, group));
        return MUON_OK;
    case MUON_FIELD_ENUM:
        break;
    }
    if (word_of(field, int_of(field, group))) return MUON_OK;
    return refuse_word(field, muon__group_field_text(&t, field, group));
}

/* ---- text --------------------------------------------------------------------------------- */

/* The locale is "C" in here, whatever the program's is (base/mode.h): numbers have a point. */
static muon_status parse_real(double *out, const group_field *field, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    REQUIRE(end != text && !*end && !isspace((unsigned char)*text), E_VALUE,
            "%s is '%.100s', must be a number", field->public.name, text);
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
            E_VALUE, "%s is '%.100s', must be an integer %g..%g", field->public.name, text,
            field->low, field->high);
    *out = (int)value;
    return MUON_OK;
}

static muon_status parse_flag(int *out, const group_field *field, const char *text)
{
    int yes = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    REQUIRE(yes || strcmp(text, "false") == 0 || strcmp(text, "0") == 0, E_VALUE,
            "%s is '%.100s', must be true or false", field->public.name, text);
    *out = yes;
    return MUON_OK;
}

static muon_status parse_word(int *out, const group_field *field, const char *text)
{
    for (int i = 0; field->public.words[i]; i++) {
        if (strcmp(field->public.words[i], text) != 0) continue;
        *out = field->first + i;
        return MUON_OK;
    }
    return refuse_word(field, text);
}

muon_status muon__group_field_parse(const group_field *field, muon_group *group, const char *text)
{
    void *at = (char *)group + field->offset;
    switch (field->public.type) {
    case MUON_FIELD_DOUBLE:
        return parse_real(at, field, text);
    case MUON_FIELD_INT:
        return parse_count(at, field, text);
    case MUON_FIELD_BOOL:
        return parse_flag(at, field, text);
    case MUON_FIELD_ENUM:
        break;
    }
    return parse_word(at, field, text);
}

/* ---- names -------------------------------------------------------------------------------- */

static const char *word_in(const char *const *words, size_t count, int value)
{
    return value >= 0 && (size_t)value < count ? words[value] : NULL;
}
#define WORD(words, value) word_in(words, sizeof(words) / sizeof(words)[0] - 1, (int)(value))

const char *muon__rule_name(muon_rule rule)
{
    return WORD(rules, rule);
}

const char *muon__algorithm_name(muon_algorithm algorithm)
{
    return WORD(algorithms, algorithm);
}

const char *muon__decay_form_name(muon_decay_form form)
{
    return WORD(decay_forms, form);
}
