/* qk_clip.h - which rows QK-clip multiplies by what: pure arithmetic on one attention layer.
 *
 * Only rows that change appear in a range, so heads at or below the threshold keep every bit. A
 * logit that is NaN or infinite comes from a broken forward pass; it says nothing about how much to
 * shrink (infinity would ask for zero weights), so such a head counts as not above the threshold:
 * its own rows stay, and in a group or under a kv head only its neighbours decide. */
#ifndef RULE_QK_CLIP_H
#define RULE_QK_CLIP_H

#include "base/status.h"

/* Rows row .. row + nrows - 1 of dim 0 are multiplied by scale, which is never 0 or 1. */
typedef struct qk_range {
    int64_t row, nrows;
    float scale;
} qk_range;

/* Where heads are: `blocks` blocks of rows in the query tensor and as many in the key tensor, one
 * for each kv head (GQA) or head (MLA). */
typedef struct qk_layout {
    int64_t blocks;
    int64_t q_rows, q_stride; /* of a block, and from one to the next */
    int64_t k_rows, k_stride;
} qk_layout;

/* Needs heads, kv_heads and dims of at least 1. */
qk_layout muon__qk_layout(const muon_attention *a);

/* The most ranges muon__qk_scales can write. */
void muon__qk_capacity(const muon_attention *a, size_t *nq, size_t *nk);

/* Writes the ranges, in order of rows, and returns the number of heads above the threshold.
 * max_logits has a value for each head. Scales are computed in double and rounded once. */
int64_t muon__qk_scales(const muon_attention *a, double threshold, const float *max_logits,
                        qk_range *q, size_t *nq, qk_range *k, size_t *nk);

#endif
