/* The sum of squares that no order can change. */
#include "tests/support/testlib.h"

#include "base/bf16.h"
#include "base/sumsq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 20000 };

/* Values of all sizes: what makes an ordinary sum depend on its order. */
static float *wild(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(testlib_gauss() * pow(10, 60 * testlib_uniform() - 30));
    return x;
}

static double value_of(const float *x, int64_t n)
{
    sumsq s = {0};
    muon__sumsq_add_f32(&s, x, n);
    return muon__sumsq_value(&s);
}

static void shuffle(float *x, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(testlib_bits() % (uint64_t)(i + 1));
        float t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}

TEST(any_order_gives_the_same_bits)
{
    testlib_seed(1);
    float *x = wild(N);
    double first = value_of(x, N);
    for (int i = 0; i < 20; i++) {
        shuffle(x, N);
        double again = value_of(x, N);
        assert_memory_equal(&first, &again, sizeof first);
    }
    free(x);
}

TEST(any_partition_and_merge_order_gives_the_same_bits)
{
    testlib_seed(2);
    float *x = wild(N);
    double whole = value_of(x, N);
    for (int t = 0; t < 50; t++) {
        sumsq part[7] = {0};
        for (int64_t at = 0; at < N;) {
            int64_t n = 1 + (int64_t)(testlib_bits() % 3000);
            if (n > N - at) n = N - at;
            muon__sumsq_add_f32(&part[testlib_bits() % 7], x + at, n);
            at += n;
        }
        sumsq total = {0};
        for (int i = 0; i < 7; i++)
            muon__sumsq_merge(&total, &part[(i * 3 + t) % 7]);
        double merged = muon__sumsq_value(&total);
        assert_memory_equal(&whole, &merged, sizeof whole);
    }
    free(x);
}

TEST(the_value_agrees_with_long_double)
{
    testlib_seed(3);
    static const double scales[] = {1e-38, 1e-30, 1e-20, 1e-3, 1, 1e10, 1e30, 1e37};
    for (size_t s = 0; s < COUNT(scales); s++) {
        float x[N];
        long double want = 0;
        for (int i = 0; i < N; i++) {
            x[i] = (float)(scales[s] * testlib_gauss());
            want += (long double)x[i] * (long double)x[i];
        }
        double got = value_of(x, N);
        testlib_assert_error((double)fabsl((long double)got / want - 1), 1e-11, "scale %g",
                             scales[s]);
    }
}

TEST(single_elements_are_exact)
{
    static const float values[] = {0,       1,       -3,     0.1f,  1e-45f,
                                   -1e-40f, 3.4e38f, 1e-20f, 65504, 1.1754944e-38f};
    for (size_t i = 0; i < COUNT(values); i++) {
        double want = (double)values[i] * (double)values[i];
        double got = value_of(&values[i], 1);
        testlib_assert_error(fabs(got - want), want * 1e-12, "%g squared", (double)values[i]);
    }
    assert_true(value_of(values, 0) == 0);
}

TEST(long_sums_of_the_largest_floats_do_not_overflow)
{
    static float x[1 << 16];
    for (size_t i = 0; i < COUNT(x); i++)
        x[i] = 3.4e38f;
    sumsq s = {0};
    for (int i = 0; i < 512; i++)
        muon__sumsq_add_f32(&s, x, COUNT(x));
    double want = 512.0 * COUNT(x) * (double)x[0] * (double)x[0];
    testlib_assert_error(fabs(muon__sumsq_value(&s) / want - 1), 1e-12, "33 million of 3.4e38");
}

TEST(one_nan_or_infinity_is_found_anywhere)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < COUNT(bad); b++) {
        for (int at = 0; at < 37; at++) {
            float x[37] = {1, 2, 3};
            x[at] = bad[b];
            sumsq s = {0};
            muon__sumsq_add_f32(&s, x, 37);
            assert_false(muon__sumsq_finite(&s));
            assert_true(isnan(muon__sumsq_value(&s)));
            sumsq other = {0};
            muon__sumsq_merge(&other, &s);
            assert_false(muon__sumsq_finite(&other));
        }
    }
}

TEST(bf16_counts_like_the_floats_it_stands_for)
{
    testlib_seed(4);
    static float x[5001];
    static uint16_t narrow[5001];
    testlib_fill_gauss(x, 5001, 1e-3);
    muon__bf16_store(narrow, x, 5001);
    muon__bf16_load(x, narrow, 5001);
    sumsq s = {0};
    muon__sumsq_add_bf16(&s, narrow, 5001);
    double want = value_of(x, 5001), got = muon__sumsq_value(&s);
    assert_memory_equal(&want, &got, sizeof want);
}

TEST(threads_share_a_sum_without_changing_it)
{
    testlib_seed(5);
    int64_t n = 64 * 8192 + 123;
    float *x = wild(n);
    double want = value_of(x, n);
    for (int threads = 1; threads <= 4; threads++) {
        pool *p = NULL;
        assert_ok(muon__pool_create(&p, threads));
        sumsq s = {0};
        muon__sumsq_add_shared(&s, x, n, p);
        double got = muon__sumsq_value(&s);
        assert_memory_equal(&want, &got, sizeof want);
        muon__pool_destroy(p);
    }
    free(x);
}
