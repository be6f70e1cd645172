/* blas.h - one matrix product on the calling thread, by a backend of the library's. */
#ifndef TRAIN_MODEL_BLAS_H
#define TRAIN_MODEL_BLAS_H

#include "muon/muon.h"

#include <stdint.h>

typedef struct mat { /* element (i, j) is data[i * rs + j * cs] */
    const float *data;
    int64_t rs, cs;
} mat;

/* Before the first product: can there be one? */
muon_status blas_check(void);

/* c[m][n] = alpha a[m][k] b[k][n] + beta c, in rows of ldc floats. beta 0: what c held is not read. By
 * BLIS, or by plain loops where it is missing. */
void blas_gemm(int64_t m, int64_t n, int64_t k, float alpha, mat a, mat b, float beta, float *c,
               int64_t ldc);

/* The same for the small products of attention, where packing the operands would cost too much. */
void blas_gemm_small(int64_t m, int64_t n, int64_t k, float alpha, mat a, mat b, float beta,
                     float *c, int64_t ldc);

/* c = a b by the backend of that name (NULL: the fastest), for who measures it. *out is NULL if all that
 * there is are plain loops. */
typedef struct la_ops blas_backend;
muon_status blas_find(const blas_backend **out, const char *name);
void blas_gemm_by(const blas_backend *backend, int64_t m, int64_t n, int64_t k, mat a, mat b,
                  float *c, int64_t ldc);

#endif
