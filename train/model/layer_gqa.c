/* layer_gqa.c - attention with separate matrices for queries, keys, values and output. Heads follow each
 * other in the rows of wq, wk, wv and in the columns of wo; with fewer heads of keys and values than of
 * queries, heads / kv_heads neighbours share one. */
#include "train/model/parts.h"

typedef struct sizes {
    int64_t q, kv; /* floats per token */
} sizes;

static sizes sizes_of(const model *m)
{
    const model_config *c = &m->config;
    return (sizes){(int64_t)c->heads * c->head_dim, (int64_t)c->kv_heads * c->head_dim};
}

static void describe(model *m, part *p)
{
    const model_config *c = &m->config;
    gqa *g = &p->as.gqa;
    sizes n = sizes_of(m);
    shape queries = {{n.q, c->width}}, keys = {{n.kv, c->width}}, output = {{c->width, n.q}};
    g->wq = model_add(m, p->layer, ROLE_INNER, "attn.wq", queries, "rows / %d", c->heads);
    g->wk = model_add(m, p->layer, ROLE_INNER, "attn.wk", keys, "rows / %d", c->kv_heads);
    g->wv = model_add(m, p->layer, ROLE_INNER, "attn.wv", keys, "rows / %d", c->kv_heads);
    g->wo = model_add(m, p->layer, ROLE_TO_STREAM, "attn.wo", output, "cols / %d", c->heads);
}

static void keep(model *m, part *p, arena *a)
{
    gqa *g = &p->as.gqa;
    sizes n = sizes_of(m);
    g->q = take_rows(a, m->most_tokens, n.q);
    g->k = take_rows(a, m->most_tokens, n.kv);
    g->v = take_rows(a, m->most_tokens, n.kv);
    g->out = take_rows(a, m->most_tokens, n.q);
}

static void scratch(model *m, arena *a)
{
    sizes n = sizes_of(m);
    m->scratch.gqa.dq = take_rows(a, m->most_tokens, n.q);
    m->scratch.gqa.dk = take_rows(a, m->most_tokens, n.kv);
    m->scratch.gqa.dv = take_rows(a, m->most_tokens, n.kv);
    m->scratch.gqa.d_out = take_rows(a, m->most_tokens, n.q);
}

static void turn(model *m, float *q, float *k, int back)
{
    const model_config *c = &m->config;
    sizes n = sizes_of(m);
    rope_rows rows = {m->tokens, n.q, m->length, 0, c->head_dim, c->heads};
    rope_turn(m->threads, &m->rope, &rows, q, back);
    rows.ld = n.kv, rows.heads = c->kv_heads;
    rope_turn(m->threads, &m->rope, &rows, k, back);
}

static attend attention_of(const model *m, const part *p)
{
    const model_config *c = &m->config;
    const gqa *g = &p->as.gqa;
    sizes n = sizes_of(m);
    return (attend){.sequences = m->sequences,
                    .length = m->length,
                    .nheads = c->heads,
                    .group = c->heads / c->kv_heads,
                    .dim = c->head_dim,
                    .v_dim = c->head_dim,
                    .q = {g->q, n.q, c->head_dim},
                    .k = {g->k, n.kv, c->head_dim},
                    .v = {g->v, n.kv, c->head_dim},
                    .out = {g->out, n.q, c->head_dim},
                    .most = p->most,
                    .inverse = p->sums,
                    .scratch = m->attention};
}

static void forward(model *m, part *p, float *out)
{
    gqa *g = &p->as.gqa;
    int64_t width = m->config.width;
    sizes n = sizes_of(m);
    linear q = model_linear(m, g->wq, width, n.q), k = model_linear(m, g->wk, width, n.kv);
    linear v = model_linear(m, g->wv, width, n.kv), o = model_linear(m, g->wo, n.q, width);
    product in[] = {linear_forward(&q, m->normal, NULL, g->q),
                    linear_forward(&k, m->normal, NULL, g->k),
                    linear_forward(&v, m->normal, NULL, g->v)};
    product_run(m->threads, in, 3);
    turn(m, g->q, g->k, 0);
    attend a = attention_of(m, p);
    attend_forward(m->threads, &a,
                   m->max_logits ? m->max_logits + (int64_t)p->layer * a.nheads : NULL);
    product to_stream = linear_forward(&o, g->out, p->in, out);
    product_run(m->threads, &to_stream, 1);
}

static void backward(model *m, part *p)
{
    gqa *g = &p->as.gqa;
    int64_t width = m->config.width, dim = m->config.head_dim;
    sizes n = sizes_of(m);
    float *dq = m->scratch.gqa.dq, *dk = m->scratch.gqa.dk, *dv = m->scratch.gqa.dv;
    float *d_out = m->scratch.gqa.d_out;
    linear q = model_linear(m, g->wq, width, n.q), k = model_linear(m, g->wk, width, n.kv);
    linear v = model_linear(m, g->wv, width, n.kv), o = model_linear(m, g->wo, n.q, width);
    product from_stream[] = {linear_input(&o, m->d_stream, NULL, d_out),
                             linear_weight(&o, m->d_stream, g->out, m->grads[g->wo])};
    product_run(m->threads, from_stream, 2);
    attend a = attention_of(m, p);
    attend_backward(m->threads, &a, (heads){d_out, n.q, dim}, (heads){dq, n.q, dim},
                    (heads){dk, n.kv, dim}, (heads){dv, n.kv, dim});
    turn(m, dq, dk, 1);
    product in[] = {linear_input(&q, dq, NULL, m->d_normal),
                    linear_weight(&q, dq, m->normal, m->grads[g->wq]),
                    linear_weight(&k, dk, m->normal, m->grads[g->wk]),
                    linear_weight(&v, dv, m->normal, m->grads[g->wv])};
    linear_input_also(&in[0], &k, dk);
    linear_input_also(&in[0], &v, dv);
    product_run(m->threads, in, 4);
}

const part_ops part_gqa = {describe, keep, scratch, forward, backward};
