/* layer_mla.c - multi-head latent attention. Keys and values are made from a short vector per token
 * (kv_rank), which is all that a decoder would have to remember besides one rotary key that all heads
 * share; queries, if q_rank says so, from a short vector of their own.
 *
 *     rows of wq_b, per head (nope, rope); of wkv_a (kv_rank, rope); of wkv_b, per head (nope, v) */
#include "train/model/parts.h"

#include "train/model/rows.h"

#include <string.h>

typedef struct sizes {
    int64_t qk;        /* of a head's query and key: nope + rope */
    int64_t kv;        /* of a head in the rows of wkv_b: nope + v */
    int64_t q, k_v;    /* the same for all heads */
    int64_t out, kv_a; /* values of all heads; kv_rank + rope */
} sizes;

static sizes sizes_of(const model *m)
{
    const model_config *c = &m->config;
    int64_t count = c->heads, qk = (int64_t)c->nope_dim + c->rope_dim,
            kv = (int64_t)c->nope_dim + c->v_dim;
    return (sizes){
        qk, kv, count * qk, count * kv, count * c->v_dim, (int64_t)c->kv_rank + c->rope_dim};
}

static void describe(model *m, part *p)
{
    const model_config *c = &m->config;
    mla *l = &p->as.mla;
    sizes n = sizes_of(m);
    int layer = p->layer;
    if (c->q_rank) {
        shape down = {{c->q_rank, c->width}}, up = {{n.q, c->q_rank}}, normal = {{c->q_rank}};
        l->wq_a = model_add(m, layer, ROLE_INNER, "attn.wq_a", down, NULL);
        l->q_norm = model_add(m, layer, ROLE_NORM, "attn.q_norm", normal, NULL);
        l->wq_b = model_add(m, layer, ROLE_INNER, "attn.wq_b", up, "rows %d*(%d, %d)", c->heads,
                            c->nope_dim, c->rope_dim);
    } else {
        shape whole = {{n.q, c->width}};
        l->wq_b = model_add(m, layer, ROLE_INNER, "attn.wq", whole, "rows %d*(%d, %d)", c->heads,
                            c->nope_dim, c->rope_dim);
    }
    shape down = {{n.kv_a, c->width}}, up = {{n.k_v, c->kv_rank}}, normal = {{c->kv_rank}};
    shape output = {{c->width, n.out}};
    l->wkv_a =
        model_add(m, layer, ROLE_INNER, "attn.wkv_a", down, "rows %d, %d", c->kv_rank, c->rope_dim);
    l->kv_norm = model_add(m, layer, ROLE_NORM, "attn.kv_norm", normal, NULL);
    l->wkv_b = model_add(m, layer, ROLE_INNER, "attn.wkv_b", up, "rows %d*(%d, %d)", c->heads,
                         c->nope_dim, c->v_dim);
    l->wo = model_add(m, layer, ROLE_TO_STREAM, "attn.wo", output, "cols / %d", c->heads);
}

static void keep(model *m, part *p, arena *a)
{
    mla *l = &p->as.mla;
    sizes n = sizes_of(m);
    int64_t tokens = m->most_tokens;
    l->q_a = take_rows(a, tokens, m->config.q_rank);
    l->q_inverse = ARENA_ARRAY(a, float, tokens);
    l->q = take_rows(a, tokens, n.q);
    l->kv_a = take_rows(a, tokens, n.kv_a);
    l->kv_inverse = ARENA_ARRAY(a, float, tokens);
    l->kv = take_rows(a, tokens, n.k_v);
    l->out = take_rows(a, tokens, n.out);
}

static void scratch(model *m, arena *a)
{
    sizes n = sizes_of(m);
    const model_config *c = &m->config;
    int64_t tokens = m->most_tokens;
    m->scratch.mla.k = take_rows(a, tokens, n.q);
    m->scratch.mla.dk = take_rows(a, tokens, n.q);
    m->scratch.mla.dq = take_rows(a, tokens, n.q);
    m->scratch.mla.d_out = take_rows(a, tokens, n.out);
    m->scratch.mla.dkv = take_rows(a, tokens, n.k_v);
    m->scratch.mla.dkv_a = take_rows(a, tokens, n.kv_a);
    m->scratch.mla.kv_normal = take_rows(a, tokens, c->kv_rank);
    m->scratch.mla.d_kv_normal = take_rows(a, tokens, c->kv_rank);
    m->scratch.mla.dq_a = take_rows(a, tokens, c->q_rank);
    m->scratch.mla.q_normal = take_rows(a, tokens, c->q_rank);
    m->scratch.mla.d_q_normal = take_rows(a, tokens, c->q_rank);
}

/* ---- keys -------------------------------------------------------------------------------------- */

/* Attention wants whole keys: of each head its own nope part, then the rope part that all share. */
typedef struct keys {
    const model_config *c;
    sizes n;
    float *k, *kv, *kv_a;
} keys;

static void join_rows(const void *job, int64_t first, int64_t end)
{
    const keys *j = job;
    size_t nope = (size_t)j->c->nope_dim * sizeof(float);
    size_t turned = (size_t)j->c->rope_dim * sizeof(float);
    for (int64_t i = first; i < end; i++) {
        for (int64_t h = 0; h < j->c->heads; h++) {
            float *k = j->k + i * j->n.q + h * j->n.qk;
            memcpy(k, j->kv + i * j->n.k_v + h * j->n.kv, nope);
            memcpy(k + j->c->nope_dim, j->kv_a + i * j->n.kv_a + j->c->kv_rank, turned);
        }
    }
}

/* The same with gradients, backwards: the shared part gets the sum over heads. */
static void split_rows(const void *job, int64_t first, int64_t end)
{
    const keys *j = job;
    size_t nope = (size_t)j->c->nope_dim * sizeof(float);
    size_t turned = (size_t)j->c->rope_dim * sizeof(float);
    for (int64_t i = first; i < end; i++) {
        float *shared = j->kv_a + i * j->n.kv_a + j->c->kv_rank;
        memset(shared, 0, turned);
        for (int64_t h = 0; h < j->c->heads; h++) {
            const float *k = j->k + i * j->n.q + h * j->n.qk;
            memcpy(j->kv + i * j->n.k_v + h * j->n.kv, k, nope);
            for (int r = 0; r < j->c->rope_dim; r++)
                shared[r] += k[j->c->nope_dim + r];
        }
    }
}

/* ---- forth and back ---------------------------------------------------------------------------- */

static void turn(model *m, float *q, float *kv_a, int back)
{
    const model_config *c = &m->config;
    sizes n = sizes_of(m);
    rope_rows queries = {m->tokens, n.q, m->length, c->nope_dim, n.qk, c->heads};
    rope_rows shared = {m->tokens, n.kv_a, m->length, c->kv_rank, c->rope_dim, 1};
    rope_turn(m->threads, &m->rope, &queries, q, back);
    rope_turn(m->threads, &m->rope, &shared, kv_a, back);
}

/* Without compression of the queries q_b takes the input itself, and q_a and q_norm are not used. */
typedef struct layers {
    linear q_a, q_b, kv_a, kv_b, o;
    norm q_norm, kv_norm;
    const float *q_in; /* of q_b */
} layers;

static layers layers_of(const model *m, const mla *l)
{
    const model_config *c = &m->config;
    sizes n = sizes_of(m);
    int64_t q_in = c->q_rank ? c->q_rank : c->width;
    layers out = {.q_b = model_linear(m, l->wq_b, q_in, n.q),
                  .kv_a = model_linear(m, l->wkv_a, c->width, n.kv_a),
                  .kv_b = model_linear(m, l->wkv_b, c->kv_rank, n.k_v),
                  .o = model_linear(m, l->wo, n.out, c->width),
                  .q_in = m->normal};
    out.kv_norm =
        (norm){m->tokens, c->kv_rank, m->weights[l->kv_norm], l->kv_a, n.kv_a, l->kv_inverse};
    if (c->q_rank) {
        out.q_a = model_linear(m, l->wq_a, c->width, c->q_rank);
        out.q_norm =
            (norm){m->tokens, c->q_rank, m->weights[l->q_norm], l->q_a, c->q_rank, l->q_inverse};
        out.q_in = m->scratch.mla.q_normal;
    }
    return out;
}

static attend attention_of(const model *m, const part *p)
{
    const model_config *c = &m->config;
    const mla *l = &p->as.mla;
    sizes n = sizes_of(m);
    return (attend){.sequences = m->sequences,
                    .length = m->length,
                    .nheads = c->heads,
                    .group = 1,
                    .dim = n.qk,
                    .v_dim = c->v_dim,
                    .q = {l->q, n.q, n.qk},
                    .k = {m->scratch.mla.k, n.q, n.qk},
                    .v = {l->kv + c->nope_dim, n.k_v, n.kv},
                    .out = {l->out, n.out, c->v_dim},
                    .most = p->most,
                    .inverse = p->sums,
                    .scratch = m->attention};
}

/* Whole keys into the scratch memory. */
static void join_keys(model *m, const mla *l)
{
    keys k = {&m->config, sizes_of(m), m->scratch.mla.k, l->kv, l->kv_a};
    rows_run(m->threads, m->tokens, join_rows, &k);
}

static void forward(model *m, part *p, float *out)
{
    mla *l = &p->as.mla;
    layers y = layers_of(m, l);
    int compressed = m->config.q_rank > 0;
    float eps = (float)m->config.norm_eps;
    product list[2] = {linear_forward(&y.kv_a, m->normal, NULL, l->kv_a)};
    if (compressed) list[1] = linear_forward(&y.q_a, m->normal, NULL, l->q_a);
    product_run(m->threads, list, compressed ? 2 : 1);
    norm_forward(m->threads, &y.kv_norm, eps, m->scratch.mla.kv_normal);
    if (compressed) norm_forward(m->threads, &y.q_norm, eps, m->scratch.mla.q_normal);
    list[0] = linear_forward(&y.kv_b, m->scratch.mla.kv_normal, NULL, l->kv);
    list[1] = linear_forward(&y.q_b, y.q_in, NULL, l->q);
    product_run(m->threads, list, 2);

    turn(m, l->q, l->kv_a, 0);
    join_keys(m, l);
    attend a = attention_of(m, p);
    attend_forward(m->threads, &a, m->max_logits ? m->max_logits + p->layer * a.nheads : NULL);
    list[0] = linear_forward(&y.o, l->out, p->in, out);
    product_run(m->threads, list, 1);
}

/* From the gradient of the stream to those of queries, keys and values, before they were turned. */
static void backward_attention(model *m, part *p, const linear *o)
{
    const model_config *c = &m->config;
    mla *l = &p->as.mla;
    sizes n = sizes_of(m);
    float *d_out = m->scratch.mla.d_out, *dq = m->scratch.mla.dq, *dk = m->scratch.mla.dk;
    float *dkv = m->scratch.mla.dkv, *dkv_a = m->scratch.mla.dkv_a;
    product list[] = {linear_input(o, m->d_stream, NULL, d_out),
                      linear_weight(o, m->d_stream, l->out, m->grads[l->wo])};
    product_run(m->threads, list, 2);
    join_keys(m, l);
    attend a = attention_of(m, p);
    attend_backward(m->threads, &a, (heads){d_out, n.out, c->v_dim}, (heads){dq, n.q, n.qk},
                    (heads){dk, n.q, n.qk}, (heads){dkv + c->nope_dim, n.k_v, n.kv});
    keys k = {c, n, dk, dkv, dkv_a};
    rows_run(m->threads, m->tokens, split_rows, &k);
    turn(m, dq, dkv_a, 1);
}

static void backward(model *m, part *p)
{
    mla *l = &p->as.mla;
    layers y = layers_of(m, l);
    int compressed = m->config.q_rank > 0;
    float *dq = m->scratch.mla.dq, *dq_a = m->scratch.mla.dq_a;
    float *dkv = m->scratch.mla.dkv, *dkv_a = m->scratch.mla.dkv_a;
    backward_attention(m, p, &y.o);

    norm_again(m->threads, &y.kv_norm, m->scratch.mla.kv_normal);
    if (compressed) norm_again(m->threads, &y.q_norm, m->scratch.mla.q_normal);
    product list[4] = {
        linear_weight(&y.kv_b, dkv, m->scratch.mla.kv_normal, m->grads[l->wkv_b]),
        linear_input(&y.kv_b, dkv, NULL, m->scratch.mla.d_kv_normal),
        linear_weight(&y.q_b, dq, y.q_in, m->grads[l->wq_b]),
    };
    if (compressed) list[3] = linear_input(&y.q_b, dq, NULL, m->scratch.mla.d_q_normal);
    product_run(m->threads, list, compressed ? 4 : 3);

    norm_backward(m->threads, &y.kv_norm, m->scratch.mla.d_kv_normal, NULL, dkv_a,
                  m->grads[l->kv_norm], m->partial);
    list[0] = linear_weight(&y.kv_a, dkv_a, m->normal, m->grads[l->wkv_a]);
    list[1] = linear_input(&y.kv_a, dkv_a, NULL, m->d_normal);
    if (compressed) {
        norm_backward(m->threads, &y.q_norm, m->scratch.mla.d_q_normal, NULL, dq_a,
                      m->grads[l->q_norm], m->partial);
        linear_input_also(&list[1], &y.q_a, dq_a);
        list[2] = linear_weight(&y.q_a, dq_a, m->normal, m->grads[l->wq_a]);
    } else {
        linear_input_also(&list[1], &y.q_b, dq);
    }
    product_run(m->threads, list, compressed ? 3 : 2);
}

const part_ops part_mla = {describe, keep, scratch, forward, backward};
