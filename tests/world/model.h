/* model.h - a fleet (fleet.h) of one process that is its own ship, for tests of whole steps.
 *
 * A test adds tensors, changes what it is about, creates, and steps. Weights and gradients depend
 * on the parameter's name only, so that the same tensor in another model starts from the same bits.
 * Every step checks by itself that no gradient was written. Whatever fails, asserts. */
#ifndef TESTS_WORLD_MODEL_H
#define TESTS_WORLD_MODEL_H

#include "tests/world/fleet.h"

typedef fleet model;

/* Gradients are multiples of 2^-8: with a momentum of 0.5, a few steps are exact in f32. A model points
 * into itself: init it where it stays. */
void model_init(model *m);
/* The next parameter, to be changed until the model is created. */
muon_param *model_add(model *m, int group, const char *name, const char *matrices,
                      const int64_t *shape, int ndim);

/* Gives the parameters memory: weights of about 1, gradients of step 1. */
void model_allocate(model *m);
/* The same, and the optimizer. */
void model_create(model *m);
void model_destroy(model *m);

void model_zero_grads(model *m);
muon_result model_step(model *m);           /* with the gradients there are */
muon_result model_run(model *m, int steps); /* with those of steps 1, 2, ...; the last result */

/* Weight, gradient and copy of params[p], as floats whatever their type. */
float model_weight(const model *m, size_t p, int64_t i);
float model_grad(const model *m, size_t p, int64_t i);
void model_set_grad(model *m, size_t p, int64_t i, float value);
float model_bf16(uint16_t bits);
muon_tensor model_state(const model *m, const char *name);

/* All weights, copies and state as bytes; free it. */
unsigned char *model_snapshot(const model *m);
/* Fails, naming the tensor, unless every bit is as in the snapshot. */
void model_assert_same(const model *m, const unsigned char *snapshot, const char *when);
/* Fails, naming the tensor, unless weights, copies and state of a's parameters have the same bits in
 * b, where they may be in another order. */
void model_assert_equal(const model *a, const model *b, const char *what);

/* The smallest workspace_budget for this model: the number that the error names. */
int64_t model_least_budget(const model *m);

/* A text for messages, good until the next call. */
const char *model_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The backends this build has, then NULL. */
const char *const *model_backends(void);

#endif
