/* BLIS, always on one thread: the tiles of a product are what runs in parallel. The kernels that
 * skip packing ("sup") are switched off but for small triangles: on our panels they lose up to half
 * the speed. */
#include "la/la.h"

/* The header of a library we do not own: its own style is not our warnings' business. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <blis.h>
#pragma GCC diagnostic pop

static rntm_t one_thread(void)
{
    rntm_t runtime = BLIS_RNTM_INITIALIZER;
    bli_rntm_set_num_threads(1, &runtime);
    bli_rntm_disable_l3_sup(&runtime);
    return runtime;
}

/* BLIS takes pointers to what it only reads. */
static float *unconst(const float *x)
{
    union {
        const float *in;
        float *out;
    } pointer = {x};
    return pointer.out;
}

static void gemm(int64_t m, int64_t n, int64_t k, float alpha, la_view a, la_view b, float *c,
                 int64_t ldc)
{
    float zero = 0;
    rntm_t runtime = one_thread();
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, k, &alpha, unconst(a.data), a.rs, a.cs,
                 unconst(b.data), b.rs, b.cs, &zero, c, ldc, 1, NULL, &runtime);
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
    float zero = 0;
    rntm_t runtime = one_thread();
    bli_rntm_enable_l3_sup(&runtime);
    for (int64_t row = 0; row < m; row += STRIP) {
        int64_t rows = m - row < STRIP ? m - row : STRIP;
        bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, rows, row + rows, k, &alpha,
                     unconst(a.data + row * a.rs), a.rs, 1, unconst(b.data), b.rs, 1, &zero,
                     c + row * ldc, ldc, 1, NULL, &runtime);
    }
}

static void gemmt(int64_t m, int64_t k, float alpha, la_view a, la_view b, float *c, int64_t ldc)
{
    if (m <= STRIPS && k <= STRIPS && a.cs == 1 && b.cs == 1) {
        gemmt_strips(m, k, alpha, a, b, c, ldc);
        return;
    }
    float zero = 0;
    rntm_t runtime = one_thread();
    bli_sgemmt_ex(BLIS_LOWER, BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, k, &alpha, unconst(a.data),
                  a.rs, a.cs, unconst(b.data), b.rs, b.cs, &zero, c, ldc, 1, NULL, &runtime);
}

/* BLIS packs into blocks from pools, which grow when more threads multiply at the same time than
 * ever before. Threads that only start together may still take turns; so here is a kernel that
 * waits for the others while its thread has its blocks. */
static _Thread_local void (*meet_others)(void *arg);
static _Thread_local void *meet_arg;

static void waiting_kernel(void)
{
    void (*meet)(void *arg) = meet_others;
    meet_others = NULL; /* it is called for every register block */
    if (meet) meet(meet_arg);
}

static cntx_t waiting_context(void)
{
    union {
        void (*function)(void);
        void_fp stored;
    } kernel = {waiting_kernel};
    cntx_t context = *bli_gks_query_cntx();
    bli_func_set_dt(kernel.stored, BLIS_FLOAT, bli_cntx_get_l3_vir_ukrs(BLIS_GEMM_UKR, &context));
    bli_func_set_dt(kernel.stored, BLIS_FLOAT, bli_cntx_get_l3_nat_ukrs(BLIS_GEMM_UKR, &context));
    return context;
}

static void hold_memory(void (*meet)(void *arg), void *arg)
{
    enum { SIDE = 8 };
    float a[SIDE * SIDE] = {0}, c[SIDE * SIDE], one = 1, zero = 0;
    rntm_t runtime = one_thread();
    cntx_t context = waiting_context();
    meet_others = meet;
    meet_arg = arg;
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, SIDE, SIDE, SIDE, &one, a, SIDE, 1, a, SIDE,
                 1, &zero, c, SIDE, 1, &context, &runtime);
}

const la_ops muon__la_blis = {
    .name = "blis", .gemm = gemm, .gemmt = gemmt, .hold_memory = hold_memory};
