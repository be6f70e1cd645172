/* Checkpoints of a run: where it begins, and what it leaves for the next one. */
#include "train/run/state.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((format(printf, 3, 4))) static void tell(const train_run *run, muon_log_level level,
                                                       const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!run->settings.log) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run->settings.log(run->settings.log_user, level, line);
}

/* ---- resuming ----------------------------------------------------------------------------------- */

enum { NONE = -1 };

/* None is complete, but one was: what is wrong with it is the answer, not a run from scratch. */
static muon_status check_none(const char *dir)
{
    muon_checkpoint *damaged = NULL;
    muon_status status = muon_checkpoint_open(&damaged, dir);
    muon_checkpoint_close(damaged);
    return status == MUON_E_NO_CHECKPOINT ? MUON_OK : status;
}

static muon_status list_highest(const char *dir, int64_t *highest)
{
    int64_t *steps = NULL;
    size_t count = 0;
    TRY(muon_checkpoint_list(&steps, &count, dir));
    for (size_t i = 0; i < count; i++)
        if (steps[i] > *highest) *highest = steps[i];
    free(steps);
    return count > 0 ? MUON_OK : check_none(dir);
}

/* What rank 0 sees: on a network's file system others may see it later. */
static muon_status find_highest(train_run *run, int64_t *highest)
{
    double step = NONE;
    *highest = NONE;
    TRY(team_agree(run->team,
                   run->rank == 0 ? list_highest(run->settings.saving.dir, highest) : MUON_OK));
    step = (double)*highest;
    TRY(team_share(run->team, &step, run->seen, 1));
    *highest = (int64_t)run->seen[0];
    return MUON_OK;
}

/* A model that does not fit is better told by its settings than by the shapes of its tensors. A damaged
 * checkpoint is left to muon_load, which may find an older one. */
static muon_status compare(const train_run *run, const char *path)
{
    muon_checkpoint *saved = NULL;
    muon_status status = muon_checkpoint_open(&saved, path);
    if (status != MUON_OK) return status == MUON_E_FORMAT ? MUON_OK : status;
    status = facts_compare(&run->record->settings, saved);
    muon_checkpoint_close(saved);
    return status;
}

/* The checkpoint of this step at path, which need not be the newest. */
static muon_status open_step(muon_checkpoint **out, const char *path, int64_t step)
{
    char inside[4096];
    if (muon_checkpoint_open(out, path) == MUON_OK) {
        if (muon_checkpoint_get_step(*out) == step) return MUON_OK;
        muon_checkpoint_close(*out);
        *out = NULL;
    }
    int length = snprintf(inside, sizeof inside, "%s/step-%08lld", path, (long long)step);
    REQUIRE(length > 0 && (size_t)length < sizeof inside, E_IO, "%s: the path is too long", path);
    return muon_checkpoint_open(out, inside);
}

static void tell_change(void *user, const char *line)
{
    const train_run *run = user;
    tell(run, MUON_LOG_WARN, "%s: %s", run->record->label, line);
}

static muon_status read_facts(train_run *run, const char *path, int64_t step)
{
    muon_checkpoint *saved = NULL;
    TRY(open_step(&saved, path, step));
    muon_status status = facts_compare(&run->record->settings, saved);
    if (status == MUON_OK) status = facts_read_progress(run, saved);
    if (status == MUON_OK) {
        tell(run, MUON_LOG_INFO, "%s: resumed after step %lld, from %s", run->record->label,
             (long long)step, muon_checkpoint_get_path(saved));
        facts_tell_changes(&run->record->settings, saved, tell_change, run);
    }
    muon_checkpoint_close(saved);
    return status;
}

static muon_status load(train_run *run, const char *path)
{
    muon_load_args args;
    int64_t step = 0;
    muon_load_args_init(&args, sizeof args);
    args.buffers = run->buffers;
    args.fall_back = 1;
    /* What differs is told by its name on the command line, not by groups and fields. */
    args.restore_settings = 1;
    TRY(team_agree(run->team, compare(run, path)));
    TRY(muon_load(run->opt.opt, path, &args, &step));
    TRY(optimizer_restore(&run->opt));
    TRY(team_agree(run->team, read_facts(run, path, step)));
    return run->shards ? train_shards_gather(run->shards, run->weights, run->shard_weights)
                       : MUON_OK;
}

muon_status train_run_resume(train_run *run)
{
    const train_saving *s = &run->settings.saving;
    int64_t highest = NONE;
    if (s->dir) TRY(find_highest(run, &highest));
    int is_ours = s->resume && highest != NONE;
    if (s->resume && !is_ours)
        tell(run, MUON_LOG_INFO, "%s: no complete checkpoint in %s; the run starts %s%s",
             run->record->label, s->dir, s->from ? "with " : "from scratch",
             s->from ? s->from : "");
    if (is_ours || s->from) TRY(load(run, is_ours ? s->dir : s->from));
    /* One that was damaged may be newer than the one that was loaded; this run makes it again. */
    REQUIRE(is_ours || highest <= run->step, E_ARG,
            "%s: there is a checkpoint of step %lld, which this run, from step %lld on, would "
            "overwrite; resume from it, or save elsewhere",
            s->dir, (long long)highest, (long long)run->step);
    run->record->saved = is_ours ? run->step : 0;
    return MUON_OK;
}

/* ---- saving ------------------------------------------------------------------------------------- */

static int is_due(const train_run *run)
{
    const train_saving *s = &run->settings.saving;
    if (!s->dir || run->record->saved == run->step) return 0;
    return train_run_is_over(run) || (s->every && run->step % s->every == 0);
}

static void count_save(train_record *record, int64_t step, double seconds)
{
    record->saves++;
    record->saved = step;
    record->saved_seconds = seconds;
    record->save_seconds += seconds;
}

static muon_status finish(train_run *run)
{
    double begin = muon__seconds();
    TRY(muon_save_finish(run->opt.opt));
    count_save(run->record, run->saving, run->saving_seconds + muon__seconds() - begin);
    run->saving = 0;
    return MUON_OK;
}

/* Beside the run only while it goes on: the last one need not be copied. */
static muon_status write_out(train_run *run, const facts *progress)
{
    const train_saving *s = &run->settings.saving;
    const facts *settings = &run->record->settings;
    muon_st_entry metadata[2 * FACTS_MOST];
    muon_save_args args;
    size_t n = 0;
    double begin = muon__seconds();
    for (size_t i = 0; i < settings->count; i++)
        metadata[n++] = settings->entries[i];
    for (size_t i = 0; i < progress->count; i++)
        metadata[n++] = progress->entries[i];
    muon_save_args_init(&args, sizeof args);
    args.step = run->step;
    args.buffers = run->buffers;
    args.metadata = metadata;
    args.nmetadata = n;
    args.keep = s->keep;
    args.replace = 1;
    if (s->async && !train_run_is_over(run)) {
        TRY(muon_save_start(run->opt.opt, s->dir, &args));
        run->saving = run->step;
        run->saving_seconds = muon__seconds() - begin;
    } else {
        TRY(muon_save(run->opt.opt, s->dir, &args));
        count_save(run->record, run->step, muon__seconds() - begin);
    }
    return MUON_OK;
}

static muon_status save(train_run *run)
{
    facts progress = {.count = 0};
    TRY(team_agree(run->team, facts_of_progress(&progress, run)));
    muon_status status = write_out(run, &progress);
    facts_free(&progress);
    return status;
}

muon_status train_run_save(train_run *run)
{
    int due = is_due(run);
    if (run->saving && (due || run->is_written)) TRY(finish(run));
    return due ? save(run) : MUON_OK;
}
