/* predict.h - what config.machine would take for a step, for this plan and for schemes in use. */
#ifndef PLAN_PREDICT_PREDICT_H
#define PLAN_PREDICT_PREDICT_H

#include "plan/route/shares.h"

/* Bytes of workspace of the rank that needs most. */
muon_status muon__predict_workspace(int64_t *out, const muon_plan *plan);

/* Tensors of one shape and layout in batches as large as the group that shards them, one whole tensor
 * for each of its ranks, by all-to-all; what is missing in the last batch is padded, and so are shards
 * to the largest. Every group of replicas does the same. */
muon_status muon__predict_padded(muon_scheme_cost *out, const muon_plan *plan, const patterns *p);

#endif
