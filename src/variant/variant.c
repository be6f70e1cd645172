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
           group->update_norm != MUON_UPDATE_NORM_OWN ||
           (group->second_moment != MUON_SECOND_NONE &&
            group->second_moment != MUON_SECOND_ELEMENTS);
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

static double norm_of_matrix(const variant *v, const float *x, pool *p, double *sums)
{
    muon__sum_rows(sums, x, x, v->rows, v->cols, p);
    return sqrt(total(sums, v->rows));
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
    double rank = (double)(v->rows < v->cols ? v->rows : v->cols);
    scale(v, o, sqrt(rank) / fmax(norm_of_matrix(v, o, p, sums), LEAST_NORM), p, sums);
}

/* To the norm that the update has without lr. */
static void fit_norm(const variant *v, float *o, pool *p, double *sums)
{
    const muon_group *group = v->group;
    int decays = group->update_norm == MUON_UPDATE_RELATIVE && !group->cautious_decay;
    double want = v->weight * (decays ? 1 - v->decay : 1);
    double norm = norm_of_matrix(v, o, p, sums);
    scale(v, o, norm > 0 ? want / norm : 0, p, sums);
}

void muon__variant_before(const variant *v, float *u, pool *p, float *scratch)
{
    if (v->group->adaptive) memcpy(copy_of(v, scratch), u, (size_t)(v->rows * v->cols) * sizeof *u);
    if (v->group->second_moment == MUON_SECOND_MATRIX)
        *norm_of(scratch) = norm_of_matrix(v, u, p, sums_of(scratch));
    if (v->group->equalize) equalize(v, u, p, sums_of(scratch));
}

void muon__variant_after(const variant *v, float *o, pool *p, float *scratch)
{
    if (v->group->adaptive) adapt(v, o, copy_of(v, scratch), p, sums_of(scratch));
    if (v->group->renormalize) renormalize(v, o, p, sums_of(scratch));
    if (v->group->second_moment == MUON_SECOND_MATRIX)
        scale(v, o, muon__second_factor(v, *norm_of(scratch)), p, sums_of(scratch));
    else if (v->second)
        muon__second_divide(v, o, p, sums_of(scratch));
    if (v->group->update_norm != MUON_UPDATE_NORM_OWN) fit_norm(v, o, p, sums_of(scratch));
}
