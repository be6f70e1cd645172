/* Where the time went: a step in three parts, the optimizer in phases, and all of it as a table. */
#include "train/report/page.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* Parts of a step, then what the optimizer is made of. */
enum {
    MODEL,
    EXCHANGE,
    OPTIMIZER,
    PHASES,
    REST = PHASES + MUON_NPHASES, /* of the optimizer: what no phase has */
    NITEMS
};

static const struct {
    const char *class, *name;
} items[NITEMS] = {
    [MODEL] = {"model", "model, forward and backward"},
    [EXCHANGE] = {"exchange", "exchange between ranks"},
    [OPTIMIZER] = {"optimizer", "optimizer"},
    [PHASES + MUON_PHASE_CHECK] = {"check", "check and norm of gradients"},
    [PHASES + MUON_PHASE_MOMENTUM] = {"momentum", "momentum"},
    [PHASES + MUON_PHASE_GATHER] = {"gather", "gather, waiting for parts"},
    [PHASES + MUON_PHASE_ORTHO] = {"ortho", "orthogonalization"},
    [PHASES + MUON_PHASE_SCATTER] = {"scatter", "scatter, waiting for results"},
    [PHASES + MUON_PHASE_UPDATE] = {"update", "update of Muon's weights"},
    [PHASES + MUON_PHASE_ADAMW] = {"adamw", "AdamW"},
    [PHASES + MUON_PHASE_QK_CLIP] = {"qk_clip", "QK-clip"},
    [PHASES + MUON_PHASE_OFFLOAD] = {"offload", "offload, waiting for state"},
    [REST] = {"rest", "all else"},
};

/* Of one step: the mean over steps and ranks. */
typedef struct costs {
    double seconds[NITEMS];
    double step;
} costs;

static double sane(double seconds)
{
    return seconds > 0 && isfinite(seconds) ? seconds : 0;
}

static costs costs_of(const train_record *run)
{
    costs c = {.step = 0};
    size_t count = run->nsteps * (size_t)run->nranks;
    for (size_t i = 0; i < count; i++) {
        const train_rank_step *r = &run->rank_steps[i];
        c.seconds[MODEL] += sane(r->model);
        c.seconds[EXCHANGE] += sane(r->reduce) + sane(r->gather);
        c.seconds[OPTIMIZER] += sane(r->optimizer);
        for (int k = 0; k < MUON_NPHASES; k++)
            c.seconds[PHASES + k] += sane(r->phase[k]);
    }
    c.seconds[REST] = c.seconds[OPTIMIZER];
    for (int k = PHASES; k < REST; k++)
        c.seconds[REST] -= c.seconds[k];
    for (int i = 0; i < NITEMS; i++)
        c.seconds[i] = count > 0 && c.seconds[i] > 0 ? c.seconds[i] / (double)count : 0;
    c.step = c.seconds[MODEL] + c.seconds[EXCHANGE] + c.seconds[OPTIMIZER];
    return c;
}

static double most_of(const page *p, const costs *all, int item)
{
    double most = 0;
    for (size_t run = 0; run < p->nruns; run++)
        most = fmax(most, all[run].seconds[item]);
    return most;
}

/* ---- bars --------------------------------------------------------------------------------------- */

/* Items first .. end of each run, one after the other. */
typedef struct bars {
    const costs *all;
    int first, end;
    page_axis axis;
    double one; /* of the axis's unit, in seconds */
} bars;

/* What would not be seen is not drawn: a pixel is about a thousandth of the axis. */
static int is_visible(const bars *b, double seconds)
{
    return page_axis_place(&b->axis, seconds / b->one) > 5e-4;
}

static void put_keys(page *p, const bars *b)
{
    page_legend_begin(p);
    for (int i = b->first; i < b->end; i++)
        if (is_visible(b, most_of(p, b->all, i))) page_legend_box(p, items[i].class, items[i].name);
    page_legend_end(p);
}

static double total_of(const bars *b, size_t run)
{
    double sum = 0;
    for (int i = b->first; i < b->end; i++)
        sum += b->all[run].seconds[i];
    return sum;
}

/* A name, and below it a bar. Text in a picture cannot go on in a second line. */
enum { ROW = 58, BAR_TOP = 22, BAR = 26, MOST_OF_NAME = 26 };

static void put_bar(page *p, size_t run, const bars *b)
{
    const char *label = page_label(&p->runs[run]);
    double height = (double)p->nruns * ROW, top = (double)run * ROW, left = 0;
    double total = total_of(b, run);
    fprintf(p->out, "<text class=\"name\" x=\"0\" y=\"%.0f\">", top + 15);
    page_cut(p->out, label, MOST_OF_NAME);
    page_put(p->out, ", %s", page_seconds(total).text);
    fputs("</text>\n", p->out);
    for (int i = b->first; i < b->end; i++) {
        char text[256];
        double seconds = b->all[run].seconds[i];
        double width = page_axis_place(&b->axis, seconds / b->one);
        if (!is_visible(b, seconds)) continue;
        snprintf(text, sizeof text, "%s, %s: %s, %s", label, items[i].name,
                 page_seconds(seconds).text, page_percent(seconds / total).text);
        page_bar(p, 100 * left, 100 * (top + BAR_TOP) / height, 100 * width, 100 * BAR / height,
                 items[i].class, text);
        left += width;
    }
}

static void draw_bars(page *p, const char *title, const char *text, bars b)
{
    static const struct {
        double one;
        const char *name;
    } units[] = {{1, "seconds"}, {1e-3, "milliseconds"}, {1e-6, "microseconds"}};
    double most = 0;
    for (size_t run = 0; run < p->nruns; run++)
        most = fmax(most, total_of(&b, run));
    if (!(most > 0)) return;
    size_t unit = 0;
    while (unit < 2 && most < units[unit].one)
        unit++;
    b.one = units[unit].one;
    b.axis = page_axis_linear(0, most / b.one, 5, 0);
    page_plot plot = {.title = title,
                      .description = "Bars of the numbers that are in the table below.",
                      .x_name = units[unit].name,
                      .x = &b.axis,
                      .height = (int)p->nruns * ROW};
    page_figure_begin(p, title, text, 0);
    put_keys(p, &b);
    page_plot_begin(p, &plot);
    for (size_t run = 0; run < p->nruns; run++)
        put_bar(p, run, &b);
    page_plot_end(p);
    page_figure_end(p);
}

/* ---- the table ---------------------------------------------------------------------------------- */

/* One of several things in a cell, not shown where there is no room. */
static void put_more(page *p, const char *before, page_word number, const char *after)
{
    fputs(" <span>", p->out);
    page_put(p->out, "%s%s%s", before, number.text, after);
    fputs("</span>", p->out);
}

/* The speed of all ranks together, in all steps. */
static void put_rate(page *p, double flops, double bytes, double seconds)
{
    if (!(seconds > 0)) return;
    if (flops > 0)
        put_more(p, "", page_short(flops / seconds), "FLOP/s");
    else if (bytes > 0)
        put_more(p, "", page_bytes(bytes / seconds), "/s");
}

static void put_model_rate(page *p, const train_record *run)
{
    double flops = 0, seconds = 0;
    for (size_t i = 0; i < run->nsteps; i++) {
        flops += run->steps[i].model_flops;
        seconds += sane(run->steps[i].model_seconds);
    }
    put_rate(p, flops, 0, seconds);
}

static void put_phase_rate(page *p, const train_record *run, int phase)
{
    double flops = 0, bytes = 0, slowest = 0, fastest = 0;
    for (size_t i = 0; i < run->nsteps; i++) {
        const train_step *s = &run->steps[i];
        flops += s->phase_flops[phase];
        bytes += s->phase_bytes[phase];
        slowest += sane(s->phase_max[phase]);
        fastest += sane(s->phase_min[phase]);
    }
    put_rate(p, flops, bytes, slowest);
    if (run->nranks > 1 && fastest > 0)
        put_more(p, "slowest rank ", page_number(slowest / fastest, 3), "× fastest");
}

static void put_cell(page *p, const train_record *run, const costs *c, int item)
{
    if (!(c->seconds[item] > 0)) {
        fputs("<td>–</td>", p->out);
        return;
    }
    fputs("<td>", p->out);
    page_text(p->out, page_seconds(c->seconds[item]).text);
    fputs("<small>", p->out);
    page_text(p->out, page_percent(c->seconds[item] / c->step).text);
    if (item == MODEL) put_model_rate(p, run);
    if (item >= PHASES && item < REST) put_phase_rate(p, run, item - PHASES);
    fputs("</small></td>", p->out);
}

static void put_row(page *p, const costs *all, int item)
{
    if (!(most_of(p, all, item) > 0)) return;
    fprintf(p->out, "<tr%s><th scope=\"row\">", item >= PHASES ? " class=\"inner\"" : "");
    page_text(p->out, items[item].name);
    fputs("</th>", p->out);
    for (size_t run = 0; run < p->nruns; run++)
        put_cell(p, &p->runs[run], &all[run], item);
    fputs("</tr>\n", p->out);
}

static void put_total(page *p, const costs *all)
{
    fputs("<tr class=\"total\"><th scope=\"row\">step</th>", p->out);
    for (size_t run = 0; run < p->nruns; run++) {
        fputs("<td>", p->out);
        page_text(p->out, page_seconds(all[run].step).text);
        fputs("</td>", p->out);
    }
    fputs("</tr>\n", p->out);
}

static void put_table(page *p, const costs *all)
{
    page_table_begin(p, "of a step");
    for (int item = 0; item < NITEMS; item++)
        put_row(p, all, item);
    put_total(p, all);
    page_table_end(p);
}

static void put_section(page *p, const costs *all)
{
    page_section(
        p, "Time",
        "The mean of all steps and ranks. Where ranks wait for each other, that is part of "
        "the exchange.");
    fputs("<div class=\"grid\">\n", p->out);
    draw_bars(p, "A step", "The model, what ranks send each other, and the optimizer.",
              (bars){.all = all, .first = MODEL, .end = PHASES});
    draw_bars(p, "Inside the optimizer", "Its phases in their order, on a scale of their own.",
              (bars){.all = all, .first = PHASES, .end = NITEMS});
    fputs("</div>\n", p->out);
    put_table(p, all);
    fputs("</section>\n", p->out);
}

muon_status page_times(page *p)
{
    costs *all = NULL;
    double seconds = 0;
    TRY(CALLOC(&all, p->nruns, "costs of runs"));
    for (size_t run = 0; run < p->nruns; run++) {
        all[run] = costs_of(&p->runs[run]);
        seconds += all[run].step;
    }
    if (seconds > 0) put_section(p, all);
    free(all);
    return MUON_OK;
}
