/* Any CBLAS, loaded when it is asked for and kept to itself: BLIS exports the same names, and which of
 * two libraries a linked cblas_sgemm would reach depends on the order in which a host loads them.
 *
 * One thread per product: the tiles are what runs in parallel. Triangles are strips of plain products,
 * as sgemmt is not everywhere. */
#define _GNU_SOURCE /* dladdr */
#include "la/la_cblas.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* as every CBLAS has them */

typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c,
                         int ldc);

static struct {
    void *handle;
    sgemm_fn sgemm;
    char library[256];
    muon_status status;
    char error[MUON__MESSAGE_MAX];
} loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

typedef struct operand {
    int trans, ld;
} operand;

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A view whose rows or columns are contiguous, as CBLAS says it. */
static operand as_operand(la_view view, int64_t cols)
{
    if (view.cs == 1 && view.rs >= cols) return (operand){NO_TRANS, (int)view.rs};
    return (operand){TRANS, (int)view.cs};
}

static void gemm(int64_t m, int64_t n, int64_t k, float alpha, la_view a, la_view b, float beta,
                 float *c, int64_t ldc, int small)
{
    int64_t strides = most(most(a.rs, a.cs), most(b.rs, b.cs));
    if (most(most(most(m, n), k), most(strides, ldc)) > INT_MAX) { /* beyond CBLAS's integers */
        muon__la_reference.gemm(m, n, k, alpha, a, b, beta, c, ldc, small);
        return;
    }
    operand left = as_operand(a, k), right = as_operand(b, n);
    loaded.sgemm(ROW_MAJOR, left.trans, right.trans, (int)m, (int)n, (int)k, alpha, a.data, left.ld,
                 b.data, right.ld, beta, c, (int)ldc);
}

static void gemmt(int64_t m, int64_t k, float alpha, la_view a, la_view b, float *c, int64_t ldc)
{
    enum { STRIP = 48 };
    for (int64_t row = 0; row < m; row += STRIP) {
        int64_t rows = m - row < STRIP ? m - row : STRIP;
        la_view strip = {a.data + row * a.rs, a.rs, a.cs};
        gemm(rows, row + rows, k, alpha, strip, b, 0, c + row * ldc, ldc, 1);
    }
}

/* A function of another library, as what it is. */
static void (*find(void *library, const char *name))(void)
{
    union {
        void *data;
        void (*function)(void);
    } pointer = {dlsym(library, name)};
    return pointer.function;
}

/* How a library is asked for its threads, and told. */
static const struct {
    const char *get, *set;
} threading[] = {{"openblas_get_num_threads", "openblas_set_num_threads"},
                 {"MKL_Get_Max_Threads", "MKL_Set_Num_Threads"}};

/* Nobody else's settings are touched: only a library that nobody else had loaded is told. A serial
 * OpenBLAS is as a rule built without the locks that its buffers need: with Debian's 0.3.21 and four
 * threads, up to one product in a hundred of 64 to 192 rows is wrong. */
static muon_status make_single(void *library, const char *path, int shared)
{
    int (*parallel)(void) = (int (*)(void))find(library, "openblas_get_parallel");
    REQUIRE(
        !parallel || parallel() != 0, E_BACKEND,
        "backend 'cblas': %s is a serial OpenBLAS, which gives wrong results when several threads "
        "call it at once; use a multithreaded one (libopenblas0-pthread), which libmuon sets to "
        "one thread",
        path);
    for (size_t i = 0; i < sizeof threading / sizeof *threading; i++) {
        int (*get)(void) = (int (*)(void))find(library, threading[i].get);
        void (*set)(int) = (void (*)(int))find(library, threading[i].set);
        if (!get) continue;
        if (set && !shared) set(1);
        REQUIRE(
            get() <= 1, E_BACKEND,
            "backend 'cblas': %s, which this process had loaded before, would start %d threads for "
            "each product; set OPENBLAS_NUM_THREADS=1 (MKL_NUM_THREADS, OMP_NUM_THREADS)",
            path, get());
    }
    return MUON_OK;
}

/* Integers of another width, or another calling convention, would not pass this. */
static int multiplies(sgemm_fn sgemm)
{
    const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 10, 2, 20, 3, 30}, want[] = {28, 280, 64, 640};
    float c[] = {NAN, NAN, NAN, NAN};
    sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, 2, 2, 3, 2, a, 3, b, 2, 0, c, 2);
    int same = 1;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        same &= c[i] == want[i];
    return same;
}

muon_status muon__la_cblas_load(const char *path)
{
    int shared = dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library, E_BACKEND, "backend 'cblas': %s", dlerror());
    sgemm_fn sgemm = (sgemm_fn)find(library, "cblas_sgemm");
    REQUIRE(sgemm, E_BACKEND, "backend 'cblas': %s has no cblas_sgemm", path);
    TRY(make_single(library, path, shared));
    REQUIRE(
        multiplies(sgemm), E_BACKEND,
        "backend 'cblas': %s multiplies 2 x 3 by 3 x 2 incorrectly; its integers must have 32 bits",
        path);
    Dl_info info;
    int known = dladdr(dlsym(library, "cblas_sgemm"), &info) && info.dli_fname;
    snprintf(loaded.library, sizeof loaded.library, "%s", known ? info.dli_fname : path);
    loaded.sgemm = sgemm;
    loaded.handle = library;
    return MUON_OK;
}

static void load_once(void)
{
    const char *path = getenv("MUON_CBLAS_LIBRARY");
    loaded.status = muon__la_cblas_load(path && *path ? path : MUON_CBLAS_LIBRARY);
    if (loaded.status != MUON_OK)
        snprintf(loaded.error, sizeof loaded.error, "%s", muon_last_error());
}

static muon_status check(void)
{
    pthread_once(&once, load_once);
    return loaded.status == MUON_OK ? MUON_OK : muon__fail(loaded.status, "%s", loaded.error);
}

const char *muon__la_cblas_library(void)
{
    return loaded.library;
}

/* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ... Zen": the first two words; the kernels as in "Zen". Of
 * other libraries the file is all that is known. */
static void describe(muon_backend_info *info, la_facts *facts)
{
    (void)facts;
    const char *(*config)(void) = (const char *(*)(void))find(loaded.handle, "openblas_get_config");
    const char *(*core)(void) = (const char *(*)(void))find(loaded.handle, "openblas_get_corename");
    snprintf(info->library, sizeof info->library, "%s", loaded.library);
    if (config) {
        const char *words = config();
        size_t first = strcspn(words, " "),
               second = strcspn(words + first + (words[first] != 0), " ");
        snprintf(info->version, sizeof info->version, "%.*s", (int)(first + 1 + second), words);
    }
    if (core) snprintf(info->kernels, sizeof info->kernels, "%s", core());
}

/* OpenBLAS maps buffers of its own, one for each thread that multiplies at the same time, and keeps
 * them: nothing of the heap has to be warmed up. */
const la_ops muon__la_cblas = {
    .name = "cblas", .gemm = gemm, .gemmt = gemmt, .check = check, .describe = describe};
