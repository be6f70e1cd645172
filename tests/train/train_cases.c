#include "tests/train/train_cases.h"

#include "tests/support/testlib.h"

#include <stdlib.h>
#include <string.h>

#define COMMON .rope_theta = 10000, .norm_eps = 1e-5
#define GQA                                                                                        \
    .layers = 2, .width = 16, .context = 11, .attention = MODEL_GQA, .heads = 4, .kv_heads = 2,    \
    .head_dim = 6, .hidden = 20, COMMON
#define MLA                                                                                        \
    .layers = 2, .width = 16, .context = 9, .attention = MODEL_MLA, .heads = 3, .q_rank = 12,      \
    .kv_rank = 10, .nope_dim = 4, .rope_dim = 6, .v_dim = 5, .hidden = 18, COMMON
#define MOE                                                                                        \
    .experts = 5, .top_k = 2, .expert_hidden = 7, .shared_hidden = 0, .dense_layers = 0,           \
    .balance = 0.3

/* A later value of the same field is the one that counts. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
const train_case train_cases[] = {
    {"gqa", {GQA}, 3},
    {"mha", {GQA, .kv_heads = 4}, 3},
    /* longer than the blocks of attention */
    {"long", {GQA, .layers = 1, .width = 12, .context = 150, .heads = 2, .kv_heads = 1}, 1},
    {"mla", {MLA}, 2},
    {"mla_plain", {MLA, .q_rank = 0}, 2},
    {"moe", {GQA, MOE}, 3},
    {"moe_shared", {GQA, MOE, .top_k = 1, .shared_hidden = 9, .dense_layers = 1}, 3},
    {"moe_mla", {MLA, MOE, .experts = 4, .top_k = 3, .shared_hidden = 6}, 2},
};
#pragma GCC diagnostic pop
const size_t ntrain_cases = COUNT(train_cases);

const train_case *train_case_named(const char *name)
{
    for (size_t i = 0; i < ntrain_cases; i++)
        if (strcmp(train_cases[i].name, name) == 0) return &train_cases[i];
    fail_msg("no case is called %s", name);
    return NULL;
}

void case_noise(uint64_t stream, double *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t z = ((uint64_t)i + 1 + (stream << 32)) * UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z = z ^ (z >> 31);
        to[i] = (double)(z >> 40) / (1 << 23) - 1.0;
    }
}

static void *zeros(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count, size);
    assert_non_null(memory);
    return memory;
}

static void fill_weight(const model_tensor *info, size_t index, float *to)
{
    double *values = zeros(info->numel, sizeof *values);
    case_noise(index + 1, values, info->numel);
    for (int64_t i = 0; i < info->numel; i++)
        to[i] = (float)(info->ndim == 1 ? 1 + values[i] / 4 : values[i] / 2);
    free(values);
}

static void fill_text(trained *t)
{
    int64_t batch = t->from->batch, length = t->from->config.context;
    uint64_t stream = 1000;
    while (stream - 1000 < ntrain_cases && t->from != &train_cases[stream - 1000])
        stream++;
    double *values = zeros(batch * (length + 1), sizeof *values);
    case_noise(stream, values, batch * (length + 1));
    for (int64_t i = 0; i < batch * length; i++) {
        int64_t at = i / length * (length + 1) + i % length;
        t->tokens[i] = (uint8_t)((values[at] + 1) * (CASE_TOKENS / 2));
        t->next[i] = (uint8_t)((values[at + 1] + 1) * (CASE_TOKENS / 2));
    }
    free(values);
}

trained trained_create(const train_case *from, int threads)
{
    trained t = {.from = from, .m = model_create(&from->config, from->batch, threads)};
    if (!t.m) fail_msg("%s: %s", from->name, muon_last_error());
    t.ntensors = model_ntensors(t.m);
    t.weights = zeros((int64_t)t.ntensors, sizeof *t.weights);
    t.grads = zeros((int64_t)t.ntensors, sizeof *t.grads);
    for (size_t i = 0; i < t.ntensors; i++) {
        const model_tensor *info = model_tensor_at(t.m, i);
        t.weights[i] = zeros(info->numel, sizeof(float));
        t.grads[i] = zeros(info->numel, sizeof(float));
        fill_weight(info, i, t.weights[i]);
    }
    int64_t tokens = (int64_t)from->batch * from->config.context;
    t.tokens = zeros(tokens, 1);
    t.next = zeros(tokens, 1);
    t.max_logits = zeros((int64_t)from->config.layers * from->config.heads, sizeof(float));
    fill_text(&t);
    return t;
}

void trained_destroy(trained *t)
{
    for (size_t i = 0; i < t->ntensors; i++) {
        free(t->weights[i]);
        free(t->grads[i]);
    }
    free(t->weights);
    free(t->grads);
    free(t->tokens);
    free(t->next);
    free(t->max_logits);
    model_destroy(t->m);
}

size_t trained_find(const trained *t, const char *name)
{
    for (size_t i = 0; i < t->ntensors; i++)
        if (strcmp(model_tensor_at(t->m, i)->name, name) == 0) return i;
    fail_msg("%s: no tensor is called %s", t->from->name, name);
    return 0;
}

void trained_clear(trained *t)
{
    for (size_t i = 0; i < t->ntensors; i++)
        memset(t->grads[i], 0, (size_t)model_tensor_at(t->m, i)->numel * sizeof(float));
}

static model_result run(trained *t, float *const *grads, float scale)
{
    model_result result;
    model_run(t->m, (const float *const *)t->weights, grads, t->tokens, t->next, t->from->batch,
              t->from->config.context, scale, t->max_logits, &result);
    return result;
}

model_result trained_run(trained *t, float scale)
{
    return run(t, t->grads, scale);
}

model_result trained_forward(trained *t)
{
    return run(t, NULL, 1);
}
