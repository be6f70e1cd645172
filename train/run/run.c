/* Making a run: all of its memory, before the first step. */
#include "muon/plan.h"
#include "train/run/state.h"

#include "base/clock.h"
#include "train/model/blas.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    TOKENS_AT_A_TIME = 4096
}; /* enough for products to be fast, little enough for any machine */

/* ---- what a rank prepares alone ----------------------------------------------------------------- */

/* Of a checkpoint. Later ones are of steps that are skipped, which the record has. */
static void log_warning(void *user, muon_log_level level, const char *message)
{
    const train_run *run = user;
    if (level >= MUON_LOG_WARN && run->is_starting)
        run->settings.log(run->settings.log_user, level, message);
}

static muon_status check_settings(train_run *run)
{
    train_settings *s = &run->settings;
    const char *problem = model_config_check(&s->model);
    REQUIRE(!problem, E_VALUE, "model: %s", problem);
    TRY(schedule_check(&s->schedule));
    REQUIRE(s->batch >= 1, E_VALUE, "a batch of %d sequences, must be at least 1", s->batch);
    REQUIRE(s->validate_every >= 1, E_VALUE, "validation every %d steps, must be at least 1",
            s->validate_every);
    REQUIRE(s->validations >= 1, E_VALUE, "validation with %d sequences, must be at least 1",
            s->validations);
    REQUIRE(!s->deterministic || TRAIN_UNITS % run->size == 0, E_VALUE,
            "deterministic: a batch is cut into %d units, which %d ranks cannot share evenly; "
            "1, 2, 4 and %d can",
            TRAIN_UNITS, run->size, TRAIN_UNITS);
    s->optimizer.threads = s->threads;
    s->optimizer.timeout = s->timeout;
    s->optimizer.log = s->log ? log_warning : NULL;
    s->optimizer.log_user = run;
    REQUIRE(!s->saving.resume || s->saving.dir, E_ARG, "resume: no directory of checkpoints");
    REQUIRE(s->saving.every >= 0 && s->saving.keep >= 0, E_VALUE,
            "checkpoints: every %d steps, %d are kept; must not be negative", s->saving.every,
            s->saving.keep);
    return optimizer_fit_mesh(&s->optimizer, run->size);
}

static void share_units(train_run *run)
{
    const train_settings *s = &run->settings;
    run->units = s->deterministic ? TRAIN_UNITS : run->size;
    run->my_units = run->units / run->size;
    run->first_unit = run->my_units * run->rank;
    /* No rank has a larger unit than this. */
    int64_t largest = (s->batch + run->units - 1) / run->units;
    int micro = s->micro_batch ? s->micro_batch : TOKENS_AT_A_TIME / s->model.context;
    if (micro < 1) micro = 1;
    run->micro_batch = micro < largest ? micro : (int)largest;
}

static muon_status create_model(train_run *run)
{
    const train_settings *s = &run->settings;
    run->model = model_create(&s->model, run->micro_batch, s->threads);
    REQUIRE(run->model, E_NOMEM,
            "no memory for a model of %d layers of width %d with %d x %d tokens at a time; a "
            "smaller micro-batch needs less",
            s->model.layers, s->model.width, run->micro_batch, s->model.context);
    run->ntensors = model_ntensors(run->model);
    return MUON_OK;
}

static void place_tensors(train_run *run, arena *a, float ***out)
{
    float **list = ARENA_ARRAY(a, float *, run->ntensors);
    for (size_t i = 0; i < run->ntensors; i++) {
        float *tensor = ARENA_ARRAY(a, float, model_tensor_at(run->model, i)->numel);
        if (list) list[i] = tensor;
    }
    *out = list;
}

/* Runs twice: to measure, and to hand out. */
static void place_memory(train_run *run)
{
    arena *a = &run->memory;
    int64_t heads = (int64_t)run->settings.model.layers * run->settings.model.heads;
    int64_t tokens = (int64_t)run->micro_batch * run->settings.model.context;
    int levels = 1;
    while (1 << (levels - 1) < run->my_units)
        levels++;
    place_tensors(run, a, &run->weights);
    for (int i = 0; i < levels; i++)
        place_tensors(run, a, &run->grads[i]);
    run->buffers = ARENA_ARRAY(a, muon_buffers, run->ntensors);
    run->logits = ARENA_ARRAY(a, float, heads);
    run->chunk_logits = ARENA_ARRAY(a, float, heads);
    run->logit_rows = ARENA_ARRAY(a, const float *, run->settings.model.layers);
    run->tokens = ARENA_ARRAY(a, uint8_t, tokens);
    run->next = ARENA_ARRAY(a, uint8_t, tokens);
    run->words = ARENA_ARRAY(a, double, 2 * run->units + 2);
    run->seen = ARENA_ARRAY(a, double, run->size *RUN_NUMBERS);
    run->chunk_losses = ARENA_ARRAY(a, double, run->validations);
    run->rank_steps = ARENA_ARRAY(a, train_rank_step, run->size);
}

static muon_status take_memory(train_run *run)
{
    place_memory(run);
    TRY(muon__arena_alloc(&run->memory, "weights and gradients of the model"));
    place_memory(run);
    for (size_t i = 0; i < run->ntensors; i++)
        model_fill(run->model, i, run->weights[i], 0, model_tensor_at(run->model, i)->numel,
                   (uint64_t)run->settings.seed);
    for (int i = 0; i < run->settings.model.layers; i++)
        run->logit_rows[i] = run->logits + (int64_t)i * run->settings.model.heads;
    return MUON_OK;
}

static muon_status describe(train_run *run)
{
    const train_settings *s = &run->settings;
    char line[512];
    int n = snprintf(line, sizeof line,
                     "%s, %d layers of width %d, %.2f M parameters; %s, %.2f MB; %d x %d tokens a "
                     "step; %d rank%s, %d thread%s",
                     s->model_name, s->model.layers, s->model.width,
                     1e-6 * (double)model_numel(run->model), run->text.name,
                     1e-6 * (double)(run->text.train + run->text.validation), s->batch,
                     s->model.context, run->size, run->size == 1 ? "" : "s", s->threads,
                     s->threads == 1 ? "" : "s");
    if (run->size > 1 && n > 0 && (size_t)n < sizeof line)
        snprintf(line + n, sizeof line - (size_t)n, " each (fsdp %d, ep %d, replicate %d)",
                 s->optimizer.fsdp, s->optimizer.ep, s->optimizer.replicate);
    return muon__strdup(&run->record->description, line);
}

/* The CPU and what multiplies, as far as they tell. */
static muon_status name_machine(train_run *run)
{
    muon_backend_info b;
    char line[256];
    TRY(muon_backend_get(run->settings.optimizer.backend, &b, sizeof b));
    snprintf(line, sizeof line, "%s%s%s%s%s%s%s", b.cpu, *b.cpu ? "; " : "", b.name,
             *b.version ? " " : "", b.version, *b.kernels ? ", kernels for " : "", b.kernels);
    return muon__strdup(&run->record->machine, line);
}

static muon_status start_record(train_run *run)
{
    const train_settings *s = &run->settings;
    TRY(train_record_create(run->record, s->schedule.steps, run->size));
    run->record->label = optimizer_label(&s->optimizer);
    run->record->parameters = model_numel(run->model);
    run->record->tokens_per_step = (int64_t)s->batch * s->model.context;
    run->record->threads = s->threads;
    TRY(facts_of_settings(&run->record->settings, run));
    TRY(name_machine(run));
    return describe(run);
}

static muon_status prepare(train_run *run)
{
    const train_settings *s = &run->settings;
    TRY(check_settings(run));
    share_units(run);
    TRY(text_open(&run->text, s->data, s->model.context));
    run->validations = text_validations(&run->text, s->model.context, s->validations);
    TRY(create_model(run));
    TRY(blas_check());
    TRY(optimizer_describe(&run->opt, run->model, &s->optimizer));
    TRY(take_memory(run));
    return start_record(run);
}

/* ---- what ranks do together --------------------------------------------------------------------- */

/* Files of the same name on different machines need not be the same. */
static muon_status compare_texts(train_run *run)
{
    enum { BYTES, HASH, NUMBERS };
    double mine[NUMBERS] = {(double)(run->text.train + run->text.validation),
                            (double)(text_hash(&run->text) >> 12)};
    TRY(team_share(run->team, mine, run->seen, NUMBERS));
    const double *first = run->seen;
    for (int rank = 1; rank < run->size; rank++) {
        const double *its = first + (size_t)rank * NUMBERS;
        REQUIRE(its[BYTES] == first[BYTES] && its[HASH] == first[HASH], E_DISAGREE,
                "%s: rank %d reads another text (%.0f bytes) than rank 0 (%.0f)", run->text.name,
                rank, its[BYTES], first[BYTES]);
    }
    return MUON_OK;
}

static muon_status cut_weights(train_run *run)
{
    size_t numel = (size_t)train_shards_numel(run->shards);
    TRY(CALLOC(&run->shard_weights, numel, "this rank's weights"));
    TRY(CALLOC(&run->shard_grads, numel, "this rank's gradients"));
    return train_shards_cut(run->shards, run->shard_weights, (const float *const *)run->weights);
}

static void point_buffers(train_run *run)
{
    for (size_t i = 0; i < run->ntensors; i++) {
        muon_buffers *b = &run->buffers[i];
        if (run->size == 1) {
            *b = (muon_buffers){run->weights[i], run->grads[0][i], NULL};
        } else {
            int64_t at = train_shards_offset(run->shards, i);
            *b = (muon_buffers){run->shard_weights + at, run->shard_grads + at, NULL};
        }
    }
}

static muon_status create_shards(train_run *run)
{
    if (run->size == 1) return MUON_OK;
    TRY(train_shards_create(&run->shards, muon_opt_get_plan(run->opt.opt), run->opt.nparams,
                            run->team));
    return team_agree(run->team, cut_weights(run));
}

static muon_status create(train_run *run, const muon_comm *comm)
{
    TRY(team_create(&run->team, comm, run->settings.timeout, "the training run"));
    run->rank = team_rank(run->team);
    run->size = team_size(run->team);
    TRY(team_agree(run->team, prepare(run)));
    TRY(compare_texts(run));
    TRY(optimizer_open(&run->opt, comm));
    TRY(create_shards(run));
    point_buffers(run);
    TRY(train_run_resume(run));
    run->begin = muon__seconds();
    return run->record->nvalidations ? MUON_OK : train_run_validate(run);
}

muon_status train_run_create(train_run **out, const train_settings *settings, const muon_comm *comm,
                             train_record *record)
{
    train_run *run = NULL;
    TRY(CALLOC(&run, 1, "a training run"));
    run->settings = *settings;
    run->record = record;
    run->is_starting = 1;
    muon_status status = create(run, comm);
    run->is_starting = 0;
    if (status == MUON_OK)
        *out = run;
    else
        train_run_destroy(run);
    return status;
}

void train_run_destroy(train_run *run)
{
    if (!run) return;
    train_shards_destroy(run->shards);
    optimizer_close(&run->opt);
    model_destroy(run->model);
    text_close(&run->text);
    team_destroy(run->team);
    muon__arena_free(&run->memory);
    free(run->shard_weights);
    free(run->shard_grads);
    free(run);
}

model *train_run_model(train_run *run)
{
    return run->model;
}

float *const *train_run_weights(train_run *run)
{
    return run->weights;
}
