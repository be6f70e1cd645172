/* attend.h - causal attention: for every query the mean of the values before it and its own, weighted
 * by softmax(q k / sqrt(d)).
 *
 * It goes by blocks of queries, whose logits fit a core's cache. The probabilities are not kept:
 * with each row's largest logit and the sum of its exponentials the way back finds them again, to the
 * bit, at the price of one product in seven. */
#ifndef TRAIN_MODEL_ATTEND_H
#define TRAIN_MODEL_ATTEND_H

#include "base/pool.h"

/* A vector per token and head: token i, head h at data + i * ld + h * stride. */
typedef struct heads {
    float *data;
    int64_t ld, stride;
} heads;

typedef struct attend {
    int64_t sequences, length; /* token i of sequence s is row s * length + i of q, k, v, out */
    int64_t nheads, group; /* heads of queries; so many of them share a head of keys and values */
    int64_t dim, v_dim;    /* of q and k; of v and out */
    heads q, k, v, out;
    float *most, *inverse; /* [sequences][nheads][length]: of each row's logits the largest, and
                              1 / sum of e^(logit - largest) */
    float *scratch;        /* attend_scratch() floats for each thread */
} attend;

int64_t attend_scratch(int64_t length);
/* out, most, inverse. max_logits: [nheads] gets the largest logit of each head, or NULL. */
void attend_forward(pool *p, const attend *a, float *max_logits);
/* From the gradient of out: overwrites those of q, k, v, which have heads of their own. */
void attend_backward(pool *p, const attend *a, heads d_out, heads dq, heads dk, heads dv);

#endif
