/* second.h - second moments of whole matrices: a number for each row or column, or one. */
#ifndef VARIANT_SECOND_H
#define VARIANT_SECOND_H

#include "variant/variant.h"

/* Moves V towards the means of O^2 and divides O by its roots; O keeps its norm. */
void muon__second_divide(const variant *v, float *o, pool *p, double *sums);
/* MUON_SECOND_MATRIX: moves V towards the square of the gradient's norm; returns what O is multiplied
 * by. u: the norm of U. */
double muon__second_factor(const variant *v, double u);

#endif
