/* One-sided Jacobi: rows are rotated in pairs until all are orthogonal; their lengths are then the
 * singular values, small ones as accurate as large ones. */
#include "spectrum.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_SWEEPS = 30 };

static double dot(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Makes two rows orthogonal; returns 0 if they already were. */
static int rotate(double *x, double *y, int n)
{
    double xx = dot(x, x, n), yy = dot(y, y, n), xy = dot(x, y, n);
    if (fabs(xy) <= 1e-12 * sqrt(xx * yy)) return 0;
    double zeta = (yy - xx) / (2 * xy);
    double t = copysign(1 / (fabs(zeta) + sqrt(1 + zeta * zeta)), zeta);
    double c = 1 / sqrt(1 + t * t), s = c * t;
    for (int i = 0; i < n; i++) {
        double old = x[i];
        x[i] = c * old - s * y[i];
        y[i] = s * old + c * y[i];
    }
    return 1;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int spectrum_of(spectrum *s, const float *x, int rows, int cols)
{
    double *row = calloc((size_t)rows * (size_t)cols, sizeof *row);
    double *value = calloc((size_t)rows, sizeof *value);
    if (row && value) {
        for (int i = 0; i < rows * cols; i++)
            row[i] = (double)x[i];
        for (int sweep = 0, turned = 1; turned && sweep < MAX_SWEEPS; sweep++) {
            turned = 0;
            for (int i = 0; i < rows; i++)
                for (int j = i + 1; j < rows; j++)
                    turned |= rotate(row + i * cols, row + j * cols, cols);
        }
        for (int i = 0; i < rows; i++)
            value[i] = sqrt(dot(row + i * cols, row + i * cols, cols));
        qsort(value, (size_t)rows, sizeof *value, ascending);
        *s = (spectrum){value[rows - 1], value[rows / 2], value[0]};
    }
    int status = row && value ? 0 : -1;
    free(row);
    free(value);
    return status;
}
