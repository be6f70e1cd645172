/* list.h - what is in a root: checkpoints, damaged ones, and what unfinished saves left. */
#ifndef CLI_CKPT_LIST_H
#define CLI_CKPT_LIST_H

#include "cli/core/cli.h"

#include "muon/checkpoint.h"

typedef struct ckpt_row {
    char *name;       /* of the directory */
    int64_t step;     /* by its name */
    int is_saving;    /* not under its final name */
    int is_named;     /* a directory, called as the library calls a checkpoint of this step */
    int is_open;      /* nothing is wrong with it by itself */
    int is_newest;    /* of those that are complete, as the library orders them */
    int is_abandoned; /* the run went back behind it: one of a smaller step was saved later */
    int64_t branch;   /* how often the run had gone back before; -1: not known */
    char *problem;    /* NULL: complete, as far as can be seen from outside */
    size_t tensors;   /* if it is complete */
    int64_t bytes;
} ckpt_row;

typedef struct ckpt_list {
    const char *root;
    ckpt_row *rows; /* by step, then name */
    size_t count;
    char *latest; /* what the link `latest` says, or NULL */
} ckpt_list;

int ckpt_list_open(ckpt_list *out, const char *root);
void ckpt_list_close(ckpt_list *list); /* zeroed is fine */

/* The complete one that was saved last, or NULL. */
const ckpt_row *ckpt_list_newest(const ckpt_list *list);
/* What a load looks at first: the newest, or a damaged one that might be newer; NULL if there is none. */
const ckpt_row *ckpt_list_first(const ckpt_list *list);

/* Whether a path is one checkpoint by its name or its marker, and not a root. */
int ckpt_is_one(const char *path);

#endif
