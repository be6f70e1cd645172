/* resume.c - training that may be killed at any moment and started again.
 *
 *     resume [DIRECTORY]      10 steps from where the last run of it stopped
 *
 * Each run begins with the newest complete checkpoint in DIRECTORY, if there is one, and saves every
 * third step beside training. Interrupted or not, the same step has the same weights.
 *
 *     cc resume.c $(pkg-config --cflags --libs libmuon) -o resume
 */
#include <muon/checkpoint.h>

#include <stdio.h>

enum { ROWS = 256, COLS = 512, STEPS = 10, SAVE_EVERY = 3 };

static float weight[ROWS * COLS], gradient[ROWS * COLS];

static int fail(const char *what)
{
    fprintf(stderr, "resume: %s: %s\n", what, muon_last_error());
    return 1;
}

/* Stands for a model: any function of step and weight. */
static void compute_gradient(int64_t step)
{
    uint32_t random = (uint32_t)step;
    for (int i = 0; i < ROWS * COLS; i++) {
        random = random * 1664525u + 1013904223u;
        gradient[i] = weight[i] + (float)(random >> 8) * 0x1p-24f;
    }
}

static muon_status create(muon_opt **out)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
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
    return muon_create(out, &config, &param, 1);
}

/* The step of the newest checkpoint that can be read; 0 if there is none: in the first run, or after a
 * crash in the first save. Damage or a failing disk is an error, and no reason to begin anew. */
static muon_status resume(muon_opt *opt, const muon_buffers *buffers, const char *root,
                          int64_t *step)
{
    muon_load_args args;
    muon_load_args_init(&args, sizeof args);
    args.buffers = buffers;
    args.fall_back = 1;
    muon_status status = muon_load(opt, root, &args, step);
    if (status != MUON_E_NO_CHECKPOINT) return status;
    *step = 0;
    return MUON_OK;
}

/* What was started last is complete before the next one begins. */
static muon_status save(muon_opt *opt, const muon_buffers *buffers, const char *root, int64_t step,
                        int *under_way)
{
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    args.step = step;
    args.buffers = buffers;
    args.keep = 2;
    args.replace = 1;
    if (*under_way && muon_save_finish(opt) != MUON_OK) return MUON_E_IO;
    *under_way = 1;
    return muon_save_start(opt, root, &args);
}

int main(int argc, char **argv)
{
    const char *root = argc > 1 ? argv[1] : "resume-checkpoints";
    muon_opt *opt = NULL;
    if (create(&opt) != MUON_OK) return fail("creating the optimizer");

    muon_buffers buffers = {weight, gradient, NULL};
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = &buffers;
    int64_t first = 0;
    int saving = 0;
    if (resume(opt, &buffers, root, &first) != MUON_OK) return fail("resuming");
    printf("%s at step %lld\n", first ? "resumed" : "started", (long long)first);
    for (int64_t step = first + 1; step <= first + STEPS; step++) {
        compute_gradient(step);
        if (muon_step(opt, &args, NULL) != MUON_OK) return fail("stepping");
        if ((step % SAVE_EVERY == 0 || step == first + STEPS) &&
            save(opt, &buffers, root, step, &saving) != MUON_OK)
            return fail("saving");
    }
    if (saving && muon_save_finish(opt) != MUON_OK) return fail("saving");
    printf("stopped at step %lld, first weight %.6f\n", (long long)first + STEPS,
           (double)weight[0]);
    muon_destroy(opt);
    return 0;
}
