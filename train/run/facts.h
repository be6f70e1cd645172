/* facts.h - what a run writes into the metadata of its checkpoints, as text: its settings, which a run
 * that goes on from there compares with its own, and how far it is. */
#ifndef TRAIN_RUN_FACTS_H
#define TRAIN_RUN_FACTS_H

#include "muon/checkpoint.h"

enum { FACTS_MOST = 64 };

typedef enum fact_kind {
    FACT_SAME,   /* another value is another model */
    FACT_NOTED,  /* may change; whoever resumes is told */
    FACT_IGNORED /* for people; nothing is made of it */
} fact_kind;

typedef struct facts {
    muon_st_entry entries[FACTS_MOST]; /* values are ours */
    fact_kind kinds[FACTS_MOST];
    size_t count;
} facts;

void facts_free(facts *f); /* zeros are fine */

struct train_run;

/* f must be zeros; on failure it is so again. */
muon_status facts_of_settings(facts *f, const struct train_run *run);
muon_status facts_of_progress(facts *f, const struct train_run *run);

/* MUON_E_VALUE names all values that would have to be the same, theirs and ours. */
muon_status facts_compare(const facts *mine, const muon_checkpoint *saved);

/* Calls `tell` with a line for each value that may change and has. */
typedef void (*facts_tell_fn)(void *user, const char *line);
void facts_tell_changes(const facts *mine, const muon_checkpoint *saved, facts_tell_fn tell,
                        void *user);

/* Sets the run and its record to where the checkpoint was made. */
muon_status facts_read_progress(struct train_run *run, const muon_checkpoint *saved);

#endif
