/* The top of the page: who is ahead, by how much, at what cost. */
#include "train/report/page.h"

#include <math.h>
#include <string.h>

/* Where a run ended, by its validation loss; by its training loss if there was no validation. */
typedef struct outcome {
    const train_record *run;
    double loss; /* NaN: none */
    int64_t step;
    int is_validated;
} outcome;

static outcome by_validation(const train_record *run)
{
    for (size_t i = run->nvalidations; i-- > 0;)
        if (isfinite(run->validations[i].loss))
            return (outcome){run, run->validations[i].loss, run->validations[i].step, 1};
    return (outcome){run, (double)NAN, 0, 0};
}

/* The mean of the last twentieth: batches differ. */
static outcome by_training(const train_record *run)
{
    outcome o = {run, (double)NAN, 0, 0};
    size_t most = run->nsteps / 20 + 1, count = 0;
    double sum = 0;
    for (size_t i = run->nsteps; i-- > 0 && count < most;) {
        if (!isfinite(run->steps[i].loss)) continue;
        if (count == 0) o.step = run->steps[i].step;
        sum += run->steps[i].loss;
        count++;
    }
    if (count > 0) o.loss = sum / (double)count;
    return o;
}

static outcome outcome_of(const train_record *run)
{
    outcome o = by_validation(run);
    return isnan(o.loss) ? by_training(run) : o;
}

/* The step at which a run's validation loss was down to `target`, on a line between two of them; NaN if
 * it never was. */
static double reached(const train_record *run, double target)
{
    const train_validation *before = NULL;
    for (size_t i = 0; i < run->nvalidations; i++) {
        const train_validation *v = &run->validations[i];
        if (!isfinite(v->loss)) continue;
        if (v->loss <= target) {
            if (!before) return (double)v->step;
            double part = (before->loss - target) / (before->loss - v->loss);
            return ceil((double)before->step + part * (double)(v->step - before->step));
        }
        before = v;
    }
    return (double)NAN;
}

/* ---- sentences ---------------------------------------------------------------------------------- */

static const char *kind_of(const outcome *o)
{
    return o->is_validated ? "validation loss" : "training loss";
}

static void say_one(page *p, const outcome *o)
{
    if (isnan(o->loss)) {
        page_put(p->out, "%s has no loss to show: no step was taken.", page_label(o->run));
        return;
    }
    page_put(p->out, "%s ended at a %s of %s nats per byte after %s of %s steps",
             page_label(o->run), kind_of(o), page_loss(o->loss).text,
             page_count((double)train_record_done(o->run)).text,
             page_count((double)o->run->planned).text);
    if (o->run->seconds > 0) page_put(p->out, ", in %s", page_seconds(o->run->seconds).text);
    fputs(".", p->out);
}

/* Since the run began, until this step was done; 0 if it was not, or nobody knows. */
static double seconds_until(const train_record *run, double step)
{
    if (run->resumed) return 0;
    for (size_t i = 0; i < run->nsteps; i++)
        if ((double)run->steps[i].step >= step) return run->steps[i].begin + run->steps[i].seconds;
    return 0;
}

static void say_earlier(page *p, const outcome *ahead, const outcome *other)
{
    double step = reached(ahead->run, other->loss), earlier = (double)other->step - step;
    if (!ahead->is_validated || !other->is_validated || !(earlier > 0)) return;
    page_put(p->out,
             " It reached the loss that %s ended with after about %s steps, %s step%s (%s) sooner.",
             page_label(other->run), page_count(step).text, page_count(earlier).text,
             earlier == 1 ? "" : "s", page_percent(earlier / (double)other->step).text);
    double took = seconds_until(ahead->run, step),
           all = seconds_until(other->run, (double)other->step);
    if (took > 0 && all > 0)
        page_put(p->out, " That took it %s; %s took %s.", page_seconds(took).text,
                 page_label(other->run), page_seconds(all).text);
}

static void say_two(page *p, const outcome *ahead, const outcome *other)
{
    double gap = other->loss - ahead->loss;
    if (gap < 1e-4) {
        page_put(p->out, "%s and %s end level: a %s of %s and %s.", page_label(ahead->run),
                 page_label(other->run), kind_of(ahead), page_loss(ahead->loss).text,
                 page_loss(other->loss).text);
        return;
    }
    fputs("<strong>", p->out);
    page_put(p->out, "%s is ahead of %s by %s", page_label(ahead->run), page_label(other->run),
             page_loss(gap).text);
    fputs("</strong>", p->out);
    page_put(p->out, " at the end, with a %s of %s against %s nats per byte", kind_of(ahead),
             page_loss(ahead->loss).text, page_loss(other->loss).text);
    if (ahead->step != other->step)
        page_put(p->out, " (after %s and %s steps)", page_count((double)ahead->step).text,
                 page_count((double)other->step).text);
    fputs(".", p->out);
    say_earlier(p, ahead, other);
}

static int is_before(const outcome *a, const outcome *b)
{
    return a->loss < b->loss || (isnan(b->loss) && !isnan(a->loss));
}

/* The best two of all. */
static void find_best(const page *p, outcome *first, outcome *second)
{
    *first = outcome_of(&p->runs[0]);
    *second = (outcome){.loss = (double)NAN};
    for (size_t i = 1; i < p->nruns; i++) {
        outcome o = outcome_of(&p->runs[i]);
        if (is_before(&o, first)) {
            *second = *first;
            *first = o;
        } else if (!second->run || is_before(&o, second)) {
            *second = o;
        }
    }
}

static int is_stopped(const train_record *run)
{
    return run->interrupted || train_record_done(run) < run->planned;
}

static void say_notes(page *p)
{
    size_t stopped = 0;
    for (size_t i = 0; i < p->nruns; i++)
        stopped += (size_t)is_stopped(&p->runs[i]);
    if (stopped > 2) page_put(p->out, " %zu runs were stopped before their last step.", stopped);
    for (size_t i = 0; i < p->nruns; i++) {
        const train_record *r = &p->runs[i];
        if (stopped <= 2 && is_stopped(r))
            page_put(p->out, " %s was stopped after %s of %s steps.", page_label(r),
                     page_count((double)train_record_done(r)).text,
                     page_count((double)r->planned).text);
        if (r->resumed)
            page_put(p->out,
                     " %s went on from a checkpoint of step %s: curves but for validation, and all "
                     "times, begin there.",
                     page_label(r), page_count((double)r->resumed).text);
        if (r->skipped)
            page_put(p->out, " %s skipped %s step%s that had a NaN or infinity.", page_label(r),
                     page_count((double)r->skipped).text, r->skipped == 1 ? "" : "s");
    }
}

static void put_title(page *p)
{
    if (p->nruns == 1)
        page_put(p->out, "Training with %s", page_label(&p->runs[0]));
    else if (p->nruns == 2)
        page_put(p->out, "%s against %s", page_label(&p->runs[0]), page_label(&p->runs[1]));
    else
        page_put(p->out, "%zu training runs", p->nruns);
}

/* Once if they are the same. */
static void put_descriptions(page *p)
{
    const char *first = p->runs[0].description;
    int differ = 0;
    for (size_t i = 1; i < p->nruns; i++) {
        const char *other = p->runs[i].description;
        differ |= !first || !other || strcmp(first, other) != 0;
    }
    for (size_t i = 0; i < (differ ? p->nruns : 1); i++) {
        if (!p->runs[i].description) continue;
        fputs("<p class=\"about\">", p->out);
        if (differ) page_put(p->out, "%s: ", page_label(&p->runs[i]));
        page_text(p->out, p->runs[i].description);
        fputs("</p>\n", p->out);
    }
}

/* ---- tiles -------------------------------------------------------------------------------------- */

typedef struct tile {
    const char *title;
    page_word (*format)(double value);
    double (*value)(const train_record *run);
    int least_is_best, most_is_best;
} tile;

static double final_loss(const train_record *run)
{
    return outcome_of(run).loss;
}

static double tokens_per_second(const train_record *run)
{
    double seconds = run->totals.seconds;
    return seconds > 0 ? (double)run->tokens_per_step * (double)run->nsteps / seconds : 0;
}

static double seconds_of_step(const train_record *run)
{
    return run->nsteps ? run->totals.seconds / (double)run->nsteps : 0;
}

static double best_of(const page *p, const tile *t)
{
    double best = (double)NAN;
    for (size_t i = 0; i < p->nruns; i++) {
        double value = t->value(&p->runs[i]);
        if (t->least_is_best ? !(best <= value) : !(best >= value)) best = value;
    }
    return best;
}

static void put_value(page *p, const char *name, const char *value, int is_best)
{
    fputs("<dt>", p->out);
    page_text(p->out, name);
    fprintf(p->out, "</dt><dd%s>", is_best ? " class=\"best\"" : "");
    page_text(p->out, value);
    fputs("</dd>", p->out);
}

static void put_tile(page *p, const tile *t)
{
    double best = best_of(p, t);
    fputs("<div class=\"tile\"><h2>", p->out);
    page_text(p->out, t->title);
    fputs("</h2><dl>", p->out);
    for (size_t i = 0; i < p->nruns; i++) {
        double value = t->value(&p->runs[i]);
        int marks = t->least_is_best || t->most_is_best;
        put_value(p, page_label(&p->runs[i]), t->format(value).text,
                  p->nruns == 1 || (marks && value == best));
    }
    fputs("</dl></div>\n", p->out);
}

static void put_tiles(page *p)
{
    static const tile tiles[] = {
        {"Loss at the end, nats per byte", page_loss, final_loss, 1, 0},
        {"Time of a step", page_seconds, seconds_of_step, 1, 0},
        {"Tokens per second", page_count, tokens_per_second, 0, 1},
        {"Optimizer's share of a step", page_percent, train_record_optimizer_share, 0, 0},
    };
    fputs("<div class=\"tiles\">\n", p->out);
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        put_tile(p, &tiles[i]);
    fputs("</div>\n", p->out);
}

void page_summary(page *p)
{
    outcome first, second;
    find_best(p, &first, &second);
    fputs("<header>\n<h1>", p->out);
    put_title(p);
    fputs("</h1>\n<p class=\"lead\" id=\"summary\">", p->out);
    if (second.run && !isnan(second.loss))
        say_two(p, &first, &second);
    else
        say_one(p, &first);
    say_notes(p);
    fputs("</p>\n", p->out);
    put_descriptions(p);
    put_tiles(p);
    fputs("</header>\n", p->out);
}
