#include "variant/second.h"

#include <math.h>

/* A number for each column of the matrix as it is stored, rather than for each row? */
static int is_by_columns(const muon_group *group, int64_t rows, int64_t cols, int transposed)
{
    int64_t outputs = transposed ? cols : rows, inputs = transposed ? rows : cols;
    int by_outputs = group->second_moment == MUON_SECOND_ROWS || outputs >= inputs;
    return by_outputs == transposed;
}

int64_t muon__variant_second(const muon_group *group, int64_t rows, int64_t cols, int transposed)
{
    if (group->second_moment == MUON_SECOND_MATRIX) return 1;
    if (!muon__second_is_by_lines(group)) return 0;
    return is_by_columns(group, rows, cols, transposed) ? cols : rows;
}

/* Moves *v towards `square`; returns 1 / its root, or 0 where that is infinite. */
static double invert(const muon_group *group, float *v, double square)
{
    *v = (float)((double)*v + (1 - group->second_beta) * (square - (double)*v));
    double root = group->second_eps_mode == MUON_SECOND_EPS_CLAMP
                      ? sqrt(fmax((double)*v, group->second_eps))
                      : sqrt((double)*v) + group->second_eps;
    return root > 0 ? 1 / root : 0;
}

double muon__second_factor(const variant *v, double u)
{
    return u * invert(v->group, v->second, v->grad * v->grad);
}

int muon__second_is_by_lines(const muon_group *group)
{
    return group->second_moment == MUON_SECOND_ROWS ||
           group->second_moment == MUON_SECOND_LONG_SIDE;
}

int muon__second_is_by_columns(const variant *v)
{
    return muon__second_is_by_lines(v->group) &&
           is_by_columns(v->group, v->rows, v->cols, v->transposed);
}

double muon__second_factors(const variant *v, double *sums, double by)
{
    const muon_group *group = v->group;
    int by_columns = muon__second_is_by_columns(v);
    int64_t n = by_columns ? v->cols : v->rows, each = by_columns ? v->rows : v->cols;
    double before = 0, after = 0;
    for (int64_t i = 0; i < n; i++) {
        double square = sums[i] * by * by;
        sums[i] = invert(group, &v->second[i], square / (double)each);
        before += square;
        after += square * sums[i] * sums[i];
    }
    double norm = fmax(sqrt(after), group->second_eps);
    double keep = norm > 0 ? sqrt(before) / norm : 0;
    for (int64_t i = 0; i < n; i++)
        sums[i] *= by * keep;
    return sqrt(after) * keep;
}
