/* What each rank did: a column for each, or for neighbours if there are very many. */
#include "train/report/page.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_COLUMNS = 128, HEIGHT = 200 };

enum { MODEL, ORTHO, WAIT, SENT, NVALUES };
static const char *const classes[NVALUES] = {"model", "ortho", "wait", "bytes"};
static const char *const names[NVALUES] = {"model", "orthogonalization", "exchange and waiting",
                                           "sent"};

typedef struct column {
    int rank; /* the busiest of those it stands for */
    double values[NVALUES];
} column;

static double sane(double value)
{
    return value > 0 && isfinite(value) ? value : 0;
}

static column column_of(const train_record *run, int rank)
{
    const train_rank *r = &run->ranks[rank];
    double exchange = 0;
    for (size_t i = 0; i < run->nsteps; i++) {
        const train_rank_step *s = &run->rank_steps[i * (size_t)run->nranks + (size_t)rank];
        exchange += sane(s->reduce) + sane(s->gather);
    }
    column c = {.rank = rank,
                .values = {[MODEL] = sane(r->model_seconds),
                           [ORTHO] = sane(r->ortho_seconds),
                           [WAIT] = sane(r->wait_seconds) + exchange,
                           [SENT] = sane((double)r->bytes_sent)}};
    return c;
}

static double seconds_of(const column *c)
{
    return c->values[MODEL] + c->values[ORTHO] + c->values[WAIT];
}

static muon_status make_columns(column **out, int count, const train_record *run)
{
    TRY(CALLOC(out, (size_t)count, "columns of a chart"));
    for (int i = 0; i < count; i++) {
        int first = (int)((int64_t)run->nranks * i / count);
        int end = (int)((int64_t)run->nranks * (i + 1) / count);
        column *c = &(*out)[i];
        *c = column_of(run, first);
        for (int rank = first + 1; rank < end; rank++) {
            column other = column_of(run, rank);
            if (seconds_of(&other) > seconds_of(c)) *c = other;
        }
    }
    return MUON_OK;
}

/* ---- drawing ------------------------------------------------------------------------------------ */

typedef struct picture {
    const train_record *run;
    const column *columns;
    int count;
    int first, end; /* the values that are stacked */
    page_axis axis;
    double one; /* of the axis's unit */
} picture;

static double height_of(const picture *pic, const column *c)
{
    double sum = 0;
    for (int i = pic->first; i < pic->end; i++)
        sum += c->values[i];
    return sum;
}

static void put_columns(page *p, const picture *pic)
{
    double pitch = 100.0 / pic->count, width = pic->count < 5 ? fmin(pitch * 0.6, 12) : pitch * 0.8;
    for (int i = 0; i < pic->count; i++) {
        const column *c = &pic->columns[i];
        double bottom = 100, left = pitch * (i + 0.5) - width / 2;
        for (int k = 0; k < NVALUES; k++) {
            char text[128];
            if (k < pic->first || k >= pic->end || !(c->values[k] > 0)) continue;
            double height = 100 * page_axis_place(&pic->axis, c->values[k] / pic->one);
            snprintf(text, sizeof text, "rank %d, %s: %s", c->rank, names[k],
                     k == SENT ? page_bytes(c->values[k]).text : page_seconds(c->values[k]).text);
            bottom -= height;
            page_bar(p, left, bottom, width, height, classes[k], text);
        }
    }
}

/* Numbers of ranks below the columns, some of them if they are many. */
static void put_numbers(page *p, const picture *pic)
{
    int step = 1, nranks = pic->run->nranks;
    for (int factor = 0; nranks / step > 8; factor++)
        step *= factor % 3 == 1 ? 5 : 2; /* 2, 10, 20, 40, 200, ... */
    for (int rank = 0; rank < nranks; rank += step)
        fprintf(p->out,
                "<text x=\"%.3f%%\" y=\"100%%\" dy=\"17\" text-anchor=\"middle\">%d</text>\n",
                100 * (rank + 0.5) / nranks, rank);
}

/* What is in no column has no key, and what is alone needs none. */
static void put_keys(page *p, const picture *pic)
{
    if (pic->end - pic->first == 1) return;
    page_legend_begin(p);
    for (int k = pic->first; k < pic->end; k++) {
        double most = 0;
        for (int i = 0; i < pic->count; i++)
            most = fmax(most, pic->columns[i].values[k]);
        if (most > 0) page_legend_box(p, classes[k], names[k]);
    }
    page_legend_end(p);
}

static void draw_picture(page *p, picture *pic, const char *title, const char *text)
{
    double most = 0;
    for (int i = 0; i < pic->count; i++)
        most = fmax(most, height_of(pic, &pic->columns[i]));
    if (!(most > 0)) return;
    pic->axis = page_axis_linear(0, most / pic->one, 4, 1);
    page_plot plot = {
        .title = title, .description = text, .x_name = "rank", .y = &pic->axis, .height = HEIGHT};
    page_figure_begin(p, title, text, 0);
    put_keys(p, pic);
    page_plot_begin(p, &plot);
    put_columns(p, pic);
    put_numbers(p, pic);
    page_plot_end(p);
    page_figure_end(p);
}

static void describe_work(char *text, size_t size, const train_record *run)
{
    double most = 0, sum = 0;
    int64_t least_matrices = INT64_MAX, most_matrices = 0;
    for (int rank = 0; rank < run->nranks; rank++) {
        column c = column_of(run, rank);
        double work = c.values[MODEL] + c.values[ORTHO];
        int64_t matrices = run->ranks[rank].matrices;
        most = fmax(most, work);
        sum += work;
        if (matrices < least_matrices) least_matrices = matrices;
        if (matrices > most_matrices) most_matrices = matrices;
    }
    page_word ratio = page_number(sum > 0 ? most * run->nranks / sum : 0, 3);
    static const char start[] = "Seconds of the run. The busiest rank worked";
    if (most_matrices == 0)
        snprintf(text, size, "%s %s times the mean.", start, ratio.text);
    else if (least_matrices == most_matrices)
        snprintf(text, size, "%s %s times the mean; each orthogonalized %lld matrices a step.",
                 start, ratio.text, (long long)most_matrices);
    else
        snprintf(text, size,
                 "%s %s times the mean; they orthogonalized %lld to %lld matrices a step.", start,
                 ratio.text, (long long)least_matrices, (long long)most_matrices);
}

/* The unit in which the largest is at least 1. */
static double unit_of_bytes(const picture *pic, const char **name)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double most = 0, one = 1;
    size_t i = 0;
    for (int k = 0; k < pic->count; k++)
        most = fmax(most, pic->columns[k].values[SENT]);
    for (; i < 4 && most >= 1000 * one; i++)
        one *= 1000;
    *name = units[i];
    return one;
}

static void draw_run(page *p, const train_record *run, const column *columns, int count)
{
    char title[128], text[256];
    const char *unit;
    picture work = {
        .run = run, .columns = columns, .count = count, .first = MODEL, .end = WAIT + 1, .one = 1};
    picture sent = work;
    sent.first = SENT;
    sent.end = SENT + 1;
    sent.one = unit_of_bytes(&sent, &unit);
    snprintf(title, sizeof title, "%s: work and waiting", page_label(run));
    describe_work(text, sizeof text, run);
    draw_picture(p, &work, title, text);
    snprintf(title, sizeof title, "%s: sent", page_label(run));
    snprintf(text, sizeof text, "%s in the run: gradients, weights, and parts of Muon's matrices.",
             unit);
    text[0] = text[0] == 'b' ? 'B' : text[0];
    draw_picture(p, &sent, title, text);
}

static muon_status draw_ranks(page *p, const train_record *run)
{
    column *columns = NULL;
    int count = run->nranks < MOST_COLUMNS ? run->nranks : MOST_COLUMNS;
    if (run->nranks < 2 || !run->ranks) return MUON_OK;
    TRY(make_columns(&columns, count, run));
    draw_run(p, run, columns, count);
    free(columns);
    return MUON_OK;
}

muon_status page_ranks(page *p)
{
    int most = 0;
    for (size_t i = 0; i < p->nruns; i++)
        if (p->runs[i].nsteps > 0 && p->runs[i].nranks > most) most = p->runs[i].nranks;
    if (most == 0) return MUON_OK;
    page_section(p, "Ranks",
                 most == 1 ? "One rank did all of the work: there was nothing to share."
                           : "How evenly the work was shared, and what the sharing cost.");
    fputs("<div class=\"grid\">\n", p->out);
    for (size_t i = 0; i < p->nruns; i++)
        TRY(draw_ranks(p, &p->runs[i]));
    fputs("</div>\n</section>\n", p->out);
    return MUON_OK;
}
