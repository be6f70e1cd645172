#include "base/bf16.h"

#include "base/random.h"
#include "base/simd.h"

#include <string.h>

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t nearest(uint32_t bits)
{
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet_nan = (bits >> 16) | 0x40u;
    return (bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded;
}

MUON__SIMD void muon__bf16_load(float *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = float_of((uint32_t)from[i] << 16);
}

MUON__SIMD void muon__bf16_store(uint16_t *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (uint16_t)nearest(bits_of(from[i]));
}

MUON__SIMD void muon__bf16_round(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = float_of(nearest(bits_of(from[i])) << 16);
}

MUON__SIMD void muon__bf16_store_stochastic(uint16_t *to, const float *from, int64_t n,
                                            uint64_t key, int64_t index)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t random = muon__random_at(key, index + i);
        uint32_t bits = bits_of(from[i]);
        uint32_t up = (bits + (random >> 16)) >> 16;
        /* Never across the largest finite value: that would make an infinity of a number. */
        uint32_t kept = (up & 0x7fffu) >= 0x7f80u ? bits >> 16 : up;
        to[i] = (uint16_t)((bits & 0x7fffffffu) >= 0x7f800000u ? nearest(bits) : kept);
    }
}
