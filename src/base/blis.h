/* blis.h - products by BLIS on the calling thread, whichever version of it is loaded.
 *
 * BLIS 0.9, 1.x and 2.x are all called libblis.so.4, but their structs differ. What they share is
 * the typed interface, functions of numbers and pointers. Its expert half takes a struct, the
 * runtime, and is worth using: a call then has one thread whatever the environment says, and avoids
 * the kernels that skip packing ("sup"), which lose up to 60 % of the speed on large operands. The
 * expert half is used if the loaded BLIS has the version of the headers at compile time. Otherwise
 * the plain half is used, which is always correct but slower, and refused if it would start
 * threads. */
#ifndef BASE_BLIS_H
#define BASE_BLIS_H

#include "base/cpu.h"
#include "base/status.h"

typedef struct blis_matrix { /* element (i, j) is data[i * rs + j * cs] */
    const float *data;
    int64_t rs, cs;
} blis_matrix;

/* What there is to know of the BLIS that runs. */
typedef struct blis_facts {
    const char *version;
    int64_t integer_bits;
    int64_t threads; /* of a product without a runtime: as the environment says, or the host */
} blis_facts;

/* Which kernels the environment asks for, and what there is (blis_kernels.c). */
typedef struct blis_choice {
    const char *wanted; /* BLIS_ARCH_TYPE; NULL: not set */
    const char *version;
    const char *const *names; /* of the kernel sets, by their number */
    int nnames;
    const char *compiled; /* names of those the library has, with a comma after each */
    cpu cpu;
} blis_choice;

/* May BLIS be called at all? */
muon_status muon__blis_check_choice(const blis_choice *choice);

/* The number of the kernels that BLIS should be made to take, because it does not know this processor;
 * -1: it chooses well, or somebody has chosen. */
int muon__blis_choose(const blis_choice *choice);

/* To be asked before the first product: can products be right, and on one thread? */
muon_status muon__blis_check(void);

/* The same of facts that may be made up, by a libmuon that was built for the version. */
muon_status muon__blis_check_facts(const blis_facts *facts, const char *built_for);

/* Of the BLIS that runs; to be asked after the check. */
typedef struct blis_description {
    const char *library; /* its file */
    const char *version, *built_for;
    const char *kernels; /* in use */
    int haswell;         /* the number of kernels for AVX2, as BLIS_ARCH_TYPE takes it; -1: none */
} blis_description;
blis_description muon__blis_describe(void);

/* c[m][n] = alpha a[m][k] b[k][n] + beta c, in rows of ldc floats. sup: it may skip packing, which
 * is good for small operands. */
void muon__blis_gemm(int64_t m, int64_t n, int64_t k, float alpha, blis_matrix a, blis_matrix b,
                     float beta, float *c, int64_t ldc, int sup);

/* c[m][m] = alpha a[m][k] b[k][m] on and below the diagonal. */
void muon__blis_gemmt(int64_t m, int64_t k, float alpha, blis_matrix a, blis_matrix b, float *c,
                      int64_t ldc);

#endif
