/* Waves: which matrices are in the workspace together, and how much workspace that is.
 *
 * Matrices that are too small for all threads to share run side by side, one per thread, each with
 * scratch of its own. Where the budget does not allow that, they take turns like large ones: slower,
 * the same bits. */
#include "plan/route/waves.h"

#include "plan/owned.h"
#include "plan/route/rings.h"
#include "variant/variant.h"

#include <assert.h>
#include <stdlib.h>

enum {
    TILES_PER_THREAD = 3, /* fewer, and threads wait for each other at every product */
    SMALL_PER_THREAD = 8, /* matrices in a wave at least, where they run side by side */
    /* Ranks may have different numbers of threads, but must agree on the waves: they are made for
     * this many, and for fewer matrices, since several waves are in memory at once. */
    ASSUMED_THREADS = 4,
    SMALL_PER_ASSUMED = 2,
    WAVES_TO_OVERLAP = 4, /* at least, for more than WAVE_FLOATS */
    BUDGET_TRIES = 8      /* sizes of a wave, where a budget limits it */
};

/* ---- Sizes */

/* Matrices of up to `floats` may run side by side, if there is more than one thread. */
static void choose_small(muon_plan *plan, int threads, int64_t floats)
{
    plan->scratch_large = plan->scratch_small = 0;
    for (size_t i = 0; i < plan->nclasses; i++) {
        plan_class *c = &plan->classes[i];
        if (c->alone == 0) continue;
        int64_t m = c->rows < c->cols ? c->rows : c->cols;
        c->small = threads > 1 && muon__matrix_floats(c) <= floats &&
                   muon__la_symmetric_tiles(m) < (int64_t)TILES_PER_THREAD * threads;
        int64_t scratch = muon__plan_class_scratch(plan, c);
        int64_t *most = c->small ? &plan->scratch_small : &plan->scratch_large;
        assert(scratch >= 0); /* as large as it would have to be, no tensor is */
        scratch += muon__variant_scratch(&plan->groups[c->group], c->rows, c->cols);
        if (scratch > *most) *most = scratch;
    }
}

static int64_t largest_slot(const muon_plan *plan, int small_only)
{
    int64_t largest = 0;
    for (size_t i = 0; i < plan->nclasses; i++) {
        int64_t slot = muon__matrix_floats(&plan->classes[i]);
        if (plan->classes[i].alone == 0) continue;
        if (slot > largest && (plan->classes[i].small || !small_only)) largest = slot;
    }
    return largest;
}

/* What a wave holds if no budget says otherwise: at least so many small matrices; no more than the
 * `all` that there is, but `largest` in any case. */
static int64_t wanted_floats(const muon_plan *plan, int64_t small, int64_t all, int64_t largest)
{
    int64_t side_by_side = small * largest_slot(plan, 1);
    int64_t wanted = side_by_side > WAVE_FLOATS ? side_by_side : WAVE_FLOATS;
    if (wanted > all) wanted = all;
    return wanted > largest ? wanted : largest;
}

static int64_t bytes_of(int64_t floats)
{
    return floats * (int64_t)sizeof(float);
}

/* ---- One process: waves are consecutive items */

static muon_status size_for_one(muon_plan *plan)
{
    choose_small(plan, plan->threads, INT64_MAX);
    int64_t largest = largest_slot(plan, 0), all = 0;
    for (size_t i = 0; i < (size_t)plan->cost.matrices; i++)
        all += muon__slot_floats(&plan->items[plan->matrix_item[i]]);
    plan->wave_floats =
        wanted_floats(plan, (int64_t)SMALL_PER_THREAD * plan->threads, all, largest);
    if (plan->config.workspace_budget > 0) {
        int64_t budget = plan->config.workspace_budget / MUON__ALIGN * WAVE_LINE;
        if (largest + muon__scratch_floats(plan) > budget) choose_small(plan, 1, 0);
        int64_t left = budget - muon__scratch_floats(plan);
        REQUIRE(left >= largest, E_BUDGET,
                "workspace_budget is %lld bytes, but the largest matrix needs %lld",
                (long long)plan->config.workspace_budget,
                (long long)bytes_of(largest + muon__scratch_floats(plan)));
        if (plan->wave_floats > left) plan->wave_floats = left;
    }
    plan->cost.workspace_bytes = bytes_of(plan->wave_floats + muon__scratch_floats(plan));
    return MUON_OK;
}

static void fill_consecutive(muon_plan *plan)
{
    int64_t used = 0;
    for (size_t i = 0; i < plan->nitems; i++) {
        plan_item *item = &plan->items[i];
        int64_t slot = item->class == PLAN_IDLE ? 0 : muon__slot_floats(item);
        if (used + slot > plan->wave_floats) {
            plan->nwaves++;
            used = 0;
        }
        item->wave = (int32_t)plan->nwaves;
        used += slot;
    }
    if (plan->nitems) plan->nwaves++;
}

/* ---- Many ranks */

/* Makes waves of this size. Bytes of the rank that needs most, besides scratch. */
static muon_status spread(muon_plan *plan, const owners *o, const patterns *p, int64_t wave_floats,
                          int64_t *bytes)
{
    plan->wave_floats = wave_floats;
    TRY(muon__waves_spread(plan, o));
    traffic t = {0};
    muon_status status = muon__traffic_create(&t, plan, p);
    if (status == MUON_OK) *bytes = muon__traffic_workspace(&t, plan);
    muon__traffic_destroy(&t);
    return status;
}

/* The largest waves up to `wanted` that fit the budget on every rank, all of them in flight if that fits and
 * nobody has said otherwise. It depends on what is sent in a wave, so it is found by trying. */
static muon_status fit_budget(muon_plan *plan, const owners *o, const patterns *p, int64_t wanted,
                              int64_t *bytes)
{
    int64_t budget = plan->config.workspace_budget, least = muon__least_wave(o), needed;
    int64_t side_by_side = bytes_of(plan->scratch_small * ASSUMED_THREADS);
    if (side_by_side < bytes_of(plan->scratch_large)) side_by_side = bytes_of(plan->scratch_large);
    choose_small(plan, 1, 0);
    side_by_side += bytes_of(plan->scratch_team);
    int64_t scratch = bytes_of(plan->scratch_large + plan->scratch_team);
    if (plan->in_flight == 0) {
        TRY(spread(plan, o, p, wanted, bytes));
        if (*bytes + side_by_side <= budget) return MUON_OK;
        plan->in_flight = USUAL_DEPTH;
    }
    TRY(spread(plan, o, p, least, &needed));
    REQUIRE(needed + scratch <= budget, E_BUDGET,
            "workspace_budget is %lld bytes, but the rank with the largest messages needs %lld",
            (long long)budget, (long long)(needed + scratch));
    if (needed + side_by_side <= budget) scratch = side_by_side;
    int64_t most = wanted;
    TRY(spread(plan, o, p, most, bytes));
    for (int i = 0; i < BUDGET_TRIES && least<most && * bytes + scratch> budget; i++) {
        int64_t half = (least + most) / 2 / WAVE_LINE * WAVE_LINE;
        TRY(spread(plan, o, p, half, &needed));
        *(needed + scratch <= budget ? &least : &most) = half;
    }
    return *bytes + scratch <= budget ? MUON_OK : spread(plan, o, p, least, bytes);
}

/* The part of `all` that a wave may have so that there are several, unless all of it is little. */
static int64_t overlapping(int64_t all)
{
    int64_t part = all / WAVES_TO_OVERLAP / WAVE_LINE * WAVE_LINE;
    if (all <= WAVE_FLOATS) return all;
    return part > WAVE_FLOATS ? part : WAVE_FLOATS;
}

static muon_status make_for_ranks(muon_plan *plan, owners *o, const patterns *p)
{
    TRY(muon__owners_create(o, plan, p));
    choose_small(plan, ASSUMED_THREADS, INT64_MAX);
    int64_t wanted = wanted_floats(plan, (int64_t)SMALL_PER_ASSUMED * ASSUMED_THREADS,
                                   overlapping(o->floats), muon__least_wave(o));
    int64_t bytes = 0;
    int64_t budget = plan->config.workspace_budget;
    plan->in_flight = plan->config.in_flight;
    if (budget > 0) {
        TRY(fit_budget(plan, o, p, wanted, &bytes));
    } else {
        plan->wave_floats = wanted;
        TRY(muon__waves_spread(plan, o));
    }
    /* From here on it is this rank's own affair: a wave should have one for each thread. */
    choose_small(plan, plan->threads, plan->wave_floats / plan->threads);
    if (budget > 0 && bytes + bytes_of(muon__scratch_floats(plan)) > budget)
        choose_small(plan, 1, 0);
    return MUON_OK;
}

muon_status muon__waves_for_ranks(muon_plan *plan, const patterns *p)
{
    owners o = {0};
    muon_status status = make_for_ranks(plan, &o, p);
    muon__owners_destroy(&o);
    return status;
}

static muon_status waves_for_ranks(muon_plan *plan)
{
    patterns p = {0};
    muon_status status = muon__patterns_create(&p, plan);
    if (status == MUON_OK) status = muon__waves_for_ranks(plan, &p);
    muon__patterns_destroy(&p);
    return status;
}

/* ---- Both */

/* Lists items by wave, and gives each a slot behind those its owner has there already. */
static muon_status list_waves(muon_plan *plan)
{
    TRY(CALLOC(&plan->order, plan->nitems, "waves"));
    TRY(CALLOC(&plan->wave, plan->nwaves + 1, "waves"));
    for (size_t i = 0; i < plan->nitems; i++)
        plan->wave[plan->items[i].wave + 1]++;
    for (size_t w = 0; w < plan->nwaves; w++)
        plan->wave[w + 1] += plan->wave[w];
    for (size_t i = 0; i < plan->nitems; i++) /* wave[w] becomes its end ... */
        plan->order[plan->wave[plan->items[i].wave]++] = (uint32_t)i;
    for (size_t w = plan->nwaves; w > 0; w--) /* ... which is where the next begins */
        plan->wave[w] = plan->wave[w - 1];
    plan->wave[0] = 0;
    plan->cost.waves = (int64_t)plan->nwaves;
    struct filled {
        int32_t wave;
        int64_t floats;
    } *filled = NULL; /* what every rank has in the last wave it had something in */
    TRY(CALLOC(&filled, (size_t)plan->nranks, "waves"));
    for (size_t i = 0; i < plan->nitems; i++) {
        plan_item *item = &plan->items[plan->order[i]];
        if (item->class == PLAN_IDLE) continue;
        struct filled *f = &filled[item->owner];
        if (f->wave != item->wave) *f = (struct filled){.wave = item->wave};
        item->slot = f->floats;
        f->floats += muon__slot_floats(item);
    }
    free(filled);
    return MUON_OK;
}

static void count_state(muon_plan *plan)
{
    for (size_t i = 0; i < plan->nparams; i++) {
        const plan_param *param = &plan->params[i];
        if (param->rule == MUON_RULE_FROZEN) continue;
        plan->cost.state_bytes +=
            param->numel * muon__plan_state_bytes(plan, param) + (int64_t)sizeof(int64_t);
    }
    for (size_t i = 0; i < plan->nitems; i++)
        plan->cost.state_bytes += muon__owned_bytes(plan, &plan->items[i]);
}

muon_status muon__plan_make_waves(muon_plan *plan)
{
    if (plan->nranks == 1) {
        TRY(size_for_one(plan));
        fill_consecutive(plan);
    } else {
        TRY(waves_for_ranks(plan));
    }
    count_state(plan);
    return list_waves(plan);
}
