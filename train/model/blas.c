#include "train/model/blas.h"

#include "base/blis.h"
#include "la/la.h"

#ifdef MUON_HAVE_BLIS
static const la_ops *const la = &muon__la_blis;
#else
static const la_ops *const la = &muon__la_reference;
#endif

static la_view view(mat m)
{
    return (la_view){m.data, m.rs, m.cs};
}

muon_status blas_check(void)
{
    return la->check ? la->check() : MUON_OK;
}

void blas_gemm(int64_t m, int64_t n, int64_t k, float alpha, mat a, mat b, float beta, float *c,
               int64_t ldc)
{
    la->gemm(m, n, k, alpha, view(a), view(b), beta, c, ldc, 0);
}

void blas_gemm_small(int64_t m, int64_t n, int64_t k, float alpha, mat a, mat b, float beta,
                     float *c, int64_t ldc)
{
    la->gemm(m, n, k, alpha, view(a), view(b), beta, c, ldc, 1);
}

muon_status blas_find(const blas_backend **out, const char *name)
{
    TRY(muon__la_find(out, name));
    if (*out == &muon__la_reference) *out = NULL;
    return MUON_OK;
}

void blas_gemm_by(const blas_backend *backend, int64_t m, int64_t n, int64_t k, mat a, mat b,
                  float *c, int64_t ldc)
{
#ifdef MUON_HAVE_BLIS
    if (backend == &muon__la_blis) {
        muon__blis_gemm(m, n, k, 1, (blis_matrix){a.data, a.rs, a.cs},
                        (blis_matrix){b.data, b.rs, b.cs}, 0, c, ldc, 0);
        return;
    }
#endif
    backend->gemm(m, n, k, 1, view(a), view(b), 0, c, ldc, 0);
}
