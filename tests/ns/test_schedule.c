/* test_schedule.c - muon_group_get_schedule: whoever follows its formulas gets what muon_ortho_run gives. */
#include "muon/route.h"
#include "tests/support/testlib.h"

#include "ns/newton_schulz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static muon_schedule schedule_of(const muon_group *g, int64_t rows, int64_t cols, int transposed)
{
    muon_schedule s;
    assert_ok(muon_group_get_schedule(g, rows, cols, transposed, &s, sizeof s));
    return s;
}

/* ---- The header's formulas, word by word, in fp64 */

static double *doubles(int64_t n)
{
    double *made = calloc((size_t)n, sizeof *made);
    assert_non_null(made);
    return made;
}

/* to = a b for a[m][k] and b[k][n]; `by`: b is given as its transpose. */
static void multiply(double *to, const double *a, const double *b, int64_t m, int64_t k, int64_t n,
                     int by)
{
    double *product = doubles(m * n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < k; l++)
                product[i * n + j] += a[i * k + l] * (by ? b[j * k + l] : b[l * n + j]);
    memcpy(to, product, (size_t)(m * n) * sizeof *to);
    free(product);
}

static void make_w(double *w, const double *r, int64_t m, const double *abc)
{
    multiply(w, r, r, m, m, m, 0);
    for (int64_t i = 0; i < m * m; i++)
        w[i] = abc[2] * w[i] + abc[1] * r[i] + (i / m == i % m ? abc[0] : 0);
}

static void iterate(double *x, int64_t m, int64_t n, const muon_schedule *s)
{
    double *q = doubles(m * m), *r = doubles(m * m), *w = doubles(m * m);
    int64_t last = s->steps - 1;
    for (int64_t k = 0; k <= last; k++) {
        int gram = s->algorithm == MUON_ALGORITHM_GRAM;
        int fresh = k == 0 || s->restart[k] || !gram;
        if (k > 0 && fresh) multiply(x, q, x, m, m, n, 0);
        if (fresh) multiply(r, x, x, m, n, m, 1);
        make_w(w, r, m, s->abc[k]);
        if (fresh)
            memcpy(q, w, (size_t)(m * m) * sizeof *q);
        else
            multiply(q, q, w, m, m, m, 0);
        if (k == last || s->restart[k + 1]) continue;
        multiply(r, r, w, m, m, m, 0);
        multiply(r, r, w, m, m, m, 0);
    }
    multiply(x, q, x, m, m, n, 0);
    free(q);
    free(r);
    free(w);
}

static double norm_of_row(const muon_schedule *s, const double *a, int64_t m, int64_t row)
{
    double sum = 0;
    switch (s->normalization) {
    case MUON_NORM_FROBENIUS:
        for (int64_t i = 0; i < m; i++)
            sum += a[i * m + i];
        break;
    case MUON_NORM_SCHATTEN4:
        for (int64_t i = 0; i < m * m; i++)
            sum += a[i] * a[i];
        sum = sqrt(sum);
        break;
    case MUON_NORM_AOL:
        for (int64_t j = 0; j < m; j++)
            sum += fabs(a[row * m + j]);
        break;
    }
    return sqrt(sum);
}

static double divided_by(const muon_schedule *s, double norm)
{
    double d = s->norm_scale * norm;
    switch (s->eps_mode) {
    case MUON_EPS_RELATIVE:
        return d * (1 + s->eps);
    case MUON_EPS_ADD:
        return d + s->eps;
    case MUON_EPS_CLAMP:
        break;
    }
    return fmax(d, s->eps);
}

static void follow(double *out, const float *u, int64_t rows, int64_t cols, const muon_schedule *s)
{
    int64_t m = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
    double *x = doubles(m * n), *a = doubles(m * m);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            x[i * n + j] = (double)(rows > cols ? u[j * cols + i] : u[i * cols + j]);
    multiply(a, x, x, m, n, m, 1);
    for (int64_t i = 0; i < m; i++) {
        double d = divided_by(s, norm_of_row(s, a, m, i));
        for (int64_t j = 0; j < n; j++)
            x[i * n + j] /= d;
    }
    free(a);
    iterate(x, m, n, s);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            out[i * cols + j] = rows > cols ? x[j * n + i] : x[i * n + j];
    free(x);
}

TEST(the_formulas_of_the_header_give_what_the_library_computes)
{
    static const int64_t shapes[][2] = {{24, 24}, {17, 60}, {90, 12}, {2, 9}, {40, 3}};
    for (size_t i = 0; i < COUNT(shapes) * 5 * 4 * 3; i++) {
        int64_t rows = shapes[i / 60][0], cols = shapes[i / 60][1], n = rows * cols;
        muon_group g;
        muon_group_init(&g, sizeof g);
        g.coefficients = (muon_coefficients)(i % 5);
        g.normalization = (muon_normalization)(i % 7 % 3);
        g.norm_scale = i % 2 ? 1.5 : 0;
        g.algorithm = (muon_algorithm)(i / 5 % 4);
        g.eps_mode = (muon_eps_mode)(i / 20 % 3);
        g.ns_eps = 0.5; /* so large that a wrong place for it shows */
        g.ns_steps = i % 5 == MUON_COEFFICIENTS_YOU ? 7 : 0;
        float *u = malloc((size_t)n * sizeof *u), *got = malloc((size_t)n * sizeof *got);
        double *want = doubles(n);
        assert_true(u && got);
        testlib_seed(i + 1);
        testlib_fill_gauss(u, n, 0.1);
        muon_schedule s = schedule_of(&g, rows, cols, 0);
        follow(want, u, rows, cols, &s);
        muon_ortho *ortho = NULL;
        assert_ok(muon_ortho_create(&ortho, 1, rows, cols, &g, 1, "reference"));
        assert_ok(muon_ortho_run(ortho, got, u));
        assert_true(s.flops == muon_ortho_get_flops(ortho));
        muon_ortho_destroy(ortho);
        testlib_assert_error(testlib_relative_error(got, want, n), 1e-4,
                             "%lld x %lld, coefficients %d, algorithm %d, eps_mode %d",
                             (long long)rows, (long long)cols, (int)g.coefficients,
                             (int)g.algorithm, (int)g.eps_mode);
        free(u);
        free(got);
        free(want);
    }
}

/* ---- The same as what runs */

TEST(a_schedule_is_the_one_that_runs)
{
    static const int64_t shapes[][2] = {{768, 3072}, {4096, 256}, {512, 512}, {1, 70}};
    size_t restarts = 0, grams = 0;
    for (size_t i = 0; i < COUNT(shapes) * 20; i++) {
        int64_t rows = shapes[i / 20][0], cols = shapes[i / 20][1];
        muon_group g;
        muon_group_init(&g, sizeof g);
        g.coefficients = (muon_coefficients)(i % 5);
        g.algorithm = (muon_algorithm)(i / 5 % 4);
        g.normalization = (muon_normalization)(i % 3);
        muon_schedule s = schedule_of(&g, rows, cols, 0);
        ns_plan want;
        assert_ok(muon__ns_plan_make(&want, rows, cols, &g));
        assert_int_equal(s.algorithm, want.algorithm);
        assert_int_equal(s.steps, want.steps.count);
        assert_memory_equal(s.abc, want.steps.abc, sizeof s.abc);
        assert_memory_equal(s.restart, want.restart, sizeof s.restart);
        assert_true(s.norm_scale == want.steps.norm_scale && s.eps == want.eps);
        assert_int_equal(s.normalization, want.normalization);
        grams += s.algorithm == MUON_ALGORITHM_GRAM;
        for (int64_t k = 0; k < s.steps; k++)
            restarts += s.restart[k];
    }
    assert_true(grams > 0 && restarts > 0);
}

TEST(the_factor_has_rows_and_columns_exchanged_if_transposed)
{
    muon_group g;
    muon_group_init(&g, sizeof g);
    g.lr_mode = MUON_LR_SPECTRAL_NORM;
    g.lr_scale = 0.5;
    assert_true(schedule_of(&g, 900, 100, 0).factor == 1.5);
    assert_true(schedule_of(&g, 100, 900, 1).factor == 1.5);
    assert_true(schedule_of(&g, 100, 400, 0).factor == 0.25);
}

TEST(only_a_matrix_of_a_muon_group_has_a_schedule)
{
    muon_group g;
    muon_group_init(&g, sizeof g);
    muon_schedule s = {.steps = 77};
    assert_fails(muon_group_get_schedule(NULL, 2, 2, 0, &s, sizeof s), MUON_E_ARG,
                 "group and schedule must not be NULL");
    assert_fails(muon_group_get_schedule(&g, 2, 2, 0, NULL, sizeof s), MUON_E_ARG,
                 "group and schedule must not be NULL");
    assert_fails(muon_group_get_schedule(&g, 0, 2, 0, &s, sizeof s), MUON_E_SHAPE,
                 "0 x 2: both must be >= 1");
    assert_fails(muon_group_get_schedule(&g, 2, 2, 0, &s, 0), MUON_E_VERSION, "sizeof");
    g.momentum = 2;
    assert_fails(muon_group_get_schedule(&g, 2, 2, 0, &s, sizeof s), MUON_E_VALUE, "momentum");
    muon_group_init(&g, sizeof g);
    g.rule = MUON_RULE_ADAMW;
    assert_fails(muon_group_get_schedule(&g, 2, 2, 0, &s, sizeof s), MUON_E_VALUE,
                 "the group's rule is adamw: only muon has a schedule");
    assert_int_equal(s.steps, 77);
}
