/* test_train_gradients.c - the gradients of every tensor of every kind of model, against differences of
 * the loss.
 *
 * The loss is computed in f32 and has noise of about 1e-7, so that single elements can be checked
 * only where their gradients are large. Directions of many elements have much larger differences:
 * along the gradient itself, and along random signs, where a wrong element shows as well as a right
 * one. Two step lengths and extrapolation make the differences exact to fourth order. */
#include "tests/train/train_cases.h"

#include "tests/support/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct probe {
    trained t;
    size_t tensor;
    int64_t numel;
    float *weight;    /* the tensor as it was */
    float *direction; /* of length 1 */
} probe;

static double objective(probe *p)
{
    model_result result = trained_forward(&p->t);
    return result.loss + p->t.from->config.balance * result.balance;
}

static double objective_at(probe *p, double step)
{
    float *to = p->t.weights[p->tensor];
    for (int64_t i = 0; i < p->numel; i++)
        to[i] = (float)((double)p->weight[i] + step * (double)p->direction[i]);
    double value = objective(p);
    memcpy(to, p->weight, (size_t)p->numel * sizeof *to);
    return value;
}

/* The derivative along the direction. */
static double slope(probe *p, double step)
{
    double once = (objective_at(p, step) - objective_at(p, -step)) / (2 * step);
    double twice = (objective_at(p, 2 * step) - objective_at(p, -2 * step)) / (4 * step);
    return (4 * once - twice) / 3;
}

static double length_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void set_direction(probe *p, const float *x)
{
    double length = length_of(x, p->numel);
    for (int64_t i = 0; i < p->numel; i++)
        p->direction[i] = length > 0 ? (float)((double)x[i] / length) : 0;
}

/* The slope must be that which the gradient promises, up to a part of the largest slope there is. Where
 * tokens change their experts the loss jumps: then a shorter step may succeed, and a wrong gradient
 * does not with any. */
static void compare(probe *p, const char *what)
{
    const float *gradient = p->t.grads[p->tensor];
    double want = 0, steepest = length_of(gradient, p->numel);
    for (int64_t i = 0; i < p->numel; i++)
        want += (double)gradient[i] * (double)p->direction[i];
    double step = 0.004 / (steepest > 0.4 ? steepest : 0.4), shortest = step / 64;
    double got, bound;
    do {
        got = slope(p, step);
        bound = 2e-3 * steepest + 1e-5 + 2e-7 / step;
        step /= 4;
    } while (!(fabs(got - want) <= bound) && step >= shortest && p->t.from->config.experts > 0);
    testlib_assert_error(
        fabs(got - want), bound, "%s: %s: slope %s is %.6g, the gradient says %.6g of at most %.6g",
        p->t.from->name, model_tensor_at(p->t.m, p->tensor)->name, what, got, want, steepest);
}

static void check_tensor(probe *p)
{
    const float *gradient = p->t.grads[p->tensor];
    float *signs = malloc((size_t)p->numel * sizeof *signs);
    assert_non_null(signs);
    set_direction(p, gradient);
    compare(p, "along the gradient");
    for (int i = 0; i < 3; i++) {
        for (int64_t j = 0; j < p->numel; j++)
            signs[j] = testlib_bits() >> 63 ? 1 : -1;
        set_direction(p, signs);
        compare(p, "along random signs");
    }
    int64_t largest = 0;
    for (int64_t j = 0; j < p->numel; j++)
        if (fabsf(gradient[j]) > fabsf(gradient[largest])) largest = j;
    memset(signs, 0, (size_t)p->numel * sizeof *signs);
    signs[largest] = 1;
    set_direction(p, signs);
    compare(p, "along the steepest element");
    free(signs);
}

static void check_case(const train_case *from)
{
    probe p = {.t = trained_create(from, 2)};
    testlib_seed(7);
    trained_run(&p.t, 1);
    for (p.tensor = 0; p.tensor < p.t.ntensors; p.tensor++) {
        p.numel = model_tensor_at(p.t.m, p.tensor)->numel;
        size_t bytes = (size_t)p.numel * sizeof(float);
        p.weight = malloc(bytes);
        p.direction = malloc(bytes);
        assert_non_null(p.weight);
        assert_non_null(p.direction);
        memcpy(p.weight, p.t.weights[p.tensor], bytes);
        check_tensor(&p);
        free(p.weight);
        free(p.direction);
    }
    trained_destroy(&p.t);
}

TEST(gradients_are_the_slopes_of_the_loss)
{
    for (size_t i = 0; i < ntrain_cases; i++)
        check_case(&train_cases[i]);
}
