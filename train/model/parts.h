/* parts.h - the inside of a model: a stream of vectors, one per token, to which parts add in turn.
 *
 *     embedding -> in[0] -> + attention -> in[1] -> + feed-forward -> in[2] -> ... -> norm -> head
 *
 * A part sees its input normalized, m->normal, and puts input + f(normal) where the next part finds
 * it. On the way back m->d_stream is the gradient of what it put out; the part turns it into
 * m->d_normal, and the norm's own way back turns that into what is added to m->d_stream. What a part
 * keeps from the way forth to the way back is its own; scratch belongs to whichever part is at work. */
#ifndef TRAIN_MODEL_PARTS_H
#define TRAIN_MODEL_PARTS_H

#include "base/memory.h"
#include "train/model/attend.h"
#include "train/model/model.h"
#include "train/model/norm.h"
#include "train/model/product.h"
#include "train/model/rope.h"
#include "train/model/route.h"
#include "train/model/swiglu.h"

typedef struct part part;

typedef struct part_ops {
    void (*describe)(model *m, part *p);            /* adds its tensors */
    void (*keep)(model *m, part *p, arena *a);      /* memory of its own */
    void (*scratch)(model *m, arena *a);            /* memory that is shared */
    void (*forward)(model *m, part *p, float *out); /* out = p->in + f(m->normal) */
    void (*backward)(model *m, part *p);            /* m->d_normal from m->d_stream */
} part_ops;

extern const part_ops part_gqa, part_mla, part_dense, part_moe;

/* Tensors are known by their index. */
typedef struct gqa {
    size_t wq, wk, wv, wo;
    float *q, *k, *v, *out;
} gqa;

typedef struct mla {
    size_t wq_a, q_norm, wq_b, wkv_a, kv_norm, wkv_b, wo; /* without compression wq_b is all of q */
    float *q_a, *q_inverse, *q;    /* compressed queries, their norm, queries */
    float *kv_a, *kv_inverse, *kv; /* compressed keys and values with the shared rope key; ... */
    float *out;
} mla;

typedef struct dense {
    size_t gate_up, down;
    float *inner;
} dense;

typedef struct moe {
    size_t router, gate_up, down;
    float *inner;
    dense shared;
    route routes;
} moe;

struct part {
    const part_ops *ops;
    int layer;
    size_t norm;
    float *in, *inverse; /* [tokens][width], [tokens] */
    float *most, *sums;  /* attention: of each row of logits, see attend.h */
    union {
        gqa gqa;
        mla mla;
        dense dense;
        moe moe;
    } as;
};

typedef struct named_tensor {
    model_tensor info;
    char name[48], matrices[48];
} named_tensor;

struct model {
    model_config config;
    int64_t most_tokens, most_sequences;
    pool *threads;
    arena memory;
    named_tensor *tensors;
    size_t ntensors, embedding, last_norm, head;
    part *parts; /* 2 * layers: attention, feed-forward, attention, ... */
    int nparts, moe_layers;
    rope rope;
    float *last, *last_inverse; /* the stream after all parts */
    float *normal, *d_normal, *d_stream, *logits;
    float *partial;   /* sums over blocks of rows, see norm.h */
    float *attention; /* scratch of attend.h */
    double *losses;
    product *list;
    struct { /* in memory that is shared: only one part is at work */
        struct {
            float *dq, *dk, *dv, *d_out;
        } gqa;
        struct {
            float *k, *dk, *dq, *d_out, *dkv, *kv_normal, *d_kv_normal, *dkv_a, *q_normal,
                *d_q_normal, *dq_a;
        } mla;
        struct {
            float *hidden;
        } dense;
        struct {
            float *hidden, *x, *y, *dx, *d_weights, *d_logits;
        } moe;
    } scratch;
    int64_t one_group[2]; /* offsets of a dense layer's only group */
    /* The call */
    const float *const *weights;
    float *const *grads;
    int64_t sequences, length, tokens;
    float *max_logits;
    float balance_scale; /* of the balancing loss of one sequence and layer */
};

/* ---- what parts use ---------------------------------------------------------------------------- */

static inline float *take_rows(arena *a, int64_t rows, int64_t width)
{
    int64_t count = rows * width;
    return ARENA_ARRAY(a, float, count);
}

typedef enum role { /* of a tensor: decides its first values and its rule */
                    ROLE_NORM,
                    ROLE_INNER,
                    ROLE_TO_STREAM, /* a matrix whose results are added to the stream */
                    ROLE_ROUTER,
                    ROLE_EMBEDDING,
                    ROLE_HEAD
} role;

typedef struct shape { /* 0 ends it */
    int64_t dims[3];
} shape;

/* Adds a tensor and returns its index. layer >= 0: "layers.LAYER." comes before its name. matrices: a
 * format, or NULL. */
size_t model_add(model *m, int layer, role what, const char *name, shape dims, const char *matrices,
                 ...) __attribute__((format(printf, 6, 7)));

/* The layer of a 2-D tensor, for all tokens of the call. */
static inline linear model_linear(const model *m, size_t tensor, int64_t ldx, int64_t ldy)
{
    const model_tensor *t = model_tensor_at(m, tensor);
    return (linear){m->tokens, t->shape[1], t->shape[0], m->weights[tensor], ldx, ldy};
}

double model_flops(const model *m, int64_t sequences, int64_t length, int backward);

#endif
