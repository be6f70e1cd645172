/* ckpt_settings.h - groups in a checkpoint's metadata: the group of a parameter, its fields as text. */
#ifndef CLI_CKPT_SETTINGS_H
#define CLI_CKPT_SETTINGS_H

#include "cli/ckpt/source.h"

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
int ckpt_field_matters(const char *help, const char *rule, const char *coefficients);

#endif
