/* What QK-clip does to each row, for engines that do it themselves. */
#include "muon/route.h"

#include "base/memory.h"
#include "base/mode.h"
#include "plan/plan.h"
#include "rule/qk_clip.h"

#include <stdlib.h>

static void fill_with_ones(float *scale, int64_t rows)
{
    for (int64_t row = 0; row < rows; row++)
        scale[row] = 1;
}

static void spread(float *scale, const qk_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int64_t row = ranges[i].row; row < ranges[i].row + ranges[i].nrows; row++)
            scale[row] = ranges[i].scale;
}

muon_status muon_plan_get_qk_scales(const muon_plan *plan, size_t attention,
                                    const float *max_logits, float *q, float *k, int64_t *above)
{
    OWN_MODE;
    REQUIRE(plan && max_logits && q && k && above, E_ARG,
            "muon_plan_get_qk_scales: no argument may be NULL");
    REQUIRE(attention < plan->nattention, E_ARG,
            "attention layer %zu does not exist: the plan has %zu", attention, plan->nattention);
    const plan_attention *a = &plan->attention[attention];
    REQUIRE((q == k) == (a->q == a->k), E_ARG, "attention '%s': q and k are %s", a->settings.name,
            a->q == a->k ? "one tensor, but two arrays" : "two tensors, but one array");
    size_t nq, nk;
    muon__qk_capacity(&a->settings, &nq, &nk);
    qk_range *ranges = NULL;
    TRY(CALLOC(&ranges, nq + nk, "ranges of rows"));
    qk_range *q_ranges = ranges, *k_ranges = ranges + nq;
    *above = muon__qk_scales(&a->settings, plan->config.qk_threshold, max_logits, q_ranges, &nq,
                             k_ranges, &nk);
    fill_with_ones(q, plan->params[a->q].shape[0]);
    if (k != q) fill_with_ones(k, plan->params[a->k].shape[0]);
    spread(q, q_ranges, nq);
    spread(k, k_ranges, nk);
    free(ranges);
    return MUON_OK;
}
