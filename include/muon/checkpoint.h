/* checkpoint.h - saving the optimizer's state, and loading it on any other ranks.
 *
 *     muon_save_args args;
 *     muon_save_args_init(&args, sizeof args);
 *     args.step = 1000;
 *     args.buffers = buffers;                    // save the weights, too
 *     args.keep = 3;
 *     muon_save(opt, "checkpoints", &args);      // collective
 *     ...
 *     muon_load(opt, "checkpoints", NULL, &step); // the newest, on any ranks and mesh
 *
 * A checkpoint is a directory of ordinary safetensors files in global coordinates, which any tool
 * can read. It does not depend on ranks or meshes:
 *
 *     checkpoints/step-00001000/optimizer.safetensors     the state; names as in muon.h, section 8
 *                              /model.safetensors         the weights, if they were passed
 *                              /COMPLETE                  the marker, written last
 *     checkpoints/latest -> step-00001000                 the newest complete checkpoint
 *
 * Above args.file_bytes there are several files (optimizer-00001-of-00003.safetensors, ...) and the
 * usual index (optimizer.safetensors.index.json). docs/checkpoint.md describes the format, the
 * guarantees and the limits. The rules of muon.h apply. All ranks must see the same directory. */
#ifndef MUON_CHECKPOINT_H
#define MUON_CHECKPOINT_H

#include "muon/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Saving -------------------------------------------------------------------------------- */

typedef struct muon_save_args {
    size_t struct_size;
    int64_t step; /* of the training run, for the directory's name, step-00001000: 0 */
    /* NULL: save only the state. Otherwise also save the weights of all parameters that are not
     * frozen. */
    const muon_buffers *buffers;
    /* Anything else that the training run must remember: position in the data, random state,
     * schedule, loss scale. Keys must not be "format" or muon.*, and all must be the same on every
     * rank. muon_checkpoint_get_metadata returns the values. */
    const muon_st_entry *metadata;
    size_t nmetadata;
    int64_t file_bytes; /* of tensors per file, at most; a larger tensor has its own file: 5e9 */
    /* When this checkpoint is complete, delete the oldest until `keep` remain; 0: delete none.
     * Abandoned ones (see muon_checkpoint_list) are deleted first. */
    int keep;
    int replace; /* if this step exists already: 1: replace its checkpoint; 0: that is an error */
} muon_save_args;

MUON_API void muon_save_args_init(muon_save_args *args, size_t struct_size);

/* Collective. Every rank writes a part, and each element is written once. When it returns MUON_OK,
 * the checkpoint is complete and on the disk. If it fails, runs out of space or is killed at any
 * moment, the checkpoint does not exist, and older ones are unchanged. There is one exception: if
 * the message says that the checkpoint is complete, only what follows has failed (`latest`, keep).
 * root is created if it does not exist. args may be NULL for the defaults. */
MUON_API muon_status muon_save(muon_opt *opt, const char *root, const muon_save_args *args);

/* Saving in the background. muon_save_start is collective. It copies what this rank has to write
 * and returns; an offloaded state is written at once instead, and only synced in the background.
 * Steps may follow. muon_save_finish is collective, too. It waits until all ranks have written, and
 * completes the checkpoint. Only one save can run at a time: until it is finished, muon_save and
 * muon_load return MUON_E_ARG, and muon_destroy discards it. */
MUON_API muon_status muon_save_start(muon_opt *opt, const char *root, const muon_save_args *args);
MUON_API muon_status muon_save_finish(muon_opt *opt);
/* 0 if this rank is still writing; 1 if it has written its part, so that muon_save_finish would
 * only wait for other ranks, or if no save is running. Not collective. */
MUON_API int muon_save_is_written(const muon_opt *opt);

/* ---- Loading ------------------------------------------------------------------------------- */

typedef struct muon_load_args {
    size_t struct_size;
    /* NULL: load only the state. Otherwise also load the weights of all parameters that are not
     * frozen into .param, and their bf16 copies into .copy. */
    const muon_buffers *buffers;
    int allow_missing; /* 1: what the checkpoint lacks does not change; 0: MUON_E_NAME */
    int allow_extra;   /* 1: what this optimizer lacks is ignored; 0: MUON_E_NAME */
    /* 1: restore the saved groups (except rule and momentum_dtype), clip_norm, skip_norm and QK threshold; 0:
     * keep the current ones, and log a warning for each difference except lr, which follows a
     * schedule. Groups are found through their parameters, so names and order may have changed.
     * What is fixed at creation (matrices, wire, attention, ...) never changes, and a difference is
     * a warning. */
    int restore_settings;
    /* 1: if the newest checkpoint of a root is damaged, log a warning that names the damage and
     * load the one before it, and so on; if a marker cannot be read (failing disk, no permission),
     * log a warning and ignore its checkpoint. 0: damage is MUON_E_FORMAT, and an unreadable marker
     * is MUON_E_IO, since its checkpoint might be the newest. */
    int fall_back;
} muon_load_args;

MUON_API void muon_load_args_init(muon_load_args *args, size_t struct_size);

/* Collective. `path` is the directory of a checkpoint, or a root: then its newest checkpoint is
 * loaded (if that is damaged, see fall_back). *step, which may be NULL, receives its step. args may
 * be NULL for the defaults. Errors:
 *
 *     MUON_E_NO_CHECKPOINT  on every rank: there is nothing to load yet. The root does not exist,
 *                           is empty, or has only what killed saves left behind.
 *     MUON_E_IO             the named checkpoint does not exist, or a directory or marker cannot be
 *                           read.
 *
 * Names, shapes, dtypes and momentum forms are checked before anything changes; the message lists
 * what is missing, extra or does not fit, and the log has the complete list. A wrong checksum or a
 * failing disk is detected only while reading. State and weights are then partly overwritten, and
 * muon_step returns MUON_E_BROKEN until a muon_load of as much has succeeded. */
MUON_API muon_status muon_load(muon_opt *opt, const char *path, const muon_load_args *args,
                               int64_t *step);

/* ---- Reading ------------------------------------------------------------------------------- */

/* These functions are not collective and need no optimizer. */
typedef struct muon_checkpoint muon_checkpoint;

/* The steps of the complete checkpoints of a root. The last one is the newest: it was completed
 * last, a load takes it, and `latest` points to it. The steps ascend, unless a run has gone back:
 * it loaded an earlier checkpoint and saved a smaller step than the newest. The checkpoints with
 * higher steps that existed before are then abandoned, and come first; those that led to the newest
 * follow, ascending. *steps is yours to free(); it is NULL if there are none, or if the root does
 * not exist. Checkpoints that are visibly damaged (no marker, or one that does not match the files)
 * are not listed. */
MUON_API muon_status muon_checkpoint_list(int64_t **steps, size_t *nsteps, const char *root);

/* `path` is the directory of a checkpoint, or a root: then its newest complete checkpoint is
 * opened. Returns MUON_E_NO_CHECKPOINT if the root does not exist, or has neither complete nor
 * damaged checkpoints. The marker, the headers of all files, their checksums and the file sizes are
 * checked, but not the contents of tensors. MUON_E_FORMAT names the file and what is wrong;
 * MUON_E_VERSION means a later format. */
MUON_API muon_status muon_checkpoint_open(muon_checkpoint **out, const char *path);
MUON_API void muon_checkpoint_close(muon_checkpoint *checkpoint); /* may be NULL */

/* Its directory. */
MUON_API const char *muon_checkpoint_get_path(const muon_checkpoint *checkpoint);
MUON_API int64_t muon_checkpoint_get_step(const muon_checkpoint *checkpoint);

/* Strings are borrowed until the checkpoint is closed. The struct will not grow, because
 * muon_checkpoint_plan has an array of them. */
typedef struct muon_checkpoint_tensor {
    const char *name;
    const char *dtype; /* as in the file: F32, BF16, I64 */
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    int64_t bytes;
    const char *file; /* in the checkpoint's directory */
    int64_t offset;   /* of its first byte in the file */
    uint32_t crc32c;  /* as saved */
    int is_weight;    /* 1: it is in model.safetensors */
} muon_checkpoint_tensor;

/* State first, then weights, each in the order of the files. */
MUON_API size_t muon_checkpoint_count(const muon_checkpoint *checkpoint);
MUON_API muon_status muon_checkpoint_get(const muon_checkpoint *checkpoint, size_t index,
                                         muon_checkpoint_tensor *tensor, size_t tensor_size);
/* The index of a tensor, or -1. */
MUON_API int64_t muon_checkpoint_find(const muon_checkpoint *checkpoint, const char *name);
/* The value of one of the caller's keys, or of muon.version, muon.step, muon.group.0.lr,
 * muon.param.NAME and so on; NULL if it is absent. */
MUON_API const char *muon_checkpoint_get_metadata(const muon_checkpoint *checkpoint,
                                                  const char *key);
/* The keys that the metadata of a muon_checkpoint_plan may have, sorted; NULL after the last. */
MUON_API const char *muon_checkpoint_get_key(const muon_checkpoint *checkpoint, size_t index);

/* Reads `bytes` bytes of a tensor, starting at `offset`, without conversion. */
MUON_API muon_status muon_checkpoint_read(muon_checkpoint *checkpoint, size_t index, int64_t offset,
                                          void *data, size_t bytes);
/* Reads the whole tensor and compares its checksum; MUON_E_FORMAT if it differs. This function and
 * muon_checkpoint_read may run in several threads at once. */
MUON_API muon_status muon_checkpoint_verify(muon_checkpoint *checkpoint, size_t index);

/* ---- Writing one without an optimizer ------------------------------------------------------ */

/* Fills `data` with `bytes` bytes of a tensor, starting at `offset`. Each tensor is requested once,
 * in order, in pieces that do not cut elements. If it does not return MUON_OK, writing ends with
 * that status; set the message with muon_error_set. */
typedef muon_status (*muon_checkpoint_source_fn)(void *user, size_t index, int64_t offset,
                                                 void *data, size_t bytes);

typedef struct muon_checkpoint_plan {
    size_t struct_size;
    int64_t step;
    /* What to write; only name, dtype, ndim, shape and is_weight are used. */
    const muon_checkpoint_tensor *tensors;
    size_t ntensors;
    const muon_st_entry *metadata; /* may have keys muon.*, but not muon.crc32c.* and muon.step */
    size_t nmetadata;
    int64_t file_bytes; /* as in muon_save_args: 5e9 */
    int keep, replace;
    muon_checkpoint_source_fn source;
    void *user;
} muon_checkpoint_plan;

MUON_API void muon_checkpoint_plan_init(muon_checkpoint_plan *plan, size_t struct_size);

/* For converters. As safe as muon_save, with a few MB of memory, however large the tensors are. */
MUON_API muon_status muon_checkpoint_write(const char *root, const muon_checkpoint_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
