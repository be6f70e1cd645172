#include "train/run/record.h"

#include "base/memory.h"
#include "train/run/spectrum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static muon_status take(train_record *r, int64_t steps, int64_t every)
{
    /* Besides the regular ones there is a validation before the first step and one after the last. */
    TRY(CALLOC(&r->steps, (size_t)steps, "the record of a run"));
    TRY(CALLOC(&r->rank_steps, (size_t)steps * (size_t)r->nranks, "the record of a run"));
    r->room = (size_t)(steps / every + 2);
    TRY(CALLOC(&r->validations, r->room, "the record of a run"));
    return CALLOC(&r->ranks, (size_t)r->nranks, "the record of a run");
}

muon_status train_record_create(train_record *record, int64_t steps, int64_t every, int nranks)
{
    train_record r = {.nranks = nranks, .planned = steps};
    muon_status status = take(&r, steps, every);
    if (status == MUON_OK)
        *record = r;
    else
        train_record_free(&r);
    return status;
}

void train_record_free(train_record *record)
{
    for (size_t i = 0; i < record->nspectra; i++)
        train_spectrum_free(&record->spectra[i]);
    free(record->spectra);
    free(record->steps);
    free(record->rank_steps);
    free(record->validations);
    free(record->ranks);
    free(record->description);
    free(record->machine);
    facts_free(&record->settings);
    free(record->sample);
    *record = (train_record){.label = NULL};
}

muon_status train_record_make_room(train_record *record, size_t validations)
{
    train_validation *more = NULL;
    size_t room = record->room + validations;
    TRY(CALLOC(&more, room, "the record of a run"));
    memcpy(more, record->validations, record->nvalidations * sizeof *more);
    free(record->validations);
    record->validations = more;
    record->room = room;
    return MUON_OK;
}

int64_t train_record_done(const train_record *record)
{
    return record->resumed + (int64_t)record->nsteps;
}

double train_record_optimizer_share(const train_record *record)
{
    const train_totals *t = &record->totals;
    return t->seconds > 0 ? t->optimizer_seconds / t->seconds : 0;
}

/* ---- adding ------------------------------------------------------------------------------------- */

static void add_seconds(double *sum, double seconds)
{
    if (seconds > 0 && isfinite(seconds)) *sum += seconds;
}

void train_rank_step_add(train_rank_step *to, const train_rank_step *from)
{
    add_seconds(&to->model, from->model);
    add_seconds(&to->reduce, from->reduce);
    add_seconds(&to->optimizer, from->optimizer);
    add_seconds(&to->gather, from->gather);
    for (int i = 0; i < MUON_NPHASES; i++)
        add_seconds(&to->phase[i], from->phase[i]);
}

static void add_totals(train_totals *t, const train_step *s)
{
    t->steps++;
    t->clipped_heads += s->clipped_heads;
    add_seconds(&t->seconds, s->seconds);
    add_seconds(&t->model_seconds, s->model_seconds);
    add_seconds(&t->optimizer_seconds, s->optimizer_seconds);
    t->model_flops += s->model_flops;
    t->lr_max = fmax(t->lr_max, s->lr);
    t->logit_max = fmax(t->logit_max, s->max_logit);
    for (int i = 0; i < MUON_NPHASES; i++) {
        add_seconds(&t->phase_max[i], s->phase_max[i]);
        add_seconds(&t->phase_min[i], s->phase_min[i]);
        t->phase_flops[i] += s->phase_flops[i];
        t->phase_bytes[i] += s->phase_bytes[i];
    }
}

void train_record_add(train_record *record, const train_step *step, const train_rank_step *ranks)
{
    size_t nranks = (size_t)record->nranks;
    memcpy(record->rank_steps + record->nsteps * nranks, ranks, nranks * sizeof *ranks);
    record->steps[record->nsteps++] = *step;
    add_totals(&record->totals, step);
    for (size_t rank = 0; rank < nranks; rank++)
        train_rank_step_add(&record->ranks[rank].seconds, &ranks[rank]);
}

void train_record_validate(train_record *record, const train_validation *validation)
{
    int is_best = record->nvalidations == 0 || validation->loss < record->best.loss ||
                  isnan(record->best.loss);
    if (is_best) record->best = *validation;
    record->validations[record->nvalidations++] = *validation;
}

const train_step *train_record_last(const train_record *record)
{
    return &record->steps[record->nsteps - 1];
}
