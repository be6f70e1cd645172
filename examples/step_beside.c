/* step_beside.c - the optimizer's step beside other work of the program.
 *
 * A step that has been started runs in the library's own threads, while the program prepares its next
 * batch, writes a log or evaluates. Until muon_step_wait returns, the step owns weights, gradients and
 * result; everything else is the program's. The weights are those of muon_step, to the bit.
 *
 *     cc step_beside.c $(pkg-config --cflags --libs libmuon) -lm -o step_beside
 */
#include <muon/muon.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256, COLS = 512, STEPS = 4 };

static float grads[2][ROWS * COLS]; /* of this step, and of the next */

/* The other work. */
static void prepare_gradient(float *g, int step)
{
    for (int i = 0; i < ROWS * COLS; i++)
        g[i] = sinf((float)(i % 977) * 0.37F + (float)step);
}

static void check(muon_status status)
{
    if (status == MUON_OK) return;
    fprintf(stderr, "%s: %s\n", muon_status_name(status), muon_last_error());
    exit(1);
}

static void train(float *weight, int beside)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.lr = 0.02;
    muon_param param;
    muon_param_init(&param, sizeof param);
    param.name = "matrix";
    param.group = 0;
    param.ndim = 2;
    param.shape[0] = ROWS;
    param.shape[1] = COLS;
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &group;
    config.ngroups = 1;
    config.background = beside; /* creation starts a thread for muon_step_start */
    config.threads = 1;         /* of the step; the other processors are the program's */
    muon_opt *opt = NULL;
    check(muon_create(&opt, &config, &param, 1));

    prepare_gradient(grads[0], 0);
    for (int step = 0; step < STEPS; step++) {
        float *now = grads[step % 2], *next = grads[(step + 1) % 2];
        muon_buffers buffers = {.param = weight, .grad = now};
        muon_step_args args;
        muon_step_args_init(&args, sizeof args);
        args.buffers = &buffers;
        muon_result result;
        muon_result_init(&result, sizeof result);
        if (beside) {
            check(muon_step_start(opt, &args, &result));
            prepare_gradient(next, step + 1); /* at the same time */
            check(muon_step_wait(opt));       /* errors of the step come here */
        } else {
            check(muon_step(opt, &args, &result));
            prepare_gradient(next, step + 1);
        }
        printf("%s step %d: gradient norm %.3f, %.1f ms\n", beside ? "beside," : "alone, ",
               step + 1, result.grad_norm, 1e3 * result.seconds);
    }
    muon_destroy(opt);
}

int main(void)
{
    static float alone[ROWS * COLS], beside[ROWS * COLS];
    train(alone, 0);
    train(beside, 1);
    int same = memcmp(alone, beside, sizeof alone) == 0;
    printf("the weights are %s\n", same ? "the same" : "different");
    return !same;
}
