/* One step of a run, in the order in which it happens. */
#include "muon/plan.h"
#include "train/run/state.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

/* ---- gradients ---------------------------------------------------------------------------------- */

static void clear(train_run *run, int level)
{
    for (size_t i = 0; i < run->ntensors; i++)
        memset(run->grads[level][i], 0,
               (size_t)model_tensor_at(run->model, i)->numel * sizeof(float));
}

static void add(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void add_level(train_run *run, int to, int from)
{
    for (size_t i = 0; i < run->ntensors; i++)
        add(run->grads[to][i], run->grads[from][i], model_tensor_at(run->model, i)->numel);
}

static void keep_logits(train_run *run)
{
    int64_t count = (int64_t)run->settings.model.layers * run->settings.model.heads;
    for (int64_t i = 0; i < count; i++)
        run->logits[i] = fmaxf(run->logits[i], run->chunk_logits[i]);
}

/* Sequences first .. end of the batch, a part of them at a time; their gradients are added. */
static void run_sequences(train_run *run, int64_t first, int64_t end, int level, double *loss,
                          double *balance, double *flops)
{
    const train_settings *s = &run->settings;
    int context = s->model.context;
    for (int64_t at = first; at < end; at += run->micro_batch) {
        int count = (int)(end - at < run->micro_batch ? end - at : run->micro_batch);
        double part = (double)count / s->batch;
        model_result result;
        for (int i = 0; i < count; i++)
            text_sequence(&run->text, (uint64_t)s->seed, run->step + 1, at + i, context,
                          run->tokens + (size_t)i * (size_t)context,
                          run->next + (size_t)i * (size_t)context);
        model_run(run->model, (const float *const *)run->weights, run->grads[level], run->tokens,
                  run->next, count, context, (float)part, run->chunk_logits, &result);
        keep_logits(run);
        *loss += part * result.loss;
        *balance += part * result.balance;
        *flops += result.flops;
    }
}

/* The sum of `count` units, a power of two if there is more than one, in pairs. */
static void run_units(train_run *run, int64_t first, int64_t count, int level, double *flops)
{
    if (count > 1) {
        run_units(run, first, count / 2, level, flops);
        run_units(run, first + count / 2, count / 2, level + 1, flops);
        add_level(run, level, level + 1);
        return;
    }
    int64_t batch = run->settings.batch;
    clear(run, level);
    run_sequences(run, first * batch / run->units, (first + 1) * batch / run->units, level,
                  &run->words[first], &run->words[run->units + first], flops);
}

static void run_model(train_run *run, double *flops)
{
    memset(run->words, 0, (size_t)(2 * run->units + 2) * sizeof *run->words);
    memset(run->logits, 0,
           (size_t)run->settings.model.layers * (size_t)run->settings.model.heads *
               sizeof *run->logits);
    run_units(run, run->first_unit, run->my_units, 0, flops);
}

/* ---- what ranks tell each other ----------------------------------------------------------------- */

/* The loss, who wants to stop, and who is still writing a checkpoint. Units are summed in their order,
 * whoever ran them. */
static muon_status share_losses(train_run *run, train_step *step)
{
    const volatile sig_atomic_t *interrupted = run->settings.interrupted;
    double *stops = &run->words[2 * run->units], *writers = stops + 1;
    *stops = interrupted && *interrupted;
    *writers = run->saving && !muon_save_is_written(run->opt.opt);
    TRY(team_sum(run->team, run->words, (size_t)(2 * run->units + 2)));
    for (int64_t unit = 0; unit < run->units; unit++) {
        step->loss += run->words[unit];
        step->balance += run->words[run->units + unit];
    }
    if (*stops > 0) run->stopped = run->record->interrupted = 1;
    run->is_written = *writers == 0;
    return MUON_OK;
}

static void fill_costs(const train_run *run, train_step *step, train_rank_step *ranks)
{
    for (int rank = 0; rank < run->size; rank++) {
        const double *seen = run->seen + (size_t)rank * RUN_NUMBERS;
        train_rank_step *r = &ranks[rank];
        memcpy(r, seen + RUN_RANK_STEP, sizeof *r);
        step->model_flops += seen[RUN_FLOPS];
        step->model_seconds = fmax(step->model_seconds, r->model);
        step->exchange_seconds = fmax(step->exchange_seconds, r->reduce + r->gather);
        step->optimizer_seconds = fmax(step->optimizer_seconds, r->optimizer);
        step->seconds = fmax(step->seconds, r->model + r->reduce + r->optimizer + r->gather);
        for (int i = 0; i < MUON_NPHASES; i++) {
            step->phase_max[i] = fmax(step->phase_max[i], r->phase[i]);
            step->phase_min[i] = rank ? fmin(step->phase_min[i], r->phase[i]) : r->phase[i];
            step->phase_flops[i] += seen[RUN_PHASE_FLOPS + i];
            step->phase_bytes[i] += seen[RUN_PHASE_BYTES + i];
        }
    }
    memcpy(step->phase, ranks[run->rank].phase, sizeof step->phase);
}

static muon_status share_costs(train_run *run, train_step *step, const train_rank_step *mine,
                               double flops, const muon_result *result)
{
    double numbers[RUN_NUMBERS] = {0};
    memcpy(numbers + RUN_RANK_STEP, mine, sizeof *mine);
    numbers[RUN_FLOPS] = flops;
    for (int i = 0; i < MUON_NPHASES; i++) {
        numbers[RUN_PHASE_FLOPS + i] = result->phase[i].flops;
        numbers[RUN_PHASE_BYTES + i] = result->phase[i].bytes;
    }
    TRY(team_share(run->team, numbers, run->seen, RUN_NUMBERS));
    fill_costs(run, step, run->rank_steps);
    return MUON_OK;
}

/* ---- the step ----------------------------------------------------------------------------------- */

/* Seconds since the last call. */
static double lap(double *clock)
{
    double now = muon__seconds(), seconds = now - *clock;
    *clock = now;
    return seconds;
}

static muon_status update(train_run *run, train_step *step, train_rank_step *mine, double *clock,
                          muon_result *result)
{
    muon_step_args args;
    double factor = schedule_factor(&run->settings.schedule, step->step);
    if (run->shards)
        TRY(train_shards_reduce(run->shards, run->shard_grads,
                                (const float *const *)run->grads[0]));
    mine->reduce += lap(clock);
    step->lr = optimizer_lr(&run->opt) * factor;
    TRY(optimizer_set_factor(&run->opt, factor));
    muon_step_args_init(&args, sizeof args);
    args.buffers = run->buffers;
    args.max_logits = run->logit_rows;
    TRY(muon_step(run->opt.opt, &args, result));
    mine->optimizer = lap(clock);
    if (run->shards && result->applied)
        TRY(train_shards_gather(run->shards, run->weights, run->shard_weights));
    mine->gather = lap(clock);
    for (int i = 0; i < MUON_NPHASES; i++)
        mine->phase[i] = result->phase[i].seconds;
    run->bytes_sent +=
        result->bytes_sent + (run->shards ? train_shards_bytes_sent(run->shards) : 0);
    return MUON_OK;
}

static muon_status count_skips(train_run *run, const train_step *step)
{
    run->skips = step->skipped ? run->skips + 1 : 0;
    run->record->skipped += step->skipped;
    REQUIRE(run->skips < TRAIN_MOST_SKIPS, E_NONFINITE,
            "%s: the loss or a gradient was NaN or infinity in steps %lld to %lld, which were "
            "skipped; nothing changes any more. A smaller learning rate may help",
            run->record->label, (long long)(step->step - TRAIN_MOST_SKIPS + 1),
            (long long)step->step);
    return MUON_OK;
}

static int is_validation_due(const train_run *run)
{
    return run->step % run->settings.validate_every == 0 || train_run_is_over(run);
}

int train_run_is_over(const train_run *run)
{
    return run->stopped || run->step == run->settings.schedule.steps;
}

muon_status train_run_step(train_run *run)
{
    train_step step = {.step = run->step + 1};
    train_rank_step mine = {0};
    muon_result result;
    double flops = 0, clock = muon__seconds();
    muon_result_init(&result, sizeof result);
    step.begin = clock - run->begin;
    run_model(run, &flops);
    mine.model = lap(&clock);
    TRY(share_losses(run, &step));
    mine.reduce = lap(&clock);
    /* A loss that is no number has no gradient. */
    if (isfinite(step.loss)) TRY(update(run, &step, &mine, &clock, &result));
    TRY(share_costs(run, &step, &mine, flops, &result));

    step.skipped = !result.applied;
    step.grad_norm = result.grad_norm;
    step.clip_coef = result.clip_coef;
    step.update_rms = result.update_rms;
    step.max_logit = result.max_logit;
    step.clipped_heads = result.clipped_heads;
    train_record_add(run->record, &step, run->rank_steps);
    run->step++;
    TRY(count_skips(run, &step));
    return is_validation_due(run) ? train_run_validate(run) : MUON_OK;
}

/* ---- validation and the end --------------------------------------------------------------------- */

/* Each rank takes every size-th chunk; chunks are summed in their order. */
muon_status train_run_validate(train_run *run)
{
    int context = run->settings.model.context;
    int64_t chunks = (run->validations + run->micro_batch - 1) / run->micro_batch;
    memset(run->chunk_losses, 0, (size_t)chunks * sizeof *run->chunk_losses);
    for (int64_t chunk = run->rank; chunk < chunks; chunk += run->size) {
        int64_t first = chunk * run->micro_batch, left = run->validations - first;
        int count = (int)(left < run->micro_batch ? left : run->micro_batch);
        model_result result;
        for (int i = 0; i < count; i++)
            text_validation(&run->text, first + i, run->validations, context,
                            run->tokens + (size_t)i * (size_t)context,
                            run->next + (size_t)i * (size_t)context);
        model_run(run->model, (const float *const *)run->weights, NULL, run->tokens, run->next,
                  count, context, 0, NULL, &result);
        run->chunk_losses[chunk] = result.loss * count / (double)run->validations;
    }
    TRY(team_sum(run->team, run->chunk_losses, (size_t)chunks));
    train_validation v = {.step = run->step};
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        v.loss += run->chunk_losses[chunk];
    train_record_validate(run->record, &v);
    run->record->seconds = muon__seconds() - run->begin;
    return MUON_OK;
}

muon_status train_run_finish(train_run *run)
{
    enum { MATRICES, BYTES, NUMBERS };
    muon_rank_load load = {.matrices = 0};
    double mine[NUMBERS];
    TRY(muon_plan_get_rank(muon_opt_get_plan(run->opt.opt), run->rank, &load, sizeof load));
    mine[MATRICES] = (double)load.matrices;
    mine[BYTES] = (double)run->bytes_sent;
    TRY(team_share(run->team, mine, run->seen, NUMBERS));
    train_record *record = run->record;
    for (int rank = 0; rank < run->size; rank++) {
        train_rank *r = &record->ranks[rank];
        r->matrices = (int64_t)run->seen[rank * NUMBERS + MATRICES];
        r->bytes_sent = (int64_t)run->seen[rank * NUMBERS + BYTES];
    }
    record->seconds = muon__seconds() - run->begin;
    return train_run_fill_spectra(run);
}
