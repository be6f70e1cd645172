/* loading.h - one load of one checkpoint. */
#ifndef SAVE_LOADING_H
#define SAVE_LOADING_H

#include "io/checkpoint/read.h"
#include "save/fit.h"
#include "save/metadata.h"
#include "save/stripes.h"
#include "save/together.h"

typedef struct loading {
    muon_opt *opt;
    muon_load_args args;
    muon_checkpoint *checkpoint;
    saved_tensors tensors;
    fit fit;
    saved_settings settings;
    stripes stripes;
    tree *combining;
    /* What all ranks find together: the tensors' checksums, then the steps in two words each. */
    uint32_t *words;
    size_t nwords;
} loading;

/* Opens the checkpoint at `path` and checks all but what its tensors hold. Nothing changes. */
muon_status muon__loading_create(loading **out, muon_opt *opt, const char *path,
                                 const muon_load_args *args);
void muon__loading_destroy(loading *l); /* NULL is fine */
/* Of all that must be the same on every rank. */
uint64_t muon__loading_digest(const loading *l);

/* Collective. Reads everything into its place. */
muon_status muon__loading_run(loading *l);

#endif
