/* options.h - the command line of `muonctl train`, and the settings it means. */
#ifndef CLI_TRAIN_OPTIONS_H
#define CLI_TRAIN_OPTIONS_H

#include "cli/core/compute.h"
#include "train/model/sample.h"
#include "train/run/run.h"

enum { TRAIN_NOT_GIVEN = -1 };

typedef struct train_choice { /* what trains the matrices */
    int muon;
    const train_variant *variant; /* of Muon; NULL: none */
} train_choice;

typedef struct train_options {
    train_settings settings; /* numbers are parsed into it; the rest is filled in by resolving */
    sample_settings sample;
    const char *model, *model_file, *optimizer, *variant, *compare, *mesh;
    train_choice other; /* what --compare means */
    /* Instead of the model's own, unless TRAIN_NOT_GIVEN. */
    int layers, width, context, heads, kv_heads, hidden, experts, top_k, expert_hidden;
    const char *out_dir, *metrics, *report, *trace;
    const char *ram_budget;
    int list, quiet;
    compute how;
} train_options;

/* Checks what can be checked without other ranks' help. */
int train_options_resolve(train_options *o);

void train_choice_set(optimizer_settings *settings, const train_choice *choice);

/* Prints the named models and the variants. */
int train_options_list(void);

enum { TRAIN_INTERRUPTED = 130 }; /* the exit code after Ctrl-C, as shells have it */

int train_work(train_options *o);

#endif
