#include "tests/world/fleet.h"

#include "base/f16.h"
#include "la/la.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

/* ---- Teams */

void fleet_force_teams(muon_config *config)
{
    const char *team = getenv("MUON_TEST_TEAM");
    if (!team) return;
    config->team_min = atoi(team);
    muon__la_cuts =
        (la_cuts){.whole = 4, .halves = 8, .panel = 4, .tile_short = 8, .tile_long = 4, .round = 2};
}

/* ---- The fleet */

static void force_mates(muon_config *config)
{
    const char *node = getenv("MUON_TEST_MATES");
    if (!node) return;
    config->machine.ranks_per_node = atoi(node);
    fleet_slow_between_nodes(config);
}

void fleet_slow_between_nodes(muon_config *config)
{
    config->machine.bandwidth = 1e5;
    config->machine.latency = 0;
}

void fleet_init(fleet *f)
{
    memset(f, 0, sizeof *f);
    muon_config_init(&f->config, sizeof f->config);
    muon_step_args_init(&f->args, sizeof f->args);
    f->config.threads = 1;
    f->config.timeout = 60;
    fleet_force_teams(&f->config);
    force_mates(&f->config);
    f->config.ngroups = FLEET_GROUPS;
    static const char *const names[FLEET_GROUPS] = {"muons", "others", "adamws", "frozen"};
    for (size_t i = 0; i < COUNT(f->groups); i++) {
        muon_group_init(&f->groups[i], sizeof f->groups[i]);
        f->groups[i].name = i < FLEET_GROUPS ? names[i] : "spare";
        f->groups[i].lr = 0.02;
    }
    f->groups[ADAMWS].rule = MUON_RULE_ADAMW;
    f->groups[FROZEN].rule = MUON_RULE_FROZEN;
}

void fleet_fsdp(fleet *f, int nranks)
{
    fleet_init(f);
    fleet_mesh(f, "mesh", "fsdp", nranks, NULL);
}

muon_mesh *fleet_mesh(fleet *f, const char *name, ...)
{
    muon_mesh *added = &f->meshes[f->nmeshes++];
    muon_mesh_init(added, sizeof *added);
    added->name = name;
    va_list args;
    va_start(args, name);
    for (const char *axis; (axis = va_arg(args, const char *));) {
        added->axes[added->naxes] = axis;
        added->sizes[added->naxes++] = va_arg(args, int);
    }
    va_end(args);
    return added;
}

muon_param *fleet_add(fleet *f, int group, const char *name, const char *matrices,
                      const char *placement, const int64_t *shape, int ndim)
{
    if (f->nparams == FLEET_PARAMS) abort();
    muon_param *p = &f->params[f->nparams++];
    muon_param_init(p, sizeof *p);
    p->name = name;
    p->group = group;
    p->matrices = matrices;
    p->placement = placement;
    p->mesh = placement ? f->meshes[0].name : NULL;
    p->ndim = ndim;
    memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
    return p;
}

muon_attention *fleet_attend(fleet *f, const char *q, const char *k, int heads, int kv_heads,
                             int head_dim)
{
    if (f->config.nattention == FLEET_LAYERS) abort();
    muon_attention *a = &f->attention[f->config.nattention++];
    f->config.attention = f->attention;
    muon_attention_init(a, sizeof *a);
    a->q = q;
    a->k = k;
    a->heads = heads;
    a->kv_heads = kv_heads;
    a->head_dim = head_dim;
    return a;
}

static void force_relays(muon_config *config, const fleet *f, int nranks)
{
    const char *node = getenv("MUON_TEST_RELAY");
    if (!node || config->peers_max > 0) return;
    fleet bound = *f;
    bound.config.machine.ranks_per_node = config->machine.ranks_per_node = atoi(node);
    config->peers_max = fleet_least_peers(&bound, nranks);
}

muon_status fleet_plan(muon_plan **out, const fleet *f, int nranks)
{
    muon_config config = f->config;
    if (!config.groups) config.groups = f->groups;
    config.meshes = f->meshes;
    config.nmeshes = f->nmeshes;
    config.nranks = nranks;
    force_relays(&config, f, nranks);
    return muon_plan_create(out, &config, f->params, f->nparams);
}

int64_t fleet_least_peers(const fleet *f, int nranks)
{
    fleet bound = *f;
    muon_plan *plan = NULL;
    long long least = 1;
    bound.config.workspace_budget = 0;
    bound.config.peers_max = least;
    const char *text = NULL; /* the message says how many are needed */
    if (fleet_plan(&plan, &bound, nranks) == MUON_E_BUDGET)
        text = strstr(muon_last_error(), "possible is ");
    if (text) sscanf(text, "possible is %lld", &least);
    muon_plan_destroy(plan);
    return least;
}

/* ---- Numbers */

float fleet_value(const char *name, int64_t element, int step)
{
    uint64_t h = 0xcbf29ce484222325u ^ ((uint64_t)(step + 1) << 40);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    h = (h ^ (uint64_t)element) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    return (float)((double)(h >> 40) / 8388608.0 - 1);
}

int64_t fleet_numel(const muon_param *param)
{
    int64_t n = 1;
    for (int d = 0; d < param->ndim; d++)
        n *= param->shape[d];
    return n;
}

size_t fleet_bytes(muon_dtype dtype)
{
    switch (dtype) {
    case MUON_I8:
        return 1;
    case MUON_BF16:
    case MUON_F16:
        return 2;
    case MUON_I64:
        return 8;
    case MUON_NONE:
    case MUON_F32:
        break;
    }
    return 4;
}

/* Cuts off what does not fit. Numbers below 2^-14 become zeros, those from 2^16 on infinities. */
static uint16_t half_of(uint32_t bits)
{
    uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (size >= 143u << 23) return (uint16_t)(sign | 0x7c00u);
    if (size < 113u << 23) return (uint16_t)sign;
    return (uint16_t)(sign | (size - (112u << 23)) >> 13);
}

float fleet_get(const void *data, muon_dtype dtype, int64_t at)
{
    if (dtype == MUON_F16) {
        float half;
        muon__f16_load_plain(&half, (const uint16_t *)data + at, 1);
        return half;
    }
    if (dtype != MUON_BF16) return ((const float *)data)[at];
    uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void fleet_put(void *data, muon_dtype dtype, int64_t at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == MUON_BF16)
        ((uint16_t *)data)[at] = (uint16_t)(bits >> 16);
    else if (dtype == MUON_F16)
        ((uint16_t *)data)[at] = half_of(bits);
    else
        ((float *)data)[at] = value;
}

/* ---- A ship */

static void *fleet_calloc(const fleet *f, size_t n, muon_dtype dtype)
{
    size_t before = (size_t)f->shift;
    return (char *)calloc(n + before, fleet_bytes(dtype)) + before * fleet_bytes(dtype);
}

static void fleet_free(const fleet *f, void *data, muon_dtype dtype)
{
    if (data) free((char *)data - (size_t)f->shift * fleet_bytes(dtype));
}

/* Flat indices of all elements of a tensor. */
static int64_t *whole_indices(const muon_param *p)
{
    int64_t numel = fleet_numel(p);
    int64_t *whole = calloc((size_t)numel, sizeof *whole);
    if (!whole) abort();
    for (int64_t i = 0; i < numel; i++)
        whole[i] = i;
    return whole;
}

/* Of those of a rank's shard, in the order of its memory: the shard of a tensor whose elements are their own places. */
static int64_t *shard_indices(const muon_plan *plan, size_t param, int rank, const muon_param *p)
{
    int64_t *whole = whole_indices(p);
    int64_t *shard = calloc((size_t)muon_plan_count_elements(plan, param, rank) + 1, sizeof *shard);
    if (!shard) abort();
    if (muon_plan_cut_shard(plan, param, rank, shard, whole, sizeof *whole) != MUON_OK) abort();
    free(whole);
    return shard;
}

static void allocate(ship *s, size_t i)
{
    const fleet *f = s->f;
    const muon_param *p = &f->params[i];
    const muon_plan *plan = muon_opt_get_plan(s->opt);
    s->numel[i] = plan ? muon_plan_count_elements(plan, i, s->rank) : fleet_numel(p);
    size_t n = (size_t)s->numel[i];
    if (n == 0) return;
    s->index[i] = plan ? shard_indices(plan, i, s->rank, p) : whole_indices(p);
    s->buffers[i].param = fleet_calloc(f, n, p->dtype);
    for (size_t e = 0; e < n && !f->blank; e++)
        fleet_put(s->buffers[i].param, p->dtype, (int64_t)e,
                  fleet_value(p->name, s->index[i][e], 0));
    if (f->groups[p->group].rule == MUON_RULE_FROZEN) return;
    s->grads[i] = fleet_calloc(f, n, p->grad_dtype);
    s->buffers[i].grad = s->grads[i];
    if (p->copy_dtype != MUON_NONE) s->buffers[i].copy = fleet_calloc(f, n, MUON_BF16);
}

/* A model is its own fleet, which stays. */
static void clear(ship *s)
{
    memset((char *)s + offsetof(fleet, f), 0, sizeof *s - offsetof(fleet, f));
}

void ship_allocate(ship *s, const fleet *f)
{
    s->f = f;
    for (size_t i = 0; i < f->nparams; i++)
        allocate(s, i);
    s->args = f->args;
    s->args.buffers = s->buffers;
}

muon_status ship_create(ship *s, const fleet *f, const muon_comm *comm)
{
    clear(s);
    s->f = f;
    s->rank = comm ? comm->rank : 0;
    muon_config config = f->config;
    config.comm = comm;
    if (!config.groups) config.groups = f->groups;
    config.meshes = comm ? f->meshes : NULL;
    config.nmeshes = comm ? f->nmeshes : 0;
    if (comm) force_relays(&config, f, comm->size);
    muon_param params[FLEET_PARAMS];
    for (size_t i = 0; i < f->nparams; i++) {
        params[i] = f->params[i];
        if (comm) continue;
        params[i].mesh = params[i].placement = NULL;
        params[i].boxes = NULL;
        params[i].ranges = NULL;
        params[i].nboxes = params[i].nranges = 0;
    }
    muon_plan *plan = NULL;
    if (f->bind && !config.state &&
        muon_plan_create(&plan, &config, params, f->nparams) == MUON_OK) {
        state_allocate(s->state, f, plan, s->rank);
        config.state = s->state;
        muon_plan_destroy(plan);
    }
    muon_status status = muon_create(&s->opt, &config, params, f->nparams);
    if (status != MUON_OK) {
        state_free(s->state, f);
        return status;
    }
    ship_allocate(s, f);
    return MUON_OK;
}

void ship_destroy(ship *s)
{
    muon_destroy(s->opt);
    for (size_t i = 0; s->f && i < s->f->nparams; i++) {
        const muon_param *p = &s->f->params[i];
        fleet_free(s->f, s->buffers[i].param, p->dtype);
        fleet_free(s->f, s->buffers[i].copy, MUON_BF16);
        fleet_free(s->f, s->grads[i], p->grad_dtype);
        free(s->index[i]);
    }
    if (s->f) state_free(s->state, s->f);
    clear(s);
}

static float grad_of(const fleet *f, const char *name, int64_t element, int step)
{
    float value = fleet_value(name, element, step);
    if (f->constant != 0) return f->constant;
    if (f->coarse) return floorf(512 * value) / 256;
    return f->scale != 0 ? f->scale * value : value;
}

void ship_fill_grads(ship *s, int step)
{
    for (size_t i = 0; i < s->f->nparams; i++) {
        const muon_param *p = &s->f->params[i];
        for (int64_t e = 0; s->grads[i] && e < s->numel[i]; e++)
            fleet_put(s->grads[i], p->grad_dtype, e, grad_of(s->f, p->name, s->index[i][e], step));
    }
}

muon_status ship_step(ship *s)
{
    muon_result_init(&s->result, sizeof s->result);
    if (!s->f->config.background) return muon_step(s->opt, &s->args, &s->result);
    muon_status status = muon_step_start(s->opt, &s->args, &s->result);
    return status == MUON_OK ? muon_step_wait(s->opt) : status;
}

muon_status ship_run(ship *s, int first, int last)
{
    for (int step = first; step <= last; step++) {
        ship_fill_grads(s, step);
        muon_status status = ship_step(s);
        if (status != MUON_OK) return status;
    }
    return MUON_OK;
}

muon_tensor ship_state(const ship *s, size_t param, const char *suffix)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", s->f->params[param].name, suffix);
    for (size_t k = 0; k < muon_state_count(s->opt); k++) {
        muon_tensor t;
        if (muon_state_get(s->opt, k, &t, sizeof t) != MUON_OK) abort();
        if (strcmp(t.name, name) == 0) return t;
    }
    return (muon_tensor){.data = NULL};
}
