/* names.h - the names of values, and good messages for unknown names. */
#ifndef RULE_NAMES_H
#define RULE_NAMES_H

#include "base/status.h"

/* The i-th name of a table, NULL past the last. */
typedef const char *(*name_fn)(const void *table, size_t i);

/* Fails with "<what> '<given>' is unknown; known: a, b, c; did you mean 'a'?". The question is
 * asked only if a name is near. */
muon_status muon__fail_unknown(muon_status status, const char *what, const char *given,
                               name_fn name_at, const void *table);

/* How messages call element `index` of a list: "group 'experts'", or "group 2" without a name. */
typedef struct label {
    char text[128];
} label;
const char *muon__label(label *l, const char *kind, const char *name, size_t index);

#endif
