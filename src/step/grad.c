/* A gradient with weight decay of the form l2 in it. */
#include "base/simd.h"
#include "rule/group.h"
#include "step/elements.h"

MUON__SIMD static void add_weight(float *restrict out, const float *restrict g,
                                  const float *restrict w, int64_t n, float scale, float l2)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = g[i] * scale + l2 * w[i];
}

const float *muon__grad_regular(const muon_opt *opt, size_t param, int64_t at, int64_t n,
                                float *room, float *scale)
{
    const plan_param *p = &opt->plan->params[param];
    double l2 = muon__group_l2(&opt->groups[p->group]);
    float grad_room[CHUNK], weight_room[CHUNK];
    if (l2 == 0) return grad_read(opt, param, at, n, room);
    const float *g = grad_read(opt, param, at, n, grad_room);
    const float *w = elements_read(opt->buffers[param].param, p->dtype, at, n, weight_room);
    add_weight(room, g, w, n, *scale, (float)l2);
    *scale = 1;
    return room;
}
