/* State in memory of the caller: checked, taken as it is, and left again. */
#include "step/state.h"

#include <string.h>

static const char *const part_names[STATE_PARTS] = {
    [STATE_MOMENTUM] = "momentum",         [STATE_EXP_AVG] = "exp_avg",
    [STATE_EXP_AVG_SQ] = "exp_avg_sq",     [STATE_SECOND] = "second_moment",
    [STATE_SECOND_LIST] = "second_moment", [STATE_CODES] = "momentum",
    [STATE_SCALES] = "momentum_scales"};

static const char *kind_of(muon_rule rule)
{
    static const char *const kinds[] = {[MUON_RULE_MUON] = "a Muon",
                                        [MUON_RULE_ADAMW] = "an AdamW",
                                        [MUON_RULE_FROZEN] = "a frozen",
                                        [MUON_RULE_LION] = "a Lion"};
    return kinds[rule];
}

static muon_status check_part(const muon_opt *opt, size_t index, const char *name, muon_dtype dtype,
                              const void *data, int64_t numel)
{
    const plan_param *p = &opt->plan->params[index];
    REQUIRE(!data || dtype != MUON_NONE, E_ARG,
            "param '%s': state.%s is given, but %s parameter has none", p->name, name,
            kind_of(p->rule));
    if (dtype == MUON_NONE || numel == 0) return MUON_OK;
    REQUIRE(data, E_ARG, "param '%s': state.%s is NULL", p->name, name);
    REQUIRE((uintptr_t)data % muon__dtype_bytes(dtype) == 0, E_ARG,
            "param '%s': state.%s is not aligned to its elements", p->name, name);
    return MUON_OK;
}

_Static_assert(RANGE_STEP - RANGE_STATE == STATE_PARTS, "each part of the state has a range");

static int has_part(const muon_opt *opt, size_t index, state_part part)
{
    return muon__state_dtype(opt, index, part) != MUON_NONE;
}

/* A list of the same name is in its place. */
static int is_list_instead(const muon_opt *opt, size_t index, state_part part)
{
    return (part == STATE_MOMENTUM && has_part(opt, index, STATE_CODES)) ||
           (part == STATE_SECOND && has_part(opt, index, STATE_SECOND_LIST));
}

/* A list is the caller's or ours, as he likes; but codes are worth nothing without their scales. */
static muon_status check_lists(const muon_opt *opt, size_t index, const muon_state_buffers *s)
{
    for (int part = STATE_SHARDED; part < STATE_PARTS; part++) {
        const void *data = muon__state_part(s, (state_part)part);
        if (data && has_part(opt, index, (state_part)part))
            TRY(check_part(opt, index, part_names[part],
                           muon__state_dtype(opt, index, (state_part)part), data,
                           muon__state_numel(opt, index, (state_part)part)));
    }
    if (!has_part(opt, index, STATE_CODES))
        return check_part(opt, index, "momentum_scales", MUON_NONE, s->momentum_scales, 0);
    REQUIRE(!s->momentum == !s->momentum_scales || muon__state_numel(opt, index, STATE_CODES) == 0,
            E_ARG, "param '%s': state.%s is given, but state.%s is NULL",
            opt->plan->params[index].name, s->momentum ? "momentum" : "momentum_scales",
            s->momentum ? "momentum_scales" : "momentum");
    return MUON_OK;
}

static muon_status check_param(const muon_opt *opt, size_t index, const muon_state_buffers *s,
                               int holds)
{
    const plan_param *p = &opt->plan->params[index];
    for (int part = 0; part < STATE_SHARDED; part++) {
        if (is_list_instead(opt, index, (state_part)part)) continue;
        TRY(check_part(opt, index, part_names[part],
                       muon__state_dtype(opt, index, (state_part)part),
                       muon__state_part(s, (state_part)part), opt->route->numel[index]));
    }
    TRY(check_lists(opt, index, s));
    muon_dtype step = p->rule == MUON_RULE_FROZEN ? MUON_NONE : MUON_I64;
    TRY(check_part(opt, index, "step", step, s->step, 1));
    REQUIRE(!holds || !s->step || *s->step >= 0, E_VALUE,
            "param '%s': the step counter is %lld, must be at least 0", p->name,
            (long long)*s->step);
    return MUON_OK;
}

static void list_ranges(const muon_opt *opt, const muon_state_buffers *bound, range_list *out)
{
    out->n = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        for (int part = 0; part < STATE_PARTS; part++) {
            muon_dtype dtype = muon__state_dtype(opt, i, (state_part)part);
            if (dtype == MUON_NONE) continue;
            muon__ranges_add(out, i, (range_what)(RANGE_STATE + part),
                             muon__state_part(&bound[i], (state_part)part),
                             (size_t)muon__state_numel(opt, i, (state_part)part) *
                                 muon__dtype_bytes(dtype));
        }
        muon__ranges_add(out, i, RANGE_STEP, bound[i].step, sizeof *bound[i].step);
    }
    muon__ranges_sort(out);
}

static int is_bound_to(const muon_opt *opt, const muon_state_buffers *bound)
{
    return opt->is_bound && memcmp(opt->bound, bound, opt->plan->nparams * sizeof *bound) == 0;
}

muon_status muon__state_take(muon_opt *opt, const muon_state_buffers *bound, int holds)
{
    size_t nparams = opt->plan->nparams;
    static const range_list none = {0};
    for (size_t i = 0; i < nparams; i++)
        TRY(check_param(opt, i, &bound[i], holds));
    if (is_bound_to(opt, bound)) return MUON_OK;
    list_ranges(opt, bound, &opt->ranges); /* which have room: a step has its own again */
    TRY(muon__ranges_check(opt->plan, &opt->ranges, &none));
    range_list sorted = opt->ranges;
    opt->ranges = opt->bound_ranges;
    opt->bound_ranges = sorted;
    memcpy(opt->bound, bound, nparams * sizeof *bound);
    opt->is_bound = 1;
    muon__owned_bind(opt, bound);
    return MUON_OK;
}

/* ---- All of it, between here and wherever it is */

typedef muon_status (*copy_fn)(muon_opt *opt, size_t param, state_part part, void *bound);

static muon_status copy_parts(muon_opt *opt, copy_fn copy)
{
    for (size_t i = 0; i < opt->plan->nparams; i++)
        for (int part = 0; part < STATE_SHARDED; part++)
            if (muon__state_dtype(opt, i, (state_part)part) != MUON_NONE)
                TRY(copy(opt, i, (state_part)part,
                         muon__state_part(&opt->bound[i], (state_part)part)));
    return MUON_OK;
}

static void copy_steps(const muon_opt *opt, muon_state_buffers *to, const muon_state_buffers *from)
{
    for (size_t i = 0; i < opt->plan->nparams; i++)
        if (to[i].step) *to[i].step = *from[i].step;
}

static muon_status copy_part_out(muon_opt *opt, size_t param, state_part part, void *bound)
{
    return muon__state_read(opt, param, part, 0, opt->route->numel[param], bound);
}

static muon_status copy_part_in(muon_opt *opt, size_t param, state_part part, void *bound)
{
    return muon__state_write(opt, param, part, 0, opt->route->numel[param], bound);
}

muon_status muon__state_copy_out(muon_opt *opt)
{
    TRY(copy_parts(opt, copy_part_out));
    copy_steps(opt, opt->bound, opt->state);
    return MUON_OK;
}

muon_status muon__state_copy_in(muon_opt *opt)
{
    TRY(copy_parts(opt, copy_part_in));
    copy_steps(opt, opt->state, opt->bound);
    return MUON_OK;
}

/* ---- For the caller */

/* Into memory of our own: now, or when it comes back from its file. */
static muon_status unbind(muon_opt *opt)
{
    if (opt->state == opt->bound) {
        TRY(muon__state_reserve(opt));
        muon_status status = muon__region_touch(&opt->memory, "optimizer state");
        if (status != MUON_OK) {
            muon__state_release(opt);
            return status;
        }
        muon__state_use(opt, opt->own);
        TRY(muon__state_copy_in(opt)); /* in memory it cannot fail */
    }
    opt->is_bound = 0;
    muon__owned_bind(opt, NULL);
    muon__state_use(opt, opt->state);
    return MUON_OK;
}

muon_status muon_state_bind(muon_opt *opt, const muon_state_buffers *state)
{
    TRY(muon__opt_check(opt, "muon_state_bind"));
    if (!state) return unbind(opt);
    int in_use = opt->state == opt->bound && is_bound_to(opt, state);
    TRY(muon__state_take(opt, state, !opt->offloaded));
    if (in_use) return MUON_OK;
    if (opt->state == opt->own && !opt->offloaded) muon__state_release(opt);
    muon__state_use(opt, opt->offloaded ? opt->state : opt->bound);
    return MUON_OK;
}
