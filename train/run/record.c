#include "train/run/record.h"

#include "base/memory.h"
#include "train/run/spectrum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static muon_status take(train_record *r)
{
    TRY(CALLOC(&r->steps, TRAIN_HISTORY + 1, "the record of a run"));
    TRY(CALLOC(&r->validations, TRAIN_HISTORY + 1, "the record of a run"));
    TRY(CALLOC(&r->rank_steps, (size_t)r->nranks, "the record of a run"));
    return CALLOC(&r->ranks, (size_t)r->nranks, "the record of a run");
}

muon_status train_record_create(train_record *record, int64_t steps, int nranks)
{
    train_record r = {.nranks = nranks, .planned = steps};
    muon_status status = take(&r);
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

int64_t train_record_done(const train_record *record)
{
    return record->resumed + record->totals.steps;
}

double train_record_optimizer_share(const train_record *record)
{
    const train_totals *t = &record->totals;
    return t->seconds > 0 ? t->optimizer_seconds / t->seconds : 0;
}

/* ---- adding ------------------------------------------------------------------------------------- */

/* How far apart the ones that stay are, when `count` have come. */
static int64_t stride_after(int64_t count)
{
    int64_t stride = 1;
    while (count > TRAIN_HISTORY * stride)
        stride *= 2;
    return stride;
}

/* The place for one more in a history of which `n` are kept and `count` have come. The newest is only a
 * guest if its turn was not due; then the next takes its place. */
static size_t make_place(void *items, size_t size, size_t n, int64_t count)
{
    int64_t before = stride_after(count);
    if (n > 0 && (count - 1) % before != 0) n--;
    if (stride_after(count + 1) == before) return n;
    for (size_t i = 1; i < n / 2; i++)
        memcpy((char *)items + i * size, (char *)items + 2 * i * size, size);
    return n / 2;
}

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

void train_record_add(train_record *r, const train_step *step, const train_rank_step *ranks)
{
    size_t at = make_place(r->steps, sizeof *r->steps, r->nsteps, r->totals.steps);
    r->steps[at] = *step;
    r->nsteps = at + 1;
    add_totals(&r->totals, step);
    for (int rank = 0; rank < r->nranks; rank++) {
        r->rank_steps[rank] = ranks[rank];
        train_rank_step_add(&r->ranks[rank].seconds, &ranks[rank]);
    }
}

void train_record_validate(train_record *r, const train_validation *validation)
{
    size_t at = make_place(r->validations, sizeof *validation, r->nvalidations, r->validated);
    if (r->validated == 0 || validation->loss < r->best.loss || isnan(r->best.loss))
        r->best = *validation;
    r->validations[at] = *validation;
    r->nvalidations = at + 1;
    r->validated++;
}

const train_step *train_record_last(const train_record *record)
{
    return &record->steps[record->nsteps - 1];
}
