/* report_page.h - what the report is made with: axes, charts and bars, and its sections.
 *
 * A picture has no width of its own. Its SVG is as wide as its place on the page: lines are drawn in a
 * box of 1000 x 1000 that is stretched to fit, while text and marks are placed by percentages and keep
 * their size. So one picture is right on a telephone, on a screen and on paper. Labels of axes stand
 * outside of the SVG's box, in the padding of what it is in.
 *
 * Every colour is a class of the style sheet; a series has a dash and a mark besides. */
#ifndef TRAIN_REPORT_PAGE_H
#define TRAIN_REPORT_PAGE_H

#include "train/report/text.h"
#include "train/run/record.h"

/* ---- sections, in the order of the page --------------------------------------------------------- */

typedef struct page {
    FILE *out;
    const train_record *runs;
    size_t nruns;
    int pictures; /* so far: each has a number */
} page;

extern const char *const page_style[], *const page_script[]; /* ended by NULL */

void page_summary(page *p);        /* the title, who is ahead, and the numbers that matter */
muon_status page_curves(page *p);  /* what happened from step to step */
muon_status page_times(page *p);   /* where the time went */
muon_status page_ranks(page *p);   /* what each rank did */
muon_status page_spectra(page *p); /* singular values */
void page_samples(page *p);        /* text */
void page_settings(page *p);       /* everything as a table */

void page_section(page *p, const char *title, const char *text); /* begins one */
void page_table_begin(page *p, const char *corner);              /* a column for each run */
void page_table_end(page *p);
const char *page_label(const train_record *run);

/* ---- axes --------------------------------------------------------------------------------------- */

enum { PAGE_MOST_TICKS = 24 };

typedef struct page_axis {
    double low, high;
    int is_log;
    int count;
    double ticks[PAGE_MOST_TICKS];
} page_axis;

/* About so many ticks. The ends are where the data ends; wide: at ticks. Any ends will do. */
page_axis page_axis_linear(double low, double high, int ticks, int wide);
/* low > 0. It begins at a power of ten. */
page_axis page_axis_log(double low, double high, int ticks);
double page_axis_place(const page_axis *axis, double value); /* 0 .. 1 */
page_word page_axis_label(const page_axis *axis, int tick);

/* The ends of what is to be drawn. */
typedef struct page_span {
    double low, high; /* low > high: nothing yet */
    double least;     /* above 0 */
} page_span;
extern const page_span page_span_empty;
void page_span_add(page_span *span, const double *values, size_t count); /* finite ones count */

/* ---- charts ------------------------------------------------------------------------------------- */

typedef struct page_points {
    double *x, *y;
    size_t count;
} page_points;
muon_status page_points_take(page_points *points, size_t count);
void page_points_free(page_points *points);

typedef enum page_kind {
    PAGE_LINE,
    PAGE_FAINT, /* a thin line behind the others, which keeps its peaks */
    PAGE_MARKS  /* one at each point */
} page_kind;

typedef struct page_series {
    page_kind kind;
    int style;        /* colour, dash and mark: the number of the run */
    const char *key;  /* in the legend, or NULL */
    int is_marked;    /* the key shows the mark too */
    const char *name; /* under the pointer, or NULL */
    page_points points;
} page_series;

typedef struct page_chart {
    const char *title, *text; /* above; text says how to read it */
    const char *description;  /* for those who do not see it */
    const char *x_name;
    page_axis x, y;
    int height; /* pixels */
    int wide;   /* over all columns */
    const page_series *series;
    size_t nseries;
} page_chart;

void page_draw(page *p, const page_chart *chart);

/* ---- parts of charts, for those that draw their own --------------------------------------------- */

void page_figure_begin(page *p, const char *title, const char *text, int wide);
void page_figure_end(page *p);
/* The box for data, with its axes; x or y may be NULL. Ends with page_plot_end. */
typedef struct page_plot {
    const char *title, *description, *x_name;
    const page_axis *x, *y;
    int height;
} page_plot;
void page_plot_begin(page *p, const page_plot *plot);
void page_plot_end(page *p);

void page_legend_begin(page *p);
void page_legend_box(page *p, const char *class, const char *name);
void page_legend_end(page *p);

/* A rectangle in percent of the plot, from its top left, with a text under the pointer. */
void page_bar(page *p, double x, double y, double width, double height, const char *class,
              const char *text);

#endif
