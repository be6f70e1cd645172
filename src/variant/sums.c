#include "variant/sums.h"

#include "base/simd.h"

enum { ROWS = 16, COLUMNS = 64, LANES = 8 };

typedef struct pass {
    double *of;
    const double *by;
    const float *a, *b;
    float *x;
    int64_t rows, cols;
} pass;

static int64_t end_of(int64_t index, int64_t size, int64_t n)
{
    return (index + 1) * size < n ? (index + 1) * size : n;
}

static int64_t units_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* In lanes, because the loop must not be reordered and should still be fast. */
MUON__SIMD static double sum_row(const float *a, const float *b, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t whole = n / LANES * LANES;
    for (int64_t j = 0; j < whole; j += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)a[j + l] * (double)b[j + l];
    for (int64_t j = whole; j < n; j++)
        lane[j - whole] += (double)a[j] * (double)b[j];
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

MUON__SIMD static void add_products(double *of, const float *a, const float *b, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        of[j] += (double)a[j] * (double)b[j];
}

MUON__SIMD static void scale_one(float *x, double by, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        x[j] = (float)((double)x[j] * by);
}

MUON__SIMD static void scale_each(float *x, const double *by, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        x[j] = (float)((double)x[j] * by[j]);
}

static void sum_rows(void *arg, int64_t index, int worker)
{
    const pass *w = arg;
    (void)worker;
    for (int64_t i = index * ROWS; i < end_of(index, ROWS, w->rows); i++)
        w->of[i] = sum_row(w->a + i * w->cols, w->b + i * w->cols, w->cols);
}

static void sum_columns(void *arg, int64_t index, int worker)
{
    const pass *w = arg;
    int64_t begin = index * COLUMNS, n = end_of(index, COLUMNS, w->cols) - begin;
    (void)worker;
    for (int64_t j = begin; j < begin + n; j++)
        w->of[j] = 0;
    for (int64_t i = 0; i < w->rows; i++)
        add_products(w->of + begin, w->a + i * w->cols + begin, w->b + i * w->cols + begin, n);
}

static void scale_rows(void *arg, int64_t index, int worker)
{
    const pass *w = arg;
    (void)worker;
    for (int64_t i = index * ROWS; i < end_of(index, ROWS, w->rows); i++)
        scale_one(w->x + i * w->cols, w->by[i], w->cols);
}

static void scale_columns(void *arg, int64_t index, int worker)
{
    const pass *w = arg;
    (void)worker;
    for (int64_t i = index * ROWS; i < end_of(index, ROWS, w->rows); i++)
        scale_each(w->x + i * w->cols, w->by, w->cols);
}

void muon__sum_rows(double *of, const float *a, const float *b, int64_t rows, int64_t cols, pool *p)
{
    pass w = {.of = of, .a = a, .b = b, .rows = rows, .cols = cols};
    muon__pool_run(p, units_of(rows, ROWS), sum_rows, &w);
}

void muon__sum_columns(double *of, const float *a, const float *b, int64_t rows, int64_t cols,
                       pool *p)
{
    pass w = {.of = of, .a = a, .b = b, .rows = rows, .cols = cols};
    muon__pool_run(p, units_of(cols, COLUMNS), sum_columns, &w);
}

void muon__scale_rows(float *x, const double *by, int64_t rows, int64_t cols, pool *p)
{
    pass w = {.x = x, .by = by, .rows = rows, .cols = cols};
    muon__pool_run(p, units_of(rows, ROWS), scale_rows, &w);
}

void muon__scale_columns(float *x, const double *by, int64_t rows, int64_t cols, pool *p)
{
    pass w = {.x = x, .by = by, .rows = rows, .cols = cols};
    muon__pool_run(p, units_of(rows, ROWS), scale_columns, &w);
}
