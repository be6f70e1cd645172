/* offload.c - the optimizer in CPU memory, the model elsewhere.
 *
 * An accelerator keeps bf16 weights and makes bf16 gradients. The CPU has what needs precision: an
 * f32 master of each weight, and the optimizer's state. A step reads the gradients as they came,
 * updates the masters, and writes their bf16 roundings, ready to be sent back. Each gradient buffer
 * is free again as soon as the callback says so.
 *
 * The model here is the plainest there is: weights should become a target, so that a gradient is the
 * difference between the two. */
#include <muon/muon.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256, COLS = 512, STEPS = 120, NPARAMS = 2, MATRIX = ROWS * COLS };

static const double LR = 0.2;
static const size_t count[NPARAMS] = {MATRIX, COLS};

static uint16_t bf16_of(float x) /* to nearest, ties to even; x is finite */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static float float_of(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

typedef struct device {
    uint16_t weight[NPARAMS][MATRIX], grad[NPARAMS][MATRIX];
    float target[NPARAMS][MATRIX];
    int grads_in_use; /* buffers that could not be reused yet */
} device;

/* The forward and backward pass; returns the loss. */
static double make_gradients(device *d)
{
    double loss = 0;
    for (int p = 0; p < NPARAMS; p++) {
        for (size_t i = 0; i < count[p]; i++) {
            float difference = float_of(d->weight[p][i]) - d->target[p][i];
            loss += 0.5 * (double)difference * (double)difference;
            d->grad[p][i] = bf16_of(difference);
        }
    }
    d->grads_in_use = NPARAMS;
    return loss;
}

static void grad_consumed(void *user, size_t index)
{
    device *d = user;
    (void)index; /* params[index]'s buffer could take the next gradient from here on */
    d->grads_in_use--;
}

static muon_status create(muon_opt **opt, device *d)
{
    muon_group groups[NPARAMS];
    muon_param params[NPARAMS];
    for (int p = 0; p < NPARAMS; p++) {
        muon_group_init(&groups[p], sizeof groups[p]);
        muon_param_init(&params[p], sizeof params[p]);
        params[p].group = p;
        params[p].grad_dtype = MUON_BF16;
        params[p].copy_dtype = MUON_BF16; /* the weight itself is the f32 master */
    }
    groups[0].lr = LR;
    groups[0].weight_decay = 0;
    groups[0].momentum_dtype = MUON_BF16; /* halves the state */
    groups[1] = groups[0];
    groups[1].rule = MUON_RULE_ADAMW;
    params[0].name = "layer.weight";
    params[0].ndim = 2;
    params[0].shape[0] = ROWS;
    params[0].shape[1] = COLS;
    params[1].name = "layer.bias";
    params[1].ndim = 1;
    params[1].shape[0] = COLS;

    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = groups;
    config.ngroups = NPARAMS;
    config.clip_norm = 10;
    config.grad_consumed = grad_consumed;
    config.user = d;
    return muon_create(opt, &config, params, NPARAMS);
}

static muon_status set_lr(muon_opt *opt, double lr)
{
    muon_status status = muon_opt_set_lr(opt, 0, lr);
    return status == MUON_OK ? muon_opt_set_lr(opt, 1, lr) : status;
}

static muon_status train(muon_opt *opt, device *d, float (*master)[MATRIX], double *first,
                         double *last)
{
    muon_buffers buffers[NPARAMS];
    for (int p = 0; p < NPARAMS; p++)
        buffers[p] = (muon_buffers){master[p], d->grad[p], d->weight[p]};
    for (int step = 0; step <= STEPS; step++) {
        *last = make_gradients(d);
        if (step == 0) *first = *last;
        if (step % 20 == 0) printf("step %3d  loss %10.4f\n", step, *last);
        muon_status status = set_lr(opt, LR * (1 - (double)step / (STEPS + 1)));
        muon_step_args args;
        muon_step_args_init(&args, sizeof args);
        args.buffers = buffers;
        if (status == MUON_OK) status = muon_step(opt, &args, NULL);
        if (status != MUON_OK) return status;
    }
    return MUON_OK;
}

int main(void)
{
    static device d;
    static float master[NPARAMS][MATRIX];
    for (int p = 0; p < NPARAMS; p++)
        for (size_t i = 0; i < count[p]; i++)
            d.target[p][i] = sinf(0.37f * (float)(i * i % 8191));

    muon_opt *opt = NULL;
    double first = 0, last = 0;
    muon_status status = create(&opt, &d);
    if (status == MUON_OK) status = train(opt, &d, master, &first, &last);
    muon_destroy(opt);
    if (status != MUON_OK) {
        fprintf(stderr, "offload: %s\n", muon_last_error());
        return 1;
    }
    size_t wrong = 0;
    for (int p = 0; p < NPARAMS; p++)
        for (size_t i = 0; i < count[p]; i++)
            wrong += d.weight[p][i] != bf16_of(master[p][i]);
    printf("weights on the device that are not the rounded master: %zu\n", wrong);
    printf("gradient buffers still in use after the last step: %d\n", d.grads_in_use);
    return wrong == 0 && d.grads_in_use == 0 && last < 0.01 * first ? 0 : 1;
}
