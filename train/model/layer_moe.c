/* layer_moe.c - a mixture of experts: tokens are sorted by the experts they go to, each expert works on
 * its rows as if they were a batch, and every token adds up what its experts made of it. The weight
 * of an expert is applied inside it, before its last matrix. */
#include "train/model/layer_dense.h"
#include "train/model/rows.h"

#include <stddef.h>
#include <string.h>

static void describe(model *m, part *p)
{
    const model_config *c = &m->config;
    moe *e = &p->as.moe;
    int layer = p->layer;
    int64_t hidden = c->expert_hidden;
    shape router = {{c->experts, c->width}}, in = {{c->experts, 2 * hidden, c->width}};
    shape out = {{c->experts, c->width, hidden}};
    e->router = model_add(m, layer, ROLE_ROUTER, "moe.router", router, NULL);
    e->gate_up = model_add(m, layer, ROLE_INNER, "moe.w_gate_up", in, "batch 1; rows / 2");
    e->down = model_add(m, layer, ROLE_TO_STREAM, "moe.w_down", out, "batch 1");
    if (c->shared_hidden)
        dense_describe(m, layer, &e->shared, "moe.shared.w_gate_up", "moe.shared.w_down",
                       c->shared_hidden);
}

static void keep(model *m, part *p, arena *a)
{
    const model_config *c = &m->config;
    moe *e = &p->as.moe;
    route *r = &e->routes;
    int64_t choices = m->most_tokens * c->top_k;
    e->inner = take_rows(a, choices, (int64_t)2 * c->expert_hidden);
    dense_keep(m, &e->shared, c->shared_hidden, a);
    r->probabilities = take_rows(a, m->most_tokens, c->experts);
    r->fractions = ARENA_ARRAY(a, float, m->most_sequences * c->experts);
    r->balance = ARENA_ARRAY(a, double, m->most_sequences);
    r->offsets = ARENA_ARRAY(a, int64_t, (int64_t)c->experts + 1);
    r->chosen = ARENA_ARRAY(a, int32_t, choices);
    r->tokens = ARENA_ARRAY(a, int32_t, choices);
    r->rows = ARENA_ARRAY(a, int32_t, choices);
    r->weights = ARENA_ARRAY(a, float, choices);
}

static void scratch(model *m, arena *a)
{
    const model_config *c = &m->config;
    int64_t choices = m->most_tokens * c->top_k, width = c->width;
    int64_t of_experts = choices * c->expert_hidden, of_shared = m->most_tokens * c->shared_hidden;
    m->scratch.moe.hidden = ARENA_ARRAY(a, float, of_experts > of_shared ? of_experts : of_shared);
    m->scratch.moe.x = take_rows(a, choices, width);
    m->scratch.moe.y = take_rows(a, choices, width);
    m->scratch.moe.dx = take_rows(a, choices, width);
    m->scratch.moe.d_weights = ARENA_ARRAY(a, float, choices);
    m->scratch.moe.d_logits = take_rows(a, m->most_tokens, c->experts);
}

static swiglu swiglu_of(const model *m, const moe *e)
{
    return (swiglu){.width = m->config.width,
                    .hidden = m->config.expert_hidden,
                    .groups = m->config.experts,
                    .offsets = e->routes.offsets,
                    .row_weights = e->routes.weights,
                    .gate_up = m->weights[e->gate_up],
                    .down = m->weights[e->down],
                    .inner = e->inner,
                    .hidden_rows = m->scratch.moe.hidden,
                    .list = m->list};
}

static void forward(model *m, part *p, float *out)
{
    const model_config *c = &m->config;
    moe *e = &p->as.moe;
    route *r = &e->routes;
    r->sequences = m->sequences, r->length = m->length;
    r->experts = c->experts, r->top_k = c->top_k;
    linear router = model_linear(m, e->router, c->width, c->experts);
    product logits = linear_forward(&router, m->normal, NULL, r->probabilities);
    product_run(m->threads, &logits, 1);
    route_forward(m->threads, r);
    if (c->shared_hidden)
        dense_forward(m, &e->shared, p->in, out, m->scratch.moe.hidden);
    else
        memcpy(out, p->in, (size_t)(m->tokens * c->width) * sizeof *out);
    swiglu s = swiglu_of(m, e);
    rows_gather(m->threads, m->tokens * c->top_k, c->width, r->tokens, m->normal, m->scratch.moe.x);
    swiglu_forward(m->threads, &s, m->scratch.moe.x, NULL, m->scratch.moe.y);
    rows_combine(m->threads, m->tokens, c->width, c->top_k, r->rows, m->scratch.moe.y, out);
}

static void backward(model *m, part *p)
{
    const model_config *c = &m->config;
    moe *e = &p->as.moe;
    route *r = &e->routes;
    int64_t choices = m->tokens * c->top_k;
    float *x = m->scratch.moe.x, *dy = m->scratch.moe.y, *dx = m->scratch.moe.dx;
    float *d_weights = m->scratch.moe.d_weights, *d_logits = m->scratch.moe.d_logits;
    rows_gather(m->threads, choices, c->width, r->tokens, m->normal, x);
    rows_gather(m->threads, choices, c->width, r->tokens, m->d_stream, dy);
    swiglu s = swiglu_of(m, e);
    swiglu_gradients to = {m->grads[e->gate_up], m->grads[e->down], d_weights, dx};
    swiglu_backward(m->threads, &s, x, dy, &to);
    if (c->shared_hidden) dense_backward(m, &e->shared, m->scratch.moe.hidden);
    route_backward(m->threads, r, d_weights, m->balance_scale, d_logits);
    linear router = model_linear(m, e->router, c->width, c->experts);
    product list[] = {
        linear_weight(&router, d_logits, m->normal, m->grads[e->router]),
        linear_input(&router, d_logits, c->shared_hidden ? m->d_normal : NULL, m->d_normal)};
    product_run(m->threads, list, 2);
    rows_combine(m->threads, m->tokens, c->width, c->top_k, r->rows, dx, m->d_normal);
}

const part_ops part_moe = {describe, keep, scratch, forward, backward};
