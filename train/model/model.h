/* model.h - a decoder-only language model over bytes, forward and backward by hand, in f32.
 *
 * Tokens go through an embedding, then layers of (RMSNorm, attention, RMSNorm, SwiGLU), each added to
 * the stream, then a last RMSNorm and a head. Attention is GQA (MHA is kv_heads == heads) or MLA, with
 * rotary positions (half-split, see rope.h) and a causal mask; the feed-forward part is dense or a
 * mixture of experts with top-k routing, a load-balancing loss (see route.h), and an optional expert
 * that all tokens share.
 *
 * A model is a list of tensors, described for libmuon: which matrices they hold, which rule they
 * follow, where experts are. Weights and gradients belong to the caller, whole tensors, by index. */
#ifndef TRAIN_MODEL_MODEL_H
#define TRAIN_MODEL_MODEL_H

#include "muon/muon.h"

enum { MODEL_VOCABULARY = 256 }; /* bytes */

typedef enum model_attention { MODEL_GQA, MODEL_MLA } model_attention;

typedef struct model_config {
    int layers, width, context; /* context: tokens of a sequence at most */
    model_attention attention;
    int heads, kv_heads, head_dim;                    /* GQA; MLA: heads */
    int q_rank, kv_rank, nope_dim, rope_dim, v_dim;   /* MLA; q_rank 0: no query compression */
    int hidden;                                       /* of the dense feed-forward part */
    int experts, top_k, expert_hidden, shared_hidden; /* experts 0: dense; shared_hidden 0: none */
    int dense_layers; /* with experts: the first so many are dense */
    double balance;   /* weight of the load-balancing loss, a mean over layers and sequences */
    double rope_theta, norm_eps;
} model_config;

/* Named sizes: "tiny", "small", "medium", "moe", "mla", ...; NULL when i is past the last. */
const char *model_config_name(size_t i);
/* Fills in a named size. 0 if there is none of this name. */
int model_config_named(model_config *config, const char *name);
/* NULL, or what is wrong with it, in a text that lives until the next call. */
const char *model_config_check(const model_config *config);

typedef struct model_tensor {
    const char *name;
    int ndim;
    int64_t shape[3];
    int64_t numel;
    const char *matrices; /* of muon_param; NULL: one matrix, or none */
    int is_muon;          /* else AdamW: embedding, head, norms, router */
    int expert;           /* (E, M, N): the first dim is experts */
    float deviation;      /* of its first values, which have mean 0; 0: they are all 1 (norms) */
} model_tensor;

typedef struct model model;

/* Memory for sequences of at most config.context tokens, batch at a time. threads: of this model (0: as
 * many as are available); all results are the same bits for any number of them. Returns NULL, and
 * muon_last_error() says why, if the config is wrong or there is no memory. */
model *model_create(const model_config *config, int batch, int threads);
void model_destroy(model *m);       /* NULL is fine */
size_t model_bytes(const model *m); /* of activations and scratch: all that a call will use */

size_t model_ntensors(const model *m);
const model_tensor *model_tensor_at(const model *m, size_t i);
int64_t model_numel(const model *m);
/* The attention layers as QK-clip wants them; names point into the model. Returns how many. */
size_t model_attention_layers(const model *m, muon_attention *layers, size_t most);

/* First values, from a seed, each element by itself: any part of a tensor can be filled alone. */
void model_fill(const model *m, size_t tensor, float *to, int64_t first, int64_t count,
                uint64_t seed);

typedef struct model_result {
    double loss; /* mean cross-entropy in nats per token, without the balancing loss */
    double
        balance;  /* the balancing loss before its weight: 1 if experts are used evenly; 0: none */
    double flops; /* useful: of all products, forward and backward */
} model_result;

/* Tokens [batch][length] and the tokens that follow them, at most as many as the model was created for.
 * grads NULL: forward only. Else gradients of (loss + weight * balance) are ADDED to grads[i], scaled by
 * `scale`. Both losses are means over sequences of the same length: a batch may be cut into calls.
 * max_logits: [layers][heads] gets the largest attention logit (after 1 / sqrt(d), before softmax) of
 * each head, or NULL. Nothing is allocated. */
void model_run(model *m, const float *const *weights, float *const *grads, const uint8_t *tokens,
               const uint8_t *next, int batch, int length, float scale, float *max_logits,
               model_result *result);

/* For sampling: logits [MODEL_VOCABULARY] after the last of `length` tokens. */
void model_next(model *m, const float *const *weights, const uint8_t *tokens, int length,
                float *logits);

#endif
