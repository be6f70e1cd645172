/* own_state.c - the optimizer's state in memory of the program.
 *
 * A framework keeps momentum and moments in tensors of its own, which it saves, moves and replaces.
 * The optimizer works on that memory: what is in it is the state. Here a run is copied after some
 * steps, moved to other memory, and continued; a second optimizer continues from the copy. Both end
 * with the same weights.
 *
 *     cc own_state.c $(pkg-config --cflags --libs libmuon) -o own_state
 */
#include <muon/muon.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256, COLS = 512, STEPS = 6 };

/* Everything that a run consists of: a matrix for Muon and a bias for AdamW. */
typedef struct run {
    float matrix[ROWS * COLS], bias[COLS];
    float momentum[ROWS * COLS], exp_avg[COLS], exp_avg_sq[COLS];
    int64_t steps[2];
} run;

static float matrix_grad[ROWS * COLS], bias_grad[COLS];

static void point_to(muon_state_buffers state[2], run *r)
{
    state[0] = (muon_state_buffers){.momentum = r->momentum, .step = &r->steps[0]};
    state[1] = (muon_state_buffers){
        .exp_avg = r->exp_avg, .exp_avg_sq = r->exp_avg_sq, .step = &r->steps[1]};
}

static muon_status create(muon_opt **out, run *r)
{
    muon_group groups[2];
    muon_param params[2];
    for (int i = 0; i < 2; i++) {
        muon_group_init(&groups[i], sizeof groups[i]);
        muon_param_init(&params[i], sizeof params[i]);
        groups[i].lr = 0.02;
        params[i].group = i;
    }
    groups[1].rule = MUON_RULE_ADAMW;
    params[0].name = "matrix";
    params[0].ndim = 2;
    params[0].shape[0] = ROWS;
    params[0].shape[1] = COLS;
    params[1].name = "bias";
    params[1].ndim = 1;
    params[1].shape[0] = COLS;
    muon_state_buffers state[2];
    point_to(state, r);
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = groups;
    config.ngroups = 2;
    config.state = state; /* the addresses are copied, the memory is used */
    return muon_create(out, &config, params, 2);
}

/* Stands for a model: any function of step and weight. */
static void compute_gradients(const run *r, int step)
{
    uint32_t random = (uint32_t)step;
    for (int i = 0; i < ROWS * COLS; i++) {
        random = random * 1664525u + 1013904223u;
        matrix_grad[i] = r->matrix[i] + (float)(random >> 8) * 0x1p-24f;
        bias_grad[i % COLS] = r->bias[i % COLS] + matrix_grad[i];
    }
}

static muon_status train(muon_opt *opt, run *r, int first, int last)
{
    muon_buffers buffers[] = {{r->matrix, matrix_grad, NULL}, {r->bias, bias_grad, NULL}};
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = buffers;
    for (int step = first; step <= last; step++) {
        compute_gradients(r, step);
        muon_status status = muon_step(opt, &args, NULL);
        if (status != MUON_OK) return status;
    }
    return MUON_OK;
}

static muon_status continue_elsewhere(run *first, run *moved, run *saved)
{
    muon_opt *opt = NULL;
    muon_status status = create(&opt, first);
    if (status == MUON_OK) status = train(opt, first, 1, STEPS / 2);
    *saved = *first; /* a checkpoint, made without asking the optimizer */
    *moved = *first;
    memset(first, 0xff, sizeof *first); /* nobody needs it any more */
    muon_state_buffers state[2];
    point_to(state, moved);
    if (status == MUON_OK) status = muon_state_bind(opt, state);
    if (status == MUON_OK) status = train(opt, moved, STEPS / 2 + 1, STEPS);
    muon_destroy(opt);
    return status;
}

static muon_status continue_from(run *saved)
{
    muon_opt *opt = NULL;
    muon_status status = create(&opt, saved);
    if (status == MUON_OK) status = train(opt, saved, STEPS / 2 + 1, STEPS);
    muon_destroy(opt);
    return status;
}

int main(void)
{
    run *runs = calloc(3, sizeof *runs); /* a new run begins with zeros */
    if (!runs) return 1;
    run *moved = &runs[1], *saved = &runs[2];
    muon_status status = continue_elsewhere(&runs[0], moved, saved);
    if (status == MUON_OK) status = continue_from(saved);
    if (status != MUON_OK) fprintf(stderr, "own_state: %s\n", muon_last_error());
    int same = memcmp(moved, saved, sizeof *moved) == 0;
    printf("steps applied: %lld\n", (long long)saved->steps[0]);
    printf("moved and restored run: %s\n", same ? "the same bits" : "different bits");
    int right = status == MUON_OK && same && saved->steps[0] == STEPS;
    free(runs);
    return right ? 0 : 1;
}
