/* The state of this rank's shards: in memory of the caller (bind.c), or in one region of our own, which
 * may have gone to a file; and the list of its tensors under the names others know. */
#include "step/state.h"

#include "base/versioned.h"

#include <stdlib.h>
#include <string.h>

/* ---- Parts */

const char *muon__state_suffix(state_part part)
{
    static const char *const suffixes[STATE_PARTS] = {
        [STATE_MOMENTUM] = ".momentum_buffer",  [STATE_EXP_AVG] = ".exp_avg",
        [STATE_EXP_AVG_SQ] = ".exp_avg_sq",     [STATE_SECOND] = ".second_moment",
        [STATE_SECOND_LIST] = ".second_moment", [STATE_CODES] = ".momentum_codes",
        [STATE_SCALES] = ".momentum_scales",
    };
    return suffixes[part];
}

muon_dtype muon__state_dtype(const muon_opt *opt, size_t param, state_part part)
{
    const plan_param *p = &opt->plan->params[param];
    const muon_group *group = &opt->plan->groups[p->group];
    int muon = p->rule == MUON_RULE_MUON, adamw = p->rule == MUON_RULE_ADAMW;
    const int has[STATE_SHARDED] = {
        [STATE_MOMENTUM] = muon && group->momentum_dtype != MUON_I8,
        [STATE_EXP_AVG] = adamw || p->rule == MUON_RULE_LION,
        [STATE_EXP_AVG_SQ] = adamw,
        [STATE_SECOND] = muon && group->second_moment == MUON_SECOND_ELEMENTS,
    };
    int list = muon__state_list(part);
    if (list < 0 ? !has[part] : !muon || !opt->lists[list].layouts[param]) return MUON_NONE;
    if (part == STATE_MOMENTUM) return group->momentum_dtype;
    return part == STATE_CODES ? MUON_I8 : MUON_F32;
}

const layout *muon__state_layout(const muon_opt *opt, size_t param, state_part part)
{
    int list = muon__state_list(part);
    return list < 0 ? opt->plan->params[param].layout : opt->lists[list].layouts[param];
}

int64_t muon__state_numel(const muon_opt *opt, size_t param, state_part part)
{
    int list = muon__state_list(part);
    return list < 0 ? opt->route->numel[param] : muon__owned_numel(opt, list, param);
}

static char *address_of(const muon_opt *opt, size_t param, state_part part)
{
    int list = muon__state_list(part);
    if (list >= 0) return opt->lists[list].data[param];
    return muon__state_part(&opt->state[param], part);
}

/* Step counters and lists never are. */
static int is_in_file(const muon_opt *opt, const void *data)
{
    return opt->offload.t && (uintptr_t)data - (uintptr_t)opt->memory.base < opt->memory.bytes;
}

/* ---- Layout */

/* Parameters as the waves of a step come to them, then the others: state that is used together shares
 * pages, and the blocks of a file. */
static void order_params(const muon_opt *opt, uint32_t *order, unsigned char *seen)
{
    const muon_plan *plan = opt->plan;
    size_t n = 0;
    for (size_t i = 0; i < opt->route->piece_first[plan->nwaves]; i++) {
        uint32_t param = plan->items[opt->route->pieces[i].item].param;
        if (!seen[param]) order[n++] = param;
        seen[param] = 1;
    }
    for (size_t i = 0; i < plan->nparams; i++)
        if (!seen[i]) order[n++] = (uint32_t)i;
}

static void lay_out(muon_opt *opt, arena *memory, const uint32_t *order)
{
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        muon_state_buffers *state = &opt->own[order[i]];
        int64_t numel = opt->route->numel[order[i]];
        switch (opt->plan->params[order[i]].rule) {
        case MUON_RULE_MUON:
            if (muon__state_dtype(opt, order[i], STATE_MOMENTUM) != MUON_NONE)
                state->momentum = muon__arena_take(
                    memory, numel,
                    muon__dtype_bytes(muon__state_dtype(opt, order[i], STATE_MOMENTUM)));
            if (muon__state_dtype(opt, order[i], STATE_SECOND) != MUON_NONE)
                state->second_moment = ARENA_ARRAY(memory, float, numel);
            break;
        case MUON_RULE_ADAMW:
            state->exp_avg = ARENA_ARRAY(memory, float, numel);
            state->exp_avg_sq = ARENA_ARRAY(memory, float, numel);
            break;
        case MUON_RULE_LION:
            state->exp_avg = ARENA_ARRAY(memory, float, numel);
            break;
        case MUON_RULE_FROZEN:
            break;
        }
    }
}

static muon_status reserve(muon_opt *opt, const uint32_t *order)
{
    arena measured = {0};
    lay_out(opt, &measured, order);
    REQUIRE(!measured.overflow, E_NOMEM,
            "optimizer state: more bytes than this machine can address");
    TRY(muon__region_reserve(&opt->memory, measured.used, "optimizer state"));
    arena memory = {.base = opt->memory.base, .size = opt->memory.bytes};
    if (memory.base) lay_out(opt, &memory, order);
    return MUON_OK;
}

muon_status muon__state_reserve(muon_opt *opt)
{
    size_t nparams = opt->plan->nparams;
    uint32_t *order = NULL;
    unsigned char *seen = NULL;
    muon_status status = CALLOC(&order, nparams, "state");
    if (status == MUON_OK) status = CALLOC(&seen, nparams, "state");
    if (status == MUON_OK) {
        order_params(opt, order, seen);
        status = reserve(opt, order);
    }
    free(order);
    free(seen);
    return status;
}

void muon__state_release(muon_opt *opt)
{
    muon__region_release(&opt->memory);
}

/* ---- Names */

/* A shard that is the whole tensor, in its own order, has its shape; else it is a list of elements. */
static void set_shape(const muon_opt *opt, muon_tensor *t, const plan_param *param, int64_t numel)
{
    int parts = (int)muon__layout_ncells_of(param->layout, opt->route->rank);
    if (numel == param->numel && parts == 1) {
        t->ndim = param->ndim;
        memcpy(t->shape, param->shape, sizeof t->shape);
    } else {
        t->ndim = 1;
        t->shape[0] = numel;
    }
}

/* Adds "<param><suffix>" to the list, its name `*used` bytes into all names; with no list yet, only
 * counts. numel -1: a number of its own, else the elements of a shard, or of a list. */
static void name_tensor(muon_opt *opt, size_t *used, size_t index, const char *suffix,
                        muon_dtype dtype, int64_t numel, int is_list)
{
    const plan_param *param = &opt->plan->params[index];
    size_t length = strlen(param->name) + strlen(suffix) + 1;
    if (opt->tensors) {
        muon_tensor *t = &opt->tensors[opt->ntensors];
        char *name = opt->tensor_names + *used;
        *t = (muon_tensor){.name = name, .dtype = dtype};
        memcpy(name, param->name, strlen(param->name));
        memcpy(name + strlen(param->name), suffix, strlen(suffix) + 1);
        if (is_list)
            t->ndim = 1, t->shape[0] = numel;
        else if (numel >= 0)
            set_shape(opt, t, param, numel);
        t->bytes = muon__dtype_bytes(dtype) * (numel < 0 ? 1 : (size_t)numel);
    }
    opt->ntensors++;
    *used += length;
}

/* Returns the bytes of all names. */
static size_t name_tensors(muon_opt *opt)
{
    size_t used = 0;
    opt->ntensors = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        if (opt->plan->params[i].rule == MUON_RULE_FROZEN) continue;
        for (int part = 0; part < STATE_PARTS; part++) {
            muon_dtype dtype = muon__state_dtype(opt, i, (state_part)part);
            if (dtype == MUON_NONE) continue;
            name_tensor(opt, &used, i, muon__state_suffix((state_part)part), dtype,
                        muon__state_numel(opt, i, (state_part)part),
                        muon__state_list((state_part)part) >= 0);
        }
        name_tensor(opt, &used, i, ".step", MUON_I64, -1, 0);
    }
    return used;
}

/* In the order of the names. */
void muon__state_use(muon_opt *opt, muon_state_buffers *where)
{
    size_t n = 0;
    opt->state = where;
    opt->checked_valid = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        if (opt->plan->params[i].rule == MUON_RULE_FROZEN) continue;
        for (int part = 0; part < STATE_PARTS; part++)
            if (muon__state_dtype(opt, i, (state_part)part) != MUON_NONE)
                opt->tensors[n++].data = address_of(opt, i, (state_part)part);
        opt->tensors[n++].data = where[i].step;
    }
}

/* Of an element. */
static int64_t part_bytes(const muon_opt *opt, size_t param, state_part part)
{
    muon_dtype dtype = muon__state_dtype(opt, param, part);
    return dtype == MUON_NONE ? 0 : (int64_t)muon__dtype_bytes(dtype);
}

muon_status muon__opt_make_state(muon_opt *opt, const muon_state_buffers *bound)
{
    size_t nparams = opt->plan->nparams;
    TRY(CALLOC(&opt->own, nparams, "state"));
    TRY(CALLOC(&opt->bound, nparams, "state"));
    TRY(CALLOC(&opt->steps, nparams, "state"));
    TRY(muon__owned_create(opt));
    for (size_t i = 0; i < nparams; i++)
        if (opt->plan->params[i].rule != MUON_RULE_FROZEN) opt->own[i].step = &opt->steps[i];
    TRY(bound ? muon__state_take(opt, bound, 1) : muon__state_reserve(opt));
    TRY(CALLOC(&opt->tensor_names, name_tensors(opt), "state names"));
    TRY(CALLOC(&opt->tensors, opt->ntensors, "state list"));
    name_tensors(opt);
    muon__state_use(opt, bound ? opt->bound : opt->own);
    for (size_t i = 0; i < nparams; i++)
        for (int part = 0; part < STATE_SHARDED; part++)
            opt->state_bytes += opt->route->numel[i] * part_bytes(opt, i, (state_part)part);
    return MUON_OK;
}

/* ---- Wherever it is */

static muon_status read_at(muon_opt *opt, const char *from, void *data, size_t bytes)
{
    if (is_in_file(opt, from))
        return muon__tier_read(opt->offload.t, (size_t)(from - opt->memory.base), data, bytes);
    memcpy(data, from, bytes);
    return MUON_OK;
}

static muon_status write_at(muon_opt *opt, char *to, const void *data, size_t bytes)
{
    if (is_in_file(opt, to))
        return muon__tier_write(opt->offload.t, (size_t)(to - opt->memory.base), data, bytes);
    memcpy(to, data, bytes);
    return MUON_OK;
}

void *muon__state_at(const muon_opt *opt, size_t param, state_part part, int64_t at)
{
    char *base = address_of(opt, param, part);
    if (!base || is_in_file(opt, base)) return NULL;
    return base + (size_t)at * muon__dtype_bytes(muon__state_dtype(opt, param, part));
}

muon_status muon__state_read(muon_opt *opt, size_t param, state_part part, int64_t at, int64_t n,
                             void *data)
{
    size_t element = muon__dtype_bytes(muon__state_dtype(opt, param, part));
    if (n == 0) return MUON_OK;
    return read_at(opt, address_of(opt, param, part) + (size_t)at * element, data,
                   (size_t)n * element);
}

muon_status muon__state_write(muon_opt *opt, size_t param, state_part part, int64_t at, int64_t n,
                              const void *data)
{
    size_t element = muon__dtype_bytes(muon__state_dtype(opt, param, part));
    if (n == 0) return MUON_OK;
    return write_at(opt, address_of(opt, param, part) + (size_t)at * element, data,
                    (size_t)n * element);
}

/* ---- For the caller */

size_t muon_state_count(const muon_opt *opt)
{
    return opt ? opt->ntensors : 0;
}

static muon_status check_index(const muon_opt *opt, size_t index)
{
    REQUIRE(index < opt->ntensors, E_ARG, "state tensor %zu does not exist: there are %zu", index,
            opt->ntensors);
    return MUON_OK;
}

muon_status muon_state_get(muon_opt *opt, size_t index, muon_tensor *tensor, size_t tensor_size)
{
    TRY(muon__opt_check_idle(opt, "muon_state_get"));
    REQUIRE(tensor, E_ARG, "muon_state_get: tensor must not be NULL");
    TRY(check_index(opt, index));
    muon_tensor known = opt->tensors[index];
    if (is_in_file(opt, known.data)) known.data = NULL;
    return muon__struct_store(tensor, tensor_size, &known, sizeof known, "muon_tensor");
}

static muon_status check_range(const muon_opt *opt, size_t index, int64_t at, int64_t count,
                               const void *data)
{
    TRY(check_index(opt, index));
    const muon_tensor *t = &opt->tensors[index];
    int64_t n = (int64_t)(t->bytes / muon__dtype_bytes(t->dtype));
    REQUIRE(at >= 0 && count >= 0 && at <= n && count <= n - at, E_VALUE,
            "%lld elements from %lld on exceed '%s', which has %lld here", (long long)count,
            (long long)at, t->name, (long long)n);
    REQUIRE(data || count == 0, E_ARG, "data is NULL, count is %lld", (long long)count);
    return MUON_OK;
}

muon_status muon_state_read(muon_opt *opt, size_t index, int64_t at, int64_t count, void *data)
{
    TRY(muon__opt_check_idle(opt, "muon_state_read"));
    TRY(check_range(opt, index, at, count, data));
    if (count == 0) return MUON_OK;
    const muon_tensor *t = &opt->tensors[index];
    size_t element = muon__dtype_bytes(t->dtype);
    return read_at(opt, (const char *)t->data + (size_t)at * element, data,
                   (size_t)count * element);
}

muon_status muon_state_write(muon_opt *opt, size_t index, int64_t at, int64_t count,
                             const void *data)
{
    TRY(muon__opt_check_idle(opt, "muon_state_write"));
    TRY(check_range(opt, index, at, count, data));
    if (count == 0) return MUON_OK;
    const muon_tensor *t = &opt->tensors[index];
    size_t element = muon__dtype_bytes(t->dtype);
    return write_at(opt, (char *)t->data + (size_t)at * element, data, (size_t)count * element);
}

muon_status muon_state_reset(muon_opt *opt, size_t param)
{
    static const char zeros[4096];
    TRY(muon__opt_check_idle(opt, "muon_state_reset"));
    REQUIRE(param < opt->plan->nparams, E_ARG, "parameter %zu does not exist: there are %zu", param,
            opt->plan->nparams);
    REQUIRE(!opt->broken, E_BROKEN, "an earlier step failed half-way; destroy this optimizer");
    for (int part = 0; part < STATE_PARTS; part++) {
        muon_dtype dtype = muon__state_dtype(opt, param, (state_part)part);
        if (dtype == MUON_NONE) continue;
        int64_t numel = muon__state_numel(opt, param, (state_part)part);
        int64_t most = (int64_t)(sizeof zeros / muon__dtype_bytes(dtype));
        for (int64_t at = 0; at < numel; at += most)
            TRY(muon__state_write(opt, param, (state_part)part, at,
                                  numel - at < most ? numel - at : most, zeros));
    }
    if (opt->state[param].step) *opt->state[param].step = 0;
    return MUON_OK;
}
