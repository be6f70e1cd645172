#include "variant/variant.h"

#include "base/memory.h"
#include "variant/second.h"
#include "variant/sums.h"

#include <math.h>
#include <string.h>

/* Peers keep denominators from being 0 by it. */
static const double LEAST_NORM = 1e-6;

int muon__variant_is_on(const muon_group *group)
{
    return group->equalize || group->adaptive || group->renormalize ||
           group->second_moment == MUON_SECOND_ROWS ||
           group->second_moment == MUON_SECOND_LONG_SIDE;
}

/* ---- Scratch: sums of rows or columns, and U as it came */

static int64_t aligned(int64_t floats)
{
    const int64_t line = MUON__ALIGN / (int64_t)sizeof(float);
    return (floats + line - 1) / line * line;
}

static int64_t sums_floats(int64_t rows, int64_t cols)
{
    return aligned((rows > cols ? rows : cols) * (int64_t)(sizeof(double) / sizeof(float)));
}

int64_t muon__variant_scratch(const muon_group *group, int64_t rows, int64_t cols)
{
    if (!muon__variant_is_on(group)) return 0;
    return sums_floats(rows, cols) + (group->adaptive ? aligned(rows * cols) : 0);
}

static double *sums_of(float *scratch)
{
    return (double *)(void *)scratch;
}

static float *copy_of(const variant *v, float *scratch)
{
    return scratch + sums_floats(v->rows, v->cols);
}

static double total(const double *sums, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += sums[i];
    return sum;
}

static void scale(const variant *v, float *x, double by, pool *p, double *sums)
{
    for (int64_t i = 0; i < v->rows; i++)
        sums[i] = by;
    muon__scale_rows(x, sums, v->rows, v->cols, p);
}

/* ---- Stages */

/* Neurons of U get the same norm. */
static void equalize(const variant *v, float *u, pool *p, double *sums)
{
    int64_t n = v->transposed ? v->cols : v->rows;
    (v->transposed ? muon__sum_columns : muon__sum_rows)(sums, u, u, v->rows, v->cols, p);
    double norm = sqrt(total(sums, n) / (double)n);
    for (int64_t i = 0; i < n; i++)
        sums[i] = norm / fmax(sqrt(sums[i]), LEAST_NORM);
    (v->transposed ? muon__scale_columns : muon__scale_rows)(u, sums, v->rows, v->cols, p);
}

/* By the nuclear norm of U, if O is its polar factor. */
static void adapt(const variant *v, float *o, const float *u, pool *p, double *sums)
{
    muon__sum_rows(sums, u, o, v->rows, v->cols, p);
    scale(v, o, total(sums, v->rows), p, sums);
}

/* To the Frobenius norm of an orthogonal matrix. */
static void renormalize(const variant *v, float *o, pool *p, double *sums)
{
    muon__sum_rows(sums, o, o, v->rows, v->cols, p);
    double rank = (double)(v->rows < v->cols ? v->rows : v->cols);
    scale(v, o, sqrt(rank) / fmax(sqrt(total(sums, v->rows)), LEAST_NORM), p, sums);
}

void muon__variant_before(const variant *v, float *u, pool *p, float *scratch)
{
    if (v->group->adaptive) memcpy(copy_of(v, scratch), u, (size_t)(v->rows * v->cols) * sizeof *u);
    if (v->group->equalize) equalize(v, u, p, sums_of(scratch));
}

void muon__variant_after(const variant *v, float *o, pool *p, float *scratch)
{
    if (v->group->adaptive) adapt(v, o, copy_of(v, scratch), p, sums_of(scratch));
    if (v->group->renormalize) renormalize(v, o, p, sums_of(scratch));
    if (v->second) muon__second_divide(v, o, p, sums_of(scratch));
}
