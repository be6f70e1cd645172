#include "train/model/parts.h"

#include "train/model/loss.h"
#include "train/model/rows.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- creation ---------------------------------------------------------------------------------- */

enum { TENSORS_PER_LAYER = 14, OTHER_TENSORS = 3 }; /* at most */

static const part_ops *feed_forward_of(const model_config *c, int layer)
{
    return c->experts > 0 && layer >= c->dense_layers ? &part_moe : &part_dense;
}

static void describe(model *m)
{
    const model_config *c = &m->config;
    shape vocabulary = {{MODEL_VOCABULARY, c->width}}, normal = {{c->width}};
    m->embedding = model_add(m, -1, ROLE_EMBEDDING, "embedding", vocabulary, NULL);
    for (int i = 0; i < m->nparts; i++) {
        part *p = &m->parts[i];
        int is_attention = i % 2 == 0;
        p->layer = i / 2;
        p->norm = model_add(m, p->layer, ROLE_NORM, is_attention ? "attn_norm" : "ffn_norm", normal,
                            NULL);
        p->ops = !is_attention               ? feed_forward_of(c, p->layer)
                 : c->attention == MODEL_MLA ? &part_mla
                                             : &part_gqa;
        m->moe_layers += p->ops == &part_moe;
        p->ops->describe(m, p);
    }
    m->last_norm = model_add(m, -1, ROLE_NORM, "norm", normal, NULL);
    m->head = model_add(m, -1, ROLE_HEAD, "head", vocabulary, NULL);
}

/* Parts take turns with one piece of memory, as large as the largest of them needs. */
static void carve_scratch(model *m, arena *a)
{
    size_t begin = a->used, end = begin;
    for (int i = 0; i < m->nparts; i++) {
        a->used = begin;
        m->parts[i].ops->scratch(m, a);
        if (a->used > end) end = a->used;
    }
    a->used = end;
}

/* Runs twice: to measure, and to hand out. */
static void carve(model *m, arena *a)
{
    const model_config *c = &m->config;
    int64_t tokens = m->most_tokens;
    for (int i = 0; i < m->nparts; i++) {
        part *p = &m->parts[i];
        p->in = take_rows(a, tokens, c->width);
        p->inverse = ARENA_ARRAY(a, float, tokens);
        if (i % 2 == 0) {
            p->most = take_rows(a, tokens, c->heads);
            p->sums = take_rows(a, tokens, c->heads);
        }
        p->ops->keep(m, p, a);
    }
    m->last = take_rows(a, tokens, c->width);
    m->last_inverse = ARENA_ARRAY(a, float, tokens);
    m->normal = take_rows(a, tokens, c->width);
    m->d_normal = take_rows(a, tokens, c->width);
    m->d_stream = take_rows(a, tokens, c->width);
    m->logits = take_rows(a, tokens, MODEL_VOCABULARY);
    m->losses = ARENA_ARRAY(a, double, tokens);
    int widest = c->width;
    if (c->attention == MODEL_MLA && c->q_rank > widest) widest = c->q_rank;
    if (c->attention == MODEL_MLA && c->kv_rank > widest) widest = c->kv_rank;
    m->partial = take_rows(a, rows_blocks(tokens), widest);
    m->attention = take_rows(a, muon__pool_threads(m->threads), attend_scratch(c->context));
    m->list = ARENA_ARRAY(a, product, 3 * (c->experts > 0 ? c->experts : 1));
    m->rope.dim = c->attention == MODEL_MLA ? c->rope_dim : c->head_dim;
    m->rope.cos = take_rows(a, c->context, m->rope.dim / 2);
    m->rope.sin = take_rows(a, c->context, m->rope.dim / 2);
    carve_scratch(m, a);
}

static muon_status create(model *m, const model_config *config, int batch, int threads)
{
    const char *problem = model_config_check(config);
    REQUIRE(!problem, E_VALUE, "model: %s", problem);
    REQUIRE(batch >= 1 && threads >= 0, E_VALUE, "model: batch is %d, threads %d", batch, threads);
    int64_t tokens = (int64_t)batch * config->context;
    int64_t choices = config->experts > 0 ? tokens * config->top_k : tokens;
    REQUIRE(choices <= INT32_MAX, E_NOMEM, "model: %lld tokens at a time are too many",
            (long long)tokens);
    m->config = *config;
    m->most_sequences = batch;
    m->most_tokens = tokens;
    m->nparts = 2 * config->layers;
    size_t tensors = (size_t)config->layers * TENSORS_PER_LAYER + OTHER_TENSORS;
    TRY(CALLOC(&m->parts, (size_t)m->nparts, "model: parts"));
    TRY(CALLOC(&m->tensors, tensors, "model: tensors"));
    TRY(muon__pool_create(&m->threads, threads));
    describe(m);
    assert(m->ntensors <= tensors);
    carve(m, &m->memory);
    TRY(muon__arena_alloc(&m->memory, "model: activations"));
    carve(m, &m->memory);
    rope_fill(&m->rope, config->context, config->rope_theta);
    return MUON_OK;
}

model *model_create(const model_config *config, int batch, int threads)
{
    model *m = NULL;
    if (CALLOC(&m, 1, "model") != MUON_OK) return NULL;
    if (create(m, config, batch, threads) == MUON_OK) return m;
    model_destroy(m);
    return NULL;
}

void model_destroy(model *m)
{
    if (!m) return;
    muon__pool_destroy(m->threads);
    muon__arena_free(&m->memory);
    free(m->tensors);
    free(m->parts);
    free(m);
}

size_t model_bytes(const model *m)
{
    return m->memory.size;
}

/* ---- forth ------------------------------------------------------------------------------------- */

static norm norm_before(const model *m, const part *p)
{
    int64_t width = m->config.width;
    return (norm){m->tokens, width, m->weights[p->norm], p->in, width, p->inverse};
}

static norm norm_after_all(const model *m)
{
    int64_t width = m->config.width;
    return (norm){m->tokens, width, m->weights[m->last_norm], m->last, width, m->last_inverse};
}

/* From tokens to the normalized stream that the head sees, in m->normal. */
static void run_parts(model *m, const uint8_t *tokens)
{
    float eps = (float)m->config.norm_eps;
    int64_t width = m->config.width;
    for (int64_t i = 0; i < m->tokens; i++)
        memcpy(m->parts[0].in + i * width, m->weights[m->embedding] + tokens[i] * width,
               (size_t)width * sizeof(float));
    for (int i = 0; i < m->nparts; i++) {
        part *p = &m->parts[i];
        norm before = norm_before(m, p);
        norm_forward(m->threads, &before, eps, m->normal);
        p->ops->forward(m, p, i + 1 < m->nparts ? p[1].in : m->last);
    }
    norm last = norm_after_all(m);
    norm_forward(m->threads, &last, eps, m->normal);
}

static double mean_loss(const model *m)
{
    double sum = 0;
    for (int64_t i = 0; i < m->tokens; i++)
        sum += m->losses[i];
    return sum / (double)m->tokens;
}

static double mean_balance(const model *m)
{
    double sum = 0;
    for (int i = 0; i < m->nparts; i++) {
        const part *p = &m->parts[i];
        if (p->ops != &part_moe) continue;
        for (int64_t s = 0; s < m->sequences; s++)
            sum += p->as.moe.routes.balance[s];
    }
    return m->moe_layers ? sum / (double)(m->sequences * m->moe_layers) : 0;
}

/* ---- back -------------------------------------------------------------------------------------- */

/* From the gradients of the logits, in m->logits, to those of all weights. */
static void run_back(model *m, const linear *head, const uint8_t *tokens)
{
    product list[] = {linear_weight(head, m->logits, m->normal, m->grads[m->head]),
                      linear_input(head, m->logits, NULL, m->d_normal)};
    product_run(m->threads, list, 2);
    norm last = norm_after_all(m);
    norm_backward(m->threads, &last, m->d_normal, NULL, m->d_stream, m->grads[m->last_norm],
                  m->partial);
    for (int i = m->nparts - 1; i >= 0; i--) {
        part *p = &m->parts[i];
        norm before = norm_before(m, p);
        norm_again(m->threads, &before, m->normal);
        p->ops->backward(m, p);
        norm_backward(m->threads, &before, m->d_normal, m->d_stream, m->d_stream, m->grads[p->norm],
                      m->partial);
    }
    rows_scatter_add(m->threads, m->tokens, m->config.width, tokens, m->d_stream,
                     m->grads[m->embedding]);
}

/* ---- a call ------------------------------------------------------------------------------------ */

static void begin(model *m, const float *const *weights, float *const *grads, int64_t sequences,
                  int64_t length)
{
    assert(sequences >= 1 && sequences <= m->most_sequences);
    assert(length >= 1 && length <= m->config.context);
    m->weights = weights;
    m->grads = grads;
    m->sequences = sequences;
    m->length = length;
    m->tokens = sequences * length;
}

void model_run(model *m, const float *const *weights, float *const *grads, const uint8_t *tokens,
               const uint8_t *next, int batch, int length, float scale, float *max_logits,
               model_result *result)
{
    begin(m, weights, grads, batch, length);
    m->max_logits = max_logits;
    run_parts(m, tokens);
    linear head = model_linear(m, m->head, m->config.width, MODEL_VOCABULARY);
    product logits = linear_forward(&head, m->normal, NULL, m->logits);
    product_run(m->threads, &logits, 1);
    loss_run(m->threads, &(loss){.rows = m->tokens,
                                 .vocabulary = MODEL_VOCABULARY,
                                 .logits = m->logits,
                                 .next = next,
                                 .losses = m->losses,
                                 .want_gradients = grads != NULL,
                                 .scale = scale / (float)m->tokens});
    if (grads) {
        int64_t balances = m->sequences * m->moe_layers;
        m->balance_scale =
            balances ? (float)((double)scale * m->config.balance / (double)balances) : 0;
        run_back(m, &head, tokens);
    }
    *result =
        (model_result){mean_loss(m), mean_balance(m), model_flops(m, batch, length, grads != NULL)};
}

void model_next(model *m, const float *const *weights, const uint8_t *tokens, int length,
                float *logits)
{
    begin(m, weights, NULL, 1, length);
    m->max_logits = NULL;
    run_parts(m, tokens);
    linear head = model_linear(m, m->head, m->config.width, MODEL_VOCABULARY);
    head.rows = 1;
    product last =
        linear_forward(&head, m->normal + (m->tokens - 1) * m->config.width, NULL, logits);
    product_run(m->threads, &last, 1);
}
