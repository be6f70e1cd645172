/* Load per rank: a bar of work with a narrower one of messages before it, and the lines they are
 * measured by. */
#include "cli/plan/svg.h"
#include "muon/plan.h"

#include "cli/plan/units.h"

#include <stdlib.h>

enum { COLUMNS = 124, PLOT_TOP = 62, PLOT_HEIGHT = 216 };

typedef struct column {
    int rank; /* the busiest of the ranks it stands for */
    double work, messages;
} column;

/* Ranks that are neighbours share a column where there are more ranks than columns. */
static int make_columns(column *columns, int ncolumns, const plan_outcome *o)
{
    for (int i = 0; i < ncolumns; i++) {
        int first = (int)((int64_t)o->nranks * i / ncolumns);
        int end = (int)((int64_t)o->nranks * (i + 1) / ncolumns);
        columns[i].rank = first;
        for (int r = first + 1; r < end; r++)
            if (o->shares[r].seconds > o->shares[columns[i].rank].seconds) columns[i].rank = r;
        muon_rank_load load;
        DO(plan_outcome_rank(o, columns[i].rank, &load));
        columns[i].work = load.work_seconds;
        columns[i].messages = load.message_seconds;
    }
    return CLI_DONE;
}

static double height_of(const svg_scale *scale, double seconds)
{
    return PLOT_HEIGHT * seconds / scale->end;
}

static void draw_axes(FILE *out, const svg_scale *scale, double top, double bottom)
{
    int count = (int)(scale->end / scale->step + 0.5);
    for (int i = 0; i <= count; i++) {
        double y = bottom - PLOT_HEIGHT * (double)i / count;
        svg_line(out, LEFT, y, RIGHT, y, "grid");
        svg_text(out, LEFT - 10, y + 4, SVG_END, "muted", "%.*f", scale->decimals,
                 i * scale->step / scale->one);
    }
    fprintf(out, "<g transform=\"translate(44 %.1f) rotate(-90)\">", (top + bottom) / 2);
    svg_text(out, 0, 0, SVG_MIDDLE, "muted", "%s", scale->unit);
    fprintf(out, "</g>\n");
}

/* Rank numbers below the bars, some of them if they are many. */
static void draw_ranks(FILE *out, int nranks, double bottom)
{
    int step = 1;
    for (int factor = 0; nranks / step > 16; factor++)
        step *= factor % 3 == 1 ? 5 : 2; /* 2, 10, 20, 40, 200 ... */
    double width = (double)(RIGHT - LEFT) / nranks;
    for (int r = 0; r < nranks; r += step)
        svg_text(out, LEFT + width * (r + 0.5), bottom + 17, SVG_MIDDLE, "muted", "%d", r);
    svg_text(out, (LEFT + RIGHT) / 2.0, bottom + 36, SVG_MIDDLE, "muted", "rank");
}

static void draw_bars(FILE *out, const column *columns, int ncolumns, const svg_scale *scale,
                      double bottom)
{
    double pitch = (double)(RIGHT - LEFT) / ncolumns;
    double wide = pitch * 0.8 < 56 ? pitch * 0.8 : 56, narrow = wide * 0.45;
    for (int i = 0; i < ncolumns; i++) {
        double middle = LEFT + pitch * (i + 0.5);
        double work = height_of(scale, columns[i].work);
        double messages = height_of(scale, columns[i].messages);
        svg_rect(out, middle - wide / 2, bottom - work, wide, work, "work");
        if (messages > 0)
            svg_rect(out, middle - narrow / 2, bottom - messages, narrow, messages, "message");
    }
}

static void draw_lines(FILE *out, const plan_outcome *o, const svg_scale *scale, double bottom)
{
    const muon_prediction *p = &o->prediction;
    const struct {
        double seconds;
        const char *class;
    } lines[] = {{p->lower_bound, "bound"}, {p->makespan, "predicted"}, {o->work_mean, "mean"}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        double y = bottom - height_of(scale, lines[i].seconds);
        svg_line(out, LEFT, y, RIGHT, y, lines[i].class);
    }
}

static void draw_legend(FILE *out, const plan_outcome *o, double y)
{
    svg_key keys[] = {{"work", 0, "work"},
                      {"message", 0, "messages"},
                      {"mean", 1, ""},
                      {"bound", 1, ""},
                      {"predicted", 1, ""}};
    snprintf(keys[2].text, sizeof keys[2].text, "mean work %s", units_seconds(o->work_mean).text);
    snprintf(keys[3].text, sizeof keys[3].text, "lower bound %s",
             units_seconds(o->prediction.lower_bound).text);
    snprintf(keys[4].text, sizeof keys[4].text, "predicted %s",
             units_seconds(o->prediction.makespan).text);
    svg_legend(out, y, keys, sizeof keys / sizeof keys[0]);
}

int svg_load_panel(FILE *out, const plan_outcome *o, double top)
{
    column columns[COLUMNS];
    int ncolumns = o->nranks < COLUMNS ? o->nranks : COLUMNS;
    DO(make_columns(columns, ncolumns, o));
    double most = o->prediction.makespan;
    for (int i = 0; i < ncolumns; i++) {
        if (columns[i].work > most) most = columns[i].work;
        if (columns[i].messages > most) most = columns[i].messages;
    }
    svg_scale scale = svg_time_scale(1.04 * most, 5);
    double bottom = top + PLOT_TOP + PLOT_HEIGHT;
    char text[96] = "time of work and time of messages on every rank";
    if (ncolumns < o->nranks)
        snprintf(text, sizeof text, "each bar is the busiest of about %d neighbouring ranks",
                 (o->nranks + ncolumns / 2) / ncolumns);
    svg_title(out, top, "Load per rank", text);
    draw_legend(out, o, top + 18);
    draw_axes(out, &scale, top + PLOT_TOP, bottom);
    draw_bars(out, columns, ncolumns, &scale, bottom);
    draw_lines(out, o, &scale, bottom);
    draw_ranks(out, o->nranks, bottom);
    return CLI_DONE;
}
