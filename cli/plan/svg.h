/* plan_svg.h - the picture of a plan, panel by panel, each with its place on the page.
 *
 * Colours are classes of one style sheet, which has a second set for dark backgrounds; nothing else is
 * in the file or outside of it. Coordinates are pixels of a page that is PAGE_WIDTH wide. */
#ifndef CLI_PLAN_SVG_H
#define CLI_PLAN_SVG_H

#include "cli/plan/outcome.h"

#include <stdio.h>

enum { PAGE_WIDTH = 1120, LEFT = 92, RIGHT = 1084 }; /* between LEFT and RIGHT is where data is */

/* Panels, from their top edge; each returns an exit code. */
enum { LOAD_HEIGHT = 330, SCHEMES_HEIGHT = 176 };
int svg_load_panel(FILE *out, const plan_outcome *o, double top);
int svg_waves_panel(FILE *out, const plan_outcome *o, double top);
double svg_waves_height(const plan_outcome *o);
int svg_schemes_panel(FILE *out, const plan_outcome *o, double top);

/* ---- drawing ------------------------------------------------------------------------------------ */

typedef enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END } svg_anchor;

/* Text with its base line at y; `class` is one or more of the style sheet's. */
void svg_text(FILE *out, double x, double y, svg_anchor anchor, const char *class,
              const char *format, ...) __attribute__((format(printf, 6, 7)));
void svg_rect(FILE *out, double x, double y, double width, double height, const char *class);
void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *class);

/* A panel's title with a line below that explains it. */
void svg_title(FILE *out, double top, const char *title, const char *text);

/* A row of samples with names, right-aligned at RIGHT. */
typedef struct svg_key {
    const char *class;
    int is_line; /* else a box */
    char text[48];
} svg_key;
void svg_legend(FILE *out, double y, const svg_key *keys, size_t nkeys);

/* Round numbers for an axis from 0 to at least `most`. */
typedef struct svg_scale {
    double step, end; /* in seconds */
    double one;       /* seconds of the unit that labels are in */
    const char *unit; /* "milliseconds" */
    int decimals;
} svg_scale;
svg_scale svg_time_scale(double most, int steps);
void svg_time_axis(FILE *out, const svg_scale *scale, double top, double bottom); /* horizontal */

#endif
