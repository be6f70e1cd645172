/* read.h - what the library itself needs of an open checkpoint: where its bytes are, so that
 * several threads can read parts of tensors at once and compute the checksums themselves. */
#ifndef IO_CHECKPOINT_READ_H
#define IO_CHECKPOINT_READ_H

#include "muon/checkpoint.h"

#include "base/status.h"

/* An open file and the place of the tensor's first byte in it, for pread. */
muon_status muon__checkpoint_place(const muon_checkpoint *checkpoint, size_t index, int *fd,
                                   int64_t *offset);

/* MUON_E_FORMAT, in the words of muon_checkpoint_verify, if a checksum that was found in reading
 * tensor `index` is not the one that was saved. */
muon_status muon__checkpoint_compare(const muon_checkpoint *checkpoint, size_t index,
                                     uint32_t crc32c);

#endif
