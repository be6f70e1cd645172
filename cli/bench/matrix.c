/* Matrices whose orthogonal factor is known.
 *
 * X = L D R, where D is diagonal and L and R are orthogonal: passes of plane rotations by 45 degrees
 * with random signs, over neighbours at distance 1, 2, 4, ..., so that every element of X depends on
 * all of D. Newton-Schulz computes p(X) for an odd polynomial p, and p(X) = L p(D) R, every element of
 * it, in double precision and in less time than the product itself. p is asked of the reference
 * backend, for each diagonal element d as the 2 x 2 matrix diag(d, r): its norm must be that of X.
 *
 * With the norm `aol`, which is not one of singular values, the result is p(S X) for a diagonal S. There
 * what the library makes of S X, divided by nothing, is what it must make of X. */
#include "cli/bench/bench.h"
#include "cli/core/files.h"
#include "muon/route.h"

#include <math.h>
#include <stdlib.h>

static const double tolerance = 1e-4; /* of the difference, in the Frobenius norm */

/* From a 20th of the largest to the largest: no value so small that rounding X moves it. */
static double diagonal(int64_t i, int64_t n)
{
    return 0.05 + 0.95 * ((double)i + 0.5) / (double)n;
}

static double sign(uint64_t seed, int64_t pass, int64_t i)
{
    return bench_value(seed + (uint64_t)pass, (uint64_t)i) < 0 ? -1 : 1;
}

/* Rotates vectors i and i + distance, i even when counted in distances; they are [vectors][length]. */
static void rotate(double *x, int64_t vectors, int64_t length, int64_t distance, uint64_t seed)
{
    for (int64_t i = 0; i < vectors; i++) {
        if ((i / distance) % 2 != 0 || i + distance >= vectors) continue;
        double c = sqrt(0.5), s = c * sign(seed, distance, i);
        double *a = x + i * length, *b = a + distance * length;
        for (int64_t k = 0; k < length; k++) {
            double u = a[k], v = b[k];
            a[k] = c * u + s * v;
            b[k] = c * v - s * u;
        }
    }
}

/* L diag(d) R as rows x cols doubles, for free. */
static double *mix(const double *d, int64_t rows, int64_t cols, uint64_t seed)
{
    int64_t n = rows < cols ? rows : cols;
    double *x = cli_alloc((size_t)(rows * cols), sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i * cols + i] = d[i];
    for (int64_t s = 1; s < cols; s *= 2)
        for (int64_t i = 0; i < rows; i++)
            rotate(x + i * cols, cols, 1, s, 2 * seed + 1);
    for (int64_t s = 1; s < rows; s *= 2)
        rotate(x, rows, cols, s, 2 * seed);
    return x;
}

void bench_matrix_fill(float *x, int64_t rows, int64_t cols, uint64_t seed)
{
    int64_t n = rows < cols ? rows : cols;
    double *d = cli_alloc((size_t)n, sizeof *d);
    for (int64_t i = 0; i < n; i++)
        d[i] = diagonal(i, n);
    double *mixed = mix(d, rows, cols, seed);
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = (float)mixed[i];
    free(mixed);
    free(d);
}

/* p(d[i]) for every element of the diagonal. */
static int evaluate(double *p, int64_t n, const muon_group *settings)
{
    double sum = 0, power = settings->normalization == MUON_NORM_SCHATTEN4 ? 4 : 2;
    for (int64_t i = 0; i < n; i++)
        sum += pow(diagonal(i, n), power);
    float(*small)[4] = cli_alloc((size_t)n, sizeof *small);
    for (int64_t i = 0; i < n; i++) {
        double d = diagonal(i, n), rest = sum - pow(d, power);
        small[i][0] = (float)d;
        small[i][3] = (float)pow(rest > 0 ? rest : 0, 1 / power);
    }
    muon_group standard = *settings;
    standard.algorithm = MUON_ALGORITHM_STANDARD;
    muon_ortho *ortho = NULL;
    int code = CLI_DONE;
    if (muon_ortho_create(&ortho, n, 2, 2, &standard, 1, "reference") != MUON_OK ||
        muon_ortho_run(ortho, small[0], small[0]) != MUON_OK)
        code = cli_fail_library();
    for (int64_t i = 0; i < n; i++)
        p[i] = (double)small[i][0];
    muon_ortho_destroy(ortho);
    free(small);
    return code;
}

/* The matrix as a whole, and every element: one that is wrong drowns in the norm of a large matrix. */
static int compare(const float *o, const double *want, int64_t n, const char *where)
{
    double error = 0, size = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double difference = (double)o[i] - want[i];
        error += difference * difference;
        size += want[i] * want[i];
        if (!(fabs(difference) <= worst)) worst = fabs(difference); /* keeps a NaN */
    }
    error = sqrt(error / size);
    worst /= sqrt(size / (double)n);
    if (error <= tolerance && worst <= 10 * tolerance) return CLI_DONE; /* false for NaN */
    return cli_fail(
        "wrong result: %s is off by %.3g, and %.3g in one element; the limits are %g and %g", where,
        error, worst, tolerance, 10 * tolerance);
}

/* X with every row of its short side divided by the root of its row of |X X'|; returns the sum of
 * squares. */
static double divide_rows(float *y, int64_t rows, int64_t cols, uint64_t seed)
{
    int64_t m = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
    int64_t rs = rows < cols ? cols : 1, cs = rows < cols ? 1 : cols;
    double all = 0;
    float *x = tensors_alloc((size_t)(rows * cols) * sizeof *x);
    bench_matrix_fill(x, rows, cols, seed);
    for (int64_t i = 0; i < m; i++) {
        double sum = 0;
        for (int64_t j = 0; j < m; j++) {
            double product = 0;
            for (int64_t k = 0; k < n; k++)
                product += (double)x[i * rs + k * cs] * (double)x[j * rs + k * cs];
            sum += fabs(product);
        }
        for (int64_t k = 0; k < n; k++) {
            double value = (double)x[i * rs + k * cs] / sqrt(sum);
            y[i * rs + k * cs] = (float)value;
            all += value * value;
        }
    }
    free(x);
    return all;
}

static int check_by_rows(const float *o, int64_t rows, int64_t cols, uint64_t seed,
                         const muon_group *settings, const char *where)
{
    float *y = tensors_alloc((size_t)(rows * cols) * sizeof *y);
    muon_schedule schedule = {.norm_scale = 1};
    muon_group same = *settings;
    muon_ortho *ortho = NULL;
    int code = CLI_DONE;
    if (muon_group_get_schedule(settings, rows, cols, 0, &schedule, sizeof schedule) != MUON_OK)
        code = cli_fail_library();
    same.normalization = MUON_NORM_FROBENIUS;
    same.norm_scale = schedule.norm_scale / sqrt(divide_rows(y, rows, cols, seed));
    if (code != CLI_DONE || muon_ortho_create(&ortho, 1, rows, cols, &same, 0, NULL) != MUON_OK ||
        muon_ortho_run(ortho, y, y) != MUON_OK)
        code = code == CLI_DONE ? cli_fail_library() : code;
    muon_ortho_destroy(ortho);
    double *want = cli_alloc((size_t)(rows * cols), sizeof *want);
    for (int64_t i = 0; i < rows * cols; i++)
        want[i] = (double)y[i];
    if (code == CLI_DONE) code = compare(o, want, rows * cols, where);
    free(want);
    free(y);
    return code;
}

int bench_matrix_check(const float *o, int64_t rows, int64_t cols, uint64_t seed,
                       const muon_group *settings, const char *where)
{
    if (settings->normalization == MUON_NORM_AOL)
        return check_by_rows(o, rows, cols, seed, settings, where);
    int64_t n = rows < cols ? rows : cols;
    double *p = cli_alloc((size_t)n, sizeof *p);
    int code = evaluate(p, n, settings);
    if (code == CLI_DONE) {
        double *want = mix(p, rows, cols, seed);
        code = compare(o, want, rows * cols, where);
        free(want);
    }
    free(p);
    return code;
}

/* ---- numbers that look random and can be had again one by one ------------------------------------ */

static uint64_t mix_bits(uint64_t x) /* the finalizer of splitmix64 */
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

float bench_value(uint64_t seed, uint64_t i)
{
    uint64_t bits = mix_bits(mix_bits(seed + 0x9E3779B97F4A7C15u) + i);
    /* The sum of four uniform 16-bit numbers: mean 4 * 32767.5, deviation 65536 / sqrt(3). */
    int64_t sum = 0;
    for (int k = 0; k < 4; k++)
        sum += (int64_t)((bits >> (16 * k)) & 0xFFFF);
    return (float)(sum - 131070) * (1.0f / 37837.2f);
}

void bench_fill(float *x, int64_t n, uint64_t seed, float scale)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = scale * bench_value(seed, (uint64_t)i);
}

int bench_check_near(double got, double want, double scale, int steps, const char *what,
                     int64_t index)
{
    double most = 1e-6 * (steps + 10); /* rounding errors grow with the steps */
    if (fabs(got - want) <= most * fabs(scale)) return CLI_DONE; /* false for NaN */
    return cli_fail("wrong result: %s[%lld] is %.9g, must be %.9g", what, (long long)index, got,
                    want);
}

void bench_decay(const muon_group *group, int steps, double *power, double *sum)
{
    *power = 1;
    *sum = 0;
    for (int t = 0; t < steps; t++) {
        *sum += *power;
        *power *= 1 - group->lr * group->weight_decay;
    }
}

int bench_check_adamw(const float *weight, const float *grad, const bench_weights *start,
                      const muon_group *group, int steps, const char *what)
{
    double power, sum;
    bench_decay(group, steps, &power, &sum);
    for (int64_t i = 0; i < start->n; i++) {
        double g = (double)grad[i];
        double w = power * (double)(start->scale * bench_value(start->seed, (uint64_t)i));
        double change = group->lr * sum * g / (fabs(g) + group->adam_eps);
        DO(bench_check_near((double)weight[i], w - change, fabs(w) + fabs(change), steps, what, i));
    }
    return CLI_DONE;
}

int bench_check_lion(const float *weight, const float *grad, const bench_weights *start,
                     const muon_group *group, int steps, const char *what)
{
    double power, sum;
    bench_decay(group, steps, &power, &sum);
    for (int64_t i = 0; i < start->n; i++) {
        double w = power * (double)(start->scale * bench_value(start->seed, (uint64_t)i));
        double change = grad[i] == 0 ? 0 : copysign(group->lr * sum, (double)grad[i]);
        DO(bench_check_near((double)weight[i], w - change, fabs(w) + fabs(change), steps, what, i));
    }
    return CLI_DONE;
}
