/* ckpt_group.h - a group between a checkpoint's metadata and muon_group. */
#ifndef CLI_CKPT_GROUP_H
#define CLI_CKPT_GROUP_H

#include "cli/ckpt/items.h"

/* Fields that the metadata does not have keep their defaults; one that muon_group_set refuses is an
 * error. Lists and the name are not read. */
int ckpt_group_load(const ckpt_source *source, int64_t group, muon_group *out);
/* The group of the parameter of a momentum buffer, whose form has to be known. */
int ckpt_group_of_buffer(const ckpt_source *source, const char *param, muon_group *out);
/* All fields, as muon_save writes them. A value whose text the library would not read as this value is
 * an error: the words are repeated here. */
int ckpt_group_store(ckpt_items *items, int64_t index, const char *name, const muon_group *group);

const char *ckpt_form_word(muon_momentum_form form); /* "ema" */

/* What brings a momentum buffer from one form to the other: M_heavy_ball = M_ema / (1 - mu). */
double ckpt_form_scale(muon_momentum_form from, muon_momentum_form to, double mu);

/* The options that several commands have, and what they say once they are checked. */
typedef struct ckpt_momentum {
    const char *form_word, *dtype_word; /* NULL: not given */
    double mu;                          /* -1: not given */
    muon_momentum_form form;
    const char *dtype; /* the format's word: F32, BF16; NULL: not given */
} ckpt_momentum;

#define CKPT_MOMENTUM_OPTIONS(TARGET)                                                              \
    {.name = "momentum",                                                                           \
     .argument = "FORM",                                                                           \
     .type = OPTION_TEXT,                                                                          \
     .target = &(TARGET).form_word,                                                                \
     .standard = "as it is",                                                                       \
     .help = "momentum is to be heavy_ball (M = mu M + G) or ema (M = mu M + (1 - mu) G)"},        \
    {                                                                                              \
        .name = "momentum-dtype", .argument = "TYPE", .type = OPTION_TEXT,                         \
        .target = &(TARGET).dtype_word, .standard = "as it is",                                    \
        .help = "momentum is to be stored as f32 or bf16"                                          \
    }

#define CKPT_MU_OPTION(TARGET, STANDARD, HELP)                                                     \
    {                                                                                              \
        .name = "mu", .argument = "X", .type = OPTION_NUMBER, .target = &(TARGET), .least = 0,     \
        .most = 0.9999, .standard = (STANDARD), .help = (HELP)                                     \
    }

int ckpt_momentum_check(ckpt_momentum *momentum);

#endif
