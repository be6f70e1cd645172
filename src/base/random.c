#include "base/random.h"

static uint64_t mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t muon__random_key(uint64_t seed, const char *name, int64_t step, int stream)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    uint64_t key = mix64(seed + 0x9e3779b97f4a7c15u);
    key = mix64(key ^ hash);
    key = mix64(key + (uint64_t)step * 0x9e3779b97f4a7c15u);
    return mix64(key + (uint64_t)stream);
}
