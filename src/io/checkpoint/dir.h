/* dir.h - a checkpoint's directory: written under another name, then complete at once.
 *
 * While it is written it is root/.saving-step-00001000, held by a lock (flock on the directory)
 * that ends with the process. Commit writes the marker COMPLETE last, syncs everything, and renames
 * the directory to root/step-00001000: whoever sees that name sees a complete checkpoint. What a
 * killed process left behind has no lock, and the next save removes it. One rank does all of this;
 * the others only write into the files. Nothing here knows what is in the files. */
#ifndef IO_CHECKPOINT_DIR_H
#define IO_CHECKPOINT_DIR_H

#include "base/status.h"

#define CHECKPOINT_MARKER "COMPLETE"
#define CHECKPOINT_LATEST "latest"

/* "step-00001000"; at least 8 digits. Used as muon__checkpoint_name(step).text. */
typedef struct checkpoint_name {
    char text[48];
} checkpoint_name;
checkpoint_name muon__checkpoint_name(int64_t step);   /* complete */
checkpoint_name muon__checkpoint_saving(int64_t step); /* being written: ".saving-step-00001000" */
/* The step of a name of the first kind; -1 for any other text. */
int64_t muon__checkpoint_step_of(const char *name);

/* ---- The marker: which files there are, so that a missing, cut or changed one is noticed. */

typedef struct checkpoint_file {
    char *name; /* without directory */
    int64_t bytes;
    int64_t
        head_bytes; /* of the head that head_crc32c is of: a safetensors header; an index's all */
    uint32_t head_crc32c;
} checkpoint_file;

typedef struct checkpoint_marker {
    int64_t step;
    int64_t branch; /* how often the run had gone back before; see order.c */
    checkpoint_file *files;
    size_t nfiles;
} checkpoint_marker;

/* As text, a line each, the last one its own checksum; the caller frees it. */
muon_status muon__marker_write(char **out, size_t *bytes, const checkpoint_marker *marker);
/* MUON_E_FORMAT for anything that muon__marker_write does not write: line and reason;
 * MUON_E_VERSION for a whole marker of another format. Names are single components, none twice,
 * numbers fit; memory stays in proportion to the text. */
muon_status muon__marker_parse(checkpoint_marker *out, const char *text, size_t bytes);
/* Reads dir/COMPLETE, and checks that each file is there, regular, and of its size. MUON_E_FORMAT
 * with the file's name. If there is no marker: "is not complete: it has no COMPLETE". */
muon_status muon__marker_read(checkpoint_marker *out, const char *dir);
void muon__marker_destroy(checkpoint_marker *marker); /* zeroed is fine */

/* ---- Writing */

typedef struct checkpoint_dir checkpoint_dir;

/* Creates root if it is missing (its last component only), removes what killed processes left in it
 * (as far as it can: the next save tries again), makes the directory of this step, locks it.
 * MUON_E_IO if a checkpoint of this step exists and replace is 0, or if another process is saving
 * the same step right now. Where the file system has no locks, a killed save of this very step has
 * to be removed by hand. */
muon_status muon__checkpoint_begin(checkpoint_dir **out, const char *root, int64_t step,
                                   int replace);
/* A new file in it: of this size, its room reserved as far as the file system can do that, so that
 * a full disk is noticed now. */
muon_status muon__checkpoint_add(checkpoint_dir *dir, const char *name, int64_t bytes);
/* One of these files, open for writing, wherever the process has gone meanwhile; -1 with a message:
 * MUON_E_IO. */
int muon__checkpoint_open_file(const checkpoint_dir *dir, const char *name);
/* A small file in it, all at once, synced. */
muon_status muon__checkpoint_put(checkpoint_dir *dir, const char *name, const void *data,
                                 size_t bytes);
/* All files are written and synced, by whoever wrote them. Checks their sizes; marker (whose branch
 * it finds itself), sync, rename, sync of root, `latest`; then, if keep > 0, complete ones are
 * removed until keep are left, in the order that order.c defines (never this one). `latest` is the
 * one that muon__checkpoint_resolve finds, the newest. Ends dir, also when it fails; then the
 * checkpoint does not exist, unless the message says "is complete, but" and that only `latest`, a
 * removal, or the last sync failed. */
muon_status muon__checkpoint_commit(checkpoint_dir *dir, const checkpoint_marker *marker, int keep);
/* Removes it, and leaves this thread's message as it is. NULL is fine. */
void muon__checkpoint_abort(checkpoint_dir *dir);

/* ---- Finding */

/* Steps in root whose directories have a marker that fits their files, in the order that order.c
 * defines: the newest is the last one. The caller frees. A root that is missing has none. */
muon_status muon__checkpoint_steps(int64_t **steps, size_t *nsteps, const char *root);
/* The same of all directories in root that are called like checkpoints, complete or damaged;
 * MUON_E_NO_CHECKPOINT if there is none, or no such root. One that cannot be read, on a failing
 * disk or without permission, might be the newest: MUON_E_IO. With unread, that hears of each of
 * them, they are left out, and it is MUON_E_IO only if all of them are. */
typedef void unread_fn(void *user, const char *why);
muon_status muon__checkpoint_candidates(int64_t **steps, size_t *nsteps, const char *root,
                                        unread_fn *unread, void *user);
/* Is path itself a checkpoint, or is it one that looks like it (named step-..., or has a marker)?
 * And the path without slashes at its end; the caller frees it. */
muon_status muon__checkpoint_look(char **out, int *is_one, const char *path);
/* "path" if it is itself a checkpoint (or looks like one: named step-..., or has a marker), else
 * "path/step-..." of its newest complete one, or of a damaged one if none is complete;
 * MUON_E_NO_CHECKPOINT if there is none at all, or no such root. The caller frees it. */
muon_status muon__checkpoint_resolve(char **out, const char *path);

#endif
