/* field.h - fields of a group on a command line, where nobody can write a list: the coefficient set
 * `custom`, which is one, is neither offered nor taken. */
#ifndef CLI_FIELD_H
#define CLI_FIELD_H

#include "cli/core/cli.h"

/* Misuse that begins with `subject`, unless the library takes the value. */
int field_set(muon_group *group, const char *field, const char *value, const char *subject);

/* Field `index` of muon_group_count_fields(). */
muon_field field_at(size_t index);

/* What the library says of the field, for --help. */
void field_describe(const char *field, char *text, size_t size);

#endif
