#include "tests/world/model.h"

#include "la/la.h"

void model_init(model *m)
{
    fleet_init(m);
    m->config.groups = m->groups;
    m->config.attention = m->attention;
    m->coarse = 1;
}

muon_param *model_add(model *m, int group, const char *name, const char *matrices,
                      const int64_t *shape, int ndim)
{
    return fleet_add(m, group, name, matrices, NULL, shape, ndim);
}

void model_allocate(model *m)
{
    ship_allocate(m, m);
    ship_fill_grads(m, 1);
}

void model_create(model *m)
{
    assert_ok(ship_create(m, m, NULL));
    ship_fill_grads(m, 1);
}

void model_destroy(model *m)
{
    ship_destroy(m);
}

/* ---- elements */

float model_bf16(uint16_t bits)
{
    return fleet_get(&bits, MUON_BF16, 0);
}

float model_weight(const model *m, size_t p, int64_t i)
{
    return fleet_get(m->buffers[p].param, m->params[p].dtype, i);
}

float model_grad(const model *m, size_t p, int64_t i)
{
    return fleet_get(m->grads[p], m->params[p].grad_dtype, i);
}

void model_set_grad(model *m, size_t p, int64_t i, float value)
{
    fleet_put(m->grads[p], m->params[p].grad_dtype, i, value);
}

/* ---- gradients and steps */

static size_t grad_bytes(const model *m, size_t p)
{
    return (size_t)m->numel[p] * fleet_bytes(m->params[p].grad_dtype);
}

void model_zero_grads(model *m)
{
    for (size_t p = 0; p < m->nparams; p++)
        if (m->grads[p]) memset(m->grads[p], 0, grad_bytes(m, p));
}

static uint64_t hash_grads(const model *m)
{
    uint64_t hash = 0;
    for (size_t p = 0; p < m->nparams; p++) {
        const unsigned char *bytes = m->buffers[p].grad;
        for (size_t i = 0; bytes && i < grad_bytes(m, p); i++)
            hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

muon_result model_step(model *m)
{
    uint64_t before = hash_grads(m);
    assert_ok(ship_step(m));
    if (!m->config.grad_consumed && hash_grads(m) != before) fail_msg("a gradient was written");
    return m->result;
}

muon_result model_run(model *m, int steps)
{
    muon_result_init(&m->result, sizeof m->result);
    for (int step = 1; step <= steps; step++) {
        ship_fill_grads(m, step);
        model_step(m);
    }
    return m->result;
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

enum { MODEL_SPANS = 5 * FLEET_PARAMS };

/* What a step may change, in order. */
static size_t list_spans(const model *m, span *list)
{
    size_t n = 0;
    for (size_t p = 0; p < m->nparams; p++) {
        const muon_param *param = &m->params[p];
        size_t elements = (size_t)m->numel[p];
        list[n++] = (span){param->name, "weight", m->buffers[p].param,
                           elements * fleet_bytes(param->dtype)};
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
    unsigned char *snapshot = malloc(bytes);
    assert_non_null(snapshot);
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
