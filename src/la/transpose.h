/* transpose.h - blocks of floats, transposed in registers. Left to itself a compiler moves single
 * floats, and takes twice the time. */
#ifndef LA_TRANSPOSE_H
#define LA_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

typedef float transpose_four __attribute__((vector_size(16)));
typedef float transpose_eight __attribute__((vector_size(32)));

/* to[j][i] = from[i][j] for an 8 x 8 block, in rows of to_ld and from_ld floats: eight rows, three
 * rounds of shuffles, eight rows. */
static inline __attribute__((always_inline)) void
muon__transpose8(float *to, int64_t to_ld, const float *from, int64_t from_ld)
{
    transpose_eight r[8], s[8];
    for (int i = 0; i < 8; i++)
        memcpy(&r[i], from + i * from_ld, sizeof r[i]);
    for (int i = 0; i < 8; i += 2) { /* pairs */
        s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) { /* fours */
        r[i] = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 1] = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        r[i + 2] = __builtin_shufflevector(s[i + 1], s[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 3] = __builtin_shufflevector(s[i + 1], s[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 4; i++) { /* halves */
        s[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        s[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; i++)
        memcpy(to + i * to_ld, &s[i], sizeof s[i]);
}

/* The same for a 4 x 4 block. */
static inline __attribute__((always_inline)) void
muon__transpose4(float *to, int64_t to_ld, const float *from, int64_t from_ld)
{
    transpose_four r[4], s[4];
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], from + i * from_ld, sizeof r[i]);
    for (int i = 0; i < 4; i += 2) {
        s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 4, 1, 5);
        s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 6, 3, 7);
    }
    for (int64_t i = 0; i < 2; i++) {
        r[2 * i] = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 4, 5);
        r[2 * i + 1] = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 6, 7);
    }
    for (int i = 0; i < 4; i++)
        memcpy(to + i * to_ld, &r[i], sizeof r[i]);
}

#endif
