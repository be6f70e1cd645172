/* Numbers that look random and can be had again one by one. */
#include "cli/bench/bench.h"

#include <math.h>

static uint64_t mix(uint64_t x) /* the finalizer of splitmix64 */
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

float bench_value(uint64_t seed, uint64_t i)
{
    uint64_t bits = mix(mix(seed + 0x9E3779B97F4A7C15u) + i);
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
    double tolerance = 1e-6 * (steps + 10); /* rounding errors grow with the steps */
    if (fabs(got - want) <= tolerance * fabs(scale)) return CLI_DONE; /* false for NaN */
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
