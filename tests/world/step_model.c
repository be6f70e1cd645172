#include "tests/world/step_model.h"
#include "muon/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "la/la.h"

void model_init(model *m)
{
    static const muon_rule rules[MODEL_GROUPS] = {MUON_RULE_MUON, MUON_RULE_ADAMW, MUON_RULE_FROZEN,
                                                  MUON_RULE_MUON};
    static const char *const names[MODEL_GROUPS] = {"muons", "adamws", "frozen", "others"};
    memset(m, 0, sizeof *m);
    muon_config_init(&m->config, sizeof m->config);
    for (int i = 0; i < MODEL_GROUPS; i++) {
        muon_group_init(&m->groups[i], sizeof m->groups[i]);
        m->groups[i].rule = rules[i];
        m->groups[i].name = names[i];
    }
    m->config.groups = m->groups;
    m->config.ngroups = MODEL_GROUPS;
    m->config.attention = m->attention;
    m->config.threads = 1;
    muon_step_args_init(&m->args, sizeof m->args);
    m->args.buffers = m->buffers;
}

muon_param *model_add(model *m, int group, const char *name, const char *matrices,
                      const int64_t *shape, int ndim)
{
    assert_true(m->nparams < MODEL_PARAMS);
    muon_param *param = &m->params[m->nparams++];
    muon_param_init(param, sizeof *param);
    param->group = group;
    param->name = name;
    param->matrices = matrices;
    param->ndim = ndim;
    memcpy(param->shape, shape, (size_t)ndim * sizeof *shape);
    return param;
}

muon_attention *model_attend(model *m, const char *q, const char *k, int heads, int kv_heads,
                             int head_dim)
{
    assert_true(m->config.nattention < MODEL_ATTENTION);
    muon_attention *a = &m->attention[m->config.nattention++];
    muon_attention_init(a, sizeof *a);
    a->q = q;
    a->k = k;
    a->heads = heads;
    a->kv_heads = kv_heads;
    a->head_dim = head_dim;
    return a;
}

/* ---- elements */

int64_t model_numel(const muon_param *param)
{
    int64_t n = 1;
    for (int d = 0; d < param->ndim; d++)
        n *= param->shape[d];
    return n;
}

static size_t element_bytes(muon_dtype dtype)
{
    return dtype == MUON_BF16 ? 2 : 4;
}

float model_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static float get(const void *data, muon_dtype dtype, int64_t i)
{
    return dtype == MUON_BF16 ? model_bf16(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

/* bf16 by cutting off: what is filled in need not be the nearest. */
static void put(void *data, muon_dtype dtype, int64_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == MUON_BF16)
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    else
        ((float *)data)[i] = value;
}

float model_weight(const model *m, size_t p, int64_t i)
{
    return get(m->buffers[p].param, m->params[p].dtype, i);
}

float model_grad(const model *m, size_t p, int64_t i)
{
    return get(m->grad[p], m->params[p].grad_dtype, i);
}

void model_set_grad(model *m, size_t p, int64_t i, float value)
{
    put(m->grad[p], m->params[p].grad_dtype, i, value);
}

/* ---- memory */

static uint64_t add_bytes(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static void seed_by_name(const char *name, int step)
{
    testlib_seed(add_bytes((uint64_t)step, name, strlen(name)));
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

void model_allocate(model *m)
{
    for (size_t p = 0; p < m->nparams; p++) {
        const muon_param *param = &m->params[p];
        size_t n = (size_t)model_numel(param);
        m->buffers[p].param = allocate(n * element_bytes(param->dtype));
        seed_by_name(param->name, 0);
        for (size_t i = 0; i < n; i++)
            put(m->buffers[p].param, param->dtype, (int64_t)i, (float)testlib_gauss());
        if (param->copy_dtype != MUON_NONE) m->buffers[p].copy = calloc(n, sizeof(uint16_t));
        if (param->group != FROZEN) m->grad[p] = allocate(n * element_bytes(param->grad_dtype));
        m->buffers[p].grad = m->grad[p];
    }
    model_fill_grads(m, 1);
}

void model_create(model *m)
{
    model_allocate(m);
    assert_ok(muon_create(&m->opt, &m->config, m->params, m->nparams));
}

void model_destroy(model *m)
{
    muon_destroy(m->opt);
    for (size_t p = 0; p < m->nparams; p++) {
        free(m->buffers[p].param);
        free(m->buffers[p].copy);
        free(m->grad[p]);
    }
}

/* ---- gradients and steps */

/* Nearly normal: the sum of four uniform numbers. */
static float random_grad(void)
{
    uint64_t bits = testlib_bits();
    int64_t sum = -8190;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(bits >> 12 * i & 0xfff);
    return (float)(sum / 8) / 256;
}

void model_fill_grads(model *m, int step)
{
    for (size_t p = 0; p < m->nparams; p++) {
        if (!m->grad[p]) continue;
        seed_by_name(m->params[p].name, step);
        for (int64_t i = 0; i < model_numel(&m->params[p]); i++)
            model_set_grad(m, p, i, random_grad());
    }
}

void model_zero_grads(model *m)
{
    for (size_t p = 0; p < m->nparams; p++) {
        if (!m->grad[p]) continue;
        memset(m->grad[p], 0,
               (size_t)model_numel(&m->params[p]) * element_bytes(m->params[p].grad_dtype));
    }
}

static uint64_t hash_grads(const model *m)
{
    uint64_t hash = 0;
    for (size_t p = 0; p < m->nparams; p++) {
        if (!m->buffers[p].grad) continue;
        hash =
            add_bytes(hash, m->buffers[p].grad,
                      (size_t)model_numel(&m->params[p]) * element_bytes(m->params[p].grad_dtype));
    }
    return hash;
}

muon_result model_step(model *m)
{
    muon_result result;
    muon_result_init(&result, sizeof result);
    uint64_t before = hash_grads(m);
    assert_ok(muon_step(m->opt, &m->args, &result));
    if (!m->config.grad_consumed && hash_grads(m) != before) fail_msg("a gradient was written");
    return result;
}

muon_result model_run(model *m, int steps)
{
    muon_result result;
    muon_result_init(&result, sizeof result);
    for (int step = 1; step <= steps; step++) {
        model_fill_grads(m, step);
        result = model_step(m);
    }
    return result;
}

/* ---- comparing */

muon_tensor model_state(const model *m, const char *name)
{
    muon_tensor tensor = {0};
    for (size_t i = 0; i < muon_state_count(m->opt); i++) {
        assert_ok(muon_state_get(m->opt, i, &tensor, sizeof tensor));
        if (strcmp(tensor.name, name) == 0) return tensor;
    }
    fail_msg("no state tensor is called %s", name);
    return tensor;
}

typedef struct span {
    const char *name, *what;
    const void *data;
    size_t bytes;
} span;

enum { MODEL_SPANS = 5 * MODEL_PARAMS };

/* What a step may change, in order. */
static size_t list_spans(const model *m, span *list)
{
    size_t n = 0;
    for (size_t p = 0; p < m->nparams; p++) {
        const muon_param *param = &m->params[p];
        size_t elements = (size_t)model_numel(param);
        list[n++] = (span){param->name, "weight", m->buffers[p].param,
                           elements * element_bytes(param->dtype)};
        if (m->buffers[p].copy)
            list[n++] =
                (span){param->name, "copy", m->buffers[p].copy, elements * sizeof(uint16_t)};
    }
    for (size_t i = 0; i < muon_state_count(m->opt); i++) {
        muon_tensor t;
        assert_ok(muon_state_get(m->opt, i, &t, sizeof t));
        list[n++] = (span){t.name, "state", t.data, t.bytes};
    }
    return n;
}

unsigned char *model_snapshot(const model *m)
{
    span list[MODEL_SPANS];
    size_t n = list_spans(m, list), bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += list[i].bytes;
    unsigned char *snapshot = allocate(bytes);
    for (size_t i = 0, at = 0; i < n; at += list[i++].bytes)
        memcpy(snapshot + at, list[i].data, list[i].bytes);
    return snapshot;
}

void model_assert_same(const model *m, const unsigned char *snapshot, const char *when)
{
    span list[MODEL_SPANS];
    size_t n = list_spans(m, list);
    for (size_t i = 0; i < n; snapshot += list[i++].bytes)
        if (memcmp(snapshot, list[i].data, list[i].bytes) != 0)
            fail_msg("%s: the %s %s has changed", when, list[i].what, list[i].name);
}

void model_assert_equal(const model *a, const model *b, const char *what)
{
    span lists[2][MODEL_SPANS];
    size_t na = list_spans(a, lists[0]), nb = list_spans(b, lists[1]);
    for (size_t i = 0; i < na; i++) {
        const span *s = &lists[0][i];
        const span *t = lists[1];
        while (t < lists[1] + nb && (strcmp(s->name, t->name) != 0 || s->what != t->what))
            t++;
        if (t == lists[1] + nb)
            fail_msg("%s: the other model has no %s %s", what, s->what, s->name);
        assert_int_equal(s->bytes, t->bytes);
        if (memcmp(s->data, t->data, s->bytes) != 0)
            fail_msg("%s: the bits of the %s %s differ", what, s->what, s->name);
    }
}

int64_t model_least_budget(const model *m)
{
    muon_config config = m->config;
    muon_plan *plan = NULL;
    long long bytes = 0;
    config.workspace_budget = 1;
    assert_fails(muon_plan_create(&plan, &config, m->params, m->nparams), MUON_E_BUDGET,
                 "workspace_budget is 1 bytes, but the largest matrix needs ");
    assert_int_equal(sscanf(strstr(muon_last_error(), "needs "), "needs %lld", &bytes), 1);
    return bytes;
}

const char *model_text(const char *format, ...)
{
    static char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

const char *const *model_backends(void)
{
    static const char *const wanted[] = {"reference", "blis", "cblas"};
    static const char *found[COUNT(wanted) + 1];
    size_t n = 0;
    if (found[0]) return found;
    for (size_t i = 0; i < COUNT(wanted); i++) {
        const la_ops *la;
        if (muon__la_find(&la, wanted[i]) == MUON_OK)
            found[n++] = wanted[i];
        else
            print_message("not tested: %s\n", muon_last_error());
    }
    return found;
}
