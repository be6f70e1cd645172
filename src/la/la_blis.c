/* BLIS, always on one thread: the tiles of a product are what runs in parallel. The kernels that
 * skip packing are for small operands only (base/blis.h says why). For AVX-512, BLIS has the inner kernel
 * only, and operands are packed here (la/blis_panels.h). */
#include "base/blis.h"
#include "la/blis_panels.h"
#include "la/la.h"

#include <stdio.h>

static blis_matrix matrix(la_view view)
{
    return (blis_matrix){view.data, view.rs, view.cs};
}

static void gemm(int64_t m, int64_t n, int64_t k, float alpha, la_view a, la_view b, float beta,
                 float *c, int64_t ldc, int small)
{
    if (muon__panels_suit())
        muon__panels_multiply(m, n, k, alpha, matrix(a), matrix(b), beta, c, ldc, 0);
    else
        muon__blis_gemm(m, n, k, alpha, matrix(a), matrix(b), beta, c, ldc, small);
}

enum {
    STRIP = 24,  /* rows */
    STRIPS = 320 /* a triangle up to this size, of a product up to this depth, goes by strips */
};

/* A small triangle, as strips of rows that end at the diagonal, by the kernels that skip packing: for
 * half a product of this size, packing costs more than the corners the strips compute in vain. Only
 * for operands whose rows are contiguous, which these kernels like. */
static void gemmt_strips(int64_t m, int64_t k, float alpha, la_view a, la_view b, float *c,
                         int64_t ldc)
{
    for (int64_t row = 0; row < m; row += STRIP) {
        int64_t rows = m - row < STRIP ? m - row : STRIP;
        blis_matrix strip = {a.data + row * a.rs, a.rs, 1};
        muon__blis_gemm(rows, row + rows, k, alpha, strip, matrix(b), 0, c + row * ldc, ldc, 1);
    }
}

static void gemmt(int64_t m, int64_t k, float alpha, la_view a, la_view b, float *c, int64_t ldc)
{
    if (muon__panels_suit())
        muon__panels_multiply(m, m, k, alpha, matrix(a), matrix(b), 0, c, ldc, 1);
    else if (m <= STRIPS && k <= STRIPS && a.cs == 1 && b.cs == 1)
        gemmt_strips(m, k, alpha, a, b, c, ldc);
    else
        muon__blis_gemmt(m, k, alpha, matrix(a), matrix(b), c, ldc);
}

static muon_status reserve(int threads)
{
    return muon__panels_suit() ? muon__panels_reserve(threads) : MUON_OK;
}

static void release(int threads)
{
    if (muon__panels_suit()) muon__panels_release(threads);
}

static void describe(muon_backend_info *info, la_facts *facts)
{
    blis_description d = muon__blis_describe();
    snprintf(info->library, sizeof info->library, "%s", d.library);
    snprintf(info->version, sizeof info->version, "%s", d.version);
    snprintf(info->kernels, sizeof info->kernels, "%s", d.kernels);
    facts->built_for = d.built_for;
    facts->remedy = d.haswell;
}

static atomic_int served;

const la_ops muon__la_blis = {.name = "blis",
                              .gemm = gemm,
                              .gemmt = gemmt,
                              .by_columns = muon__panels_suit,
                              .reserve = reserve,
                              .release = release,
                              .check = muon__blis_check,
                              .describe = describe,
                              .served = &served};
