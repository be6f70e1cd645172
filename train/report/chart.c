/* Line charts, and the box with axes that bars share. */
#include "train/report/page.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_POINTS = 800, STYLES = 8 };

static const char *const classes[] = {
    [PAGE_LINE] = "line", [PAGE_FAINT] = "faint", [PAGE_MARKS] = "points"};

muon_status page_points_take(page_points *points, size_t count)
{
    *points = (page_points){.count = count};
    TRY(CALLOC(&points->x, count, "points of a chart"));
    return CALLOC(&points->y, count, "points of a chart");
}

void page_points_free(page_points *points)
{
    free(points->x);
    free(points->y);
    *points = (page_points){.count = 0};
}

/* ---- figures ------------------------------------------------------------------------------------ */

void page_figure_begin(page *p, const char *title, const char *text, int wide)
{
    fprintf(p->out, "<figure%s>\n<figcaption><h3>", wide ? " class=\"wide\"" : "");
    page_text(p->out, title);
    fputs("</h3>", p->out);
    if (text) {
        fputs("<p>", p->out);
        page_text(p->out, text);
        fputs("</p>", p->out);
    }
    fputs("</figcaption>\n", p->out);
}

void page_figure_end(page *p)
{
    fputs("</figure>\n", p->out);
}

void page_legend_begin(page *p)
{
    fputs("<ul class=\"legend\">", p->out);
}

static void put_key(page *p, const page_series *series)
{
    int style = series->style % STYLES;
    fprintf(p->out,
            "<li><svg class=\"key\" width=\"30\" height=\"12\" aria-hidden=\"true\"><path "
            "class=\"%s s%d\" d=\"M1 6H29\"/>",
            classes[series->kind], style);
    if (series->is_marked)
        fprintf(p->out, "<use href=\"#mark%d\" x=\"15\" y=\"6\" class=\"mark s%d\"/>", style,
                style);
    fputs("</svg>", p->out);
    page_text(p->out, series->key);
    fputs("</li>", p->out);
}

void page_legend_box(page *p, const char *class, const char *name)
{
    fprintf(p->out,
            "<li><svg class=\"key\" width=\"14\" height=\"12\" aria-hidden=\"true\"><rect "
            "width=\"12\" height=\"12\" rx=\"2\" class=\"%s\"/></svg>",
            class);
    page_text(p->out, name);
    fputs("</li>", p->out);
}

void page_legend_end(page *p)
{
    fputs("</ul>\n", p->out);
}

/* ---- axes --------------------------------------------------------------------------------------- */

static void put_x_axis(page *p, const page_axis *axis)
{
    for (int i = 0; i < axis->count; i++) {
        double x = 100 * page_axis_place(axis, axis->ticks[i]);
        fprintf(p->out, "<line class=\"grid\" x1=\"%.3f%%\" x2=\"%.3f%%\" y2=\"100%%\"/>", x, x);
        fprintf(p->out,
                "<text x=\"%.3f%%\" y=\"100%%\" dy=\"17\" text-anchor=\"middle\">%s</text>\n", x,
                page_axis_label(axis, i).text);
    }
}

static void put_y_axis(page *p, const page_axis *axis)
{
    for (int i = 0; i < axis->count; i++) {
        double y = 100 - 100 * page_axis_place(axis, axis->ticks[i]);
        fprintf(p->out, "<line class=\"grid\" y1=\"%.3f%%\" y2=\"%.3f%%\" x2=\"100%%\"/>", y, y);
        fprintf(p->out, "<text x=\"-8\" y=\"%.3f%%\" dy=\"4\" text-anchor=\"end\">%s</text>\n", y,
                page_axis_label(axis, i).text);
    }
}

static void put_range(page *p, const char *name, const page_axis *axis)
{
    if (axis)
        fprintf(p->out, " data-%s=\"%.9g %.9g %s\"", name, axis->low, axis->high,
                axis->is_log ? "log" : "linear");
}

void page_plot_begin(page *p, const page_plot *plot)
{
    int id = ++p->pictures;
    fprintf(p->out, "<div class=\"plot%s\"", plot->y ? " scaled" : "");
    put_range(p, "x", plot->x);
    put_range(p, "y", plot->y);
    fputs(" data-unit=\"", p->out);
    page_text(p->out, plot->x_name);
    fprintf(p->out,
            "\"><svg width=\"100%%\" height=\"%d\" role=\"img\" aria-labelledby=\"t%d d%d\"><title "
            "id=\"t%d\">",
            plot->height, id, id, id);
    page_text(p->out, plot->title);
    fprintf(p->out, "</title><desc id=\"d%d\">", id);
    page_text(p->out, plot->description);
    fputs("</desc>\n", p->out);
    if (plot->y) put_y_axis(p, plot->y);
    if (plot->x) put_x_axis(p, plot->x);
    if (plot->x_name) {
        fputs("<text x=\"50%\" y=\"100%\" dy=\"36\" text-anchor=\"middle\">", p->out);
        page_text(p->out, plot->x_name);
        fputs("</text>\n", p->out);
    }
}

void page_plot_end(page *p)
{
    fputs("</svg></div>\n", p->out);
}

/* ---- lines -------------------------------------------------------------------------------------- */

typedef struct pen {
    FILE *out;
    const page_chart *chart;
    int is_down;
    int points; /* drawn */
} pen;

static void put_point(pen *to, char command, double x, double y)
{
    fprintf(to->out, "%c%.2f %.2f", command, 1000 * page_axis_place(&to->chart->x, x),
            1000 - 1000 * page_axis_place(&to->chart->y, y));
}

/* What is not finite is a gap. A point between two gaps is a line to itself, which has round ends. */
static void draw_to(pen *to, double x, double y, int is_alone)
{
    if (!isfinite(y)) {
        to->is_down = 0;
        return;
    }
    put_point(to, to->is_down ? 'L' : 'M', x, y);
    if (!to->is_down && is_alone) fputs("h0", to->out);
    to->is_down = 1;
    to->points++;
}

static int is_alone(const page_points *points, size_t i)
{
    return (i == 0 || !isfinite(points->y[i - 1])) &&
           (i + 1 == points->count || !isfinite(points->y[i + 1]));
}

/* The lowest and the highest point of first .. end, in their order. */
static void draw_extremes(pen *to, const page_points *points, size_t first, size_t end)
{
    const double *y = points->y;
    while (first < end && !isfinite(y[first]))
        first++;
    if (first == end) {
        to->is_down = 0;
        return;
    }
    size_t low = first, high = first;
    for (size_t i = first; i < end; i++) {
        if (y[i] < y[low]) low = i;
        if (y[i] > y[high] && isfinite(y[i])) high = i;
    }
    size_t one = low < high ? low : high, other = low < high ? high : low;
    draw_to(to, points->x[one], y[one], 0);
    if (other != one) draw_to(to, points->x[other], y[other], 0);
}

static void draw_line(pen *to, const page_points *points, int keeps_peaks)
{
    size_t n = points->count, every = (n + MOST_POINTS - 1) / MOST_POINTS;
    for (size_t i = 0; i < n; i += every) {
        size_t end = i + every < n ? i + every : n;
        if (every == 1)
            draw_to(to, points->x[i], points->y[i], is_alone(points, i));
        else if (keeps_peaks)
            draw_extremes(to, points, i, end);
        else /* the first is where the line begins, the last where it ends */
            draw_to(to, points->x[i ? end - 1 : 0], points->y[i ? end - 1 : 0], 0);
    }
}

static void draw_series(page *p, const page_chart *chart, const page_series *s)
{
    pen to = {.out = p->out, .chart = chart};
    fprintf(p->out, "<path class=\"%s s%d\"", classes[s->kind], s->style % STYLES);
    if (s->name) {
        fputs(" data-name=\"", p->out);
        page_text(p->out, s->name);
        fputs("\"", p->out);
    }
    fputs(" d=\"", p->out);
    draw_line(&to, &s->points, s->kind == PAGE_FAINT);
    fprintf(p->out, "\" data-points=\"%d\"/>\n", to.points);
}

static void draw_marks(page *p, const page_chart *chart, const page_series *s)
{
    enum { MOST_MARKS = 60 };
    size_t n = s->points.count, every = (n + MOST_MARKS - 1) / MOST_MARKS;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(s->points.y[i]) || (i % every != 0 && i != n - 1)) continue;
        fprintf(p->out, "<use href=\"#mark%d\" class=\"mark s%d\" x=\"%.3f%%\" y=\"%.3f%%\"/>\n",
                s->style % STYLES, s->style % STYLES,
                100 * page_axis_place(&chart->x, s->points.x[i]),
                100 - 100 * page_axis_place(&chart->y, s->points.y[i]));
    }
}

/* A line of a point or two would not be seen. */
static int is_marked(const page_series *s)
{
    return s->kind == PAGE_MARKS || (s->kind == PAGE_LINE && s->points.count < 3);
}

static void put_legend(page *p, const page_chart *chart)
{
    page_legend_begin(p);
    for (size_t i = 0; i < chart->nseries; i++)
        if (chart->series[i].key) put_key(p, &chart->series[i]);
    page_legend_end(p);
}

void page_draw(page *p, const page_chart *chart)
{
    page_plot plot = {.title = chart->title,
                      .description = chart->description,
                      .x_name = chart->x_name,
                      .x = &chart->x,
                      .y = &chart->y,
                      .height = chart->height};
    page_figure_begin(p, chart->title, chart->text, chart->wide);
    put_legend(p, chart);
    page_plot_begin(p, &plot);
    fputs("<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" width=\"100%\" "
          "height=\"100%\">\n",
          p->out);
    for (size_t i = 0; i < chart->nseries; i++)
        draw_series(p, chart, &chart->series[i]);
    fputs("</svg>\n", p->out);
    for (size_t i = 0; i < chart->nseries; i++)
        if (is_marked(&chart->series[i])) draw_marks(p, chart, &chart->series[i]);
    page_plot_end(p);
    page_figure_end(p);
}

void page_bar(page *p, double x, double y, double width, double height, const char *class,
              const char *text)
{
    fprintf(p->out,
            "<rect x=\"%.3f%%\" y=\"%.3f%%\" width=\"%.3f%%\" height=\"%.3f%%\" class=\"bar "
            "%s\"><title>",
            x, y, width, height, class);
    page_text(p->out, text);
    fputs("</title></rect>\n", p->out);
}
