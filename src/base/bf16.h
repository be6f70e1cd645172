/* bf16.h - bfloat16: the upper half of a float.
 *
 * Rounding is to nearest, ties to even, or stochastic: up with the probability of the cut-off part,
 * by 16 random bits per element (base/random.h). */
#ifndef BASE_BF16_H
#define BASE_BF16_H

#include <stdint.h>

void muon__bf16_load(float *to, const uint16_t *from, int64_t n);
void muon__bf16_store(uint16_t *to, const float *from, int64_t n); /* nearest even; NaN stays NaN */
void muon__bf16_round(float *to, const float *from, int64_t n);    /* store and load again */

/* Elements index, index + 1, ... of the tensor. Infinity and NaN are kept. */
void muon__bf16_store_stochastic(uint16_t *to, const float *from, int64_t n, uint64_t key,
                                 int64_t index);

#endif
