#include "tests/support/testlib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void testlib_assert_status(muon_status got, muon_status want, const char *text, const char *call,
                           const char *file, int line)
{
    if (got != want) {
        print_error("%s\n  gave %s, not %s: %s\n", call, muon_status_name(got),
                    muon_status_name(want), got == MUON_OK ? "" : muon_last_error());
        _fail(file, line);
    }
    if (text && !strstr(muon_last_error(), text)) {
        print_error("%s\n  message \"%s\"\n  lacks   \"%s\"\n", call, muon_last_error(), text);
        _fail(file, line);
    }
}

void testlib_assert_error(double error, double bound, const char *what, ...)
{
    if (error <= bound) return;
    char text[256];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    fail_msg("%s: error %.3g is above %.3g", text, error, bound);
}

int testlib_quick(void)
{
    return getenv("MUON_TEST_QUICK") != NULL;
}

/* ---- Random numbers */

static uint64_t state = 1;

void testlib_seed(uint64_t seed)
{
    state = seed;
}

uint64_t testlib_bits(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double testlib_uniform(void)
{
    return (double)(testlib_bits() >> 11) * 0x1p-53;
}

double testlib_gauss(void)
{
    double u = 1 - testlib_uniform(), v = testlib_uniform();
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* ---- Matrices */

void testlib_fill_gauss(float *x, int64_t n, double scale)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(scale * testlib_gauss());
}

const char *testlib_spectrum_name(spectrum s)
{
    static const char *const names[NSPECTRA] = {"gaussian",  "decay to 1e-8", "rank 8",
                                                "power law", "spike 1e3",     "spike 1e6"};
    return names[s];
}

static double singular_value(spectrum s, int64_t i, int64_t m)
{
    switch (s) {
    case SPECTRUM_DECAY:
        return m > 1 ? pow(1e-8, (double)i / (double)(m - 1)) : 1;
    case SPECTRUM_RANK8:
        return i < 8 ? 1 : 0;
    case SPECTRUM_POWER:
        return 1 / (double)(i + 1);
    case SPECTRUM_SPIKE_1E3:
        return i == 0 ? 1e3 : 1;
    case SPECTRUM_SPIKE_1E6:
        return i == 0 ? 1e6 : 1;
    case SPECTRUM_GAUSSIAN:
    case NSPECTRA:
        break;
    }
    return 1;
}

/* k orthonormal rows of length n: Gram-Schmidt, twice, on Gaussian rows. */
static double *orthonormal_rows(int64_t k, int64_t n)
{
    double *q = malloc((size_t)(k * n) * sizeof *q);
    assert_non_null(q);
    for (int64_t i = 0; i < k * n; i++)
        q[i] = testlib_gauss();
    for (int64_t i = 0; i < k; i++) {
        double *row = q + i * n;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t j = 0; j < i; j++) {
                double dot = 0;
                for (int64_t c = 0; c < n; c++)
                    dot += row[c] * q[j * n + c];
                for (int64_t c = 0; c < n; c++)
                    row[c] -= dot * q[j * n + c];
            }
        }
        double norm = 0;
        for (int64_t c = 0; c < n; c++)
            norm += row[c] * row[c];
        for (int64_t c = 0; c < n; c++)
            row[c] /= sqrt(norm);
    }
    return q;
}

void testlib_fill_spectrum(float *x, int64_t rows, int64_t cols, spectrum s)
{
    if (s == SPECTRUM_GAUSSIAN) {
        testlib_fill_gauss(x, rows * cols, 1);
        return;
    }
    int64_t m = rows < cols ? rows : cols;
    double *u = orthonormal_rows(m, rows), *v = orthonormal_rows(m, cols);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0;
            for (int64_t k = 0; k < m; k++)
                sum += singular_value(s, k, m) * u[k * rows + i] * v[k * cols + j];
            x[i * cols + j] = (float)sum;
        }
    }
    free(u);
    free(v);
}

/* ---- The oracle: small matrices, plain loops, nothing shared with the library. */

static void multiply(double *c, const double *a, const double *b, int64_t m, int64_t n, int64_t k)
{
    memset(c, 0, (size_t)(m * n) * sizeof *c);
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++)
                c[i * n + j] += a[i * k + l] * b[l * n + j];
}

static void transpose(double *to, const double *from, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            to[j * rows + i] = from[i * cols + j];
}

/* What a norm is divided by; 1 for what is zero. */
static double divisor(const muon_group *group, double d)
{
    if (d == 0) return 1;
    if (group->eps_mode == MUON_EPS_ADD) return d + group->ns_eps;
    if (group->eps_mode == MUON_EPS_CLAMP) return fmax(d, group->ns_eps);
    return d * (1 + group->ns_eps);
}

/* The wide y, with t as scratch, divided by its norm, or each row by its own. */
static void normalize(double *y, double *t, int64_t m, int64_t n, double norm_scale,
                      const muon_group *group)
{
    double all = 0, *gram = malloc((size_t)(m * m) * sizeof *gram);
    assert_non_null(gram);
    transpose(t, y, m, n);
    multiply(gram, y, t, m, m, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++)
            all += group->normalization == MUON_NORM_SCHATTEN4 ? gram[i * m + j] * gram[i * m + j]
                   : i == j                                    ? gram[i * m + j]
                                                               : 0;
    if (group->normalization == MUON_NORM_SCHATTEN4) all = sqrt(all);
    for (int64_t i = 0; i < m; i++) {
        double row = 0;
        for (int64_t j = 0; j < m; j++)
            row += fabs(gram[i * m + j]);
        double norm = sqrt(group->normalization == MUON_NORM_AOL ? row : all);
        for (int64_t j = 0; j < n; j++)
            y[i * n + j] /= divisor(group, norm_scale * norm);
    }
    free(gram);
}

void testlib_newton_schulz(double *out, const float *x, int64_t rows, int64_t cols,
                           const double (*abc)[3], int steps, double norm_scale,
                           const muon_group *group)
{
    int64_t m = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
    double *y = malloc((size_t)(m * n) * sizeof *y), *t = malloc((size_t)(m * n) * sizeof *t);
    double *a = malloc((size_t)(m * m) * sizeof *a), *b = malloc((size_t)(m * m) * sizeof *b);
    assert_true(y && t && a && b);
    for (int64_t i = 0; i < m * n; i++)
        t[i] = (double)x[i];
    if (rows > cols)
        transpose(y, t, rows, cols);
    else
        memcpy(y, t, (size_t)(m * n) * sizeof *y);
    normalize(y, t, m, n, norm_scale, group);
    for (int k = 0; k < steps; k++) {
        transpose(t, y, m, n);
        multiply(a, y, t, m, m, n);
        multiply(b, a, a, m, m, m);
        for (int64_t i = 0; i < m * m; i++)
            b[i] = abc[k][1] * a[i] + abc[k][2] * b[i];
        for (int64_t i = 0; i < m; i++)
            b[i * m + i] += abc[k][0];
        multiply(t, b, y, m, n, m);
        double *swap = t;
        t = y;
        y = swap;
    }
    if (rows > cols)
        transpose(out, y, m, n);
    else
        memcpy(out, y, (size_t)(m * n) * sizeof *y);
    free(y);
    free(t);
    free(a);
    free(b);
}

double testlib_relative_error(const float *got, const double *want, int64_t n)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - want[i];
        error += d * d;
        norm += want[i] * want[i];
    }
    return norm > 0 ? sqrt(error / norm) : sqrt(error);
}
