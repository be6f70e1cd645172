/* bf16.h - bfloat16: the upper half of a float.
 *
 * Rounding is to nearest, ties to even, or stochastic: up with the probability of the cut-off part,
 * by 16 random bits per element that depend only on a key and the element's index in the whole
 * tensor, so that any sharding draws the same ones. */
#ifndef BASE_BF16_H
#define BASE_BF16_H

#include <stdint.h>

void muon__bf16_load(float *to, const uint16_t *from, int64_t n);
void muon__bf16_store(uint16_t *to, const float *from, int64_t n); /* nearest even; NaN stays NaN */
void muon__bf16_round(float *to, const float *from, int64_t n);    /* store and load again */

/* A key for one parameter in one step. stream keeps several roundings of one step apart. */
uint64_t muon__bf16_key(uint64_t seed, const char *name, int64_t step, int stream);
/* Elements index, index + 1, ... of the tensor. Infinity and NaN are kept. */
void muon__bf16_store_stochastic(uint16_t *to, const float *from, int64_t n, uint64_t key,
                                 int64_t index);

#endif
