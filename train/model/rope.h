/* rope.h - rotary positions, in the half-split convention: element i of a head's first half and
 * element i of its second half are a pair, which at position t is turned by the angle
 * t * theta^(-2 i / dim). A product of a turned query and a turned key depends on the distance of
 * their positions only. */
#ifndef TRAIN_MODEL_ROPE_H
#define TRAIN_MODEL_ROPE_H

#include "base/pool.h"

typedef struct rope {
    int64_t dim;      /* even */
    float *cos, *sin; /* [positions][dim / 2] */
} rope;

void rope_fill(rope *r, int64_t positions, double theta);

/* The heads of one row start at x + first and are `stride` floats apart. */
typedef struct rope_rows {
    int64_t rows, ld, length; /* of a sequence: row i is at position i % length */
    int64_t first, stride, heads;
} rope_rows;

/* In place. back: by the opposite angles, which is what gradients need. */
void rope_turn(pool *p, const rope *r, const rope_rows *rows, float *x, int back);

#endif
