/* Waves: which matrices are in the workspace together, and how much workspace that is.
 *
 * Matrices that are too small for all threads to share run side by side, one per thread, each with
 * scratch of its own. Where the budget does not allow that, they take turns like large ones: slower,
 * the same bits. */
#include "base/memory.h"
#include "plan/plan.h"

#include <stdlib.h>

/* All sizes are whole cache lines, so that what is planned is to the byte what is allocated. */
enum {
    LINE = MUON__ALIGN / sizeof(float),
    TILES_PER_THREAD = 3,          /* fewer, and threads wait for each other at every product */
    WAVE_FLOATS = 2 * 1024 * 1024, /* 8 MiB: what a stage leaves is in cache for the next */
    SMALL_PER_THREAD = 8           /* matrices in a wave at least, where they run side by side */
};

static void choose_small(muon_plan *plan, int side_by_side)
{
    plan->scratch_large = plan->scratch_small = 0;
    for (size_t i = 0; i < plan->nclasses; i++) {
        plan_class *c = &plan->classes[i];
        int64_t m = c->rows < c->cols ? c->rows : c->cols;
        c->small =
            side_by_side && muon__la_symmetric_tiles(m) < (int64_t)TILES_PER_THREAD * plan->threads;
        int64_t scratch = plan->config.orthogonalize ? 0 : muon__ns_scratch(c->rows, c->cols);
        int64_t *most = c->small ? &plan->scratch_small : &plan->scratch_large;
        if (scratch < 0)
            scratch = INT64_MAX / 8 / plan->threads; /* refused when memory is asked for */
        if (scratch > *most) *most = scratch;
    }
}

static int64_t scratch_floats(const muon_plan *plan)
{
    int64_t small = plan->scratch_small * plan->threads;
    return small > plan->scratch_large ? small : plan->scratch_large;
}

static int64_t slot_floats(const plan_class *c)
{
    return (c->rows * c->cols + LINE - 1) / LINE * LINE;
}

static int64_t largest_slot(const muon_plan *plan, int small_only)
{
    int64_t largest = 0;
    for (size_t i = 0; i < plan->nclasses; i++) {
        int64_t slot = slot_floats(&plan->classes[i]);
        if (slot > largest && (plan->classes[i].small || !small_only)) largest = slot;
    }
    return largest;
}

/* What a wave holds if no budget says otherwise; no more than there is. */
static int64_t wanted_floats(const muon_plan *plan, int64_t largest)
{
    int64_t side_by_side = (int64_t)SMALL_PER_THREAD * plan->threads * largest_slot(plan, 1);
    int64_t wanted = side_by_side > WAVE_FLOATS ? side_by_side : WAVE_FLOATS;
    int64_t all = 0;
    for (size_t i = 0; i < plan->nitems && all < wanted; i++)
        if (plan->items[i].class != PLAN_IDLE)
            all += slot_floats(&plan->classes[plan->items[i].class]);
    if (wanted > all) wanted = all;
    return wanted > largest ? wanted : largest;
}

static muon_status size_buffers(muon_plan *plan)
{
    choose_small(plan, plan->threads > 1);
    int64_t largest = largest_slot(plan, 0);
    plan->wave_floats = wanted_floats(plan, largest);
    if (plan->config.workspace_budget > 0) {
        int64_t budget = plan->config.workspace_budget / MUON__ALIGN * LINE;
        if (largest + scratch_floats(plan) > budget) choose_small(plan, 0);
        int64_t left = budget - scratch_floats(plan);
        REQUIRE(left >= largest, E_BUDGET,
                "workspace_budget is %lld bytes, but the largest matrix needs %lld",
                (long long)plan->config.workspace_budget,
                (long long)((largest + scratch_floats(plan)) * (int64_t)sizeof(float)));
        if (plan->wave_floats > left) plan->wave_floats = left;
    }
    plan->cost.workspace_bytes =
        (plan->wave_floats + scratch_floats(plan)) * (int64_t)sizeof(float);
    return MUON_OK;
}

typedef struct costed {
    double flops;
    uint32_t item;
} costed;

static int costly_first(const void *a, const void *b)
{
    const costed *ca = a, *cb = b;
    if (ca->flops != cb->flops) return ca->flops > cb->flops ? -1 : 1;
    return (ca->item > cb->item) - (ca->item < cb->item);
}

static muon_status sort_waves(muon_plan *plan, const double *class_flops)
{
    costed *sorted = NULL;
    TRY(CALLOC(&sorted, plan->nitems, "waves"));
    for (size_t i = 0; i < plan->nitems; i++) {
        int32_t class = plan->items[i].class;
        sorted[i] = (costed){class == PLAN_IDLE ? 0 : class_flops[class], (uint32_t)i};
        plan->cost.flops += sorted[i].flops;
    }
    for (size_t w = 0; w < plan->nwaves; w++)
        qsort(sorted + plan->wave[w], plan->wave[w + 1] - plan->wave[w], sizeof *sorted,
              costly_first);
    for (size_t i = 0; i < plan->nitems; i++)
        plan->order[i] = sorted[i].item;
    free(sorted);
    return MUON_OK;
}

static void fill_waves(muon_plan *plan)
{
    int64_t used = 0;
    for (size_t i = 0; i < plan->nitems; i++) {
        plan_item *item = &plan->items[i];
        int64_t slot = item->class == PLAN_IDLE ? 0 : slot_floats(&plan->classes[item->class]);
        if (used + slot > plan->wave_floats) {
            plan->wave[++plan->nwaves] = i;
            used = 0;
        }
        item->slot = used;
        used += slot;
        plan->params[item->param].last_wave = plan->nwaves;
    }
    if (plan->nitems) plan->wave[++plan->nwaves] = plan->nitems;
    plan->cost.waves = (int64_t)plan->nwaves;
}

static void count_state(muon_plan *plan)
{
    for (size_t i = 0; i < plan->nparams; i++) {
        const plan_param *param = &plan->params[i];
        int64_t element = 0;
        if (param->rule == MUON_RULE_ADAMW) element = 2 * (int64_t)sizeof(float);
        if (param->rule == MUON_RULE_MUON)
            element = plan->groups[param->group].momentum_dtype == MUON_BF16 ? 2 : 4;
        if (element) plan->cost.state_bytes += param->numel * element + (int64_t)sizeof(int64_t);
    }
}

muon_status muon__plan_make_waves(muon_plan *plan)
{
    TRY(size_buffers(plan));
    TRY(CALLOC(&plan->order, plan->nitems, "waves"));
    TRY(CALLOC(&plan->wave, plan->nitems + 1, "waves"));
    fill_waves(plan);
    count_state(plan);
    double *class_flops = NULL;
    TRY(CALLOC(&class_flops, plan->nclasses, "shapes"));
    muon_status status = MUON_OK;
    for (size_t i = 0; i < plan->nclasses && status == MUON_OK; i++) {
        ns_plan ns;
        status = muon__plan_class_ns(&ns, &plan->classes[i], &plan->groups[plan->classes[i].group]);
        if (status == MUON_OK) class_flops[i] = muon__ns_flops(&ns);
    }
    if (status == MUON_OK) status = sort_waves(plan, class_flops);
    free(class_flops);
    return status;
}
