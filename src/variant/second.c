#include "variant/second.h"

#include "variant/sums.h"

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
    if (group->second_moment != MUON_SECOND_ROWS && group->second_moment != MUON_SECOND_LONG_SIDE)
        return 0;
    return is_by_columns(group, rows, cols, transposed) ? cols : rows;
}

static double divisor(const muon_group *group, double v)
{
    if (group->second_eps_mode == MUON_SECOND_EPS_CLAMP) return sqrt(fmax(v, group->second_eps));
    return sqrt(v) + group->second_eps;
}

void muon__second_divide(const variant *v, float *o, pool *p, double *sums)
{
    const muon_group *group = v->group;
    int by_columns = is_by_columns(group, v->rows, v->cols, v->transposed);
    int64_t n = by_columns ? v->cols : v->rows, each = by_columns ? v->rows : v->cols;
    (by_columns ? muon__sum_columns : muon__sum_rows)(sums, o, o, v->rows, v->cols, p);
    double before = 0, after = 0;
    for (int64_t i = 0; i < n; i++) {
        double square = sums[i], now = (double)v->second[i];
        now += (1 - group->second_beta) * (square / (double)each - now);
        v->second[i] = (float)now;
        double by = divisor(group, (double)v->second[i]);
        sums[i] = by > 0 ? 1 / by : 0;
        before += square;
        after += square * sums[i] * sums[i];
    }
    double norm = fmax(sqrt(after), group->second_eps);
    double keep = norm > 0 ? sqrt(before) / norm : 0;
    for (int64_t i = 0; i < n; i++)
        sums[i] *= keep;
    (by_columns ? muon__scale_columns : muon__scale_rows)(o, sums, v->rows, v->cols, p);
}
