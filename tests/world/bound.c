/* State of a ship in memory of its own: exactly as much as it needs, each tensor for itself, so that a
 * sanitizer sees whoever goes beyond it. */
#include "tests/world/fleet.h"

/* Of an element of momentum in a shard; a list, as for MUON_I8, is left to the optimizer. */
static size_t momentum_bytes(const fleet *f, size_t i)
{
    muon_dtype dtype = f->groups[f->params[i].group].momentum_dtype;
    return dtype == MUON_I8 ? 0 : fleet_bytes(dtype);
}

static int has_second(const fleet *f, size_t i)
{
    const muon_group *g = &f->groups[f->params[i].group];
    return g->rule == MUON_RULE_MUON && g->second_moment == MUON_SECOND_ELEMENTS;
}

static void *take(int64_t n, size_t element)
{
    void *memory = n ? calloc((size_t)n, element) : NULL;
    if (n && !memory) abort();
    return memory;
}

void state_allocate(muon_state_buffers *out, const fleet *f, const muon_plan *plan, int rank)
{
    for (size_t i = 0; i < f->nparams; i++) {
        int64_t n = muon_plan_count_elements(plan, i, rank);
        muon_rule rule = f->groups[f->params[i].group].rule;
        out[i] = (muon_state_buffers){0};
        if (rule == MUON_RULE_MUON && momentum_bytes(f, i))
            out[i].momentum = take(n, momentum_bytes(f, i));
        if (has_second(f, i)) out[i].second_moment = take(n, sizeof(float));
        if (rule == MUON_RULE_ADAMW || rule == MUON_RULE_LION)
            out[i].exp_avg = take(n, sizeof(float));
        if (rule == MUON_RULE_ADAMW) out[i].exp_avg_sq = take(n, sizeof(float));
        if (rule != MUON_RULE_FROZEN) out[i].step = take(1, sizeof(int64_t));
    }
}

void state_free(muon_state_buffers *state, const fleet *f)
{
    for (size_t i = 0; i < f->nparams; i++) {
        free(state[i].momentum);
        free(state[i].exp_avg);
        free(state[i].exp_avg_sq);
        free(state[i].second_moment);
        free(state[i].step);
        state[i] = (muon_state_buffers){0};
    }
}

static void copy(void *to, const void *from, int64_t n, size_t element)
{
    if (to && n) memcpy(to, from, (size_t)n * element);
}

void state_copy(muon_state_buffers *to, const muon_state_buffers *from, const ship *s)
{
    for (size_t i = 0; i < s->f->nparams; i++) {
        copy(to[i].momentum, from[i].momentum, s->numel[i], momentum_bytes(s->f, i));
        copy(to[i].exp_avg, from[i].exp_avg, s->numel[i], sizeof(float));
        copy(to[i].exp_avg_sq, from[i].exp_avg_sq, s->numel[i], sizeof(float));
        copy(to[i].second_moment, from[i].second_moment, s->numel[i], sizeof(float));
        copy(to[i].step, from[i].step, 1, sizeof(int64_t));
    }
}

muon_status ship_move_state(ship *s)
{
    muon_state_buffers moved[FLEET_PARAMS];
    state_allocate(moved, s->f, muon_opt_get_plan(s->opt), s->rank);
    state_copy(moved, s->state, s);
    muon_status status = muon_state_bind(s->opt, moved);
    if (status != MUON_OK) {
        state_free(moved, s->f);
        return status;
    }
    state_free(s->state, s->f);
    memcpy(s->state, moved, sizeof moved);
    return MUON_OK;
}
