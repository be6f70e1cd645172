/* test_train_spectrum.c - singular values of matrices that have known ones. */
#include "tests/support/testlib.h"

#include "train/run/spectrum.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *zeros(int64_t count)
{
    float *x = calloc((size_t)count, sizeof *x);
    assert_non_null(x);
    return x;
}

static void check(const float *x, int64_t rows, int64_t cols, const double *want, int count,
                  double tolerance, const char *what)
{
    double got[TRAIN_SPECTRUM_MOST];
    assert_ok(train_singular_values(got, count, x, rows, cols));
    for (int i = 0; i < count; i++)
        testlib_assert_error(fabs(got[i] - want[i]), tolerance * fmax(want[0], DBL_MIN),
                             "%s, value %d: got %.17g, want %.17g", what, i, got[i], want[i]);
}

TEST(a_diagonal_matrix_has_its_diagonal)
{
    static const float diagonal[] = {0.5F, -3, 0, 2, -1e-8F};
    static const double want[] = {3, 2, 0.5, (double)1e-8F, 0};
    static const int64_t shapes[][2] = {{5, 5}, {5, 9}, {9, 5}, {5, 300}};
    for (size_t s = 0; s < COUNT(shapes); s++) {
        float *x = zeros(shapes[s][0] * shapes[s][1]);
        for (int64_t i = 0; i < 5; i++)
            x[i * shapes[s][1] + i] = diagonal[i];
        check(x, shapes[s][0], shapes[s][1], want, 5, 1e-15, "diagonal");
        free(x);
    }
}

TEST(matrices_with_known_values_have_them)
{
    static const struct {
        int64_t rows, cols;
        float x[9];
        int count;
        double want[3];
    } cases[] = {
        {1, 1, {-7}, 1, {7}},
        {1, 1, {0}, 1, {0}},
        {1, 3, {2, -3, 6}, 1, {7}},
        {3, 1, {2, -3, 6}, 1, {7}},
        {2, 2, {3, 0, 4, 5}, 2, {6.708203932499369, 2.23606797749979}}, /* 3 and 1 times sqrt(5) */
        {2, 3, {3, 2, 2, 2, 3, -2}, 2, {5, 3}},
        {3, 3, {0, 0, 1, 1, 0, 0, 0, 1, 0}, 3, {1, 1, 1}},
        {3, 3, {2, 2, 2, 2, 2, 2, 2, 2, 2}, 3, {6, 0, 0}},
        {2, 2, {1e-30F, 0, 0, 1e-38F}, 2, {(double)1e-30F, (double)1e-38F}},
        {2, 2, {3e38F, 0, 0, 3e38F}, 2, {(double)3e38F, (double)3e38F}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char what[32];
        snprintf(what, sizeof what, "case %zu", i);
        check(cases[i].x, cases[i].rows, cases[i].cols, cases[i].want, cases[i].count, 2e-15, what);
    }
}

/* f32 has rounded what testlib made: by about 6e-8 of the largest value, spread over the matrix. */
TEST(chosen_spectra_come_back)
{
    enum { ROWS = 90, COLS = 60 };
    static float x[ROWS * COLS];
    for (int wide = 0; wide < 2; wide++) {
        double want[COLS];
        int64_t rows = wide ? COLS : ROWS, cols = wide ? ROWS : COLS;
        testlib_seed(3);
        for (int i = 0; i < COLS; i++)
            want[i] = pow(1e-8, (double)i / (COLS - 1));
        testlib_fill_spectrum(x, rows, cols, SPECTRUM_DECAY);
        check(x, rows, cols, want, COLS, 3e-7, "decay");
        for (int i = 0; i < COLS; i++)
            want[i] = i < 8;
        testlib_fill_spectrum(x, rows, cols, SPECTRUM_RANK8);
        check(x, rows, cols, want, COLS, 3e-7, "rank 8");
        for (int i = 0; i < COLS; i++)
            want[i] = 1.0 / (i + 1);
        testlib_fill_spectrum(x, rows, cols, SPECTRUM_POWER);
        check(x, rows, cols, want, COLS, 3e-7, "power");
    }
}

/* Powers of two are exact in f32, and reflections of whole numbers nearly so: small values have digits
 * of their own. */
TEST(values_of_1e_minus_8_are_not_noise)
{
    static float x[16 * 16];
    double got[16];
    /* H diag(s) with H = I - 2 v v' / v'v, v all ones: rows mix, values stay. */
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            x[i * 16 + j] = (float)(ldexp(1, -2 * j) * ((i == j) - 0.125));
    assert_ok(train_singular_values(got, 16, x, 16, 16));
    for (int i = 0; i < 16; i++) /* down to 2^-30, about 1e-9 */
        testlib_assert_error(fabs(got[i] / ldexp(1, -2 * i) - 1), 1e-6, "value %d: got %.17g", i,
                             got[i]);
}

TEST(sums_of_squares_agree_with_the_matrix)
{
    static const int64_t shapes[][2] = {{1, 7}, {7, 1}, {33, 20}, {20, 33}, {64, 64}};
    testlib_seed(11);
    for (size_t s = 0; s < COUNT(shapes); s++) {
        int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows < cols ? rows : cols;
        double got[64], squares = 0, want = 0;
        float *x = zeros(rows * cols);
        testlib_fill_gauss(x, rows * cols, 1);
        for (int64_t i = 0; i < rows * cols; i++)
            want += (double)x[i] * (double)x[i];
        assert_ok(train_singular_values(got, (int)n, x, rows, cols));
        for (int64_t i = 0; i < n; i++) {
            squares += got[i] * got[i];
            if (i > 0 && got[i] > got[i - 1]) fail_msg("value %d is not in order", (int)i);
        }
        testlib_assert_error(fabs(squares / want - 1), 1e-13, "%d x %d", (int)rows, (int)cols);
        free(x);
    }
}

TEST(fewer_values_are_spaced_evenly_with_both_ends)
{
    enum { N = 300 };
    float *x = zeros((int64_t)N * N);
    double got[TRAIN_SPECTRUM_MOST];
    for (int i = 0; i < N; i++)
        x[i * N + i] = (float)(N - i);
    assert_ok(train_singular_values(got, 4, x, N, N));
    static const double want[] = {300, 200, 101, 1}; /* 0, 99.67, 199.33, 299 from the top */
    for (int i = 0; i < 4; i++)
        testlib_assert_error(fabs(got[i] - want[i]), 1e-9, "value %d: got %g", i, got[i]);
    assert_ok(train_singular_values(got, 1, x, N, N));
    testlib_assert_error(fabs(got[0] - 300), 1e-9, "the only one");

    train_spectrum s;
    assert_ok(train_spectrum_make(&s, "wide", 7, x, N, N, NULL));
    assert_int_equal(s.count, TRAIN_SPECTRUM_MOST);
    testlib_assert_error(fabs(s.before[0] - 1), 0, "the largest");
    testlib_assert_error(fabs(s.before[s.count - 1] - 1.0 / N), 1e-9, "the smallest");
    train_spectrum_free(&s);
    free(x);
}

/* Five steps of Newton-Schulz take anything above a few thousandths of the norm to about 1. */
TEST(orthogonalization_makes_values_equal)
{
    enum { ROWS = 48, COLS = 96 };
    static float x[ROWS * COLS];
    char name[] = "layers.0.wq";
    train_spectrum s;
    testlib_seed(5);
    testlib_fill_spectrum(x, ROWS, COLS, SPECTRUM_POWER);
    assert_ok(train_spectrum_make(&s, name, 12, x, ROWS, COLS, NULL));
    name[0] = 'X';
    assert_string_equal(s.name, "layers.0.wq"); /* a copy */
    assert_int_equal(s.step, 12);
    assert_int_equal(s.count, ROWS);
    for (int i = 0; i < s.count; i++) {
        testlib_assert_error(fabs(s.before[i] - 1.0 / (i + 1)), 1e-6, "before %d", i);
        testlib_assert_error(fabs(s.after[i] - 1), 0.3, "after %d: %g", i, s.after[i]);
    }
    train_spectrum_free(&s);
    train_spectrum_free(&s);

    memset(x, 0, sizeof x);
    assert_ok(train_spectrum_make(&s, "nothing", 0, x, ROWS, COLS, NULL));
    for (int i = 0; i < s.count; i++)
        assert_true(s.before[i] == 0 && s.after[i] == 0);
    train_spectrum_free(&s);
}

TEST(what_has_no_values_is_refused)
{
    float x[4] = {1, NAN, 0, 1};
    train_spectrum s = {.name = "untouched"};
    assert_fails(train_spectrum_make(&s, "w", 1, x, 2, 2, NULL), MUON_E_NONFINITE, "");
    x[1] = INFINITY;
    assert_fails(train_spectrum_make(&s, "w", 1, x, 2, 2, NULL), MUON_E_NONFINITE, "");
    assert_fails(train_spectrum_make(&s, "w", 1, x, 0, 2, NULL), MUON_E_SHAPE,
                 "w: a matrix of 0 x 2");
    assert_fails(train_spectrum_make(&s, "w", 1, x, 2, -1, NULL), MUON_E_SHAPE, "2 x -1");
    assert_fails(train_spectrum_make(&s, "w", 1, x, INT64_MAX, INT64_MAX, NULL), MUON_E_SHAPE, "w");
    assert_fails(train_spectrum_make(&s, NULL, 1, x, 2, 2, NULL), MUON_E_ARG, "name");
    assert_fails(train_spectrum_make(&s, "w", 1, NULL, 2, 2, NULL), MUON_E_ARG, "matrix");
    assert_string_equal(s.name, "untouched");
}

TEST(without_memory_nothing_is_made_or_lost)
{
    float x[] = {1, 2, 3, 4};
    int64_t k = 0;
    muon_status status = MUON_E_NOMEM;
    train_spectrum s;
    for (; k < 1000 && status != MUON_OK; k++) {
        testlib_allow_allocations(k);
        status = train_spectrum_make(&s, "w", 1, x, 2, 2, NULL);
        testlib_allow_allocations(-1);
        if (status != MUON_OK) assert_int_equal(status, MUON_E_NOMEM);
    }
    assert_int_equal(status, MUON_OK);
    assert_true(k > 4);
    train_spectrum_free(&s);
}
