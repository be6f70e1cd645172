/* second.h - second moments of whole matrices: a number for each row or column, or one. */
#ifndef VARIANT_SECOND_H
#define VARIANT_SECOND_H

#include "variant/variant.h"

/* There is one for each column of the matrix as it is stored, or each row, rather than one for all. */
int muon__second_is_by_lines(const muon_group *group);
int muon__second_is_by_columns(const variant *v);

/* Moves V towards the means of O^2, where O is `by` times a matrix whose rows, or columns, have the squares
 * sums[i]. Replaces these by the factors that divide O by the roots of V; O keeps its norm, which is
 * returned. */
double muon__second_factors(const variant *v, double *sums, double by);
/* MUON_SECOND_MATRIX: moves V towards the square of the gradient's norm; returns what O is multiplied
 * by. u: the norm of U. */
double muon__second_factor(const variant *v, double u);

#endif
