#include "model.h"

#include "product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float LEAK = 0.1f; /* slope of the activation below 0, so that no unit dies */

static const int size[LAYERS + 1] = {INPUT, HIDDEN, HIDDEN, HIDDEN, VOCABULARY};

const model_param model_params[NPARAMS] = {
    {"embed.weight", VOCABULARY, EMBEDDING},
    {"hidden.1.weight", HIDDEN, INPUT},
    {"hidden.1.bias", HIDDEN, 0},
    {"hidden.2.weight", HIDDEN, HIDDEN},
    {"hidden.2.bias", HIDDEN, 0},
    {"hidden.3.weight", HIDDEN, HIDDEN},
    {"hidden.3.bias", HIDDEN, 0},
    {"lm_head.weight", VOCABULARY, HIDDEN},
    {"lm_head.bias", VOCABULARY, 0},
};

static int weight_of(int layer)
{
    return 1 + 2 * layer;
}

static int bias_of(int layer)
{
    return 2 + 2 * layer;
}

int model_param_size(int param)
{
    const model_param *p = &model_params[param];
    return p->rows * (p->cols ? p->cols : 1);
}

/* What goes into a layer, or after the last one the logits. */
static float *activation(model *m, int layer)
{
    if (layer == 0) return m->input;
    return layer < LAYERS ? m->hidden[layer - 1] : m->logits;
}

/* ---- Creation */

/* Uniform with the given standard deviation. */
static void fill(float *x, int n, double deviation, uint64_t *random)
{
    for (int i = 0; i < n; i++) {
        double unit = (double)(random_next(random) >> 11) * 0x1p-53;
        x[i] = (float)((2 * unit - 1) * sqrt(3) * deviation);
    }
}

/* Large enough that signals keep their size through the ReLUs; at the output so small that all
 * characters start about equally likely. */
static double deviation_of(int param)
{
    if (param == 0) return 1;
    return sqrt((param == weight_of(LAYERS - 1) ? 0.04 : 2.0) / model_params[param].cols);
}

model *model_create(uint64_t seed)
{
    size_t total = 0;
    for (int i = 0; i < NPARAMS; i++)
        total += (size_t)model_param_size(i);
    model *m = calloc(1, sizeof *m);
    if (!m || !(m->memory = calloc(2 * total, sizeof *m->memory))) {
        model_destroy(m);
        return NULL;
    }
    float *at = m->memory;
    for (int i = 0; i < NPARAMS; at += model_param_size(i++)) {
        const model_param *p = &model_params[i];
        m->weight[i] = at;
        m->grad[i] = at + total;
        if (p->cols) fill(at, model_param_size(i), deviation_of(i), &seed);
    }
    return m;
}

void model_destroy(model *m)
{
    if (!m) return;
    free(m->memory);
    free(m);
}

/* ---- Forward */

static void embed(model *m, const unsigned char *windows)
{
    for (int i = 0; i < BATCH; i++)
        for (int j = 0; j < CONTEXT; j++)
            memcpy(m->input + (i * CONTEXT + j) * EMBEDDING,
                   m->weight[0] + windows[i * WINDOW + j] * EMBEDDING, EMBEDDING * sizeof(float));
}

static void add_bias(float *x, const float *bias, int n, int leaky)
{
    for (int i = 0; i < BATCH; i++) {
        float *row = x + i * n;
        for (int j = 0; j < n; j++)
            row[j] += bias[j];
        if (!leaky) continue;
        for (int j = 0; j < n; j++)
            row[j] = row[j] > 0 ? row[j] : LEAK * row[j];
    }
}

static void forward(model *m, const unsigned char *windows)
{
    embed(m, windows);
    for (int l = 0; l < LAYERS; l++) {
        int in = size[l], out = size[l + 1];
        const float *weight = m->weight[weight_of(l)];
        for (int i = 0; i < out; i++)
            for (int j = 0; j < in; j++)
                m->transposed[j * out + i] = weight[i * in + j];
        product_view x = {activation(m, l), in, 1};
        product(activation(m, l + 1), x, m->transposed, BATCH, out, in);
        add_bias(activation(m, l + 1), m->weight[bias_of(l)], out, l < LAYERS - 1);
    }
}

/* The mean of -log softmax at the character that came next; the logits become its gradient. */
static double cross_entropy(model *m, const unsigned char *windows)
{
    double loss = 0;
    for (int i = 0; i < BATCH; i++) {
        float *row = m->logits + i * VOCABULARY;
        int next = windows[i * WINDOW + CONTEXT];
        float most = row[0], sum = 0;
        for (int j = 1; j < VOCABULARY; j++)
            most = row[j] > most ? row[j] : most;
        loss -= (double)(row[next] - most);
        for (int j = 0; j < VOCABULARY; j++)
            sum += row[j] = expf(row[j] - most);
        loss += log((double)sum);
        for (int j = 0; j < VOCABULARY; j++)
            row[j] /= sum * BATCH;
        row[next] -= 1.0f / BATCH;
    }
    return loss / BATCH;
}

double model_loss(model *m, const unsigned char *windows)
{
    forward(m, windows);
    return cross_entropy(m, windows);
}

/* ---- Backward */

static void sum_rows(float *sum, const float *x, int n)
{
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int i = 0; i < BATCH; i++)
        for (int j = 0; j < n; j++)
            sum[j] += x[i * n + j];
}

static void embed_gradient(model *m, const float *delta, const unsigned char *windows)
{
    memset(m->grad[0], 0, (size_t)model_param_size(0) * sizeof *m->grad[0]);
    for (int i = 0; i < BATCH; i++) {
        for (int j = 0; j < CONTEXT; j++) {
            float *sum = m->grad[0] + windows[i * WINDOW + j] * EMBEDDING;
            const float *row = delta + (i * CONTEXT + j) * EMBEDDING;
            for (int e = 0; e < EMBEDDING; e++)
                sum[e] += row[e];
        }
    }
}

double model_gradients(model *m, const unsigned char *windows)
{
    double loss = model_loss(m, windows);
    const float *delta = m->logits;
    for (int l = LAYERS - 1; l >= 0; l--) {
        int in = size[l], out = size[l + 1];
        const float *x = activation(m, l);
        product(m->grad[weight_of(l)], (product_view){delta, 1, out}, x, out, in, BATCH);
        sum_rows(m->grad[bias_of(l)], delta, out);
        float *below = m->delta[l % 2];
        product(below, (product_view){delta, out, 1}, m->weight[weight_of(l)], BATCH, in, out);
        delta = below;
        if (l == 0) break;
        for (int i = 0; i < BATCH * in; i++)
            below[i] = x[i] > 0 ? below[i] : LEAK * below[i];
    }
    embed_gradient(m, delta, windows);
    return loss;
}
