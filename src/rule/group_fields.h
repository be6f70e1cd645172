/* group_fields.h - the fields of a group as data. */
#ifndef RULE_GROUP_FIELDS_H
#define RULE_GROUP_FIELDS_H

#include "base/status.h"

typedef enum field_kind {
    FIELD_REAL,   /* double */
    FIELD_COUNT,  /* int */
    FIELD_FLAG,   /* int, 0 or 1 */
    FIELD_CHOICE, /* an enum */
    FIELD_DTYPE   /* muon_dtype */
} field_kind;

/* A value of an enum; a list of them ends with a NULL name. */
typedef struct choice {
    const char *name;
    int value;
} choice;

typedef struct group_field {
    const char *name, *help;
    field_kind kind;
    int fixed; /* cannot change after creation */
    size_t offset;
    double low, high;        /* FIELD_REAL, FIELD_COUNT; a real is always finite */
    int low_open, high_open; /* the bound itself is not legal */
    const choice *choices;   /* FIELD_CHOICE, FIELD_DTYPE */
} group_field;

/* The i-th field, NULL past the last. */
const group_field *muon__group_field_at(size_t i);

/* Whether the field's value in this group is legal. */
muon_status muon__group_field_check(const group_field *field, const muon_group *group);

/* The field's value as text, for messages. */
typedef struct field_text {
    char text[32];
} field_text;
const char *muon__group_field_text(field_text *t, const group_field *field,
                                   const muon_group *group);

/* Sets the field from text that names a value of its kind; does not check the range. */
muon_status muon__group_field_parse(const group_field *field, muon_group *group, const char *text);

int muon__group_field_equal(const group_field *field, const muon_group *a, const muon_group *b);

#endif
