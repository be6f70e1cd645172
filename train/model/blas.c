#include "train/model/blas.h"

#ifdef MUON_HAVE_BLIS

#include "base/blis.h"

static void multiply(int64_t m, int64_t n, int64_t k, float alpha, mat a, mat b, float beta,
                     float *c, int64_t ldc, int sup)
{
    blis_matrix left = {a.data, a.rs, a.cs}, right = {b.data, b.rs, b.cs};
    muon__blis_gemm(m, n, k, alpha, left, right, beta, c, ldc, sup);
}

muon_status blas_check(void)
{
    return muon__blis_check();
}

#else

/* Every element is one sum from the first term to the last. */
static void multiply(int64_t m, int64_t n, int64_t k, float alpha, mat a, mat b, float beta,
                     float *c, int64_t ldc, int sup)
{
    (void)sup;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += a.data[i * a.rs + l * a.cs] * b.data[l * b.rs + j * b.cs];
            float *to = &c[i * ldc + j];
            *to = beta == 0 ? alpha * sum : alpha * sum + beta * *to;
        }
    }
}

muon_status blas_check(void)
{
    return MUON_OK;
}

#endif

/* Kernels that skip packing are good for small operands, and for others slower by up to 60 %. */
void blas_gemm(int64_t m, int64_t n, int64_t k, float alpha, mat a, mat b, float beta, float *c,
               int64_t ldc)
{
    multiply(m, n, k, alpha, a, b, beta, c, ldc, 0);
}

void blas_gemm_small(int64_t m, int64_t n, int64_t k, float alpha, mat a, mat b, float beta,
                     float *c, int64_t ldc)
{
    multiply(m, n, k, alpha, a, b, beta, c, ldc, 1);
}
