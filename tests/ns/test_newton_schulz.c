/* The orthogonalization, through the public API: every algorithm and coefficient set against fp64, on
 * easy and hard spectra. The bounds are the ones docs/numerics.md promises. */
#include "tests/support/testlib.h"

#include "ns/coefficients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const backends[] = {
    "reference",
#ifdef MUON_HAVE_BLIS
    "blis",
#endif
#ifdef MUON_HAVE_CBLAS
    "cblas",
#endif
};

static const char *const sets[] = {"you",         "original",        "polar_express", "cans",
                                   "deepseek_v4", "polar_express_8", "aol",           "cubic5"};
static const char *const norms[] = {"frobenius", "schatten4", "aol"};

static muon_group settings(const char *set, int steps, muon_algorithm algorithm)
{
    muon_group g;
    muon_group_init(&g, sizeof g);
    assert_ok(muon_group_set(&g, "coefficients", set));
    g.ns_steps = steps;
    g.algorithm = algorithm;
    return g;
}

static void run(float *out, const float *x, int64_t rows, int64_t cols, const muon_group *g,
                const char *backend, int threads)
{
    muon_ortho *ortho = NULL;
    assert_ok(muon_ortho_create(&ortho, 1, rows, cols, g, threads, backend));
    assert_ok(muon_ortho_run(ortho, out, x));
    muon_ortho_destroy(ortho);
}

/* Errors of all algorithms against the oracle, for each backend. */
static void errors_with(double error[][4], const float *x, int64_t rows, int64_t cols, muon_group g)
{
    int64_t n = rows * cols;
    float *y = malloc((size_t)n * sizeof *y);
    double *want = malloc((size_t)n * sizeof *want);
    assert_true(y && want);
    ns_steps list;
    assert_ok(muon__ns_steps_make(&list, &g));
    testlib_newton_schulz(want, x, rows, cols, (const double(*)[3])list.abc, list.count,
                          list.norm_scale, &g);
    for (size_t b = 0; b < COUNT(backends); b++) {
        for (int a = MUON_ALGORITHM_AUTO; a <= MUON_ALGORITHM_GRAM; a++) {
            g.algorithm = (muon_algorithm)a;
            run(y, x, rows, cols, &g, backends[b], 1);
            error[b][a] = testlib_relative_error(y, want, n);
        }
    }
    free(y);
    free(want);
}

static void errors_of(double error[][4], const float *x, int64_t rows, int64_t cols,
                      const char *set, int steps)
{
    errors_with(error, x, rows, cols, settings(set, steps, MUON_ALGORITHM_AUTO));
}

/* Norms of XX' leave a larger one, and larger rounding errors with it: `factor`. */
static double promised(spectrum s, int steps, double factor)
{
    if (steps > 5) return 2e-2;
    if (s == SPECTRUM_GAUSSIAN) return factor * 2e-5;
    return factor * (s == SPECTRUM_SPIKE_1E6 ? 1e-2 : 2e-3);
}

static const int64_t shapes[][2] = {{48, 96}, {96, 48}, {64, 64}, {20, 400}, {90, 100}, {33, 40}};

static void check(const float *x, int64_t rows, int64_t cols, spectrum s, const char *set,
                  int steps, const char *norm)
{
    muon_group g = settings(set, steps, MUON_ALGORITHM_AUTO);
    assert_ok(muon_group_set(&g, "normalization", norm));
    ns_steps list;
    assert_ok(muon__ns_steps_make(&list, &g));
    int count = list.count;
    double factor = g.normalization == MUON_NORM_FROBENIUS ? 1 : 3;
    double error[COUNT(backends)][4];
    errors_with(error, x, rows, cols, g);
    for (size_t b = 0; b < COUNT(backends); b++) {
        double standard = error[b][MUON_ALGORITHM_STANDARD];
        for (int a = MUON_ALGORITHM_AUTO; a <= MUON_ALGORITHM_GRAM; a++)
            testlib_assert_error(error[b][a], fmax(promised(s, count, factor), 3 * standard),
                                 "%s %s by %s, %d steps, %lldx%lld, %s, algorithm %d", backends[b],
                                 set, norm, count, (long long)rows, (long long)cols,
                                 testlib_spectrum_name(s), a);
        /* And standard itself is near fp64, not only near the others. A long list made by cycling
         * does not settle on tiny singular values, but stays bounded. */
        testlib_assert_error(standard, steps ? 0.5 : 2e-2, "%s %s by %s, %s, standard", backends[b],
                             set, norm, testlib_spectrum_name(s));
    }
}

static void check_all(int first, int last, size_t nshapes, const char *norm)
{
    for (int s = 0; s < NSPECTRA; s++) {
        for (size_t i = 0; i < nshapes; i++) {
            if (testlib_quick() && (i + (size_t)s) % 3) continue;
            int64_t rows = shapes[i][0], cols = shapes[i][1];
            float x[100 * 100];
            testlib_seed(1000 * (uint64_t)s + i);
            testlib_fill_spectrum(x, rows, cols, (spectrum)s);
            for (size_t set = 0; set < COUNT(sets) - (first > 5); set++) /* no more of cubic5 */
                for (int steps = first; steps <= last; steps += 2)
                    check(x, rows, cols, (spectrum)s, sets[set], steps, norm);
        }
    }
}

/* N9 */
TEST(every_set_and_algorithm_agrees_with_fp64_on_every_spectrum)
{
    check_all(0, 0, COUNT(shapes), "frobenius");
}

TEST(matrices_with_few_rows_are_as_good_whatever_their_elements)
{
    static const int64_t few[][2] = {{8, 300}, {20, 100}, {20, 400}, {32, 480}, {48, 480}};
    static float x[48 * 480];
    static const spectrum hard[] = {SPECTRUM_SPIKE_1E3, SPECTRUM_DECAY};
    for (size_t i = 0; i < COUNT(few); i++)
        for (size_t s = 0; s < COUNT(hard); s++)
            for (uint64_t seed = 0; seed < 12; seed++) {
                testlib_seed(77 * seed + 5);
                testlib_fill_spectrum(x, few[i][0], few[i][1], hard[s]);
                check(x, few[i][0], few[i][1], hard[s], "you", 0, "frobenius");
            }
}

TEST(lists_of_6_to_12_steps_stay_near_fp64_and_never_grow)
{
    check_all(6, 12, 2, "frobenius");
}

TEST(every_norm_agrees_with_fp64_on_every_spectrum)
{
    check_all(0, 0, COUNT(shapes), "schatten4");
    check_all(0, 0, COUNT(shapes), "aol");
}

TEST(norm_scale_and_eps_apply_to_every_norm)
{
    for (size_t i = 0; i < COUNT(norms) * 3; i++) {
        float x[20 * 50];
        testlib_seed(i);
        testlib_fill_gauss(x, 20 * 50, 0.3);
        muon_group g = settings("you", 0, MUON_ALGORITHM_AUTO);
        assert_ok(muon_group_set(&g, "normalization", norms[i / 3]));
        g.norm_scale = 1.25;
        g.ns_eps =
            i % 3 == MUON_EPS_CLAMP ? 20 : 0.5; /* so large that a wrong place for it shows */
        g.eps_mode = (muon_eps_mode)(i % 3);
        double error[COUNT(backends)][4];
        errors_with(error, x, i % 2 ? 20 : 50, i % 2 ? 50 : 20, g);
        for (size_t b = 0; b < COUNT(backends); b++)
            for (int a = 0; a < 4; a++)
                testlib_assert_error(error[b][a], 2e-5, "%s by %s, eps_mode %d, algorithm %d",
                                     backends[b], norms[i / 3], (int)g.eps_mode, a);
    }
}

/* Ten steps end within 3e-3 of the polar factor, from whichever norm. By rows they end at an orthogonal
 * matrix, too, but another one. */
TEST(schatten4_has_the_limit_of_frobenius_and_aol_has_not)
{
    enum { ROWS = 24, COLS = 40, SIZE = ROWS * COLS };
    float x[SIZE], y[SIZE];
    double limit[SIZE];
    testlib_seed(9);
    testlib_fill_gauss(x, SIZE, 1);
    for (int j = 0; j < COLS; j++)
        x[j] *= 30;
    for (size_t i = 0; i < COUNT(norms); i++) {
        muon_group g = settings("deepseek_v4", 0, MUON_ALGORITHM_AUTO);
        assert_ok(muon_group_set(&g, "normalization", norms[i]));
        run(y, x, ROWS, COLS, &g, NULL, 1);
        for (int j = 0; i == 0 && j < SIZE; j++)
            limit[j] = (double)y[j];
        double error = testlib_relative_error(y, limit, SIZE), off = 0;
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < ROWS; c++) {
                double product = r == c ? -1 : 0;
                for (int k = 0; k < COLS; k++)
                    product += (double)y[r * COLS + k] * (double)y[c * COLS + k];
                off = fmax(off, fabs(product));
            }
        testlib_assert_error(off, 1e-2, "%s: O O' - I", norms[i]);
        if (i == MUON_NORM_AOL)
            assert_true(error > 0.05);
        else
            testlib_assert_error(error, 5e-3, "%s", norms[i]);
    }
}

/* Sizes at which products have several tiles. */
TEST(large_matrices_agree_with_fp64)
{
    static const int64_t large[][2] = {{330, 400}, {500, 340}};
    for (size_t i = 0; i < (testlib_quick() ? 1 : COUNT(large)); i++) {
        int64_t n = large[i][0] * large[i][1];
        float *x = malloc((size_t)n * sizeof *x);
        assert_non_null(x);
        testlib_seed(i);
        testlib_fill_gauss(x, n, 1);
        double error[COUNT(backends)][4];
        errors_of(error, x, large[i][0], large[i][1], "you", 0);
        for (size_t b = 0; b < COUNT(backends); b++)
            for (int a = 0; a < 4; a++)
                testlib_assert_error(error[b][a], 2e-5, "%s algorithm %d", backends[b], a);
        free(x);
    }
}

/* N9 */
TEST(gram_agrees_with_standard_over_aspects_1_to_64)
{
    for (int64_t aspect = 1; aspect <= 64; aspect *= 2) {
        float x[24 * 24 * 64];
        testlib_seed((uint64_t)aspect);
        testlib_fill_gauss(x, 24 * 24 * aspect, 1);
        double error[COUNT(backends)][4];
        errors_of(error, x, 24, 24 * aspect, "you", 0);
        for (size_t b = 0; b < COUNT(backends); b++)
            testlib_assert_error(error[b][MUON_ALGORITHM_GRAM], 2e-5, "%s aspect %lld", backends[b],
                                 (long long)aspect);
    }
}

/* N1 */
static void check_scales(const char *norm)
{
    enum { ROWS = 24, COLS = 40, SIZE = ROWS * COLS };
    static const double scales[] = {1e-37, 1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30, 1e37};
    float x[SIZE], y[SIZE], first[SIZE];
    testlib_seed(3);
    testlib_fill_gauss(x, SIZE, 1);
    muon_group g = settings("you", 0, MUON_ALGORITHM_AUTO);
    assert_ok(muon_group_set(&g, "normalization", norm));
    run(first, x, ROWS, COLS, &g, NULL, 1);
    double want[SIZE];
    for (int i = 0; i < SIZE; i++)
        want[i] = (double)first[i];
    for (size_t s = 0; s < COUNT(scales); s++) {
        float scaled[SIZE];
        for (int i = 0; i < SIZE; i++)
            scaled[i] = (float)((double)x[i] * scales[s]);
        run(y, scaled, ROWS, COLS, &g, NULL, 1);
        testlib_assert_error(testlib_relative_error(y, want, SIZE), 2e-5, "%s, scale %g", norm,
                             scales[s]);
    }
    /* Powers of two are exact, and so is the result. */
    for (int e = -60; e <= 60; e += 30) {
        float scaled[SIZE];
        for (int i = 0; i < SIZE; i++)
            scaled[i] = ldexpf(x[i], e);
        run(y, scaled, ROWS, COLS, &g, NULL, 1);
        assert_memory_equal(y, first, sizeof y);
    }
}

TEST(scaling_the_input_changes_nothing_beyond_rounding)
{
    for (size_t i = 0; i < COUNT(norms); i++)
        check_scales(norms[i]);
}

/* Rows, and a whole matrix, that f32 could not square. */
TEST(tiny_and_huge_rows_of_one_matrix_are_fine_with_every_norm)
{
    enum { ROWS = 12, COLS = 30, SIZE = ROWS * COLS };
    for (size_t i = 0; i < COUNT(norms) * 4; i++) {
        float x[SIZE];
        testlib_seed(i);
        testlib_fill_gauss(x, SIZE, i % 2 ? 1e30 : 1e-20);
        for (int j = 0; j < COLS; j++) {
            x[j] *= 1e-8f;
            x[COLS + j] = 0;
        }
        muon_group g = settings("polar_express", 0, MUON_ALGORITHM_AUTO);
        assert_ok(muon_group_set(&g, "normalization", norms[i / 4]));
        g.algorithm = i & 2 ? MUON_ALGORITHM_STANDARD : MUON_ALGORITHM_SYMMETRIC;
        double error[COUNT(backends)][4];
        errors_with(error, x, ROWS, COLS, g);
        for (size_t b = 0; b < COUNT(backends); b++)
            testlib_assert_error(error[b][g.algorithm], 1e-4, "%s by %s", backends[b],
                                 norms[i / 4]);
    }
}

/* N2 */
TEST(zero_gives_zero)
{
    static const muon_eps_mode modes[] = {MUON_EPS_RELATIVE, MUON_EPS_ADD, MUON_EPS_CLAMP};
    for (size_t i = 0; i < COUNT(modes) * COUNT(norms); i++) {
        for (int eps = 0; eps < 2; eps++) {
            float x[12] = {0}, y[12];
            memset(y, 0xff, sizeof y);
            muon_group g = settings("you", 0, MUON_ALGORITHM_AUTO);
            g.eps_mode = modes[i % 3];
            g.ns_eps = eps * 1e-7;
            assert_ok(muon_group_set(&g, "normalization", norms[i / 3]));
            run(y, x, 3, 4, &g, NULL, 1);
            for (int j = 0; j < 12; j++)
                assert_true(y[j] == 0);
        }
    }
}

static double compose(const ns_steps *list, double s)
{
    for (int k = 0; k < list->count; k++)
        s *= list->abc[k][0] + list->abc[k][1] * s * s + list->abc[k][2] * s * s * s * s;
    return s;
}

/* N7: what a vector of any scale becomes is known exactly: its direction times the composed quintic at
 * 1. Some sets are steep there, so the bound is what a few roundings of the norm can do. */
TEST(vectors_and_single_elements_become_unit_length_times_the_composed_quintic)
{
    static const int64_t thin[][2] = {{1, 1}, {1, 50}, {50, 1}, {1, 1000}};
    for (size_t set = 0; set < COUNT(sets) * COUNT(norms); set++) {
        muon_group g = settings(sets[set / 3], 0, MUON_ALGORITHM_AUTO);
        assert_ok(muon_group_set(&g, "normalization", norms[set % 3]));
        ns_steps list;
        assert_ok(muon__ns_steps_make(&list, &g));
        double one = 1 / list.norm_scale;
        double s = compose(&list, one);
        double bound = 1e-6 + 10 * fabs(compose(&list, one * (1 + 6e-8)) / s - 1);
        for (size_t i = 0; i < COUNT(thin); i++) {
            int64_t n = thin[i][0] * thin[i][1];
            float x[1000], y[1000];
            testlib_seed(i);
            testlib_fill_gauss(x, n, 5);
            run(y, x, thin[i][0], thin[i][1], &g, NULL, 1);
            double norm = 0, want[1000];
            for (int64_t j = 0; j < n; j++)
                norm += (double)x[j] * (double)x[j];
            for (int64_t j = 0; j < n; j++)
                want[j] = s * (double)x[j] / sqrt(norm);
            testlib_assert_error(testlib_relative_error(y, want, n), bound, "%s %lldx%lld",
                                 sets[set / 3], (long long)thin[i][0], (long long)thin[i][1]);
        }
    }
}

/* N8 */
TEST(the_transpose_gives_the_transpose)
{
    enum { ROWS = 30, COLS = 50, SIZE = ROWS * COLS };
    for (int k = 0; k < 9; k++) {
        int a = MUON_ALGORITHM_STANDARD + k / 3;
        float x[SIZE], t[SIZE], y[SIZE], z[SIZE];
        testlib_seed(4);
        testlib_fill_gauss(x, SIZE, 1);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++)
                t[j * ROWS + i] = x[i * COLS + j];
        muon_group g = settings("you", 0, (muon_algorithm)a);
        assert_ok(muon_group_set(&g, "normalization", norms[k % 3]));
        run(y, x, ROWS, COLS, &g, NULL, 1);
        run(z, t, COLS, ROWS, &g, NULL, 1);
        double want[SIZE];
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++)
                want[j * ROWS + i] = (double)y[i * COLS + j];
        testlib_assert_error(testlib_relative_error(z, want, SIZE), 1e-5, "algorithm %d by %s", a,
                             norms[k % 3]);
    }
}

/* N10: singular values of O from the eigenvalues of O O', by Jacobi rotations. */
static void jacobi(double *a, int n)
{
    for (int sweep = 0; sweep < 60; sweep++) {
        for (int p = 0; p < n; p++) {
            for (int q = p + 1; q < n; q++) {
                if (fabs(a[p * n + q]) < 1e-300) continue;
                double theta = 0.5 * atan2(2 * a[p * n + q], a[q * n + q] - a[p * n + p]);
                double c = cos(theta), s = sin(theta);
                for (int k = 0; k < n; k++) {
                    double u = a[p * n + k], v = a[q * n + k];
                    a[p * n + k] = c * u - s * v;
                    a[q * n + k] = s * u + c * v;
                }
                for (int k = 0; k < n; k++) {
                    double u = a[k * n + p], v = a[k * n + q];
                    a[k * n + p] = c * u - s * v;
                    a[k * n + q] = s * u + c * v;
                }
            }
        }
    }
}

TEST(singular_values_end_in_the_band_of_the_set)
{
    enum { M = 16, N = 64 };
    static const struct {
        const char *set;
        double low, high;
        const char *norm;
    } bands[] = {{"you", 0.9, 1.15, "frobenius"},
                 {"original", 0.68, 1.21, "frobenius"},
                 {"polar_express", 0.85, 1.15, "frobenius"},
                 {"cans", 0.88, 1.13, "frobenius"},
                 {"deepseek_v4", 0.999, 1.003, "frobenius"},
                 {"polar_express_8", 0.999, 1.001, "frobenius"},
                 {"cubic5", 0.77, 1.31, "frobenius"},
                 {"aol", 0.7, 1.3, "aol"},
                 {"you", 0.9, 1.15, "schatten4"},
                 {"polar_express", 0.85, 1.15, "aol"}};
    for (size_t i = 0; i < COUNT(bands); i++) {
        float x[M * N], y[M * N];
        double gram[M * M];
        testlib_seed(5);
        testlib_fill_gauss(x, M * N, 1);
        muon_group g = settings(bands[i].set, 0, MUON_ALGORITHM_AUTO);
        assert_ok(muon_group_set(&g, "normalization", bands[i].norm));
        run(y, x, M, N, &g, NULL, 1);
        for (int r = 0; r < M; r++)
            for (int c = 0; c < M; c++) {
                gram[r * M + c] = 0;
                for (int k = 0; k < N; k++)
                    gram[r * M + c] += (double)y[r * N + k] * (double)y[c * N + k];
            }
        jacobi(gram, M);
        for (int k = 0; k < M; k++) {
            double s = sqrt(gram[k * M + k]);
            if (!(s >= bands[i].low && s <= bands[i].high))
                fail_msg("%s by %s: singular value %g is outside %g..%g", bands[i].set,
                         bands[i].norm, s, bands[i].low, bands[i].high);
        }
    }
}

/* N12 */
TEST(threads_do_not_change_a_bit)
{
    static const int64_t cases[][3] = {{1, 420, 500}, {1, 700, 340}, {9, 40, 60}, {3, 330, 330}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t n = cases[i][0] * cases[i][1] * cases[i][2];
        float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
        float *first = malloc((size_t)n * sizeof *first);
        assert_true(x && y && first);
        testlib_seed(i);
        testlib_fill_gauss(x, n, 1);
        for (int a = MUON_ALGORITHM_STANDARD; a <= MUON_ALGORITHM_GRAM; a++) {
            muon_group g = settings("you", 0, (muon_algorithm)a);
            g.normalization = (muon_normalization)(((size_t)a + i) % 3);
            for (int threads = 1; threads <= 3; threads++) {
                muon_ortho *ortho = NULL;
                assert_ok(muon_ortho_create(&ortho, cases[i][0], cases[i][1], cases[i][2], &g,
                                            threads, NULL));
                assert_ok(muon_ortho_run(ortho, threads == 1 ? first : y, x));
                if (threads > 1) assert_memory_equal(first, y, (size_t)n * sizeof *y);
                muon_ortho_destroy(ortho);
            }
        }
        free(x);
        free(y);
        free(first);
    }
}

TEST(a_batch_gives_each_matrix_what_it_gets_alone)
{
    enum { BATCH = 7, ROWS = 12, COLS = 20, EACH = ROWS * COLS };
    float x[BATCH * EACH], y[BATCH * EACH], alone[EACH];
    testlib_seed(6);
    for (int b = 0; b < BATCH; b++)
        testlib_fill_gauss(x + b * EACH, EACH, pow(10, b - 3));
    for (size_t i = 0; i < COUNT(norms); i++) {
        muon_group g = settings("you", 0, MUON_ALGORITHM_AUTO);
        assert_ok(muon_group_set(&g, "normalization", norms[i]));
        muon_ortho *ortho = NULL;
        assert_ok(muon_ortho_create(&ortho, BATCH, ROWS, COLS, &g, 2, NULL));
        assert_ok(muon_ortho_run(ortho, y, x));
        muon_ortho_destroy(ortho);
        for (int b = 0; b < BATCH; b++) {
            run(alone, x + b * EACH, ROWS, COLS, &g, NULL, 1);
            assert_memory_equal(y + b * EACH, alone, sizeof alone);
        }
    }
}

TEST(nan_and_infinity_are_refused_and_nothing_is_written)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    muon_ortho *ortho = NULL;
    assert_ok(muon_ortho_create(&ortho, 2, 3, 4, NULL, 1, NULL));
    for (size_t i = 0; i < COUNT(bad); i++) {
        float x[24], y[24], before[24];
        testlib_fill_gauss(x, 24, 1);
        testlib_fill_gauss(y, 24, 1);
        memcpy(before, y, sizeof y);
        x[17] = bad[i];
        assert_fails(muon_ortho_run(ortho, y, x), MUON_E_NONFINITE, "matrix 1 of 2");
        assert_memory_equal(y, before, sizeof y);
    }
    muon_ortho_destroy(ortho);
}

TEST(bad_shapes_and_settings_are_refused)
{
    muon_ortho *ortho = NULL;
    assert_fails(muon_ortho_create(&ortho, 0, 3, 4, NULL, 1, NULL), MUON_E_SHAPE,
                 "0 matrices of 3 x 4");
    assert_fails(muon_ortho_create(&ortho, 1, -3, 4, NULL, 1, NULL), MUON_E_SHAPE, "-3 x 4");
    assert_fails(muon_ortho_create(&ortho, 1, INT64_MAX, 4, NULL, 1, NULL), MUON_E_SHAPE,
                 "have more than");
    assert_fails(muon_ortho_create(&ortho, INT64_MAX, 1, 1, NULL, 1, NULL), MUON_E_SHAPE,
                 "have more than");
    assert_fails(muon_ortho_create(&ortho, 1, 1, 1, NULL, -1, NULL), MUON_E_VALUE, "threads is -1");
    assert_fails(muon_ortho_create(&ortho, 1, 1, 1, NULL, 1, "mkl"), MUON_E_NAME, "mkl");
    assert_fails(muon_ortho_create(NULL, 1, 1, 1, NULL, 1, NULL), MUON_E_ARG, "out");
    muon_group g = settings("you", 0, MUON_ALGORITHM_AUTO);
    g.ns_eps = (double)NAN;
    assert_fails(muon_ortho_create(&ortho, 1, 1, 1, &g, 1, NULL), MUON_E_VALUE, "ns_eps");
    assert_null(ortho);
    assert_fails(muon_ortho_run(NULL, NULL, NULL), MUON_E_ARG, "ortho");
    muon_ortho_destroy(NULL);
}

TEST(auto_takes_the_cheapest_algorithm)
{
    static const int64_t cases[][2] = {{64, 64}, {64, 256}, {1000, 70}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        double flops[4];
        for (int a = 0; a < 4; a++) {
            muon_group g = settings("you", 0, (muon_algorithm)a);
            muon_ortho *ortho = NULL;
            assert_ok(muon_ortho_create(&ortho, 1, cases[i][0], cases[i][1], &g, 1, NULL));
            flops[a] = muon_ortho_get_flops(ortho);
            muon_ortho_destroy(ortho);
        }
        double m = fmin((double)cases[i][0], (double)cases[i][1]);
        double n = fmax((double)cases[i][0], (double)cases[i][1]);
        assert_true(flops[MUON_ALGORITHM_STANDARD] == 20 * m * m * n + 10 * m * m * m);
        assert_true(flops[MUON_ALGORITHM_SYMMETRIC] == 15 * m * m * n + 5 * m * m * m);
        assert_true(flops[MUON_ALGORITHM_GRAM] == 3 * m * m * n + 17 * m * m * m);
        assert_true(flops[MUON_ALGORITHM_AUTO] == fmin(flops[2], flops[3]));
    }
}

TEST(cubic_steps_do_not_pay_for_a_square)
{
    static const double want[] = {0, 20 * 64 * 64 * 256, 15 * 64 * 64 * 256,
                                  3 * 64 * 64 * 256 + 12 * 64 * 64 * 64};
    for (int a = MUON_ALGORITHM_STANDARD; a <= MUON_ALGORITHM_GRAM; a++) {
        muon_group g = settings("cubic5", 0, (muon_algorithm)a);
        muon_ortho *ortho = NULL;
        assert_ok(muon_ortho_create(&ortho, 1, 64, 256, &g, 1, NULL));
        assert_true(muon_ortho_get_flops(ortho) == want[a]);
        muon_ortho_destroy(ortho);
    }
}
