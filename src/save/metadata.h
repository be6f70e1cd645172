/* metadata.h - the settings of an optimizer as the metadata of its checkpoint, and back.
 *
 * Keys: muon.format, muon.version, muon.seed, muon.clip_norm, muon.skip_norm, muon.qk_threshold,
 * muon.qk_log_only, muon.ngroups, muon.group.I.name, muon.group.I.FIELD for every field of a group, muon.group.I.custom,
 * and muon.param.NAME, the index of a parameter's group. What no load changes (metadata_facts.c):
 * muon.wire, muon.missing_grad, muon.orthogonalize, muon.nattention, muon.dtype.NAME,
 * muon.matrices.NAME, muon.attention.ROW.NAME. Numbers are such that they come back to the
 * bit, in any locale. */
#ifndef SAVE_METADATA_H
#define SAVE_METADATA_H

#include "muon/checkpoint.h"
#include "step/opt.h"

#define CHECKPOINT_FORMAT "1"

typedef struct metadata {
    muon_st_entry *list; /* keys and values are ours */
    size_t n, room;
} metadata;

/* The optimizer's, and behind it the caller's, whose keys are checked: MUON_E_NAME for a reserved one. */
muon_status muon__metadata_create(metadata *out, const muon_opt *opt, const muon_save_args *args);
void muon__metadata_destroy(metadata *m); /* zeroed is fine */

/* One entry: the key, and the value by a format. */
muon_status muon__metadata_add(metadata *m, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
muon_status muon__metadata_add_facts(metadata *m, const muon_opt *opt);

/* A group that now has a parameter, and the group that had it when it was saved. */
typedef struct settings_pair {
    int group;
    long saved;
    size_t param; /* the first of those that the two share */
} settings_pair;

/* The saved settings, as far as they matter to this optimizer. */
typedef struct saved_settings {
    muon_group
        *groups; /* [ngroups of the optimizer] what each of its groups was; its own if unknown */
    unsigned char *known;
    char seed[32]; /* as text; empty: not known */
    double clip_norm, skip_norm, qk_threshold;
    int qk_log_only;
    settings_pair *pairs; /* by group; each once */
    size_t npairs;
    metadata facts; /* of the optimizer as it is */
} saved_settings;

/* MUON_E_FORMAT for text that no muon_save has written; MUON_E_VALUE if parameters that are one group
 * now were in groups with different settings, and `must_agree`. */
muon_status muon__settings_read(saved_settings *out, const muon_opt *opt,
                                const muon_checkpoint *checkpoint, int must_agree);
void muon__settings_destroy(saved_settings *s, const muon_opt *opt); /* zeroed is fine */

/* How a Muon parameter's momentum was saved: the text of its group's momentum_form, or NULL. */
muon_status muon__settings_form(const char **out, const muon_checkpoint *checkpoint,
                                const char *param);

/* Applies them. All were checked: what fails is memory. */
muon_status muon__settings_restore(muon_opt *opt, const saved_settings *s);
/* A warning for each difference; of lr, which follows a schedule, only a word. The facts stay different
 * even if settings are restored. */
void muon__settings_compare(const muon_opt *opt, const saved_settings *s,
                            const muon_checkpoint *checkpoint);
void muon__settings_compare_facts(const muon_opt *opt, const saved_settings *s,
                                  const muon_checkpoint *checkpoint);

/* muon.group.SAVED.FIELD, or NULL; and a list of tuples in such a text. */
const char *muon__settings_text(const muon_checkpoint *checkpoint, size_t saved, const char *field);
muon_status muon__settings_custom(double (*out)[3], int room, int *n, const char *text);

#endif
