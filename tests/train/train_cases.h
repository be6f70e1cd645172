/* train_cases.h - small language models of every kind, with weights and tokens that
 * tests/fixtures/make_train_fixture.py makes the same way. */
#ifndef TESTS_TRAIN_TRAIN_CASES_H
#define TESTS_TRAIN_TRAIN_CASES_H

#include "train/model/model.h"

typedef struct train_case {
    const char *name;
    model_config config;
    int batch; /* sequences of config.context tokens */
} train_case;

extern const train_case train_cases[];
extern const size_t ntrain_cases;
const train_case *train_case_named(const char *name);

enum { CASE_TOKENS = 32 }; /* only tokens below this occur */

/* A model with its weights, gradients (zeros at first) and text. */
typedef struct trained {
    const train_case *from;
    model *m;
    size_t ntensors;
    float **weights, **grads;
    uint8_t *tokens, *next;
    float *max_logits;
} trained;

trained trained_create(const train_case *from, int threads);
void trained_destroy(trained *t);
size_t trained_find(const trained *t, const char *name); /* the index of a tensor */
void trained_clear(trained *t);                          /* gradients */
/* The whole batch. */
model_result trained_run(trained *t, float scale);
model_result trained_forward(trained *t);

/* Multiples of 2^-23 in [-1, 1). */
void case_noise(uint64_t stream, double *to, int64_t count);

#endif
