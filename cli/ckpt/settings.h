/* settings.h - groups in a checkpoint's metadata: the group of a parameter, its fields as text and as a
 * muon_group, and what can become of momentum. */
#ifndef CLI_CKPT_SETTINGS_H
#define CLI_CKPT_SETTINGS_H

#include "cli/ckpt/items.h"
#include "cli/core/options.h"

/* The parameter of a state tensor "<param>.<part>", and the part; the text is cut for that. */
typedef struct ckpt_name {
    char *param; /* free it */
    const char *part;
} ckpt_name;
ckpt_name ckpt_split(const char *tensor);

/* Index of a parameter's group, -1 if the metadata does not say. */
int64_t ckpt_group_of(const ckpt_source *source, const char *param);
int64_t ckpt_ngroups(const ckpt_source *source);
/* muon.group.GROUP.FIELD, or NULL. */
const char *ckpt_group_value(const ckpt_source *source, int64_t group, const char *field);

/* "group 0 'muon'" */
typedef struct ckpt_label {
    char text[160];
} ckpt_label;
ckpt_label ckpt_group_label(const ckpt_source *source, int64_t group);

/* Whether a key says something of the whole checkpoint: not of a group or parameter, and not who wrote
 * it. */
int ckpt_is_general(const char *key);
/* Whether it says what a parameter is: too many to be listed. */
int ckpt_is_of_param(const char *key);

/* A real number as short as it can be read back; other text as it is, and "..." where it is cut. */
typedef struct ckpt_text {
    char text[160];
} ckpt_text;
ckpt_text ckpt_pretty(const char *value);
/* Of a long text, what is at byte `at` and around. */
ckpt_text ckpt_excerpt(const char *value, size_t at);

/* Whether a field has a meaning in a group of this rule and these coefficients. */
int ckpt_field_matters(const muon_field *field, const char *rule, const char *coefficients);

/* Fields that the metadata does not have keep their defaults; one that muon_group_set refuses is an
 * error. Lists and the name are not read. */
int ckpt_group_load(const ckpt_source *source, int64_t group, muon_group *out);
/* The group of the parameter of a momentum buffer, whose form has to be known. */
int ckpt_group_of_buffer(const ckpt_source *source, const char *param, muon_group *out);
/* All fields, as muon_save writes them. */
int ckpt_group_store(ckpt_items *items, int64_t index, const char *name, const muon_group *group);

ckpt_label ckpt_form_word(muon_momentum_form form); /* "ema" */

/* What brings a momentum buffer from one form to the other: M_heavy_ball = M_ema / (1 - mu). */
double ckpt_form_scale(muon_momentum_form from, muon_momentum_form to, double mu);

/* The options that several commands have, and what they say once they are checked. */
typedef struct ckpt_momentum {
    const char *form_word, *dtype_word; /* NULL: not given */
    double mu;                          /* -1: not given */
    muon_momentum_form form;
    const char *dtype; /* the format's word: F32, BF16; NULL: not given */
} ckpt_momentum;

#define CKPT_MOMENTUM_OPTIONS(TARGET)                                                              \
    {.name = "momentum",                                                                           \
     .argument = "FORM",                                                                           \
     .type = OPTION_TEXT,                                                                          \
     .target = &(TARGET).form_word,                                                                \
     .standard = "as it is",                                                                       \
     .help = "the form to write: heavy_ball (M = mu M + G) or ema (M = mu M + (1 - mu) G)"},       \
    {                                                                                              \
        .name = "momentum-dtype", .argument = "TYPE", .type = OPTION_TEXT,                         \
        .target = &(TARGET).dtype_word, .standard = "as it is",                                    \
        .help = "the dtype to write: f32 or bf16"                                                  \
    }

#define CKPT_MU_OPTION(TARGET, STANDARD, HELP)                                                     \
    {                                                                                              \
        .name = "mu", .argument = "X", .type = OPTION_NUMBER, .target = &(TARGET), .least = 0,     \
        .most = 0.9999, .standard = (STANDARD), .help = (HELP)                                     \
    }

int ckpt_momentum_check(ckpt_momentum *momentum);

#endif
