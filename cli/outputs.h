/* outputs.h - several files in one directory, all of them or none.
 *
 * Files are written beside their final names and take them together at the end, when nothing can
 * fail any more but the renaming itself. */
#ifndef CLI_OUTPUTS_H
#define CLI_OUTPUTS_H

#include "tensors.h"

enum { OUTPUTS_MOST = 4 };

typedef struct outputs {
    const char *dir;
    int made; /* the directory is ours to remove */
    size_t count;
    char *staged[OUTPUTS_MOST], *final[OUTPUTS_MOST];
} outputs;

/* Makes the directory if needed, so that a bad name is found before the work is done. */
int outputs_open(outputs *out, const char *dir);
int outputs_add(outputs *out, const char *name, const muon_st_tensor *tensors, size_t count,
                const muon_st_entry *metadata, size_t nmetadata);
int outputs_commit(outputs *out);
/* Removes what was not committed. */
void outputs_close(outputs *out);

#endif
