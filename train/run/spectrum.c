/* Singular values by way of a bidiagonal matrix, in double.
 *
 * Householder reflections from both sides leave two diagonals d and e. The singular values of these are
 * the positive eigenvalues of a symmetric tridiagonal matrix with zeros on its diagonal and d0, e0, d1,
 * e1, ... beside it; a Sturm sequence counts how many are below any number, and bisection finds the
 * k-th. Errors are about 1e-16 of the largest value, so values down to 1e-8 of it, which f32 can just
 * hold, are right; through the eigenvalues of a Gram matrix they would be noise. Only the values that
 * are asked for are found. */
#include "train/run/spectrum.h"

#include "base/memory.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a matrix becomes two diagonals ------------------------------------------------------------- */

static double dot(const double *a, const double *b, int64_t n)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int lane = 0; lane < 4; lane++)
            sum[lane] += a[i + lane] * b[i + lane];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void subtract(double *restrict y, double factor, const double *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] -= factor * x[i];
}

/* Makes v of a vector x, in place, such that (I - v v') x has nothing but its first element, which is
 * returned. */
static double reflector(double *v, int64_t n)
{
    double norm = sqrt(dot(v, v, n));
    if (norm == 0) return 0;
    double first = v[0] > 0 ? -norm : norm;
    v[0] -= first;
    double scale = 1 / sqrt(norm * fabs(v[0])); /* v'v / 2 = norm * |v[0]| */
    for (int64_t i = 0; i < n; i++)
        v[i] *= scale;
    return first;
}

/* a[rows][cols] with rows >= cols is destroyed; column has room for rows, sums for cols. */
static void bidiagonalize(double *a, int64_t rows, int64_t cols, double *d, double *e,
                          double *column, double *sums)
{
    for (int64_t k = 0; k < cols; k++) {
        int64_t below = rows - k, right = cols - k - 1;
        for (int64_t i = 0; i < below; i++)
            column[i] = a[(k + i) * cols + k];
        d[k] = reflector(column, below);
        if (right == 0) break;

        memset(sums, 0, (size_t)right * sizeof *sums);
        for (int64_t i = 0; i < below; i++)
            subtract(sums, -column[i], a + (k + i) * cols + k + 1, right);
        for (int64_t i = 0; i < below; i++)
            subtract(a + (k + i) * cols + k + 1, column[i], sums, right);

        double *row = a + k * cols + k + 1;
        e[k] = reflector(row, right);
        for (int64_t i = 1; i < below; i++) {
            double *other = a + (k + i) * cols + k + 1;
            subtract(other, dot(other, row, right), row, right);
        }
    }
}

/* ---- two diagonals become values ---------------------------------------------------------------- */

/* How many singular values are below x > 0. A pivot of zero is taken for a very small one. */
static int64_t count_below(const double *d, const double *e, int64_t n, double x, double tiny)
{
    int64_t negative = 0;
    double pivot = -x;
    for (int64_t i = 0; i < 2 * n; i++) {
        if (i > 0) {
            double beside = i % 2 ? d[i / 2] : e[i / 2 - 1];
            pivot = -x - beside * (beside / pivot);
        }
        if (fabs(pivot) < tiny) pivot = -tiny;
        negative += pivot < 0;
    }
    return negative - n; /* the other n are the values with a minus */
}

/* The k-th largest, k = 0, 1, ... */
static double find_value(const double *d, const double *e, int64_t n, int64_t k, double most)
{
    double low = 0, high = most, tiny = most * DBL_EPSILON * DBL_EPSILON;
    /* As far as the largest can tell, and then far enough for small ones to have digits of their own. */
    while (high - low > 4 * DBL_EPSILON * high && high > most * DBL_EPSILON / 8) {
        double middle = low + (high - low) / 2;
        if (count_below(d, e, n, middle, tiny) > n - 1 - k)
            high = middle;
        else
            low = middle;
    }
    return low + (high - low) / 2;
}

/* No singular value is larger than this. */
static double bound(const double *d, const double *e, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(d[i]) + (i > 0 ? fabs(e[i - 1]) : 0) + (i < n - 1 ? fabs(e[i]) : 0));
    return most * (1 + 4 * DBL_EPSILON);
}

static int64_t place(int i, int count, int64_t n)
{
    return count == 1 ? 0 : (2 * (n - 1) * i + (count - 1)) / (2 * (int64_t)(count - 1));
}

static void find_values(double *values, int count, const double *d, const double *e, int64_t n)
{
    double most = bound(d, e, n);
    for (int i = 0; i < count; i++)
        values[i] = most > 0 ? find_value(d, e, n, place(i, count, n), most) : 0;
}

/* ---- the same for f32 in any shape -------------------------------------------------------------- */

/* Into to[long side][short side]. */
static void widen(double *to, const float *x, int64_t rows, int64_t cols)
{
    if (rows >= cols) {
        for (int64_t i = 0; i < rows * cols; i++)
            to[i] = (double)x[i];
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            to[j * rows + i] = (double)x[i * cols + j];
}

muon_status train_singular_values(double *values, int count, const float *x, int64_t rows,
                                  int64_t cols)
{
    int64_t longer = rows > cols ? rows : cols, n = rows > cols ? cols : rows;
    double *work = NULL;
    assert(n > 0 && count > 0 && count <= n);
    TRY(CALLOC(&work, (size_t)(longer * n + longer + 3 * n), "singular values"));
    double *column = work + longer * n, *sums = column + longer, *d = sums + n, *e = d + n;
    widen(work, x, rows, cols);
    bidiagonalize(work, longer, n, d, e, column, sums);
    find_values(values, count, d, e, n);
    free(work);
    return MUON_OK;
}

/* ---- before and after --------------------------------------------------------------------------- */

static muon_status orthogonalize(float *after, const float *before, int64_t rows, int64_t cols,
                                 const muon_group *settings)
{
    muon_ortho *ortho = NULL;
    TRY(muon_ortho_create(&ortho, 1, rows, cols, settings, 1, NULL));
    muon_status status = muon_ortho_run(ortho, after, before);
    muon_ortho_destroy(ortho);
    return status;
}

static muon_status measure(train_spectrum *s, float *after, const float *before, int64_t rows,
                           int64_t cols, const muon_group *settings)
{
    TRY(orthogonalize(after, before, rows, cols, settings));
    TRY(train_singular_values(s->before, s->count, before, rows, cols));
    TRY(train_singular_values(s->after, s->count, after, rows, cols));
    double largest = s->before[0];
    for (int i = 0; i < s->count && largest > 0; i++)
        s->before[i] /= largest;
    return MUON_OK;
}

/* The name stands behind the values, in the same memory: whoever frees those has freed it too. */
static muon_status take(train_spectrum *s, const char *name)
{
    size_t count = (size_t)s->count, length = strlen(name) + 1;
    size_t words = (length + sizeof(double) - 1) / sizeof(double);
    TRY(CALLOC(&s->before, count + words, "singular values"));
    memcpy(s->before + count, name, length);
    s->name = (const char *)(s->before + count);
    return CALLOC(&s->after, count, "singular values");
}

static muon_status make(train_spectrum *s, const char *name, const float *before, int64_t rows,
                        int64_t cols, const muon_group *settings)
{
    float *after = NULL;
    TRY(take(s, name));
    TRY(CALLOC(&after, (size_t)(rows * cols), "an orthogonal matrix"));
    muon_status status = measure(s, after, before, rows, cols, settings);
    free(after);
    return status;
}

muon_status train_spectrum_make(train_spectrum *out, const char *name, int64_t step,
                                const float *before, int64_t rows, int64_t cols,
                                const muon_group *settings)
{
    REQUIRE(name && before, E_ARG, "a spectrum needs a name and a matrix");
    REQUIRE(rows >= 1 && cols >= 1 && rows <= INT64_MAX / 64 / cols, E_SHAPE,
            "%s: a matrix of %lld x %lld has no singular values to show", name, (long long)rows,
            (long long)cols);
    int64_t n = rows < cols ? rows : cols;
    train_spectrum s = {.step = step};
    s.count = n < TRAIN_SPECTRUM_MOST ? (int)n : TRAIN_SPECTRUM_MOST;
    muon_status status = make(&s, name, before, rows, cols, settings);
    if (status == MUON_OK)
        *out = s;
    else
        train_spectrum_free(&s);
    return status;
}

void train_spectrum_free(train_spectrum *spectrum)
{
    free(spectrum->before);
    free(spectrum->after);
    *spectrum = (train_spectrum){.name = NULL};
}
