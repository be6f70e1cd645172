/* model.h - a small network that predicts the next character, with its gradients, in plain C.
 *
 *     16 characters -> embedding -> 3 hidden layers with leaky ReLU -> output -> softmax
 *
 * Weights are [out][in]. One thread computes, so the same input always gives the same bits. */
#ifndef DEMO_MODEL_H
#define DEMO_MODEL_H

#include "text.h"

enum {
    EMBEDDING = 16,
    INPUT = CONTEXT * EMBEDDING,
    HIDDEN = 192,
    WIDEST = INPUT > HIDDEN ? INPUT : HIDDEN,
    LAYERS = 4, /* matrices: three hidden ones and the output */
    BATCH = 1024,
    NPARAMS = 1 + 2 * LAYERS
};

typedef struct model_param {
    const char *name;
    int rows, cols; /* cols 0: a vector */
} model_param;

extern const model_param model_params[NPARAMS]; /* embedding, then weight and bias of each layer */
int model_param_size(int param);

typedef struct model {
    float *weight[NPARAMS], *grad[NPARAMS];
    float *memory;                            /* where both lie */
    float input[BATCH * INPUT];               /* embedded windows */
    float hidden[LAYERS - 1][BATCH * HIDDEN]; /* results of the hidden layers */
    float logits[BATCH * VOCABULARY];         /* then: gradient of the logits */
    float delta[2][BATCH * WIDEST];           /* gradients of activations, taking turns */
    float transposed[WIDEST * WIDEST];        /* weight of the layer at work */
} model;

model *model_create(uint64_t seed); /* NULL: no memory */
void model_destroy(model *m);

/* Mean loss of BATCH windows, in nats per character. */
double model_loss(model *m, const unsigned char *windows);
/* The same, and the gradients of all parameters. */
double model_gradients(model *m, const unsigned char *windows);

#endif
