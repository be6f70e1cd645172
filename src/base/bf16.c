#include "base/bf16.h"

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

static uint64_t mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t muon__bf16_key(uint64_t seed, const char *name, int64_t step, int stream)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    uint64_t key = mix64(seed + 0x9e3779b97f4a7c15u);
    key = mix64(key ^ hash);
    key = mix64(key + (uint64_t)step * 0x9e3779b97f4a7c15u);
    return mix64(key + (uint64_t)stream);
}

static inline uint32_t mix32(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

MUON__SIMD void muon__bf16_store_stochastic(uint16_t *to, const float *from, int64_t n,
                                            uint64_t key, int64_t index)
{
    uint32_t key_low = (uint32_t)key;
    uint32_t key_high = (uint32_t)(key >> 32);
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(index + i);
        uint32_t random = mix32(mix32((uint32_t)at ^ key_low) ^ (uint32_t)(at >> 32) ^ key_high);
        uint32_t bits = bits_of(from[i]);
        uint32_t up = (bits + (random >> 16)) >> 16;
        /* Never across the largest finite value: that would make an infinity of a number. */
        uint32_t kept = (up & 0x7fffu) >= 0x7f80u ? bits >> 16 : up;
        to[i] = (uint16_t)((bits & 0x7fffffffu) >= 0x7f800000u ? nearest(bits) : kept);
    }
}
