/* route.h - which experts a token goes to, and with which weights.
 *
 * The router's logits become probabilities by softmax. A token goes to the top_k likeliest experts (of
 * equal ones to those with the lowest numbers), and the chosen probabilities, divided by their sum,
 * are the weights. No token is dropped.
 *
 * The balancing loss of a sequence is experts * the sum over experts of (the fraction of the choices
 * that fell on it) * (its mean probability): 1 if all are used evenly. Since it is made per sequence,
 * as the loss is made per token, the gradient of a batch is the mean of its sequences' gradients, no
 * matter how the batch is cut into calls and ranks. */
#ifndef TRAIN_MODEL_ROUTE_H
#define TRAIN_MODEL_ROUTE_H

#include "base/pool.h"

typedef struct route {
    int64_t sequences, length, experts;
    int top_k;
    float *probabilities; /* [tokens][experts]: first the logits */
    int32_t *chosen;      /* [tokens][top_k]: experts */
    float *fractions;     /* [sequences][experts]: of the choices */
    double *balance;      /* [sequences] */
    /* The rows of all experts, one expert after the other, each with its tokens in order: */
    int64_t *offsets; /* [experts + 1]: where an expert's rows begin */
    int32_t *tokens;  /* [tokens * top_k]: whose row it is */
    int32_t *rows;    /* [tokens][top_k]: where the token's rows are */
    float *weights;   /* [tokens * top_k], by row */
} route;

void route_forward(pool *p, const route *r);
/* From the gradients of the weights, by row, the gradients of the logits, [tokens][experts].
 * balance_scale: of each sequence's balancing loss. */
void route_backward(pool *p, const route *r, const float *d_weights, float balance_scale,
                    float *d_logits);

#endif
