/* replace.h - a file that is replaced as a whole or not at all.
 *
 * Bytes go to a temporary file in the target's directory; commit syncs it, renames it over the
 * target and syncs the directory. Killed at any moment, the target is the old file or the new one.
 * The directory is held open, so nothing done to its path meanwhile can lead the rename astray. */
#ifndef IO_REPLACE_H
#define IO_REPLACE_H

#include "base/status.h"

typedef struct replacement {
    const char *path; /* borrowed until commit or abort */
    const char *base; /* its last component */
    int dir, fd;
    char temp[64];
} replacement;

/* An existing target must be a regular file: replacing /dev/null would harm more than one program.
 * On failure nothing was created, and no abort is needed. */
muon_status muon__replace_begin(replacement *r, const char *path);

/* After a failure only abort is left. */
muon_status muon__replace_write(replacement *r, const void *data, size_t bytes);

/* Ends the replacement, also when it fails; then the target is as before and the temporary file is
 * gone. Only if the very last sync fails is the new file in place all the same. */
muon_status muon__replace_commit(replacement *r);
void muon__replace_abort(replacement *r);

#endif
