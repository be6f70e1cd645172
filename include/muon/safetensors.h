/* safetensors.h - reading and writing safetensors files, the format of weights and checkpoints.
 *
 * A file is an 8-byte little-endian header length, a JSON header (tensor name -> dtype, shape, byte
 * range; "__metadata__" -> strings), and the bytes. The reader trusts nothing: it checks every
 * length, range, overlap, product of dims, name and UTF-8 sequence before it reads any tensor. Its
 * memory is proportional to the header, which may have at most 100 MB. A file that violates the
 * format is MUON_E_FORMAT, and an error of the system is MUON_E_IO; the message names file, tensor
 * and numbers. The rules of muon.h apply.
 */
#ifndef MUON_SAFETENSORS_H
#define MUON_SAFETENSORS_H

#include "muon/muon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct muon_st muon_st; /* an open file */

/* One tensor of a file. dtype is the format's word: F32, BF16, F16, F64, I64, U8, BOOL, ... The
 * format has no other fields, so this struct will not grow. */
typedef struct muon_st_tensor {
    const char *name;
    const char *dtype;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    size_t bytes;
    const void *data; /* muon_st_write: the bytes to write. muon_st_get: NULL */
} muon_st_tensor;

/* Opens a regular file and checks its whole header. Tensors are in the order of their bytes in the
 * file. All strings are borrowed until the file is closed. */
MUON_API muon_status muon_st_open(muon_st **out, const char *path);
MUON_API void muon_st_close(muon_st *file); /* may be NULL */

MUON_API size_t muon_st_count(const muon_st *file);
MUON_API muon_status muon_st_get(const muon_st *file, size_t index, muon_st_tensor *tensor,
                                 size_t tensor_size);
MUON_API int64_t muon_st_find(const muon_st *file, const char *name);            /* index, or -1 */
MUON_API const char *muon_st_get_metadata(const muon_st *file, const char *key); /* NULL: absent */
/* The keys of the metadata, sorted; NULL after the last. */
MUON_API const char *muon_st_get_key(const muon_st *file, size_t index);
/* The position of the tensor's first byte in the file, for programs that map it; -1 if there is no
 * such tensor. */
MUON_API int64_t muon_st_get_offset(const muon_st *file, size_t index);

/* Reads the tensor without conversion. `bytes` must be exactly the tensor's size. If reading fails
 * (the file was truncated in the meantime, or the disk is bad), the buffer may be partly filled. */
MUON_API muon_status muon_st_read(muon_st *file, size_t index, void *data, size_t bytes);
/* Reads `bytes` bytes of the tensor, starting at `offset`, without conversion, so that a large
 * tensor need not be in memory. Both functions may run in several threads at once. */
MUON_API muon_status muon_st_read_part(muon_st *file, size_t index, int64_t offset, void *data,
                                       size_t bytes);
/* Reads the tensor as f32. F32, BF16 and F16 are exact, F64 is rounded to nearest even, and other
 * dtypes are MUON_E_DTYPE. `count` must be exactly the number of elements. */
MUON_API muon_status muon_st_read_f32(muon_st *file, size_t index, float *data, size_t count);

typedef struct muon_st_entry { /* of the metadata */
    const char *key, *value;
} muon_st_entry;

/* Writes all tensors to a temporary file beside `path`, syncs it, and renames it to `path`. A
 * reader sees either the old file or the new one, never a part, and `path` may be open for reading.
 * On failure the old file is unchanged and nothing else remains, except that the new file is in
 * place if only the last sync, of the directory, fails. If `path` exists, it must be a regular file
 * or a symbolic link, which is replaced and not followed. The same input gives the same bytes: the
 * metadata in the order given, then the tensors, those with wider dtypes first so that each is
 * aligned, and otherwise in the order given. */
MUON_API muon_status muon_st_write(const char *path, const muon_st_tensor *tensors, size_t count,
                                   const muon_st_entry *metadata, size_t nmetadata);

#ifdef __cplusplus
}
#endif
#endif
