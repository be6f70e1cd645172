#include "product.h"

#include <string.h>

/* One loop, compiled for AVX2 machines too where the compiler can: the same bits, twice as fast. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) &&   \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SIMD __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define SIMD
#endif

enum { STEP = 4 };

/* Four rows of c += a[4][4] times four rows of b: enough work for each element that is read, in a
 * loop that compilers turn into vector instructions. */
SIMD static void add_block(float *restrict c, const float *a, const float *restrict b, int n)
{
    const float *b0 = b, *b1 = b + n, *b2 = b + 2 * n, *b3 = b + 3 * n;
    float *c0 = c, *c1 = c + n, *c2 = c + 2 * n, *c3 = c + 3 * n;
    for (int j = 0; j < n; j++) {
        c0[j] += a[0] * b0[j] + a[1] * b1[j] + a[2] * b2[j] + a[3] * b3[j];
        c1[j] += a[4] * b0[j] + a[5] * b1[j] + a[6] * b2[j] + a[7] * b3[j];
        c2[j] += a[8] * b0[j] + a[9] * b1[j] + a[10] * b2[j] + a[11] * b3[j];
        c3[j] += a[12] * b0[j] + a[13] * b1[j] + a[14] * b2[j] + a[15] * b3[j];
    }
}

void product(float *c, product_view a, const float *b, int m, int n, int k)
{
    memset(c, 0, (size_t)m * (size_t)n * sizeof *c);
    for (int i = 0; i < m; i += STEP) {
        for (int p = 0; p < k; p += STEP) {
            float block[STEP * STEP];
            for (int x = 0; x < STEP; x++)
                for (int y = 0; y < STEP; y++)
                    block[x * STEP + y] = a.data[(i + x) * a.row_step + (p + y) * a.col_step];
            add_block(c + i * n, block, b + p * n, n);
        }
    }
}
