/* source.h - tensors to look at, of a checkpoint or of a plain safetensors file alike.
 *
 * A tensor is read in pieces, so memory does not grow with it. Nothing here writes. */
#ifndef CLI_CKPT_SOURCE_H
#define CLI_CKPT_SOURCE_H

#include "cli/core/cli.h"

#include "muon/checkpoint.h"

#include <jansson.h>

typedef struct ckpt_source {
    char *path;                      /* the checkpoint's directory, or the file */
    muon_checkpoint *checkpoint;     /* NULL: a plain file */
    muon_st *file;                   /* NULL: a checkpoint */
    json_t *metadata;                /* strings by key, without what the files have by themselves */
    muon_checkpoint_tensor *tensors; /* of a plain file: without crc32c */
    size_t count;
    int64_t step; /* -1: a plain file that does not say */
} ckpt_source;

/* A directory is a checkpoint, or a root whose newest complete checkpoint is taken. */
int ckpt_open(ckpt_source *out, const char *path);
void ckpt_close(ckpt_source *source); /* zeroed is fine */

/* Bytes offset .. offset + bytes of a tensor. */
muon_status ckpt_read(const ckpt_source *source, size_t index, int64_t offset, void *data,
                      size_t bytes);

int64_t ckpt_find(const ckpt_source *source, const char *name);        /* or -1 */
const char *ckpt_metadata(const ckpt_source *source, const char *key); /* NULL: absent */
/* The checksum as it was saved, 8 hex digits; "" for what has none. */
typedef struct ckpt_crc {
    char text[16];
} ckpt_crc;
ckpt_crc ckpt_checksum(const ckpt_source *source, size_t index);

int64_t ckpt_elements(const muon_checkpoint_tensor *tensor);
/* Bytes of all tensors. */
int64_t ckpt_bytes(const ckpt_source *source);

/* Sets hit[i] to 1 for every tensor that the glob matches; returns how many. */
size_t ckpt_match(const ckpt_source *source, const char *pattern, char *hit);
/* Which tensors the globs of a command line choose: hit[i] is 1 or 0; all of them if there is no glob.
 * One that chooses nothing is an error. */
int ckpt_choose(const ckpt_source *source, int npatterns, char **patterns, char *hit);

#endif
