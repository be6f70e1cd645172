/* checkpoint.h - the optimizer's state on disk: saved by any ranks, loaded by any others.
 *
 *     muon_save_args args;
 *     muon_save_args_init(&args, sizeof args);
 *     args.step = 1000;
 *     args.buffers = buffers;                    // the weights, too
 *     args.keep = 3;
 *     muon_save(opt, "checkpoints", &args);      // collective
 *     ...
 *     muon_load(opt, "checkpoints", NULL, &step); // the newest one, on any ranks and mesh
 *
 * A checkpoint is a directory of ordinary safetensors files in global coordinates, which any tool
 * reads; it says nothing of ranks or meshes:
 *
 *     checkpoints/step-00001000/optimizer.safetensors     the state: names of section 8 of muon.h
 *                              /model.safetensors         the weights, if they were given
 *                              /COMPLETE                  the marker, written last
 *     checkpoints/latest -> step-00001000                 the newest complete one
 *
 * Above args.file_bytes there are several files (optimizer-00001-of-00003.safetensors, ...) and the
 * usual index (optimizer.safetensors.index.json). docs/checkpoint.md has the format, the guarantees
 * and the limits. The rules of muon.h hold; all ranks must see the same directory. */
#ifndef MUON_CHECKPOINT_H
#define MUON_CHECKPOINT_H

#include "muon/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Saving -------------------------------------------------------------------------------- */

typedef struct muon_save_args {
    size_t struct_size;
    int64_t step; /* of the training run: the directory's name, step-00001000; 0 */
    /* NULL: only state. Else the weights of all but frozen parameters are saved, too. */
    const muon_buffers *buffers;
    /* What the training run has to remember besides: data position, random numbers, schedule, loss
     * scale. Any keys but "format" and muon.*; the same on every rank. muon_checkpoint_get_metadata gives
     * it back. */
    const muon_st_entry *metadata;
    size_t nmetadata;
    int64_t file_bytes; /* of tensors in a file, at most; a larger tensor has its own: 5e9 */
    /* After this one is complete, older ones go until so many are left; 0: none. First those that were
     * abandoned: see muon_checkpoint_list. */
    int keep;
    int replace; /* 1: a checkpoint of this step that exists is exchanged for this one; 0: it is
                           an error */
} muon_save_args;

MUON_API void muon_save_args_init(muon_save_args *args, size_t struct_size);

/* Collective. Every rank writes a part, each element is written once, and when it returns MUON_OK the
 * checkpoint is complete and on the disk. Killed at any moment, out of space, or failed: it does not
 * exist, and older ones are as they were; unless the message says that it is complete, and only what
 * comes after that failed (`latest`, keep). root is created if it is missing. args NULL: defaults. */
MUON_API muon_status muon_save(muon_opt *opt, const char *root, const muon_save_args *args);

/* The same beside training. muon_save_start is collective; it copies what this rank is to write (an
 * offloaded state is written at once instead, and only synced behind) and returns. Steps may follow.
 * muon_save_finish is collective, too: it waits until all ranks have written, and completes the
 * checkpoint. One at a time: muon_save and muon_load while one is under way are MUON_E_ARG;
 * muon_destroy drops it. */
MUON_API muon_status muon_save_start(muon_opt *opt, const char *root, const muon_save_args *args);
MUON_API muon_status muon_save_finish(muon_opt *opt);
/* 1: none is under way, or this rank has written its part, so that muon_save_finish would only wait
 * for other ranks; 0: it is still writing. Not collective. */
MUON_API int muon_save_is_written(const muon_opt *opt);

/* ---- Loading ------------------------------------------------------------------------------- */

typedef struct muon_load_args {
    size_t struct_size;
    /* NULL: only state. Else the weights of all but frozen parameters are loaded into .param, and
     * their bf16 roundings into .copy. */
    const muon_buffers *buffers;
    int allow_missing; /* 1: what the checkpoint does not have stays as it is; 0: MUON_E_NAME */
    int allow_extra;   /* 1: what this optimizer does not have is passed over; 0: MUON_E_NAME */
    /* 1: groups (but for rule and momentum_dtype), clip_norm and the QK threshold become what they
     * were when it was saved; 0: they stay, and the log has a warning for each difference but that of a
     * scheduled lr. Groups are found through their parameters: names and order may have changed. What is
     * fixed at creation (matrices, wire, attention, ...) stays in either case, with a warning. */
    int restore_settings;
    /* 1: if the newest of a root is damaged, the one before it is loaded, and so on; the log has a
     * warning that names the damage. 0: MUON_E_FORMAT. Nor does it then mind a checkpoint of the root
     * whose marker cannot be read, on a failing disk or without permission: a warning. 0: MUON_E_IO, as
     * it might be the newest. */
    int fall_back;
} muon_load_args;

MUON_API void muon_load_args_init(muon_load_args *args, size_t struct_size);

/* Collective. path is one checkpoint's directory, or a root: then its newest one, and if that is
 * damaged see fall_back. *step (may be NULL) becomes its step. MUON_E_NO_CHECKPOINT, on every rank:
 * there is nothing to load yet, because the root is missing, empty, or has only what a killed save has
 * left. A checkpoint that was named and is missing, or a directory or marker that cannot be read, is
 * MUON_E_IO. Names, shapes, dtypes and momentum forms are checked before anything changes: the message
 * lists what is missing, extra or does not fit, and the log all of it. A wrong checksum or a failing
 * disk is found only in reading: then state and weights are partly overwritten, and muon_step is
 * MUON_E_BROKEN until a muon_load of as much has succeeded. */
MUON_API muon_status muon_load(muon_opt *opt, const char *path, const muon_load_args *args,
                               int64_t *step);

/* ---- Looking ------------------------------------------------------------------------------- */

/* Not collective, and no optimizer is needed. */
typedef struct muon_checkpoint muon_checkpoint;

/* Steps of the complete checkpoints of a root. The last one is the newest: it was saved last, a load
 * takes it, and `latest` points at it. They ascend, unless a run has gone back: loaded an earlier
 * checkpoint and saved a smaller step than the newest. Then those of higher steps that were there before
 * are abandoned and come first; behind them, ascending, those that led to the newest. *steps is yours to
 * free(); NULL if there is none, as in a root that does not exist yet. What looks damaged from outside
 * (no marker, or one that does not fit its files) is not listed. */
MUON_API muon_status muon_checkpoint_list(int64_t **steps, size_t *nsteps, const char *root);

/* path: one checkpoint's directory, or a root: its newest complete one; MUON_E_NO_CHECKPOINT if there is
 * neither a complete nor a damaged one in it, or no such root. The marker, the headers of all
 * files, their checksums and their sizes are checked; what tensors hold is not. MUON_E_FORMAT names the
 * file and what is wrong; MUON_E_VERSION: it is of a later format. */
MUON_API muon_status muon_checkpoint_open(muon_checkpoint **out, const char *path);
MUON_API void muon_checkpoint_close(muon_checkpoint *checkpoint); /* NULL is fine */

MUON_API const char *
muon_checkpoint_get_path(const muon_checkpoint *checkpoint); /* its directory */
MUON_API int64_t muon_checkpoint_get_step(const muon_checkpoint *checkpoint);

/* Strings are borrowed until it is closed. The struct will not grow: a plan has an array of them. */
typedef struct muon_checkpoint_tensor {
    const char *name;
    const char *dtype; /* the format's word: F32, BF16, I64 */
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    int64_t bytes;
    const char *file; /* in the checkpoint's directory */
    int64_t offset;   /* of its first byte in the file */
    uint32_t crc32c;  /* as it was saved */
    int is_weight;    /* in model.safetensors */
} muon_checkpoint_tensor;

/* State first, then weights; in the order of their bytes. */
MUON_API size_t muon_checkpoint_count(const muon_checkpoint *checkpoint);
MUON_API muon_status muon_checkpoint_get(const muon_checkpoint *checkpoint, size_t index,
                                         muon_checkpoint_tensor *tensor, size_t tensor_size);
MUON_API int64_t muon_checkpoint_find(const muon_checkpoint *checkpoint,
                                      const char *name); /* or -1 */
/* A caller's key, or muon.version, muon.step, muon.group.0.lr, muon.param.NAME, ...; NULL: absent. */
MUON_API const char *muon_checkpoint_get_metadata(const muon_checkpoint *checkpoint,
                                                  const char *key);
/* All keys that a plan's metadata (below) may have, sorted; NULL: there are no more. */
MUON_API const char *muon_checkpoint_get_key(const muon_checkpoint *checkpoint, size_t index);

/* Bytes offset .. offset + bytes of a tensor, as they are. */
MUON_API muon_status muon_checkpoint_read(muon_checkpoint *checkpoint, size_t index, int64_t offset,
                                          void *data, size_t bytes);
/* Reads the whole tensor; MUON_E_FORMAT if it is not what was saved. Both may run in several threads
 * at once. */
MUON_API muon_status muon_checkpoint_verify(muon_checkpoint *checkpoint, size_t index);

/* ---- Writing one without an optimizer ------------------------------------------------------ */

/* Fills data with bytes offset .. offset + bytes of a tensor: all of it once, in order, in pieces that
 * do not cut elements. Anything but MUON_OK ends the writing with that status; muon_error_set
 * sets the message. */
typedef muon_status (*muon_checkpoint_source_fn)(void *user, size_t index, int64_t offset,
                                                 void *data, size_t bytes);

typedef struct muon_checkpoint_plan {
    size_t struct_size;
    int64_t step;
    /* What goes in: name, dtype, ndim, shape and is_weight are read. */
    const muon_checkpoint_tensor *tensors;
    size_t ntensors;
    const muon_st_entry
        *metadata; /* keys of muon.* included, but for muon.crc32c.* and muon.step */
    size_t nmetadata;
    int64_t file_bytes; /* as in muon_save_args; 5e9 */
    int keep, replace;
    muon_checkpoint_source_fn source;
    void *user;
} muon_checkpoint_plan;

MUON_API void muon_checkpoint_plan_init(muon_checkpoint_plan *plan, size_t struct_size);

/* For converters. As safe as muon_save; a few MB of memory, whatever the tensors' size. */
MUON_API muon_status muon_checkpoint_write(const char *root, const muon_checkpoint_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
