/* files.h - which tensor of a checkpoint is in which file, and where.
 *
 * A pure function of the tensors, the metadata and the size of a file, so that every rank finds the
 * same places without communication. State goes to optimizer*.safetensors, weights to
 * model*.safetensors; files are filled in the order given until the next tensor would not fit.
 * Heads have a checksum for every tensor, of a fixed width: their size is known before the
 * checksums are. */
#ifndef IO_CHECKPOINT_FILES_H
#define IO_CHECKPOINT_FILES_H

#include "muon/checkpoint.h"

#include "base/status.h"

/* Metadata that a head adds by itself: "format" = "pt" and, for each of its tensors, this key with
 * the tensor's name behind it = 8 hex digits. */
#define CHECKPOINT_CRC_KEY "muon.crc32c."

#define CHECKPOINT_FILE_BYTES 5000000000 /* of tensors in a file, if the caller does not say */

typedef struct files_tensor {
    muon_st_tensor tensor; /* data is NULL */
    int is_weight;
    size_t file;
    int64_t offset; /* of its first byte in the file */
} files_tensor;

typedef struct files_file {
    char *name;
    int64_t bytes, head_bytes;
    int is_model;
    size_t *tensors; /* in the order of their bytes */
    size_t ntensors;
} files_file;

typedef struct checkpoint_files {
    files_tensor *tensors; /* in the order given; names are ours */
    size_t ntensors;
    files_file *files; /* optimizer's, then model's */
    size_t nfiles;
    muon_st_entry *metadata; /* of the first file; ours */
    size_t nmetadata;
} checkpoint_files;

/* tensors: name, dtype, ndim, shape and is_weight are read. Checks names, dtypes, shapes, metadata
 * as muon_st_write does (MUON_E_NAME for one name twice, also in different files). */
muon_status muon__files_create(checkpoint_files **out, const muon_checkpoint_tensor *tensors,
                               size_t ntensors, const muon_st_entry *metadata, size_t nmetadata,
                               int64_t file_bytes);
void muon__files_destroy(checkpoint_files *files); /* NULL is fine */

/* The first head_bytes of a file; crc32c is [ntensors], in the order of files->tensors. The caller
 * frees it. */
muon_status muon__files_head(char **out, const checkpoint_files *files, size_t file,
                             const uint32_t *crc32c);
/* NAME.safetensors.index.json of the optimizer (0) or the model (1), and its text; *out NULL if
 * there are fewer than two files. The caller frees both. */
muon_status muon__files_index(char **name, char **out, size_t *bytes, const checkpoint_files *files,
                              int is_model);

#endif
