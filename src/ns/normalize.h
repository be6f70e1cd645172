/* normalize.h - a matrix divided by its own Frobenius norm, whatever its scale.
 *
 * The norm is summed and the division done in double, so inputs of 1e-30 and 1e30 come out alike. */
#ifndef NS_NORMALIZE_H
#define NS_NORMALIZE_H

#include "ns/newton_schulz.h"

/* to = x / (norm of x, with the settings' eps); zero stays zero. to may be x. MUON_E_NONFINITE, with
 * nothing written, if x has a NaN or infinity. */
muon_status muon__ns_normalize(float *to, const float *x, const ns_plan *plan, pool *p);

#endif
