#include "blas.h"

#ifdef MUON_HAVE_BLIS

/* The header of a library we do not own: its own style is not our warnings' business. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <blis.h>
#pragma GCC diagnostic pop

/* BLIS takes pointers to what it only reads. */
static float *unconst(const float *x)
{
    union {
        const float *in;
        float *out;
    } pointer = {x};
    return pointer.out;
}

/* Always one thread: the tiles of a product are what runs in parallel. "sup" are the kernels that
 * skip packing: good for small operands, and for others slower by up to a half. */
static void multiply(int64_t m, int64_t n, int64_t k, float alpha, mat a, mat b, float beta,
                     float *c, int64_t ldc, int sup)
{
    rntm_t runtime = BLIS_RNTM_INITIALIZER;
    bli_rntm_set_num_threads(1, &runtime);
    if (!sup) bli_rntm_disable_l3_sup(&runtime);
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, k, &alpha, unconst(a.data), a.rs, a.cs,
                 unconst(b.data), b.rs, b.cs, &beta, c, ldc, 1, NULL, &runtime);
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

#endif

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
