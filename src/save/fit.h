/* fit.h - does a checkpoint fit an optimizer? Tensors are compared by name, and all mismatches
 * listed. */
#ifndef SAVE_FIT_H
#define SAVE_FIT_H

#include "save/tensors.h"

typedef struct fit {
    int64_t *from;          /* [tensors->n] the checkpoint's tensor, or -1 */
    unsigned char *missing; /* [tensors->n] */
    size_t nmissing;
} fit;

/* MUON_E_NAME for what is missing or extra, unless args allow it; MUON_E_SHAPE for a shape or
 * dtype, MUON_E_VALUE for a momentum form that is another one (unless settings are restored, and
 * with them the form). The message has the first few of each kind; the log of rank 0 has all. */
muon_status muon__fit_create(fit *out, const saved_tensors *tensors,
                             const muon_checkpoint *checkpoint, const muon_load_args *args);
void muon__fit_destroy(fit *f); /* zeroed is fine */

#endif
