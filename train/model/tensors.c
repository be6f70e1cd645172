/* tensors.c - the tensors of a model: names, shapes, what libmuon has to know, first values. */
#include "train/model/parts.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* Results that go to the stream add up over 2 * layers parts. The head starts small, so that the first
 * loss is close to that of a guess. */
static float deviation_of(const model *m, role what, int64_t inputs)
{
    double plain = 1 / sqrt((double)inputs);
    switch (what) {
    case ROLE_NORM:
        return 0;
    case ROLE_TO_STREAM:
        return (float)(plain / sqrt(2.0 * m->config.layers));
    case ROLE_EMBEDDING:
        return 1;
    case ROLE_HEAD:
        return (float)(0.1 * plain);
    default:
        return (float)plain;
    }
}

size_t model_add(model *m, int layer, role what, const char *name, shape dims, const char *matrices,
                 ...)
{
    named_tensor *t = &m->tensors[m->ntensors];
    int length = layer < 0 ? snprintf(t->name, sizeof t->name, "%s", name)
                           : snprintf(t->name, sizeof t->name, "layers.%d.%s", layer, name);
    assert(length > 0 && (size_t)length < sizeof t->name);
    (void)length;
    t->info = (model_tensor){.name = t->name, .numel = 1};
    for (; t->info.ndim < 3 && dims.dims[t->info.ndim]; t->info.ndim++) {
        t->info.shape[t->info.ndim] = dims.dims[t->info.ndim];
        t->info.numel *= dims.dims[t->info.ndim];
    }
    if (matrices) {
        va_list numbers;
        va_start(numbers, matrices);
        vsnprintf(t->matrices, sizeof t->matrices, matrices, numbers);
        va_end(numbers);
        t->info.matrices = t->matrices;
    }
    t->info.is_muon = what == ROLE_INNER || what == ROLE_TO_STREAM;
    t->info.expert = t->info.ndim == 3;
    t->info.deviation = deviation_of(m, what, dims.dims[t->info.ndim - 1]);
    return m->ntensors++;
}

size_t model_ntensors(const model *m)
{
    return m->ntensors;
}

const model_tensor *model_tensor_at(const model *m, size_t i)
{
    return &m->tensors[i].info;
}

int64_t model_numel(const model *m)
{
    int64_t numel = 0;
    for (size_t i = 0; i < m->ntensors; i++)
        numel += m->tensors[i].info.numel;
    return numel;
}

size_t model_attention_layers(const model *m, muon_attention *layers, size_t most)
{
    const model_config *c = &m->config;
    for (size_t i = 0; i < most && i < (size_t)c->layers; i++) {
        const part *p = &m->parts[2 * i];
        muon_attention *a = &layers[i];
        muon_attention_init(a, sizeof *a);
        a->heads = c->heads;
        if (c->attention == MODEL_MLA) {
            a->kind = MUON_ATTENTION_MLA;
            a->q = m->tensors[p->as.mla.wq_b].name;
            a->k = m->tensors[p->as.mla.wkv_b].name;
            a->nope_dim = c->nope_dim, a->rope_dim = c->rope_dim, a->v_dim = c->v_dim;
        } else {
            a->q = m->tensors[p->as.gqa.wq].name;
            a->k = m->tensors[p->as.gqa.wk].name;
            a->kv_heads = c->kv_heads, a->head_dim = c->head_dim;
        }
    }
    return (size_t)c->layers;
}

/* ---- first values ------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t z) /* the finalizer of splitmix64 */
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The sum of four random 16-bit numbers, moved and scaled: nearly a normal distribution, and the same
 * bits on every machine, since the only rounding is that of one product. */
void model_fill(const model *m, size_t tensor, float *to, int64_t first, int64_t count,
                uint64_t seed)
{
    enum { MEAN = 2 * 65535 };
    const double deviation_of_sum = 37837.227; /* sqrt((2^32 - 1) / 3) */
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    float deviation = m->tensors[tensor].info.deviation;
    float unit = (float)((double)deviation / deviation_of_sum);
    uint64_t key = mix(seed + golden * (tensor + 1));
    for (int64_t i = 0; i < count; i++) {
        uint64_t z = mix(key + golden * (uint64_t)(first + i + 1));
        int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
        to[i] = deviation == 0 ? 1 : (float)(sum - MEAN) * unit;
    }
}
