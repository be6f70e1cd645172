/* fleet.h - a small model on many ranks, for tests that are about one thing.
 *
 * A fleet is what all ranks share: tensors, groups, meshes, config. A ship is what one rank makes of it:
 * an optimizer and the shards, filled with numbers that depend on (tensor, element, step) only; with no
 * communicator it has the whole tensors. Two ships can be compared bit by bit.
 *
 *     fleet f;
 *     fleet_init(&f);
 *     fleet_mesh(&f, "mesh", "fsdp", 4, NULL);
 *     fleet_add(&f, MUONS, "w", NULL, "0: fsdp", SHAPE(10, 6));
 *     fleet_check(&f, 4, 3);     // 3 steps on 4 ranks have the bits of one process
 *
 * A fleet may be copied and changed, so that a rank can have one that differs. */
#ifndef TESTS_FLEET_H
#define TESTS_FLEET_H

#include "tests/world/indices.h"
#include "tests/world/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLEET_PARAMS = 32, FLEET_MESHES = 3 };
enum { MUONS, OTHERS, ADAMWS, FROZEN, FLEET_GROUPS }; /* OTHERS: Muon, too */

typedef struct fleet {
    muon_config config; /* groups, meshes and comm are filled in by ship_create */
    muon_group groups[FLEET_GROUPS];
    muon_mesh meshes[FLEET_MESHES];
    size_t nmeshes;
    muon_param params[FLEET_PARAMS];
    size_t nparams;
    float constant; /* every element of every gradient, if it is not 0 */
    int blank;      /* 1: weights start as zeros */
    int shift;      /* weights, gradients and copies are so many elements behind aligned memory */
} fleet;

typedef struct ship {
    const fleet *f;
    int rank;
    muon_opt *opt;
    muon_buffers buffers[FLEET_PARAMS]; /* NULL where there is no element */
    void *grads[FLEET_PARAMS];
    int64_t numel[FLEET_PARAMS];
    int64_t *index[FLEET_PARAMS]; /* of each element of the shard in the whole tensor */
    muon_step_args args;
    muon_result result; /* of the last step */
    char wrong[1024];
} ship;

/* ---- The fleet */

static inline void fleet_init(fleet *f)
{
    memset(f, 0, sizeof *f);
    muon_config_init(&f->config, sizeof f->config);
    f->config.threads = 1;
    f->config.timeout = 60;
    static const char *const names[FLEET_GROUPS] = {"muons", "others", "adamws", "frozen"};
    for (int i = 0; i < FLEET_GROUPS; i++) {
        muon_group_init(&f->groups[i], sizeof f->groups[i]);
        f->groups[i].name = names[i];
        f->groups[i].lr = 0.02;
    }
    f->groups[ADAMWS].rule = MUON_RULE_ADAMW;
    f->groups[FROZEN].rule = MUON_RULE_FROZEN;
}

/* A mesh of (axis, size) pairs, then NULL. */
__attribute__((sentinel)) static inline muon_mesh *fleet_mesh(fleet *f, const char *name, ...)
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

#define SHAPE(...)                                                                                 \
    (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* A tensor on the first mesh; without a placement it is whole on every rank. */
static inline muon_param *fleet_add(fleet *f, int group, const char *name, const char *matrices,
                                    const char *placement, const int64_t *shape, int ndim)
{
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

/* ---- Numbers */

static inline float fleet_value(const char *name, int64_t element, int step)
{
    uint64_t h = 0xcbf29ce484222325u ^ ((uint64_t)(step + 1) << 40);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    h = (h ^ (uint64_t)element) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    return (float)((double)(h >> 40) / 8388608.0 - 1);
}

static inline size_t fleet_bytes(muon_dtype dtype)
{
    return dtype == MUON_BF16 ? 2 : dtype == MUON_I64 ? 8 : 4;
}

static inline void fleet_put(void *data, muon_dtype dtype, int64_t at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == MUON_BF16)
        ((uint16_t *)data)[at] = (uint16_t)(bits >> 16);
    else
        ((float *)data)[at] = value;
}

/* ---- A ship */

static inline void *fleet_calloc(const fleet *f, size_t n, muon_dtype dtype)
{
    size_t before = (size_t)f->shift;
    return (char *)calloc(n + before, fleet_bytes(dtype)) + before * fleet_bytes(dtype);
}

static inline void fleet_free(const fleet *f, void *data, muon_dtype dtype)
{
    if (data) free((char *)data - (size_t)f->shift * fleet_bytes(dtype));
}

static inline void ship_allocate(ship *s, size_t i)
{
    const muon_param *p = &s->f->params[i];
    const muon_plan *plan = muon_opt_get_plan(s->opt);
    s->numel[i] = muon_plan_count_elements(plan, i, s->rank);
    size_t n = (size_t)s->numel[i];
    if (n == 0) return;
    s->index[i] = shard_indices(plan, i, s->rank, p);
    s->buffers[i].param = fleet_calloc(s->f, n, p->dtype);
    for (size_t e = 0; e < n && !s->f->blank; e++)
        fleet_put(s->buffers[i].param, p->dtype, (int64_t)e,
                  fleet_value(p->name, s->index[i][e], 0));
    if (s->f->groups[p->group].rule == MUON_RULE_FROZEN) return;
    s->grads[i] = fleet_calloc(s->f, n, p->grad_dtype);
    s->buffers[i].grad = s->grads[i];
    if (p->copy_dtype != MUON_NONE) s->buffers[i].copy = fleet_calloc(s->f, n, MUON_BF16);
}

/* The fleet stays where it is as long as the ship. A ship that failed may be destroyed, too. */
static inline muon_status ship_create(ship *s, const fleet *f, const muon_comm *comm)
{
    memset(s, 0, sizeof *s);
    s->f = f;
    s->rank = comm ? comm->rank : 0;
    muon_config config = f->config;
    config.comm = comm;
    config.groups = f->groups;
    config.ngroups = FLEET_GROUPS;
    config.meshes = comm ? f->meshes : NULL;
    config.nmeshes = comm ? f->nmeshes : 0;
    muon_param params[FLEET_PARAMS];
    for (size_t i = 0; i < f->nparams; i++) {
        params[i] = f->params[i];
        if (comm) continue;
        params[i].mesh = params[i].placement = NULL;
        params[i].boxes = NULL;
        params[i].ranges = NULL;
        params[i].nboxes = params[i].nranges = 0;
    }
    muon_status status = muon_create(&s->opt, &config, params, f->nparams);
    if (status != MUON_OK) return status;
    for (size_t i = 0; i < f->nparams; i++)
        ship_allocate(s, i);
    muon_step_args_init(&s->args, sizeof s->args);
    s->args.buffers = s->buffers;
    return MUON_OK;
}

static inline void ship_destroy(ship *s)
{
    muon_destroy(s->opt);
    for (size_t i = 0; s->f && i < s->f->nparams; i++) {
        const muon_param *p = &s->f->params[i];
        fleet_free(s->f, s->buffers[i].param, p->dtype);
        fleet_free(s->f, s->buffers[i].copy, MUON_BF16);
        fleet_free(s->f, s->grads[i], p->grad_dtype);
        free(s->index[i]);
    }
    memset(s, 0, sizeof *s);
}

static inline void ship_fill_grads(ship *s, int step)
{
    for (size_t i = 0; i < s->f->nparams; i++) {
        const muon_param *p = &s->f->params[i];
        for (int64_t e = 0; s->grads[i] && e < s->numel[i]; e++)
            fleet_put(s->grads[i], p->grad_dtype, e,
                      s->f->constant != 0 ? s->f->constant
                                          : fleet_value(p->name, s->index[i][e], step));
    }
}

/* One step with the gradients there are. */
static inline muon_status ship_step(ship *s)
{
    muon_result_init(&s->result, sizeof s->result);
    return muon_step(s->opt, &s->args, &s->result);
}

/* Steps first .. last with their own gradients. */
static inline muon_status ship_run(ship *s, int first, int last)
{
    for (int step = first; step <= last; step++) {
        ship_fill_grads(s, step);
        muon_status status = ship_step(s);
        if (status != MUON_OK) return status;
    }
    return MUON_OK;
}

/* The state "<param>.<suffix>"; data NULL if there is none. */
static inline muon_tensor ship_state(const ship *s, size_t param, const char *suffix)
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

/* ---- Comparison */

#define SHIP_WRONG(s, ...) (snprintf((s)->wrong, sizeof(s)->wrong, __VA_ARGS__), (s)->wrong)

static const char *const ship_suffixes[] = {"momentum_buffer", "exp_avg", "exp_avg_sq", "step"};

static inline const char *ship_compare_bits(ship *s, size_t i, const char *what, const void *got,
                                            const void *want, muon_dtype dtype)
{
    size_t size = fleet_bytes(dtype);
    for (int64_t e = 0; e < s->numel[i]; e++)
        if (memcmp((const char *)got + (size_t)e * size,
                   (const char *)want + (size_t)s->index[i][e] * size, size) != 0)
            return SHIP_WRONG(s, "rank %d, param '%s': element %lld of its %s is another one",
                              s->rank, s->f->params[i].name, (long long)s->index[i][e], what);
    return NULL;
}

static inline const char *ship_compare_state(ship *s, size_t i, const ship *whole)
{
    for (size_t k = 0; k < COUNT(ship_suffixes); k++) {
        muon_tensor got = ship_state(s, i, ship_suffixes[k]);
        muon_tensor want = ship_state(whole, i, ship_suffixes[k]);
        if (!want.name && !got.name) continue;
        if (!want.name || !got.name || got.dtype != want.dtype)
            return SHIP_WRONG(s, "rank %d, param '%s': other state", s->rank, s->f->params[i].name);
        if (want.dtype == MUON_I64 && memcmp(got.data, want.data, 8) != 0)
            return SHIP_WRONG(s, "rank %d, param '%s': another step", s->rank,
                              s->f->params[i].name);
        const char *wrong =
            want.dtype == MUON_I64
                ? NULL
                : ship_compare_bits(s, i, ship_suffixes[k], got.data, want.data, want.dtype);
        if (wrong) return wrong;
    }
    return NULL;
}

/* A norm that is no number is equal to another one. */
static inline int fleet_same(double a, double b)
{
    return a == b || (a != a && b != b);
}

static inline const char *ship_compare_result(ship *s, const muon_result *want)
{
    const muon_result *got = &s->result;
    if (fleet_same(got->grad_norm, want->grad_norm) && got->update_rms == want->update_rms &&
        got->clip_coef == want->clip_coef && got->matrices == want->matrices &&
        got->applied == want->applied && got->missing_params == want->missing_params &&
        got->nonfinite_params == want->nonfinite_params &&
        got->nonfinite_matrices == want->nonfinite_matrices &&
        got->clipped_heads == want->clipped_heads && got->max_logit == want->max_logit)
        return NULL;
#define SHIP_RESULT                                                                                \
    "norm %.17g, rms %.17g, clip %.17g, %lld matrices, %lld missing, %lld not finite, "            \
    "%lld heads, logit %g, applied %d"
#define SHIP_RESULT_OF(r)                                                                          \
    (r)->grad_norm, (r)->update_rms, (r)->clip_coef, (long long)(r)->matrices,                     \
        (long long)(r)->missing_params,                                                            \
        (long long)((r)->nonfinite_params + (r)->nonfinite_matrices),                              \
        (long long)(r)->clipped_heads, (r)->max_logit, (r)->applied
    return SHIP_WRONG(s, "rank %d: " SHIP_RESULT "; want " SHIP_RESULT, s->rank,
                      SHIP_RESULT_OF(got), SHIP_RESULT_OF(want));
#undef SHIP_RESULT
#undef SHIP_RESULT_OF
}

/* NULL, or the first difference in weights, copies, state and the last result. */
static inline const char *ship_compare(ship *s, const ship *whole)
{
    for (size_t i = 0; i < s->f->nparams; i++) {
        const muon_param *p = &s->f->params[i];
        const muon_buffers *got = &s->buffers[i], *want = &whole->buffers[i];
        const char *wrong = ship_compare_bits(s, i, "weight", got->param, want->param, p->dtype);
        if (!wrong && got->copy)
            wrong = ship_compare_bits(s, i, "copy", got->copy, want->copy, MUON_BF16);
        if (!wrong) wrong = ship_compare_state(s, i, whole);
        if (wrong) return wrong;
    }
    return ship_compare_result(s, &whole->result);
}

/* A number that changes with any bit of weights, copies and state. */
static inline uint64_t ship_digest(const ship *s)
{
    uint64_t h = 0xcbf29ce484222325u;
#define SHIP_DIGEST(data, bytes)                                                                   \
    for (size_t b = 0; (data) && b < (bytes); b++)                                                 \
    h = (h ^ ((const unsigned char *)(data))[b]) * 0x100000001b3u
    for (size_t i = 0; i < s->f->nparams; i++) {
        SHIP_DIGEST(s->buffers[i].param, (size_t)s->numel[i] * fleet_bytes(s->f->params[i].dtype));
        SHIP_DIGEST(s->buffers[i].copy, (size_t)s->numel[i] * 2);
    }
    for (size_t k = 0; k < muon_state_count(s->opt); k++) {
        muon_tensor t;
        if (muon_state_get(s->opt, k, &t, sizeof t) != MUON_OK) abort();
        SHIP_DIGEST(t.data, t.bytes);
    }
#undef SHIP_DIGEST
    return h;
}

/* ---- All of it at once */

typedef struct fleet_task {
    const fleet *f;
    const ship *whole;
    int steps;
} fleet_task;

static inline void fleet_check_rank(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, t->steps));
    const char *wrong = ship_compare(&s, t->whole);
    rank_check(!wrong, "%s", wrong);
    ship_destroy(&s);
}

/* What one process makes of the fleet. */
static inline void fleet_run_whole(ship *whole, const fleet *f, int steps)
{
    assert_ok(ship_create(whole, f, NULL));
    assert_ok(ship_run(whole, 1, steps));
}

/* On so many ranks it is the same. */
static inline void fleet_check(const fleet *f, int nranks, int steps)
{
    ship whole;
    fleet_run_whole(&whole, f, steps);
    fleet_task t = {f, &whole, steps};
    ranks_run(nranks, fleet_check_rank, &t);
    ship_destroy(&whole);
}

/* A plan of it for so many ranks, without a communicator. */
static inline muon_status fleet_plan(muon_plan **out, const fleet *f, int nranks)
{
    muon_config config = f->config;
    config.groups = f->groups;
    config.ngroups = FLEET_GROUPS;
    config.meshes = f->meshes;
    config.nmeshes = f->nmeshes;
    config.nranks = nranks;
    return muon_plan_create(out, &config, f->params, f->nparams);
}

#endif
