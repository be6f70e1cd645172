/* crc32c.h - CRC-32C (Castagnoli), the checksum of a checkpoint's tensors.
 *
 * It is linear: the checksum of a whole follows from those of its parts in any order, so ranks that
 * each write some bytes of a tensor find its checksum together without reading it back.
 * muon__crc32c is the standard checksum ("123456789" gives e3069283). A partial checksum is
 * that of some of the bytes, computed as if all others were zero; those of disjoint parts are combined
 * with ^. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of `bytes` more bytes behind those whose checksum is crc; 0 at the start. */
uint32_t muon__crc32c(uint32_t crc, const void *data, size_t bytes);

/* The partial checksum of bytes that are followed by `after` others in the whole. */
uint32_t muon__crc32c_partial(const void *data, size_t bytes, int64_t after);
/* From the partial checksums of all parts, combined with ^, to the checksum of a whole of `total` bytes. */
uint32_t muon__crc32c_whole(uint32_t partials, int64_t total);

/* The same by plain tables, whatever the processor has. For tests. */
uint32_t muon__crc32c_reference(uint32_t crc, const void *data, size_t bytes);

#endif
