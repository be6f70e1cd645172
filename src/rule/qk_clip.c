#include "rule/qk_clip.h"

#include <float.h>
#include <math.h>

qk_layout muon__qk_layout(const muon_attention *a)
{
    if (a->kind == MUON_ATTENTION_MLA) {
        int64_t q_rows = (int64_t)a->nope_dim + a->rope_dim,
                k_rows = (int64_t)a->nope_dim + a->v_dim;
        return (qk_layout){a->heads, q_rows, q_rows, k_rows, k_rows};
    }
    int64_t q_rows = (int64_t)(a->heads / a->kv_heads) * a->head_dim, k_rows = a->head_dim;
    return (qk_layout){a->kv_heads, q_rows, a->group_stride ? a->group_stride : q_rows, k_rows,
                       a->group_stride ? a->group_stride : k_rows};
}

void muon__qk_capacity(const muon_attention *a, size_t *nq, size_t *nk)
{
    size_t blocks = (size_t)muon__qk_layout(a).blocks;
    *nk = blocks;
    if (a->kind == MUON_ATTENTION_MLA)
        *nq = 2 * blocks;
    else
        *nq = a->rule == MUON_QK_GROUP ? blocks : (size_t)a->heads;
}

static int is_above(float logit, double threshold)
{
    return isfinite(logit) && (double)logit > threshold;
}

static double shrink(float logit, double threshold)
{
    return is_above(logit, threshold) ? threshold / (double)logit : 1;
}

/* A scale too small for a float is the smallest one, because 0 would erase the weights for good. */
static void put(qk_range *list, size_t *n, int64_t row, int64_t nrows, double scale)
{
    float rounded = scale < (double)FLT_MIN ? FLT_MIN : (float)scale;
    if (rounded != 1) list[(*n)++] = (qk_range){row, nrows, rounded};
}

static void scale_gqa(const muon_attention *a, double threshold, const float *max_logits,
                      qk_range *q, size_t *nq, qk_range *k, size_t *nk)
{
    qk_layout at = muon__qk_layout(a);
    int64_t heads = a->heads / a->kv_heads; /* of a group */
    for (int64_t g = 0; g < at.blocks; g++) {
        int64_t q_row = a->q_row + g * at.q_stride;
        double smallest = 1;
        for (int64_t h = 0; h < heads; h++) {
            double gamma = shrink(max_logits[g * heads + h], threshold);
            smallest = fmin(smallest, gamma);
            if (a->rule == MUON_QK_KV_MIN)
                put(q, nq, q_row + h * a->head_dim, a->head_dim, pow(gamma, a->alpha));
        }
        if (a->rule == MUON_QK_GROUP) put(q, nq, q_row, at.q_rows, pow(smallest, a->alpha));
        put(k, nk, a->k_row + g * at.k_stride, at.k_rows, pow(smallest, 1 - a->alpha));
    }
}

static void scale_mla(const muon_attention *a, double threshold, const float *max_logits,
                      qk_range *q, size_t *nq, qk_range *k, size_t *nk)
{
    qk_layout at = muon__qk_layout(a);
    for (int64_t h = 0; h < at.blocks; h++) {
        int64_t q_row = a->q_row + h * at.q_stride;
        double gamma = shrink(max_logits[h], threshold);
        put(q, nq, q_row, a->nope_dim, pow(gamma, a->alpha));
        put(q, nq, q_row + a->nope_dim, a->rope_dim, gamma); /* the rope key is shared and stays */
        put(k, nk, a->k_row + h * at.k_stride, a->nope_dim, pow(gamma, 1 - a->alpha));
    }
}

int64_t muon__qk_scales(const muon_attention *a, double threshold, const float *max_logits,
                        qk_range *q, size_t *nq, qk_range *k, size_t *nk)
{
    *nq = *nk = 0;
    if (a->kind == MUON_ATTENTION_MLA)
        scale_mla(a, threshold, max_logits, q, nq, k, nk);
    else
        scale_gqa(a, threshold, max_logits, q, nq, k, nk);
    int64_t above = 0;
    for (int64_t h = 0; h < a->heads; h++)
        above += is_above(max_logits[h], threshold);
    return above;
}
