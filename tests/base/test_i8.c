/* test_i8.c - 8 bits and a scale: bounds, means, what is not finite, and who draws which random bits. */
#include "tests/support/testlib.h"

#include "base/i8.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

enum { N = MUON__I8_BLOCK };

static float store(int8_t *codes, const float *x, int64_t n, uint64_t seed)
{
    return muon__i8_store(codes, x, n, muon__random_key(seed, "w", 1, 0), 0);
}

TEST(an_element_comes_back_within_a_scale)
{
    static const double sizes[] = {1e-30, 1e-3, 1, 1e30};
    float x[N], back[N];
    int8_t codes[N];
    testlib_seed(3);
    for (size_t s = 0; s < COUNT(sizes); s++) {
        for (int64_t n = 1; n <= N; n = 2 * n + 1) {
            testlib_fill_gauss(x, n, sizes[s]);
            float scale = store(codes, x, n, (uint64_t)s), most = 0;
            muon__i8_load(back, codes, scale, n);
            for (int64_t i = 0; i < n; i++)
                most = fmaxf(most, fabsf(x[i]));
            testlib_assert_error(fabs((double)scale * 127 / (double)most - 1), 1e-6, "scale");
            for (int64_t i = 0; i < n; i++)
                testlib_assert_error(fabs((double)back[i] - (double)x[i]) / (double)scale, 1.0001,
                                     "element %lld of %lld", (long long)i, (long long)n);
        }
    }
}

/* 127 is the largest, so that the scale is 1 and codes are numbers. */
TEST(rounding_to_codes_is_unbiased_and_keeps_codes)
{
    static const double parts[] = {0, 0.01, 0.25, 0.5, 0.99};
    for (int sign = -1; sign <= 1; sign += 2) {
        for (size_t p = 0; p < COUNT(parts); p++) {
            float x[N];
            int8_t codes[N];
            int64_t up = 0, rounds = 50;
            for (int i = 0; i < N; i++)
                x[i] = (float)(sign * (41 + parts[p]));
            x[7] = 127;
            for (int64_t r = 0; r < rounds; r++) {
                assert_true(store(codes, x, N, (uint64_t)r) == 1);
                assert_int_equal(codes[7], 127);
                for (int i = 0; i < N; i++) {
                    if (i == 7) continue;
                    assert_true(codes[i] == sign * 41 || codes[i] == sign * 42);
                    up += codes[i] == sign * 42;
                }
            }
            double n = (double)(rounds * (N - 1)), sigma = sqrt(parts[p] * (1 - parts[p]) / n);
            testlib_assert_error(fabs((double)up / n - parts[p]), 5 * sigma + 2e-5,
                                 "rounded away at %g", parts[p]);
        }
    }
}

TEST(codes_depend_on_key_and_index_only)
{
    float x[N];
    int8_t whole[N], part[N], other[N];
    uint64_t key = muon__random_key(1, "w", 7, 3);
    testlib_seed(4);
    testlib_fill_gauss(x, N, 1);
    x[0] = x[700] = 8; /* of both parts, so that they have the same scale */
    float scale = muon__i8_store(whole, x, N, key, 5000);
    assert_true(muon__i8_store(part, x, 700, key, 5000) == scale);
    assert_true(muon__i8_store(part + 700, x + 700, N - 700, key, 5700) == scale);
    assert_memory_equal(whole, part, sizeof whole);
    muon__i8_store(other, x, N, key, 5001);
    assert_memory_not_equal(whole, other, sizeof whole);
    muon__i8_store(other, x, N, key + 1, 5000);
    assert_memory_not_equal(whole, other, sizeof whole);
}

TEST(what_is_not_finite_stays_so_and_zeros_stay_zeros)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    float x[N] = {0}, back[N];
    int8_t codes[N];
    assert_true(store(codes, x, N, 1) == 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(codes[i], 0);
    for (size_t b = 0; b < COUNT(bad); b++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)i;
        x[100] = bad[b];
        float scale = store(codes, x, N, 1);
        muon__i8_load(back, codes, scale, N);
        for (int i = 0; i < N; i++)
            assert_true(!isfinite(back[i]));
    }
    x[100] = 0;
    for (int i = 0; i < N; i++)
        x[i] = 1e-40f;
    assert_true(store(codes, x, N, 1) == 0);
    x[3] = -3.4e38f;
    muon__i8_load(back, codes, store(codes, x, N, 1), N);
    testlib_assert_error(fabs((double)back[3] / -3.4e38 - 1), 1e-6, "the largest");
}
