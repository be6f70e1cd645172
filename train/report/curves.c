/* What happened from step to step. */
#include "train/report/page.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOG_RATIO = 20, /* a linear axis would hide the low end */
    MOST_FAINT = 3  /* runs; single batches of more would hide each other */
};

/* ---- points of a run ---------------------------------------------------------------------------- */

typedef double (*number_of)(const train_step *step);

static double loss_of(const train_step *step)
{
    return step->loss;
}

static double lr_of(const train_step *step)
{
    return step->lr;
}

static double norm_of(const train_step *step)
{
    return step->grad_norm;
}

static double logit_of(const train_step *step)
{
    return step->max_logit;
}

static double clipped_of(const train_step *step)
{
    return (double)step->clipped_heads;
}

static double balance_of(const train_step *step)
{
    return step->balance;
}

static muon_status take_numbers(page_points *points, const train_record *run, number_of number)
{
    TRY(page_points_take(points, run->nsteps));
    for (size_t i = 0; i < run->nsteps; i++) {
        points->x[i] = (double)run->steps[i].step;
        points->y[i] = number(&run->steps[i]);
    }
    return MUON_OK;
}

static muon_status take_validations(page_points *points, const train_record *run)
{
    TRY(page_points_take(points, run->nvalidations));
    for (size_t i = 0; i < run->nvalidations; i++) {
        points->x[i] = (double)run->validations[i].step;
        points->y[i] = run->validations[i].loss;
    }
    return MUON_OK;
}

/* The mean of about a thirtieth of the run around each step. Near the beginning, where the loss falls
 * fast, it takes as much from both sides; near the end, what there is. */
static void smooth(page_points *to, const page_points *from)
{
    size_t half = from->count / 60, n = from->count;
    for (size_t i = 0; i < n; i++) {
        size_t before = i < half ? i : half, after = before < n - 1 - i ? before : n - 1 - i;
        double sum = 0, count = 0;
        for (size_t k = i - before; k <= i + after; k++) {
            if (!isfinite(from->y[k])) continue;
            sum += from->y[k];
            count++;
        }
        to->x[i] = from->x[i];
        to->y[i] = isfinite(from->y[i]) ? sum / count : from->y[i];
    }
}

static void cut_before(page_points *points, double x)
{
    size_t first = 0;
    while (first < points->count && points->x[first] < x)
        first++;
    points->count -= first;
    if (points->count == 0) return;
    memmove(points->x, points->x + first, points->count * sizeof *points->x);
    memmove(points->y, points->y + first, points->count * sizeof *points->y);
}

/* ---- a chart over steps ------------------------------------------------------------------------- */

typedef struct curves {
    page_series *series;
    char (*names)[160];
    size_t count;
} curves;

static muon_status take_curves(curves *c, size_t most)
{
    *c = (curves){.count = 0};
    TRY(CALLOC(&c->series, most, "lines of a chart"));
    return CALLOC(&c->names, most, "lines of a chart");
}

static void free_curves(curves *c)
{
    for (size_t i = 0; i < c->count; i++)
        page_points_free(&c->series[i].points);
    free(c->series);
    free(c->names);
}

/* Adds a series that has no points yet; `what` is said of it under the pointer. */
static page_series *add(curves *c, const page *p, size_t run, page_kind kind, const char *what)
{
    page_series *s = &c->series[c->count];
    *s = (page_series){.kind = kind, .style = (int)run};
    if (what) {
        snprintf(c->names[c->count], sizeof c->names[0], "%s%s", page_label(&p->runs[run]), what);
        s->name = c->names[c->count];
    }
    c->count++;
    return s;
}

static double last_step(const page *p)
{
    double last = 1;
    for (size_t i = 0; i < p->nruns; i++) {
        last = fmax(last, (double)p->runs[i].planned);
        last = fmax(last, (double)train_record_done(&p->runs[i]));
    }
    return last;
}

typedef struct view {
    number_of number;
    const char *title, *text;
    int height, wide;
    double first; /* step at which it begins */
    int zero;     /* the axis begins at 0 */
    int can_be_log;
    int is_whole; /* counts */
} view;

static page_span span_of(const curves *c)
{
    page_span span = page_span_empty;
    for (size_t i = 0; i < c->count; i++)
        page_span_add(&span, c->series[i].points.y, c->series[i].points.count);
    return span;
}

static page_axis axis_of(const page_span *span, const view *v)
{
    if (v->can_be_log && span->low > 0 && span->high > LOG_RATIO * span->low)
        return page_axis_log(span->low, span->high * 1.1, 6);
    int ticks = v->is_whole && span->high < 5 ? (int)span->high : 5;
    return page_axis_linear(v->zero ? fmin(span->low, 0) : span->low, span->high, ticks, 1);
}

/* There is nothing between one step and the next. */
static page_axis steps_axis(double first, double last)
{
    return page_axis_linear(first, last, last - first < 5 ? (int)(last - first) : 5, 0);
}

static void draw(page *p, const curves *c, const view *v)
{
    char description[512];
    page_span span = span_of(c);
    if (span.low > span.high) return; /* nothing finite */
    snprintf(description, sizeof description,
             "%s, steps %s to %s; values from %s to %s. %zu lines.", v->title,
             page_count(v->first).text, page_count(last_step(p)).text,
             page_number(span.low, 4).text, page_number(span.high, 4).text, c->count);
    page_chart chart = {.title = v->title,
                        .text = v->text,
                        .description = description,
                        .x_name = "step",
                        .x = steps_axis(v->first, last_step(p)),
                        .y = axis_of(&span, v),
                        .height = v->height,
                        .wide = v->wide,
                        .series = c->series,
                        .nseries = c->count};
    page_draw(p, &chart);
}

/* ---- the loss ----------------------------------------------------------------------------------- */

static muon_status add_loss(curves *c, const page *p, size_t run)
{
    const train_record *r = &p->runs[run];
    page_series *batches = add(c, p, run, PAGE_FAINT, NULL);
    TRY(take_numbers(&batches->points, r, loss_of));
    page_series *mean = add(c, p, run, PAGE_LINE, ", training");
    mean->key = page_label(r);
    mean->is_marked = r->nvalidations > 0;
    TRY(page_points_take(&mean->points, r->nsteps));
    smooth(&mean->points, &batches->points);
    if (p->nruns > MOST_FAINT) batches->points.count = 0;
    if (r->nvalidations == 0) return MUON_OK;
    return take_validations(&add(c, p, run, PAGE_MARKS, ", validation")->points, r);
}

static muon_status add_losses(curves *c, const page *p, double first)
{
    for (size_t i = 0; i < p->nruns; i++)
        TRY(add_loss(c, p, i));
    for (size_t i = 0; i < c->count; i++)
        cut_before(&c->series[i].points, first);
    return MUON_OK;
}

static muon_status draw_losses(page *p, const view *v)
{
    curves c;
    muon_status status = take_curves(&c, 3 * p->nruns);
    if (status == MUON_OK) status = add_losses(&c, p, v->first);
    if (status == MUON_OK) draw(p, &c, v);
    free_curves(&c);
    return status;
}

/* ---- everything else ---------------------------------------------------------------------------- */

static int is_zero(const page *p, number_of number)
{
    for (size_t i = 0; i < p->nruns; i++)
        for (size_t k = 0; k < p->runs[i].nsteps; k++)
            if (number(&p->runs[i].steps[k]) != 0) return 0;
    return 1;
}

static muon_status add_numbers(curves *c, const page *p, const view *v)
{
    for (size_t i = 0; i < p->nruns; i++) {
        page_series *s = add(c, p, i, PAGE_LINE, "");
        s->key = s->name;
        TRY(take_numbers(&s->points, &p->runs[i], v->number));
    }
    return MUON_OK;
}

static muon_status draw_numbers(page *p, const view *v)
{
    curves c;
    if (is_zero(p, v->number)) return MUON_OK;
    muon_status status = take_curves(&c, p->nruns);
    if (status == MUON_OK) status = add_numbers(&c, p, v);
    if (status == MUON_OK) draw(p, &c, v);
    free_curves(&c);
    return status;
}

static const view loss_view = {
    .title = "Loss",
    .text =
        "Nats per byte. Lines: training, the mean of nearby batches; marks: validation, on text "
        "that is not trained on.",
    .height = 320,
    .wide = 1,
    .can_be_log = 1};
static const view lr_view = {.number = lr_of,
                             .title = "Learning rate",
                             .text = "Of Muon's matrices; without Muon, of AdamW's.",
                             .height = 200,
                             .zero = 1};
static const view norm_view = {.number = norm_of,
                               .title = "Gradient norm",
                               .text = "Of all parameters together, before clipping.",
                               .height = 200,
                               .zero = 1,
                               .can_be_log = 1};
static const view logit_view = {.number = logit_of,
                                .title = "Largest attention logit",
                                .text = "Before the softmax, of all heads. Where it grows without "
                                        "end, training is about to fail.",
                                .height = 200,
                                .zero = 1,
                                .can_be_log = 1};
static const view clipped_view = {.number = clipped_of,
                                  .title = "Heads above the QK-clip threshold",
                                  .text = "In each step.",
                                  .height = 200,
                                  .zero = 1,
                                  .is_whole = 1};
static const view balance_view = {.number = balance_of,
                                  .title = "Load-balancing loss",
                                  .text = "How unevenly experts are used.",
                                  .height = 200};

muon_status page_curves(page *p)
{
    view later = loss_view;
    later.title = "Loss, the second half";
    later.text = "The same, closer.";
    later.first = floor(last_step(p) / 2);
    page_section(p, "Learning", NULL);
    fputs("<div class=\"grid\">\n", p->out);
    TRY(draw_losses(p, &loss_view));
    if (later.first >= 10) TRY(draw_losses(p, &later));
    TRY(draw_numbers(p, &lr_view));
    TRY(draw_numbers(p, &norm_view));
    TRY(draw_numbers(p, &logit_view));
    TRY(draw_numbers(p, &clipped_view));
    TRY(draw_numbers(p, &balance_view));
    fputs("</div>\n</section>\n", p->out);
    return MUON_OK;
}
