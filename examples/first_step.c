/* first_step.c - the smallest complete program: one weight matrix, one step of Muon.
 *
 *     cc first_step.c $(pkg-config --cflags --libs libmuon) -o first_step
 */
#include <muon/muon.h>

#include <stdio.h>

enum { ROWS = 512, COLS = 2048 };

static float weight[ROWS * COLS], gradient[ROWS * COLS];

static int fail(void)
{
    fprintf(stderr, "first_step: %s\n", muon_last_error());
    return 1;
}

int main(void)
{
    uint32_t random = 1;
    for (int i = 0; i < ROWS * COLS; i++) {
        random = random * 1664525u + 1013904223u;
        gradient[i] = (float)(random >> 8) * 0x1p-23f - 1;
    }

    muon_group group;
    muon_group_init(&group, sizeof group); /* every default lives there */
    group.lr = 0.02;

    muon_param param;
    muon_param_init(&param, sizeof param);
    param.name = "w";
    param.ndim = 2;
    param.shape[0] = ROWS;
    param.shape[1] = COLS;
    param.group = 0;

    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &group;
    config.ngroups = 1;

    muon_opt *opt = NULL;
    if (muon_create(&opt, &config, &param, 1) != MUON_OK) return fail();

    muon_buffers buffers = {weight, gradient, NULL};
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = &buffers;
    muon_result result;
    muon_result_init(&result, sizeof result);
    muon_status status = muon_step(opt, &args, &result);
    muon_destroy(opt);
    if (status != MUON_OK) return fail();

    printf("gradient norm  %.4g\n", result.grad_norm);
    printf("update rms     %.4g with lr %g: 0.2 lr, whatever the size of the gradient\n",
           result.update_rms, group.lr);
    printf("first weights  %.5f %.5f %.5f\n", (double)weight[0], (double)weight[1],
           (double)weight[2]);
    return result.applied ? 0 : 1;
}
