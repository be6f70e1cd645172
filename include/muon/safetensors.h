/* safetensors.h - reading and writing safetensors files, the format weights and checkpoints live in.
 *
 * A file is an 8-byte little-endian header length, a JSON header (tensor name -> dtype, shape, byte
 * range; "__metadata__" -> strings), and the bytes. The reader trusts nothing: it checks every
 * length, range, overlap, product of dims, name and UTF-8 sequence before any tensor is touched,
 * and memory stays in proportion to the header, which has at most 100 MB. What is not as the format
 * says is MUON_E_FORMAT, what the system refuses is MUON_E_IO; the message names file, tensor and
 * numbers. The rules of muon.h hold.
 */
#ifndef MUON_SAFETENSORS_H
#define MUON_SAFETENSORS_H

#include "muon/muon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct muon_st muon_st; /* an open file */

/* One tensor of a file. dtype is the format's own word: F32, BF16, F16, F64, I64, U8, BOOL ...
 * This is all the format knows of a tensor: the struct will not grow. */
typedef struct muon_st_tensor {
    const char *name;
    const char *dtype;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    size_t bytes;
    const void *data; /* muon_st_write: the bytes to write. muon_st_get: NULL */
} muon_st_tensor;

/* Opens a regular file and checks all of its header. Tensors are in the order of their bytes in the
 * file. Names, words and metadata from here on are borrowed until the file is closed. */
MUON_API muon_status muon_st_open(muon_st **out, const char *path);
MUON_API void muon_st_close(muon_st *file); /* NULL is fine */

MUON_API size_t muon_st_count(const muon_st *file);
MUON_API muon_status muon_st_get(const muon_st *file, size_t index, muon_st_tensor *tensor,
                                 size_t tensor_size);
MUON_API int64_t muon_st_find(const muon_st *file, const char *name);            /* index, or -1 */
MUON_API const char *muon_st_get_metadata(const muon_st *file, const char *key); /* NULL: absent */
/* The keys of the metadata, sorted; NULL: there are no more. */
MUON_API const char *muon_st_get_key(const muon_st *file, size_t index);
/* Where the tensor's first byte is in the file, for programs that map it; -1: there is no such tensor. */
MUON_API int64_t muon_st_get_offset(const muon_st *file, size_t index);

/* The tensor's bytes as they are. `bytes` must be exactly the tensor's size. If reading fails (the
 * file was cut short meanwhile, the disk is bad), the buffer may be partly filled. */
MUON_API muon_status muon_st_read(muon_st *file, size_t index, void *data, size_t bytes);
/* Bytes offset .. offset + bytes of the tensor, as they are, so that a large one need not be in memory. Both
 * may run in several threads at once. */
MUON_API muon_status muon_st_read_part(muon_st *file, size_t index, int64_t offset, void *data,
                                       size_t bytes);
/* The tensor converted to f32: F32, BF16 and F16 exactly, F64 rounded to nearest even; others are
 * MUON_E_DTYPE. `count` must be exactly the number of elements. */
MUON_API muon_status muon_st_read_f32(muon_st *file, size_t index, float *data, size_t count);

typedef struct muon_st_entry { /* of the metadata */
    const char *key, *value;
} muon_st_entry;

/* Writes all tensors to a temporary file beside `path`, syncs it, and renames it to `path`: a
 * reader sees the old file or the new one, never a part, and `path` may be open for reading. On
 * failure the old file is untouched and nothing else remains; only if the very last sync, of the
 * directory, fails is the new file in place all the same. What exists at `path` must be a regular
 * file; a symbolic link is replaced, not followed. The same input gives the same bytes: metadata in
 * the order given, then the tensors with wider dtypes first, so that each is aligned, and otherwise
 * in the order given. */
MUON_API muon_status muon_st_write(const char *path, const muon_st_tensor *tensors, size_t count,
                                   const muon_st_entry *metadata, size_t nmetadata);

#ifdef __cplusplus
}
#endif
#endif
