/* second.h - second moments of whole matrices: a number for each row, or each column. */
#ifndef VARIANT_SECOND_H
#define VARIANT_SECOND_H

#include "variant/variant.h"

/* Moves V towards the means of O^2 and divides O by its roots; O keeps its norm. */
void muon__second_divide(const variant *v, float *o, pool *p, double *sums);

#endif
