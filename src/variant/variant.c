#include "variant/variant.h"

#include "base/memory.h"
#include "variant/second.h"
#include "variant/sums.h"

#include <math.h>
#include <string.h>

/* Peers keep denominators from being 0 by it. */
static const double LEAST_NORM = 1e-6;

static int is_on_after(const muon_group *group)
{
    return group->adaptive || group->renormalize || group->update_norm != MUON_UPDATE_NORM_OWN ||
           (group->second_moment != MUON_SECOND_NONE &&
            group->second_moment != MUON_SECOND_ELEMENTS);
}

int muon__variant_is_on(const muon_group *group)
{
    return group->equalize || is_on_after(group);
}

/* ---- Scratch: the norm of U, sums of rows or columns, and U as it came */

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
    return aligned(1) + sums_floats(rows, cols) + (group->adaptive ? aligned(rows * cols) : 0);
}

static double *norm_of(float *scratch)
{
    return (double *)(void *)scratch;
}

static double *sums_of(float *scratch)
{
    return (double *)(void *)(scratch + aligned(1));
}

static float *copy_of(const variant *v, float *scratch)
{
    return scratch + aligned(1) + sums_floats(v->rows, v->cols);
}

static double total(const double *sums, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += sums[i];
    return sum;
}

static void fill(double *sums, int64_t n, double by)
{
    for (int64_t i = 0; i < n; i++)
        sums[i] = by;
}

/* ---- Before orthogonalization */

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

void muon__variant_before(const variant *v, float *u, pool *p, float *scratch)
{
    double *sums = sums_of(scratch);
    if (v->group->adaptive) memcpy(copy_of(v, scratch), u, (size_t)(v->rows * v->cols) * sizeof *u);
    if (v->group->second_moment == MUON_SECOND_MATRIX) {
        muon__sum_rows(sums, u, u, v->rows, v->cols, p);
        *norm_of(scratch) = sqrt(total(sums, v->rows));
    }
    if (v->group->equalize) equalize(v, u, p, sums);
}

/* ---- After orthogonalization: one pass for sums, another if O is multiplied by U, and one that scales */

/* By the nuclear norm of U, if O is its polar factor. */
static double adapt(const variant *v, const float *o, const float *u, pool *p, double *sums)
{
    muon__sum_rows(sums, u, o, v->rows, v->cols, p);
    return total(sums, v->rows);
}

/* To the Frobenius norm of an orthogonal matrix. */
static double renormalize(const variant *v, double norm)
{
    double rank = (double)(v->rows < v->cols ? v->rows : v->cols);
    return sqrt(rank) / fmax(norm, LEAST_NORM);
}

/* To the norm that the update has without lr. */
static double fit_norm(const variant *v, double norm)
{
    int decays = v->group->update_norm == MUON_UPDATE_RELATIVE && !v->group->cautious_decay;
    double want = v->weight * (decays ? 1 - v->decay : 1);
    return norm > 0 ? want / norm : 0;
}

void muon__variant_after(const variant *v, float *o, pool *p, float *scratch)
{
    const muon_group *group = v->group;
    double *sums = sums_of(scratch), by = 1;
    int by_columns = muon__second_is_by_columns(v);
    int64_t n = by_columns ? v->cols : v->rows;
    if (!is_on_after(group)) return;
    if (group->adaptive) by = adapt(v, o, copy_of(v, scratch), p, sums);
    (by_columns ? muon__sum_columns : muon__sum_rows)(sums, o, o, v->rows, v->cols, p);
    double own = sqrt(total(sums, n));
    if (!isfinite(by) || !isfinite(own)) return;
    if (group->renormalize) by *= renormalize(v, fabs(by) * own);
    if (group->second_moment == MUON_SECOND_MATRIX) by *= muon__second_factor(v, *norm_of(scratch));
    double norm = fabs(by) * own;
    if (muon__second_is_by_lines(group))
        norm = muon__second_factors(v, sums, by);
    else
        fill(sums, n, by);
    double fit = group->update_norm == MUON_UPDATE_NORM_OWN ? 1 : fit_norm(v, norm);
    for (int64_t i = 0; i < n; i++)
        sums[i] *= fit;
    (by_columns ? muon__scale_columns : muon__scale_rows)(o, sums, v->rows, v->cols, p);
}
