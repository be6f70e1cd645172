/* group.h - a group's settings: loaded from the caller, checked, and turned into a factor.
 *
 * One table (group_fields.c) knows every field: its name, help, kind and legal values. Setting a
 * field by text, listing the fields and checking a whole group all read that table. */
#ifndef RULE_GROUP_H
#define RULE_GROUP_H

#include "base/status.h"

/* Reads and checks a caller's group; index is for messages. name and custom stay the caller's. */
muon_status muon__group_load(muon_group *out, const muon_group *in, size_t index);

/* The same for element `index` of the caller's array, which may be of another version. */
muon_status muon__group_load_at(muon_group *out, const muon_group *groups, size_t index);

/* Whether `from` may become `to` between steps; both are loaded. */
muon_status muon__group_check_change(const muon_group *from, const muon_group *to, size_t index);

/* The factor on lr for a logical matrix of rows x cols: lr_mode times lr_scale. */
double muon__lr_factor(const muon_group *group, int64_t rows, int64_t cols);

/* The fraction of a weight that decays in a step; 0 for MUON_DECAY_L2. */
double muon__group_decay(const muon_group *group);
/* The fraction of a weight that is added to its gradient; 0 for all other forms. */
double muon__group_l2(const muon_group *group);

/* The names that muon_group_set takes. */
const char *muon__rule_name(muon_rule rule);
const char *muon__algorithm_name(muon_algorithm algorithm);
const char *muon__decay_form_name(muon_decay_form form);

#endif
