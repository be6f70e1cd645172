/* random.h - random bits for stochastic rounding, that depend only on a key and an element's index in
 * the whole tensor, so that any sharding draws the same ones. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stdint.h>

/* A key for one parameter in one step. stream keeps several roundings of one step apart. */
uint64_t muon__random_key(uint64_t seed, const char *name, int64_t step, int stream);

static inline uint32_t muon__mix32(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

static inline uint32_t muon__random_at(uint64_t key, int64_t index)
{
    uint64_t at = (uint64_t)index;
    return muon__mix32(muon__mix32((uint32_t)at ^ (uint32_t)key) ^ (uint32_t)(at >> 32) ^
                       (uint32_t)(key >> 32));
}

#endif
