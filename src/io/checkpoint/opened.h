/* opened.h - an open checkpoint, for the files of this folder: open.c makes it, index.c checks it,
 * and read.c reads from it. */
#ifndef IO_CHECKPOINT_OPENED_H
#define IO_CHECKPOINT_OPENED_H

#include "io/checkpoint/dir.h"
#include "io/checkpoint/read.h"
#include "io/safetensors/read.h"

typedef struct open_file {
    muon_st *st;
    const checkpoint_file *saved; /* of the marker */
    char *path;
    int is_model;
} open_file;

typedef struct open_tensor {
    const st_item *item;
    const open_file *file;
    uint32_t crc32c;
} open_tensor;

typedef struct open_name {
    const char *name;
    size_t index;
} open_name;

struct muon_checkpoint {
    char *path;
    checkpoint_marker marker;
    open_file *files; /* optimizer's, then model's */
    size_t nfiles;
    open_tensor *tensors;
    open_name *names; /* by name */
    size_t ntensors;
    const char **keys; /* what a plan's metadata could have, sorted */
    size_t nkeys;
};

/* "dir/name"; the caller frees it. */
muon_status muon__opened_join(char **out, const char *dir, const char *name);
/* The checksum of a part of a file, read in pieces. */
muon_status muon__opened_sum(uint32_t *out, int fd, int64_t offset, int64_t bytes);
/* MUON_E_FORMAT if a head is not the one that was saved; the caller adds the file. */
muon_status muon__opened_check_head(const checkpoint_file *saved, int64_t head_bytes,
                                    uint32_t crc32c);

/* ---- The index of the state's files or the model's: which tensor is in which of them. */

typedef struct index_entry {
    char *tensor, *file;
} index_entry;

typedef struct checkpoint_index {
    int64_t total_size;   /* bytes of all tensors */
    index_entry *entries; /* by tensor, none twice */
    size_t count;
} checkpoint_index;

/* Over memory alone; memory stays in proportion to the text. MUON_E_FORMAT: byte and reason. */
muon_status muon__index_parse(checkpoint_index *out, const char *text, size_t bytes);
void muon__index_destroy(checkpoint_index *index); /* zeroed is fine */

/* Reads an index and compares it with the files, which are open. */
muon_status muon__index_check(const muon_checkpoint *cp, const checkpoint_file *saved,
                              int is_model);

#endif
