/* flops.c - the useful operations of a call: two for each multiplication and addition that the
 * mathematics asks for. What is computed again on the way back does not count, nor what a block of
 * attention computes above the diagonal. */
#include "train/model/parts.h"

/* Elements of a tensor that a token meets. */
static double met_by_a_token(const model *m, const model_tensor *t)
{
    if (t->ndim == 1) return 0;
    if (t->expert) return (double)t->numel * m->config.top_k / m->config.experts;
    return (double)t->numel;
}

double model_flops(const model *m, int64_t sequences, int64_t length, int backward)
{
    const model_config *c = &m->config;
    double per_token = 0;
    for (size_t i = 0; i < m->ntensors; i++)
        if (i != m->embedding) per_token += met_by_a_token(m, model_tensor_at(m, i));
    int per_pair =
        c->attention == MODEL_MLA ? c->nope_dim + c->rope_dim + c->v_dim : 2 * c->head_dim;
    double tokens = (double)sequences * (double)length;
    double pairs = tokens * (double)(length + 1) / 2 * c->heads * c->layers;
    double forward = 2 * (tokens * per_token + pairs * per_pair);
    return backward ? 3 * forward : forward;
}
