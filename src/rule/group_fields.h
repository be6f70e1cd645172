/* group_fields.h - the fields of a group as data. */
#ifndef RULE_GROUP_FIELDS_H
#define RULE_GROUP_FIELDS_H

#include "base/status.h"

typedef struct group_field {
    muon_field public; /* what everybody may know of it */
    size_t offset;
    double low, high;        /* of a double, which is always finite, and an int */
    int low_open, high_open; /* the bound itself is not legal */
    int first;               /* the value of an enum's first word; the others count on */
} group_field;

/* The i-th field, NULL past the last. */
const group_field *muon__group_field_at(size_t i);

/* Whether the field's value in this group is legal. */
muon_status muon__group_field_check(const group_field *field, const muon_group *group);

typedef struct field_text {
    char text[MUON_FIELD_TEXT];
} field_text;
/* The field's exact value, of which parsing makes the same bits; the locale must be "C". */
const char *muon__group_field_text(field_text *t, const group_field *field,
                                   const muon_group *group);

/* Sets the field from text that names a value of its kind; does not check the range. */
muon_status muon__group_field_parse(const group_field *field, muon_group *group, const char *text);

/* Enums, flags and counts as the numbers they are. */
double muon__group_field_value(const group_field *field, const muon_group *group);
int muon__group_field_equal(const group_field *field, const muon_group *a, const muon_group *b);

#endif
