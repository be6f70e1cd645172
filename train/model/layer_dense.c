/* layer_dense.c - a feed-forward part that all tokens go through. */
#include "train/model/layer_dense.h"

#include <stddef.h>

void dense_describe(model *m, int layer, dense *d, const char *gate_up, const char *down,
                    int64_t hidden)
{
    shape in = {{2 * hidden, m->config.width}}, out = {{m->config.width, hidden}};
    d->gate_up = model_add(m, layer, ROLE_INNER, gate_up, in, "rows / 2");
    d->down = model_add(m, layer, ROLE_TO_STREAM, down, out, NULL);
}

void dense_keep(model *m, dense *d, int64_t hidden, arena *a)
{
    d->inner = take_rows(a, m->most_tokens, 2 * hidden);
}

static swiglu swiglu_of(model *m, const dense *d, float *hidden_rows)
{
    m->one_group[1] = m->tokens;
    return (swiglu){.width = m->config.width,
                    .hidden = model_tensor_at(m, d->down)->shape[1],
                    .groups = 1,
                    .offsets = m->one_group,
                    .gate_up = m->weights[d->gate_up],
                    .down = m->weights[d->down],
                    .inner = d->inner,
                    .hidden_rows = hidden_rows,
                    .list = m->list};
}

void dense_forward(model *m, const dense *d, const float *base, float *out, float *hidden_rows)
{
    swiglu s = swiglu_of(m, d, hidden_rows);
    swiglu_forward(m->threads, &s, m->normal, base, out);
}

void dense_backward(model *m, const dense *d, float *hidden_rows)
{
    swiglu s = swiglu_of(m, d, hidden_rows);
    swiglu_gradients to = {m->grads[d->gate_up], m->grads[d->down], NULL, m->d_normal};
    swiglu_backward(m->threads, &s, m->normal, m->d_stream, &to);
}

static void describe(model *m, part *p)
{
    dense_describe(m, p->layer, &p->as.dense, "mlp.w_gate_up", "mlp.w_down", m->config.hidden);
}

static void keep(model *m, part *p, arena *a)
{
    dense_keep(m, &p->as.dense, m->config.hidden, a);
}

static void scratch(model *m, arena *a)
{
    m->scratch.dense.hidden = take_rows(a, m->most_tokens, m->config.hidden);
}

static void forward(model *m, part *p, float *out)
{
    dense_forward(m, &p->as.dense, p->in, out, m->scratch.dense.hidden);
}

static void backward(model *m, part *p)
{
    dense_backward(m, &p->as.dense, m->scratch.dense.hidden);
}

const part_ops part_dense = {describe, keep, scratch, forward, backward};
