/* Operands in panels, and products made of them with the kernels of the BLIS that is here, whichever. */
#include "tests/support/testlib.h"

#include "la/blis_panels.h"
#include "la/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 1100, DEPTH = 800 };

TEST(panels_have_every_element_and_zeros_behind_the_last_row)
{
    static float x[70 * 90], panels[96 * 90];
    static const int64_t widths[] = {1, 3, 4, 6, 12, 16, 32}, rows[] = {1, 5, 32, 64, 67},
                         depths[] = {1, 4, 7, 8, 19, 90};
    testlib_fill_gauss(x, 70 * 90, 1);
    for (size_t w = 0; w < COUNT(widths); w++) {
        for (size_t i = 0; i < COUNT(rows) * COUNT(depths) * 3; i++) {
            int64_t width = widths[w], m = rows[i % COUNT(rows)];
            int64_t k = depths[i / COUNT(rows) % COUNT(depths)];
            size_t kind =
                i / COUNT(rows) / COUNT(depths); /* rows, columns, or neither is contiguous */
            int64_t rs = kind == 0 ? 90 : 1, cs = kind == 0 ? 1 : 70;
            if (kind == 2) rs = cs = 2, m = m < 30 ? m : 30;
            memset(panels, 0x7f, sizeof panels);
            muon__pack(panels, width, x, rs, cs, m, k);
            int64_t all = (m + width - 1) / width * width;
            for (int64_t row = 0; row < all; row++) {
                for (int64_t l = 0; l < k; l++) {
                    float got = panels[row / width * width * k + l * width + row % width];
                    assert_true(got == (row < m ? x[row * rs + l * cs] : 0.0f));
                }
            }
            if (all * k < 96 * 90) assert_true(panels[all * k] > 1e38f); /* not touched */
        }
    }
}

#ifdef MUON_HAVE_BLIS

static float *values(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    testlib_seed(seed);
    testlib_fill_gauss(x, n, 1);
    return x;
}

/* Against sums in double: c = alpha a b + beta c, where it is wanted. */
static void check(int64_t m, int64_t n, int64_t k, int turned, float beta, int lower)
{
    float *a = values(m * k, 3), *b = values(k * n, 4), *before = values(m * n, 5);
    float *c = malloc((size_t)(m * n) * sizeof *c);
    assert_non_null(c);
    memcpy(c, before, (size_t)(m * n) * sizeof *c);
    if (beta == 0.0f) c[0] = NAN; /* nobody reads it */
    blis_matrix left = turned & 1 ? (blis_matrix){a, 1, m} : (blis_matrix){a, k, 1};
    blis_matrix right = turned & 2 ? (blis_matrix){b, 1, k} : (blis_matrix){b, n, 1};
    muon__panels_multiply(m, n, k, 0.5f, left, right, beta, c, n, lower);
    for (int64_t i = 0; i < m; i += 1 + m / 40) {
        for (int64_t j = 0; j < (lower ? i + 1 : n); j += 1 + n / 50) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)left.data[i * left.rs + l * left.cs] *
                       (double)right.data[l * right.rs + j * right.cs];
            double want = 0.5 * sum + (beta == 0.0f ? 0 : (double)(beta * before[i * n + j]));
            assert_true(fabs((double)c[i * n + j] - want) < 1e-5 * sqrt((double)k + 1));
        }
    }
    free(a);
    free(b);
    free(c);
    free(before);
}

TEST(memory_that_is_missing_is_heard_of_when_it_is_reserved)
{
    for (int at = 1; at <= 3; at++) {
        int64_t before = testlib_allocations();
        testlib_fail_allocation(at);
        assert_fails(muon__panels_reserve(3), MUON_E_NOMEM, "packed operands: no memory for ");
        assert_int_equal(testlib_allocations() - before, at);
    }
    assert_ok(muon__panels_reserve(3)); /* nothing of what failed is in the way */
    muon__panels_release(3);
    int64_t before = testlib_allocations();
    assert_ok(muon__panels_reserve(2));
    muon__panels_release(2);
    assert_int_equal(testlib_allocations() - before, 2); /* what was given back has been freed */
}

TEST(products_agree_with_sums_in_double)
{
    static const int64_t sizes[][3] = {
        {1, 1, 1},      {5, 7, 3},        {32, 12, 8},    {33, 13, 385}, {64, ROWS, 20},
        {ROWS, 40, 33}, {97, 520, DEPTH}, {600, 50, 300}, {31, 100, 1},  {40, 40, 0}};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int turned = 0; turned < 4; turned++)
            for (int beta = 0; beta < 2; beta++)
                check(sizes[i][0], sizes[i][1], sizes[i][2], turned, (float)beta * 0.25f, 0);
}

TEST(without_memory_a_product_that_nobody_reserved_is_right)
{
    muon__panels_release(1);
    int64_t before = testlib_allocations();
    testlib_fail_allocation(5); /* the first four are the test's own */
    check(70, 80, 90, 0, 0, 0);
    assert_int_equal(testlib_allocations() - before, 5);
    check(70, 80, 90, 0, 0, 0);
    assert_int_equal(testlib_allocations() - before, 10);
    assert_ok(muon__panels_reserve(1));
}

TEST(triangles_have_all_on_and_below_the_diagonal)
{
    static const int64_t sizes[] = {1, 11, 32, 50, 96, 192, 530};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int turned = 0; turned < 4; turned++)
            check(sizes[i], sizes[i], 70, turned, 0, 1);
}

static void before_all(void)
{
    assert_ok(muon__blis_check());
    assert_ok(muon__panels_reserve(1));
}

static void after_all(void)
{
    muon__panels_release(1);
}

AROUND_ALL(before_all, after_all)

#endif
