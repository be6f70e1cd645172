/* loss.h - cross-entropy of logits over the vocabulary. */
#ifndef TRAIN_MODEL_LOSS_H
#define TRAIN_MODEL_LOSS_H

#include "base/pool.h"

typedef struct loss {
    int64_t rows, vocabulary;
    float *logits; /* [rows][vocabulary]; used up */
    const uint8_t *next;
    double *losses; /* [rows]: receives the cross-entropy of each, in nats */
    int want_gradients;
    float scale; /* the logits become this times the gradients of their own row's loss */
} loss;

void loss_run(pool *p, const loss *l);

#endif
