/* What the page of training runs shows, as one JSON object; web/run.js draws it. */
#include "train/report/report.h"

#include "base/memory.h"
#include "train/report/web.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

extern const unsigned char run_page[]; /* web/run.js in web/page.html */

enum { MOST_COLUMNS = 128, PREFIX = sizeof "train." - 1 };

/* ---- values ------------------------------------------------------------------------------------- */

/* One that there was no memory for makes the whole page fail. */
typedef struct writer {
    int lost;
} writer;

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void set(writer *w, json_t *object, const char *key, json_t *value)
{
    w->lost |= json_object_set_new(object, key, value) != 0;
}

static void append(writer *w, json_t *list, json_t *value)
{
    w->lost |= json_array_append_new(list, value) != 0;
}

/* Numbers at a distance of `stride` bytes, the first at `from`. */
static json_t *numbers(writer *w, const void *from, size_t count, size_t stride)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, (const char *)from + i * stride, sizeof value);
        append(w, list, number(value));
    }
    return list;
}

static json_t *wholes(writer *w, const void *from, size_t count, size_t stride)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        int64_t value;
        memcpy(&value, (const char *)from + i * stride, sizeof value);
        append(w, list, json_integer(value));
    }
    return list;
}

/* ---- from step to step -------------------------------------------------------------------------- */

static json_t *curves_of(writer *w, const train_record *run)
{
    static const struct {
        const char *key;
        size_t offset;
    } rows[] = {{"loss", offsetof(train_step, loss)},
                {"lr", offsetof(train_step, lr)},
                {"grad_norm", offsetof(train_step, grad_norm)},
                {"max_logit", offsetof(train_step, max_logit)},
                {"balance", offsetof(train_step, balance)},
                {"seconds", offsetof(train_step, seconds)}};
    const train_step *s = run->steps;
    size_t n = run->nsteps;
    json_t *curves = json_object(), *end = json_array();
    set(w, curves, "step", wholes(w, &s->step, n, sizeof *s));
    set(w, curves, "clipped_heads", wholes(w, &s->clipped_heads, n, sizeof *s));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        set(w, curves, rows[i].key, numbers(w, (const char *)s + rows[i].offset, n, sizeof *s));
    for (size_t i = 0; i < n; i++)
        append(w, end, number(s[i].begin + s[i].seconds));
    set(w, curves, "end", end);
    return curves;
}

static json_t *validations_of(writer *w, const train_record *run)
{
    const train_validation *v = run->validations;
    json_t *object = json_object();
    set(w, object, "step", wholes(w, &v->step, run->nvalidations, sizeof *v));
    set(w, object, "loss", numbers(w, &v->loss, run->nvalidations, sizeof *v));
    return object;
}

/* ---- time --------------------------------------------------------------------------------------- */

/* Of one step: the mean over steps and ranks, and how fast all ranks together were. */
static void set_part(writer *w, json_t *time, const char *name, double seconds, double count)
{
    json_t *part = json_object();
    set(w, part, "seconds", number(count > 0 ? seconds / count : 0));
    set(w, time, name, part);
}

static void set_rate(writer *w, json_t *time, const char *name, const char *key, double amount,
                     double seconds)
{
    if (amount > 0 && seconds > 0)
        set(w, json_object_get(time, name), key, number(amount / seconds));
}

static json_t *time_of(writer *w, const train_record *run)
{
    const train_totals *t = &run->totals;
    train_rank_step all = {.model = 0};
    double count = (double)t->steps * run->nranks, rest;
    json_t *time = json_object();
    for (int rank = 0; rank < run->nranks; rank++)
        train_rank_step_add(&all, &run->ranks[rank].seconds);
    rest = all.optimizer;
    set_part(w, time, "model", all.model, count);
    set_part(w, time, "exchange", all.reduce + all.gather, count);
    set_part(w, time, "optimizer", all.optimizer, count);
    set_rate(w, time, "model", "flops_rate", t->model_flops, t->model_seconds);
    for (int i = 0; i < MUON_NPHASES; i++) {
        const char *name = muon_phase_name((muon_phase)i);
        rest -= all.phase[i];
        set_part(w, time, name, all.phase[i], count);
        set_rate(w, time, name, "flops_rate", t->phase_flops[i], t->phase_max[i]);
        set_rate(w, time, name, "bytes_rate", t->phase_bytes[i], t->phase_max[i]);
        set_rate(w, time, name, "spread", t->phase_max[i], t->phase_min[i]);
    }
    set_part(w, time, "rest", rest > 0 ? rest : 0, count);
    return time;
}

/* ---- ranks -------------------------------------------------------------------------------------- */

static double work_of(const train_rank *r)
{
    return r->seconds.model + r->seconds.phase[MUON_PHASE_ORTHO];
}

/* Exchange between ranks, and waiting for it inside of the optimizer. */
static double wait_of(const train_rank *r)
{
    const train_rank_step *s = &r->seconds;
    return s->reduce + s->gather + s->phase[MUON_PHASE_GATHER] + s->phase[MUON_PHASE_SCATTER];
}

/* Ranks that are neighbours share a column where there are many: the busiest stands for them. */
static json_t *columns_of(writer *w, const train_record *run)
{
    int count = run->nranks < MOST_COLUMNS ? run->nranks : MOST_COLUMNS;
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        int rank = (int)((int64_t)run->nranks * i / count);
        int end = (int)((int64_t)run->nranks * (i + 1) / count);
        for (int k = rank + 1; k < end; k++)
            if (work_of(&run->ranks[k]) + wait_of(&run->ranks[k]) >
                work_of(&run->ranks[rank]) + wait_of(&run->ranks[rank]))
                rank = k;
        const train_rank *r = &run->ranks[rank];
        json_t *column = json_object();
        set(w, column, "rank", json_integer(rank));
        set(w, column, "model", number(r->seconds.model));
        set(w, column, "ortho", number(r->seconds.phase[MUON_PHASE_ORTHO]));
        set(w, column, "wait", number(wait_of(r)));
        set(w, column, "bytes_sent", json_integer(r->bytes_sent));
        append(w, list, column);
    }
    return list;
}

static json_t *sharing_of(writer *w, const train_record *run)
{
    double most = 0, sum = 0;
    int64_t least_matrices = run->ranks[0].matrices, most_matrices = 0;
    json_t *object = json_object();
    for (int rank = 0; rank < run->nranks; rank++) {
        const train_rank *r = &run->ranks[rank];
        most = fmax(most, work_of(r));
        sum += work_of(r);
        if (r->matrices < least_matrices) least_matrices = r->matrices;
        if (r->matrices > most_matrices) most_matrices = r->matrices;
    }
    set(w, object, "busiest", number(sum > 0 ? most * run->nranks / sum : 1));
    set(w, object, "matrices_min", json_integer(least_matrices));
    set(w, object, "matrices_max", json_integer(most_matrices));
    return object;
}

/* ---- the rest ----------------------------------------------------------------------------------- */

static json_t *spectra_of(writer *w, const train_record *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->nspectra; i++) {
        const train_spectrum *s = &run->spectra[i];
        json_t *one = json_object();
        set(w, one, "name", web_text(s->name ? s->name : "matrix"));
        set(w, one, "step", json_integer(s->step));
        set(w, one, "before", numbers(w, s->before, (size_t)s->count, sizeof *s->before));
        set(w, one, "after", numbers(w, s->after, (size_t)s->count, sizeof *s->after));
        append(w, list, one);
    }
    return list;
}

static json_t *settings_of(writer *w, const train_record *run)
{
    json_t *object = json_object();
    for (size_t i = 0; i < run->settings.count; i++)
        set(w, object, run->settings.entries[i].key + PREFIX,
            web_text(run->settings.entries[i].value));
    return object;
}

static json_t *totals_of(writer *w, const train_totals *t)
{
    json_t *object = json_object();
    set(w, object, "steps", json_integer(t->steps));
    set(w, object, "seconds", number(t->seconds));
    set(w, object, "lr_max", number(t->lr_max));
    set(w, object, "logit_max", number(t->logit_max));
    set(w, object, "clipped_heads", json_integer(t->clipped_heads));
    return object;
}

/* Where it ended: the last validation, or the last step's loss. */
static void set_losses(writer *w, json_t *object, const train_record *run)
{
    size_t n = run->nvalidations;
    double last = run->nsteps ? train_record_last(run)->loss : (double)NAN, final = last;
    for (size_t i = 0; i < n; i++)
        if (isfinite(run->validations[i].loss)) final = run->validations[i].loss;
    json_t *best = json_object();
    set(w, best, "step", json_integer(run->best.step));
    set(w, best, "loss", number(n ? run->best.loss : (double)NAN));
    set(w, object, "best", best);
    set(w, object, "last_loss", number(last));
    set(w, object, "final_loss", number(final));
    set(w, object, "first_validation", number(n ? run->validations[0].loss : (double)NAN));
    set(w, object, "last_validation", number(n ? run->validations[n - 1].loss : (double)NAN));
}

static void set_counts(writer *w, json_t *object, const train_record *run)
{
    const train_totals *t = &run->totals;
    double tokens = (double)run->tokens_per_step * (double)t->steps;
    set(w, object, "parameters", json_integer(run->parameters));
    set(w, object, "ranks", json_integer(run->nranks));
    set(w, object, "threads", json_integer(run->threads));
    set(w, object, "planned", json_integer(run->planned));
    set(w, object, "done", json_integer(train_record_done(run)));
    set(w, object, "resumed", json_integer(run->resumed));
    set(w, object, "skipped", json_integer(run->skipped));
    set(w, object, "saves", json_integer(run->saves));
    set(w, object, "save_seconds", number(run->save_seconds));
    set(w, object, "seconds", number(run->seconds));
    set(w, object, "tokens_per_step", json_integer(run->tokens_per_step));
    set(w, object, "tokens", number((double)run->tokens_before + tokens));
    set(w, object, "tokens_per_second", number(t->seconds > 0 ? tokens / t->seconds : 0));
    set(w, object, "step_seconds", number(t->steps ? t->seconds / (double)t->steps : 0));
    set(w, object, "optimizer_share", number(train_record_optimizer_share(run)));
}

static json_t *run_of(writer *w, const train_record *run)
{
    json_t *object = json_object();
    set(w, object, "label", web_text(run->label ? run->label : "run"));
    set(w, object, "description", web_text(run->description));
    set(w, object, "machine", web_text(run->machine));
    set(w, object, "settings", settings_of(w, run));
    set_counts(w, object, run);
    set_losses(w, object, run);
    set(w, object, "totals", totals_of(w, &run->totals));
    set(w, object, "curves", curves_of(w, run));
    set(w, object, "validations", validations_of(w, run));
    set(w, object, "time", time_of(w, run));
    set(w, object, "columns", columns_of(w, run));
    set(w, object, "sharing", sharing_of(w, run));
    set(w, object, "spectra", spectra_of(w, run));
    set(w, object, "sample", web_text(run->sample));
    return object;
}

muon_status train_report_write(const char *path, const train_record *runs, size_t nruns)
{
    REQUIRE(path && runs && nruns > 0, E_ARG, "a report needs a path and at least one run");
    writer w = {.lost = 0};
    json_t *page = json_object(), *list = json_array();
    set(&w, page, "version", json_string(muon_version()));
    for (size_t i = 0; i < nruns; i++)
        append(&w, list, run_of(&w, &runs[i]));
    set(&w, page, "runs", list);
    if (w.lost) {
        json_decref(page);
        page = NULL;
    }
    return web_write(path, run_page, page);
}
