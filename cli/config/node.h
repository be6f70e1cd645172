/* node.h - a value in a JSON file that knows its way from the root, so that every message can say
 * which one: "run.json: groups.muon.lrr: ...". Keys are read by table: what the table does not have
 * is an error with the nearest key it has. */
#ifndef CLI_CONFIG_NODE_H
#define CLI_CONFIG_NODE_H

#include "cli/core/cli.h"

#include <jansson.h>

typedef struct node {
    json_t *value;         /* borrowed from the root */
    const struct node *up; /* NULL: the root, whose key is the name of the file */
    const char *key;       /* NULL: element `index` of a list */
    size_t index;
} node;

/* Reads the file; *root must be given to json_decref by the caller. */
int node_load(json_t **root, const char *path);

/* The parent must outlive what is made of it here and in node_read. */
node node_element(const node *list, size_t index);

/* "run.json: groups.muon.lr: ..." on stderr; CLI_FAILED. */
int node_fail(const node *at, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "... is a string, must be a number" */
int node_fail_type(const node *at, const char *expected);

typedef enum field_type {
    FIELD_NUMBER, /* double */
    FIELD_INT,    /* int, any sign */
    FIELD_INT64,  /* int64_t */
    FIELD_UINT64, /* uint64_t */
    FIELD_FLAG,   /* int; true or false */
    FIELD_TEXT,   /* const char *, borrowed from the JSON */
    FIELD_CHOICE, /* an enum: the index of the text in `choices` */
    FIELD_TEXTS,  /* node_texts */
    FIELD_ANY     /* node, for the caller to read further */
} field_type;

typedef struct node_texts { /* a list of strings, or one string for a list of one */
    const char **items;     /* free it; the strings are borrowed from the JSON */
    size_t count;
    int given;
} node_texts;

typedef struct field {
    const char *key;
    field_type type;
    size_t offset;              /* of the target in the struct given to node_read */
    const char *const *choices; /* ends with NULL; an empty text is no choice */
    int required;
} field;

/* Reads an object into the struct `target`: keys that are absent leave it alone. */
int node_read(const node *object, const field *fields, size_t nfields, void *target);

#endif
