/* i8.h - floats in 8 bits: codes -127 .. 127 times a scale, which a block of 2,048 elements shares.
 *
 * The scale is the block's largest magnitude over 127. Rounding is stochastic, up with a probability
 * equal to the part that is cut off, by 16 random bits that depend only on a key and the element's
 * index. Rounding to nearest would lose whatever changes a momentum by less than half a scale in every
 * step, however long it goes on. */
#ifndef BASE_I8_H
#define BASE_I8_H

#include <stdint.h>

enum { MUON__I8_BLOCK = 2048 };

/* Blocks of a matrix; the last one may be shorter. */
static inline int64_t muon__i8_blocks(int64_t n)
{
    return (n + MUON__I8_BLOCK - 1) / MUON__I8_BLOCK;
}

/* At most a block. */
void muon__i8_load(float *to, const int8_t *codes, float scale, int64_t n);

/* A block; returns its scale. Elements index, index + 1, ... of the whole list. If one is infinite or
 * NaN, none of the block is finite any more. What is below 1.5e-36 in a block where nothing is larger
 * becomes 0. */
float muon__i8_store(int8_t *codes, const float *from, int64_t n, uint64_t key, int64_t index);

#endif
