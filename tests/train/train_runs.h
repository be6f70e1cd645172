/* train_runs.h - small training runs for tests: three models, a text, and a run on any number of ranks with
 * what it leaves. */
#ifndef TESTS_TRAIN_TRAIN_RUNS_H
#define TESTS_TRAIN_TRAIN_RUNS_H

#include "tests/world/ranks.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8 };

/* ---- models ------------------------------------------------------------------------------------- */

#define COMMON .width = 16, .context = 12, .rope_theta = 10000, .norm_eps = 1e-5

static const model_config dense = {
    .layers = 2, COMMON, .heads = 3, .kv_heads = 1, .head_dim = 6, .hidden = 20};
static const model_config experts = {.layers = 2,
                                     COMMON,
                                     .heads = 2,
                                     .kv_heads = 2,
                                     .head_dim = 6,
                                     .hidden = 20,
                                     .experts = 5,
                                     .top_k = 2,
                                     .expert_hidden = 7,
                                     .shared_hidden = 9,
                                     .dense_layers = 1,
                                     .balance = 0.02};
static const model_config latent = {.layers = 2,
                                    COMMON,
                                    .attention = MODEL_MLA,
                                    .heads = 2,
                                    .q_rank = 8,
                                    .kv_rank = 6,
                                    .nope_dim = 5,
                                    .rope_dim = 4,
                                    .v_dim = 5,
                                    .hidden = 20};

/* A text that stays the same, while the built-in one changes with the project. */
static char text_path[] = "/tmp/test_train_run.XXXXXX";

static inline void make_text(void)
{
    static const char *const words[] = {"the ",    "muon ",    "turns ", "a ",
                                        "matrix ", "and ",     "each ",  "update ",
                                        "is ",     "an even ", "one. ",  "so\n"};
    int fd = mkstemp(text_path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    assert_non_null(file);
    testlib_seed(1);
    for (int i = 0; i < 4000; i++)
        fputs(words[testlib_bits() % COUNT(words)], file);
    assert_int_equal(fclose(file), 0);
}

static inline void remove_text(void)
{
    assert_int_equal(remove(text_path), 0);
}

static inline train_settings settings_of(const model_config *config, int steps)
{
    train_settings s = TRAIN_DEFAULTS;
    s.model = *config;
    s.model_name = "test";
    s.data = text_path;
    s.schedule.steps = steps;
    s.batch = 13;
    s.micro_batch = 3;
    s.validate_every = 2;
    s.validations = 7;
    s.threads = 1;
    s.timeout = 60;
    return s;
}

/* "muon", "adamw", or a variant of Muon. */
static inline void choose_optimizer(train_settings *s, const char *name)
{
    s->optimizer.muon = strcmp(name, "adamw") != 0;
    s->optimizer.variant = train_variant_named(name);
}

/* ---- a run and what it leaves ------------------------------------------------------------------- */

typedef struct outcome {
    train_record record;
    float *weights; /* all of them */
    int64_t numel;
} outcome;

typedef struct crew {
    train_settings settings;
    outcome out[MOST_RANKS];
} crew;

static inline float *copy_weights(train_run *run)
{
    model *m = train_run_model(run);
    float *copy = malloc((size_t)model_numel(m) * sizeof *copy), *to = copy;
    for (size_t i = 0; copy && i < model_ntensors(m); i++) {
        size_t numel = (size_t)model_tensor_at(m, i)->numel;
        memcpy(to, train_run_weights(run)[i], numel * sizeof *to);
        to += numel;
    }
    return copy;
}

static inline void train(int rank, const muon_comm *comm, void *arg)
{
    crew *f = arg;
    outcome *out = &f->out[rank];
    train_run *run = NULL;
    rank_ok(train_run_create(&run, &f->settings, comm->size > 1 ? comm : NULL, &out->record));
    while (!train_run_is_over(run))
        rank_ok(train_run_step(run));
    rank_ok(train_run_finish(run));
    out->weights = copy_weights(run);
    out->numel = model_numel(train_run_model(run));
    train_run_destroy(run);
}

static inline crew *run_on(int ranks, const train_settings *settings)
{
    crew *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->settings = *settings;
    ranks_run(ranks, train, f);
    return f;
}

static inline void free_crew(crew *f)
{
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        train_record_free(&f->out[rank].record);
        free(f->out[rank].weights);
    }
    free(f);
}

#endif
