/* saving.h - one save, from its arguments to a complete checkpoint. */
#ifndef SAVE_SAVING_H
#define SAVE_SAVING_H

#include "io/checkpoint/write.h"
#include "save/metadata.h"
#include "save/stripes.h"
#include "save/together.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct save_job { /* bytes of a tensor that wait in memory to be written */
    size_t tensor;
    int64_t begin; /* bytes of the tensor before them */
    size_t bytes;
    const char *data;
} save_job;

typedef struct saving {
    muon_opt *opt;
    char *root;
    int here; /* where a relative root begins, wherever the process goes until it is saved */
    muon_save_args args;
    int beside; /* training */
    saved_tensors tensors;
    metadata meta;
    checkpoint_files *files;
    stripes stripes;
    tree *combining;
    checkpoint_dir *dir; /* rank 0 */
    int *fds;            /* [nfiles] -1: this rank has nothing to write there so far */
    uint32_t *partials;  /* [tensors.n] checksums of what this rank has written */
    muon_status status;  /* the first failure of this rank in writing */
    char message[MUON__MESSAGE_MAX];
    /* Beside training */
    char *snapshot;
    size_t used;
    save_job *jobs;
    size_t njobs;
    pthread_t thread;
    int has_thread;
    atomic_int is_written;
} saving;

/* What one rank does alone, before anything is agreed on. */
muon_status muon__saving_create(saving **out, muon_opt *opt, const char *root,
                                const muon_save_args *args, int beside);
void muon__saving_destroy(saving *s); /* waits for its thread, removes what is not complete */
/* Collective. Nobody has failed (s is NULL on ranks that have), and all have the same arguments,
 * metadata and settings: MUON_E_DISAGREE names one that is another on two ranks, and both values. */
muon_status muon__saving_agree(muon_opt *opt, const saving *s, muon_status status,
                               const char *stage);

/* Failures of writing are kept in s->status and s->message: other ranks wait for this one, and the
 * thread that writes is not the one that returns. */
muon_status muon__saving_gather(saving *s); /* returns only the failure of messages */
/* Writes what was kept in memory and syncs; in a thread of its own if it is beside training. */
void muon__saving_write(saving *s);
/* Waits for it. This thread's message is the failure's. */
muon_status muon__saving_result(saving *s);

#endif
