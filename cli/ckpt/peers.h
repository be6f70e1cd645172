/* peers.h - what other optimizers call their state, and lists of parameters' names. */
#ifndef CLI_CKPT_PEERS_H
#define CLI_CKPT_PEERS_H

#include "cli/ckpt/source.h"

typedef struct ckpt_peer {
    const char *name; /* of the preset, too */
    const char *momentum, *first, *second;
    const char *step, *step_dtype; /* of AdamW's parameters; Muon's have none */
    int is_own; /* state.safetensors of `muonctl step` before 0.5.0: read, never written */
} ckpt_peer;

/* CLI_MISUSE with all names if there is no such peer; which is the option that named it. */
int ckpt_peer_find(const ckpt_peer **out, const char *which, const char *name);

typedef enum ckpt_role {
    ROLE_MOMENTUM, /* of Muon */
    ROLE_FIRST,    /* the mean of gradients, of AdamW */
    ROLE_SECOND,   /* the mean of their squares */
    ROLE_STEP,
    NROLES,
    ROLE_EITHER,  /* momentum of Muon, or the first of AdamW if there is a second */
    ROLE_DERIVED, /* of no use: it follows from the settings */
    ROLE_UNKNOWN
} ckpt_role;

/* libmuon's own word: momentum_buffer, exp_avg, exp_avg_sq, step. */
const char *ckpt_role_word(ckpt_role role);

/* Names of parameters in the order in which an optimizer numbers them: one per line, or a JSON list. */
typedef struct ckpt_names {
    char **list;
    size_t count;
} ckpt_names;

int ckpt_names_load(ckpt_names *out, const char *path);
void ckpt_names_free(ckpt_names *names);
int64_t ckpt_names_find(const ckpt_names *names, const char *name); /* or -1 */

/* ---- a peer's state, by parameter: every tensor of its files has a place, or is listed ---------- */

typedef struct ckpt_place {
    const ckpt_source *from; /* NULL: there is none */
    size_t index;
} ckpt_place;

typedef struct ckpt_param {
    char *name;
    ckpt_place role[NROLES];
    ckpt_place either; /* until it is clear what it is */
    muon_rule rule;
    int64_t step; /* -1: not said */
} ckpt_param;

typedef struct ckpt_state {
    ckpt_param *params; /* in the order in which the files have them */
    size_t count;
    json_t *index;      /* of a parameter, by its name */
    names_list unknown; /* tensors without a place */
} ckpt_state;

void ckpt_state_start(ckpt_state *state);
void ckpt_state_free(ckpt_state *state);

/* Sorts in all tensors of a file. names may be empty; keys with numbers then are an error. */
int ckpt_state_add(ckpt_state *state, const ckpt_source *file, const ckpt_names *names);
/* After the last file: rules, shapes and steps. */
int ckpt_state_finish(ckpt_state *state);

#endif
