#include "train/run/record.h"

#include "base/memory.h"
#include "train/run/spectrum.h"

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

double train_record_step_seconds(const train_record *record)
{
    double sum = 0;
    for (size_t i = 0; i < record->nsteps; i++)
        sum += record->steps[i].seconds;
    return sum;
}

double train_record_optimizer_share(const train_record *record)
{
    double all = train_record_step_seconds(record), sum = 0;
    for (size_t i = 0; i < record->nsteps; i++)
        sum += record->steps[i].optimizer_seconds;
    return all > 0 ? sum / all : 0;
}
