/* step_oracle.h - an optimizer step on one tensor in fp64, written to be read.
 *
 * It shares nothing with the library but the lists of coefficients, which have tests of their own.
 * Logical matrices are not described but given element by element: a function says which matrix an
 * element is in, and a matrix is its elements in the order of the tensor. */
#ifndef TESTS_WORLD_STEP_ORACLE_H
#define TESTS_WORLD_STEP_ORACLE_H

#include "tests/world/model.h"

/* The number of the element's matrix in its batch entry, -1 if it is in none. */
typedef int (*oracle_matrix_fn)(int64_t row, int64_t col);

typedef struct oracle {
    int64_t batch, rows, cols;  /* the tensor, folded */
    oracle_matrix_fn matrix_of; /* NULL: a batch entry is one matrix */
    int transposed;
    int wire_bf16;
    double *start, *w; /* weights at first and now */
    double *m, *v;     /* momentum; exp_avg and exp_avg_sq */
    /* Second moments: of elements, or of rows or columns, where each has its first element. */
    double *second;
    int64_t step;
    double update_sumsq, update_elements; /* of the last step: lr * factor * O */
} oracle;

/* Starts from the weights of params[p]; the tensor is batch x rows x cols. */
void oracle_init(oracle *o, const model *m, size_t p, int64_t batch, int64_t rows, int64_t cols);
void oracle_free(oracle *o);

/* One step with the gradient that params[p] has now, times `multiplier`. */
void oracle_muon(oracle *o, const muon_group *group, const model *m, size_t p, double multiplier);
void oracle_adamw(oracle *o, const muon_group *group, const model *m, size_t p, double multiplier);
void oracle_lion(oracle *o, const muon_group *group, const model *m, size_t p, double multiplier);

/* The elements of a matrix, in order; returns how many and writes from how many rows. 0: there is no
 * matrix of this number. */
int64_t oracle_elements(const oracle *o, int64_t batch, int matrix, int64_t *index, int64_t *rows);

/* The factor on lr of a rows x cols matrix. */
double oracle_factor(const muon_group *group, double rows, double cols);

/* Error of the weights of params[p], relative to how far the oracle's have moved. */
double oracle_weight_error(const oracle *o, const model *m, size_t p);
/* Relative error of a state tensor, f32 or bf16. */
double oracle_state_error(const double *want, const muon_tensor *got);

double oracle_bf16(double x); /* nearest, ties to even */

#endif
