/* variants.h - variants of Muon by name, as settings of libmuon's groups: the only list of them, which
 * `muonctl train --variant` and `muonctl bench variants:` read. */
#ifndef TRAIN_RUN_VARIANTS_H
#define TRAIN_RUN_VARIANTS_H

#include "muon/muon.h"

enum { TRAIN_VARIANT_FIELDS = 6 };

typedef struct train_variant_field {
    const char *name, *value; /* for muon_group_set */
} train_variant_field;

typedef struct train_variant {
    const char *name;  /* "normuon", on command lines and in checkpoints */
    const char *label; /* "NorMuon", for people */
    const char *help;  /* one line */
    train_variant_field matrices[TRAIN_VARIANT_FIELDS]; /* of Muon's group */
    train_variant_field rest[TRAIN_VARIANT_FIELDS];     /* of groups that are otherwise AdamW's */
    double rest_lr; /* factor on the learning rate of these groups; 0: 1 */
} train_variant;

/* In the order in which people see them; NULL behind the last. */
const train_variant *train_variant_at(size_t index);
const train_variant *train_variant_named(const char *name); /* NULL: there is none */

/* Changes a group whose rule and learning rate are set. NULL, plain Muon, changes nothing. */
muon_status train_variant_apply(const train_variant *variant, muon_group *group);

/* The factor on the learning rates of what is not Muon's; 1 with NULL. */
double train_variant_rest_lr(const train_variant *variant);

#endif
