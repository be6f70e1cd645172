/* ckpt_state.h - a peer's state, by parameter: every tensor of its files has a place, or is listed. */
#ifndef CLI_CKPT_STATE_H
#define CLI_CKPT_STATE_H

#include "cli/ckpt/peers.h"
#include "cli/ckpt/source.h"
#include "cli/core/names.h"

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
