/* items.h - tensors to be written, each made of one that exists: under another name, of another
 * dtype, scaled. The bytes are made when they are asked for, a block at a time. */
#ifndef CLI_CKPT_ITEMS_H
#define CLI_CKPT_ITEMS_H

#include "cli/ckpt/source.h"

typedef struct ckpt_item {
    muon_checkpoint_tensor to; /* the name is ours; dtype, shape and is_weight as it is to be */
    const ckpt_source *from;   /* NULL: a scalar */
    size_t index;
    double scale;   /* every element is multiplied by this */
    int64_t number; /* the scalar */
} ckpt_item;

typedef struct ckpt_items {
    ckpt_item *list;
    size_t count;
    json_t *metadata; /* strings by key */
} ckpt_items;

/* With the settings of a source, which a copy of it must carry on, or NULL. */
void ckpt_items_start(ckpt_items *items, const ckpt_source *settings);
void ckpt_items_close(ckpt_items *items); /* zeroed is fine */

/* The tensor as it is; the caller may change dtype and scale. The name is copied, and what is returned
 * lives until the next one is added. */
ckpt_item *ckpt_items_add(ckpt_items *items, const char *name, const ckpt_source *from,
                          size_t index);
void ckpt_items_add_number(ckpt_items *items, const char *name, const char *dtype, int64_t number);

void ckpt_items_set(ckpt_items *items, const char *key, const char *value);
/* muon.group.GROUP.FIELD */
void ckpt_items_set_group(ckpt_items *items, int64_t group, const char *field, const char *value);

/* As a checkpoint of `step` in root; a few MB of memory. */
int ckpt_items_save(const ckpt_items *items, const char *root, int64_t step);
/* As one safetensors file; all of it is in memory once. */
int ckpt_items_save_file(const ckpt_items *items, const char *path);

/* Checks the tensors of a checkpoint against their checksums: damage must not be written again, where
 * it would get a checksum that is right. */
int ckpt_check(const ckpt_source *source);

#endif
