/* write.h - the end of every save, whoever wrote the tensors: heads, indices, commit. */
#ifndef IO_CHECKPOINT_WRITE_H
#define IO_CHECKPOINT_WRITE_H

#include "io/checkpoint/dir.h"
#include "io/checkpoint/files.h"

/* A file of a checkpoint that another process is writing, open for writing; -1 with a message:
 * MUON_E_IO. A relative root begins at the directory `from`. */
int muon__checkpoint_open_saving(int from, const char *root, int64_t step, const char *name);

/* All tensors' bytes are in their files, made by muon__checkpoint_add, and crc32c[ntensors] are
 * their checksums. Writes the heads, syncs, puts the indices beside them, and commits. Ends dir,
 * also when it fails: as muon__checkpoint_commit does. */
muon_status muon__checkpoint_complete(checkpoint_dir *dir, int64_t step,
                                      const checkpoint_files *files, const uint32_t *crc32c,
                                      int keep);

#endif
