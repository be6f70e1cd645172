#include "ns/normalize.h"

#include "base/simd.h"
#include "base/sumsq.h"

#include <math.h>

enum { CHUNK = 65536 }; /* floats that one thread scales at a time */

typedef struct pass {
    float *to;
    const float *x;
    int64_t n;
    double scale;
} pass;

MUON__SIMD static void scale(float *to, const float *x, int64_t n, double factor)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)((double)x[i] * factor);
}

static void scale_part(void *arg, int64_t index, int worker)
{
    const pass *w = arg;
    (void)worker;
    int64_t begin = index * CHUNK;
    int64_t n = w->n - begin < CHUNK ? w->n - begin : CHUNK;
    scale(w->to + begin, w->x + begin, n, w->scale);
}

static double divisor(const ns_plan *plan, double norm)
{
    norm *= plan->steps.norm_scale;
    switch (plan->eps_mode) {
    case MUON_EPS_ADD:
        return norm + plan->eps;
    case MUON_EPS_CLAMP:
        return norm > plan->eps ? norm : plan->eps;
    case MUON_EPS_RELATIVE:
        break;
    }
    return norm * (1 + plan->eps);
}

muon_status muon__ns_normalize(float *to, const float *x, const ns_plan *plan, pool *p)
{
    pass w = {.to = to, .x = x, .n = plan->rows * plan->cols};
    sumsq sum = {0};
    muon__sumsq_add_shared(&sum, x, w.n, p);
    REQUIRE(muon__sumsq_finite(&sum), E_NONFINITE, "a %lld x %lld matrix has a NaN or infinity",
            (long long)plan->rows, (long long)plan->cols);
    double norm = sqrt(muon__sumsq_value(&sum));
    double by = norm > 0 ? divisor(plan, norm) : 0;
    w.scale = by > 0 ? 1 / by : 0;
    muon__pool_run(p, (w.n + CHUNK - 1) / CHUNK, scale_part, &w);
    return MUON_OK;
}
