/* agree_describe.h - descriptions of settings, so that those of two ranks can be compared. */
#ifndef STEP_AGREE_DESCRIBE_H
#define STEP_AGREE_DESCRIBE_H

#include "base/text.h"
#include "step/agree_step.h"

void muon__describe_param(text *t, const muon_plan *plan, size_t index);
void muon__describe_group(text *t, const muon_group *group);
void muon__describe_config(text *t, const muon_plan *plan);
void muon__describe_attention(text *t, const muon_plan *plan, size_t index);
void muon__describe_settings(text *t, const char *call, const step_setting *settings, size_t n);

/* "group 'muon': lr is 0.02 on rank 0, 0.03 on rank 2": the first difference between two
 * descriptions of the same kind. */
void muon__describe_difference(text *out, const char *a, int rank_a, const char *b, int rank_b);

#endif
