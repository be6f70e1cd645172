/* This plan beside two schemes in use: time and bytes. */
#include "cli/plan/svg.h"
#include "muon/plan.h"

#include "cli/plan/units.h"

enum { ROW = 32, BAR = 20, HEAD = 58, NAMES = 130, LABEL = 150 };

typedef struct scheme {
    const char *name, *class;
    muon_scheme_cost cost;
} scheme;

/* A bar between x and right with its value and how many times ours it is. */
static void draw_bar(FILE *out, double x, double right, double y, const char *class, double value,
                     double most, units shown, units times)
{
    double length = most > 0 ? (right - x - LABEL) * value / most : 0;
    svg_rect(out, x, y, length > 1 ? length : 1, BAR, class);
    svg_text(out, x + length + 9, y + 15, SVG_START, "ink", "%s", shown.text);
    svg_text(out, x + length + 84, y + 15, SVG_START, "muted", "%s", times.text);
}

int svg_schemes_panel(FILE *out, const plan_outcome *o, double top)
{
    const muon_prediction *p = &o->prediction;
    const scheme schemes[] = {
        {"this plan", "work", {p->makespan, p->bytes_max, p->padding_bytes}},
        {"round-robin", "other", o->round_robin},
        {"padded", "other", o->padded},
    };
    enum { NSCHEMES = sizeof schemes / sizeof schemes[0] };
    double most_time = 0, most_bytes = 0;
    for (int i = 0; i < NSCHEMES; i++) {
        if (schemes[i].cost.makespan > most_time) most_time = schemes[i].cost.makespan;
        double bytes = (double)schemes[i].cost.bytes_max;
        if (bytes > most_bytes) most_bytes = bytes;
    }
    double left = 36 + NAMES, middle = (left + RIGHT) / 2;
    svg_title(out, top, "Other schemes",
              "matrices in turn in each group that shards them; batches padded to the group");
    svg_text(out, left, top + HEAD + 2, SVG_START, "muted", "time");
    svg_text(out, middle, top + HEAD + 2, SVG_START, "muted", "bytes of the rank with most");
    for (int i = 0; i < NSCHEMES; i++) {
        const muon_scheme_cost *cost = &schemes[i].cost;
        double y = top + HEAD + 12 + i * ROW;
        svg_text(out, 36, y + 15, SVG_START, "ink", "%s", schemes[i].name);
        draw_bar(out, left, middle, y, schemes[i].class, cost->makespan, most_time,
                 units_seconds(cost->makespan), units_ratio(cost->makespan, p->makespan));
        draw_bar(out, middle, RIGHT, y, schemes[i].class, (double)cost->bytes_max, most_bytes,
                 units_bytes((double)cost->bytes_max),
                 units_ratio((double)cost->bytes_max, (double)p->bytes_max));
    }
    return CLI_DONE;
}
