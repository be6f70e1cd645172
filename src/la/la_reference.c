/* The oracle: loops anyone can check, sums in double. */
#include "la/la.h"

static float dot(int64_t k, const float *a, int64_t sa, const float *b, int64_t sb)
{
    double sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += (double)a[i * sa] * (double)b[i * sb];
    return (float)sum;
}

static void gemm(int64_t m, int64_t n, int64_t k, float alpha, la_view a, la_view b, float beta,
                 float *c, int64_t ldc, int small)
{
    (void)small;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float *to = &c[i * ldc + j];
            float product = alpha * dot(k, a.data + i * a.rs, a.cs, b.data + j * b.cs, b.rs);
            *to = beta == 0 ? product : product + beta * *to;
        }
    }
}

static void gemmt(int64_t m, int64_t k, float alpha, la_view a, la_view b, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j <= i; j++)
            c[i * ldc + j] = alpha * dot(k, a.data + i * a.rs, a.cs, b.data + j * b.cs, b.rs);
}

const la_ops muon__la_reference = {.name = "reference", .gemm = gemm, .gemmt = gemmt};
