/* digest.h - 64-bit identities of what the ranks must agree on.
 *
 * Words are folded in sixteen at a time: products with odd constants, which the processor multiplies
 * side by side, and then one round of mixing. Fast enough to hash every matrix of every plan. Good
 * against mistakes, not against an adversary. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MUON__DIGEST_START 0xcbf29ce484222325u

static inline uint64_t muon__digest_mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static inline void muon__digest_words(uint64_t *digest, const int64_t *words, size_t n)
{
    static const uint64_t odd[16] = {
        0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu, 0xff51afd7ed558ccdu,
        0xc4ceb9fe1a85ec53u, 0x87c37b91114253d5u, 0x4cf5ad432745937fu, 0x52dce729da3ed7b5u,
        0x38495ab5a9c5e1d3u, 0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu, 0x8ebc6af09c88c6e3u,
        0x589965cc75374cc3u, 0x1d8e4e27c47d124fu, 0xeb44accab455d165u, 0x9fb21c651e98df25u};
    for (size_t i = 0; i < n; i += 16) {
        size_t block = n - i < 16 ? n - i : 16;
        uint64_t sum = block;
        for (size_t j = 0; j < block; j++)
            sum += (uint64_t)words[i + j] * odd[j];
        *digest = muon__digest_mix(*digest ^ sum) + sum;
    }
}

static inline void muon__digest_reals(uint64_t *digest, const double *reals, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t word;
        memcpy(&word, &reals[i], sizeof word);
        muon__digest_words(digest, &word, 1);
    }
}

/* The length comes first: "ab", "c" is not "a", "bc". */
static inline void muon__digest_text(uint64_t *digest, const char *text)
{
    size_t length = strlen(text);
    int64_t word = (int64_t)length;
    muon__digest_words(digest, &word, 1);
    for (size_t i = 0; i < length; i += 8) {
        uint64_t bytes = 0;
        for (size_t j = 0; j < 8 && i + j < length; j++)
            bytes |= (uint64_t)(unsigned char)text[i + j] << 8 * j;
        word = (int64_t)bytes;
        muon__digest_words(digest, &word, 1);
    }
}

#endif
