#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

enum { GROUP_HIDDEN, GROUP_REST, NGROUPS };

static const uint64_t WEIGHT_SEED = 1, WINDOW_SEED = 1000;
static const double REST_LR = 0.016; /* of what AdamW has in every trial */
static const double WARM_UP = 0.05;  /* part of the steps in which the learning rate rises */

const char *const trial_rule_name[TRIAL_NRULES] = {"Muon", "AdamW"};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Creation */

static muon_status create_optimizer(trial *t)
{
    muon_param params[NPARAMS];
    for (int i = 0; i < NPARAMS; i++) {
        muon_param_init(&params[i], sizeof params[i]);
        params[i].name = model_params[i].name;
        params[i].ndim = model_params[i].cols ? 2 : 1;
        params[i].shape[0] = model_params[i].rows;
        params[i].shape[1] = model_params[i].cols;
        params[i].group = MUON_AUTO;
    }
    muon_classifier classifier; /* its default patterns know embeddings and output layers */
    muon_classifier_init(&classifier, sizeof classifier);
    classifier.muon_group = GROUP_HIDDEN;
    classifier.adamw_group = GROUP_REST;
    muon_status status = muon_classify(params, NPARAMS, &classifier);
    if (status != MUON_OK) return status;

    muon_group groups[NGROUPS];
    for (int i = 0; i < NGROUPS; i++)
        muon_group_init(&groups[i], sizeof groups[i]);
    groups[GROUP_HIDDEN].rule = t->rule == TRIAL_MUON ? MUON_RULE_MUON : MUON_RULE_ADAMW;
    groups[GROUP_HIDDEN].momentum = 0.9; /* for so short a run better than the default, 0.95 */
    groups[GROUP_REST].rule = MUON_RULE_ADAMW;

    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = groups;
    config.ngroups = NGROUPS;
    config.allow_no_muon = 1; /* AdamW's trials have none */
    config.threads = 1;       /* trials run side by side */
    return muon_create(&t->opt, &config, params, NPARAMS);
}

int trial_create(trial *t)
{
    t->model = model_create(WEIGHT_SEED);
    if (t->model && create_optimizer(t) == MUON_OK) return 0;
    snprintf(t->error, sizeof t->error, "%s",
             t->model ? muon_last_error() : "no memory for a model");
    t->failed = 1;
    return -1;
}

void trial_destroy(trial *t)
{
    muon_destroy(t->opt);
    model_destroy(t->model);
}

/* ---- Training */

/* Up in a straight line, then down in a straight line to nearly 0. */
static double schedule(const trial *t)
{
    double done = (double)t->done / t->steps;
    double up = ((double)t->done + 1) / (1 + WARM_UP * t->steps);
    return fmin(up, 1 - done);
}

static muon_status step(trial *t)
{
    unsigned char windows[BATCH * WINDOW];
    double start = seconds();
    text_draw(t->text, windows, BATCH, WINDOW_SEED + (uint64_t)t->done, 0);
    model_gradients(t->model, windows);
    t->model_seconds += seconds() - start;

    muon_status status = muon_opt_set_lr(t->opt, GROUP_HIDDEN, t->lr * schedule(t));
    if (status == MUON_OK) status = muon_opt_set_lr(t->opt, GROUP_REST, REST_LR * schedule(t));
    if (status != MUON_OK) return status;
    muon_buffers buffers[NPARAMS];
    for (int i = 0; i < NPARAMS; i++)
        buffers[i] = (muon_buffers){t->model->weight[i], t->model->grad[i], NULL};
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = buffers;
    muon_result result;
    muon_result_init(&result, sizeof result);
    status = muon_step(t->opt, &args, &result);
    t->opt_seconds += result.seconds;
    t->done++;
    return status;
}

static double validation_loss(trial *t)
{
    double sum = 0;
    int parts = VALIDATION / BATCH;
    for (int i = 0; i < parts; i++)
        sum += model_loss(t->model, t->validation + i * BATCH * WINDOW);
    return sum / parts;
}

void trial_advance(trial *t, int to)
{
    while (t->done < to && !t->failed) {
        if (step(t) == MUON_OK) continue;
        snprintf(t->error, sizeof t->error, "%s", muon_last_error());
        t->failed = 1;
    }
    t->point_step[t->npoints] = t->done;
    t->point_loss[t->npoints] = validation_loss(t);
    t->point_seconds[t->npoints++] = t->model_seconds + t->opt_seconds;
}

double trial_loss(const trial *t)
{
    return t->point_loss[t->npoints - 1];
}

int trial_diverged(const trial *t)
{
    return t->failed || !isfinite(trial_loss(t)) || trial_loss(t) > t->point_loss[0];
}
