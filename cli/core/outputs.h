/* outputs.h - several files in one directory, all of them or none.
 *
 * Files are written beside their final names and take them together at the end, when nothing can
 * fail any more but the renaming itself. */
#ifndef CLI_CORE_OUTPUTS_H
#define CLI_CORE_OUTPUTS_H

#include "cli/core/files.h"

typedef struct outputs {
    const char *dir;
    int made; /* the directory is ours to remove */
    size_t count;
    struct output {
        char *staged, *final;
    } * list;
} outputs;

/* Makes the directory if needed, so that a bad name is found before the work is done. */
int outputs_open(outputs *out, const char *dir);
int outputs_add(outputs *out, const char *name, const muon_st_tensor *tensors, size_t count,
                const muon_st_entry *metadata, size_t nmetadata);
/* The same for a text, which ends with a line feed there. */
int outputs_add_text(outputs *out, const char *name, const char *text);
int outputs_commit(outputs *out);
/* Removes what was not committed. */
void outputs_close(outputs *out);

#endif
