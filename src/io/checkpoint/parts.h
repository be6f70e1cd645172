/* parts.h - shared by the files that implement dir.h. Directories are file descriptors here, and
 * paths are only for messages, so it does no harm if a root is moved meanwhile. */
#ifndef IO_CHECKPOINT_PARTS_H
#define IO_CHECKPOINT_PARTS_H

#include "io/checkpoint/dir.h"

/* ---- marker.c */

/* A single component of a path that a line of the marker can hold, and not the marker itself. */
int muon__marker_holds_name(const char *name);
muon_status muon__marker_read_at(checkpoint_marker *out, int dir,
                                 const char *path); /* not the files */
/* Each file is there, regular, and of its size. */
muon_status muon__marker_check_files(const checkpoint_marker *marker, int dir, const char *path);

/* ---- order.c */

/* In order, the newest last; the caller frees. Damaged ones, too, unless only_complete. unread: see
 * muon__checkpoint_candidates. */
muon_status muon__checkpoint_steps_at(int64_t **steps, size_t *nsteps, int root, const char *path,
                                      int only_complete, unread_fn *unread, void *user);
/* The branch of a checkpoint of this step that is about to be complete, so that it is the
 * newest. */
muon_status muon__checkpoint_branch_at(int64_t *branch, int root, const char *path, int64_t step);

/* ---- find.c */

/* What else may stand in root: these, with a checkpoint's name behind. */
#define SAVING_PREFIX   ".saving-"
#define REMOVING_PREFIX ".removing-" /* complete no more, and about to go */
#define LINK_PREFIX     ".latest-"   /* a link that is about to be `latest` */
checkpoint_name muon__checkpoint_removing(int64_t step);
checkpoint_name muon__checkpoint_link(int64_t step);

/* ---- remove.c */

/* Calls visit for each name in dir but "." and "..", until one is not MUON_OK. */
typedef muon_status visit_fn(void *user, int dir, const char *name);
muon_status muon__each_name(int dir, const char *path, visit_fn *visit, void *user);

typedef enum lock_state {
    LOCK_OURS,   /* until the descriptor is closed */
    LOCK_OTHERS, /* of a process that is alive */
    LOCK_UNKNOWN /* the file system has no locks */
} lock_state;
lock_state muon__directory_lock(int fd);
int muon__directory_open(int dir, const char *name); /* no link; -1 and errno */
/* Is this open directory still the one of that name? */
int muon__directory_is(int fd, int dir, const char *name);

/* The open directory dir, which is path/name, with all that is in it. Closes dir, also on
 * failure. */
muon_status muon__checkpoint_erase(int root, const char *path, const char *name, int dir);
/* The directory path/name, which nobody takes for a checkpoint. If another process holds its lock,
 * it stays; needs_lock: also if there are no locks. A missing one is fine. */
muon_status muon__checkpoint_remove(int root, const char *path, const char *name, int needs_lock);

/* What killed processes left in root. What cannot be removed stays for the next time. */
void muon__checkpoint_clean(int root, const char *path);

#endif
