/* pieces.h - parts of whole tensors as a list of runs of elements, in the order of a shard. */
#ifndef TRAIN_PIECES_H
#define TRAIN_PIECES_H

#include "muon/plan.h"

typedef struct piece { /* elements that follow each other in a tensor */
    size_t param;
    int64_t at, length;
} piece;

typedef struct pieces {
    piece *list;
    size_t count, room;
    int64_t numel;
} pieces;

/* Adds the elements of a box of the tensor. */
muon_status pieces_add(pieces *p, size_t param, const muon_param *tensor, const muon_part *box);
void pieces_free(pieces *p);

void pieces_take(const pieces *p, float *packed, const float *const *whole);
void pieces_put(const pieces *p, float *const *whole, const float *packed);

#endif
