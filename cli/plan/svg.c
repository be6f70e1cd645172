/* The page: style, title, the numbers that matter, then the panels. */
#include "cli/plan/svg.h"
#include "muon/plan.h"

#include "cli/plan/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    "<style>\n"
    "text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; }\n"
    ".h1 { font-size: 24px; font-weight: 600; } .h2 { font-size: 16px; font-weight: 600; }\n"
    ".big { font-size: 21px; font-weight: 600; } .small { font-size: 10px; }\n"
    ".page { fill: #ffffff; } .tile { fill: #f3f5f8; } .track { fill: #eef1f4; }\n"
    ".ink { fill: #1c2530; } .muted { fill: #66727f; } .on { fill: #ffffff; }\n"
    ".grid { stroke: #dfe4e9; stroke-width: 1; }\n"
    ".work { fill: #3d6fd6; } .message { fill: #e2803c; }\n"
    ".gather { fill: #1f9d8b; } .scatter { fill: #e2803c; } .other { fill: #a3adb8; }\n"
    ".mean, .bound, .predicted { fill: none; stroke-width: 1.6; }\n"
    ".mean { stroke: #1c2530; stroke-dasharray: 2 4; }\n"
    ".bound { stroke: #1f9d8b; } .predicted { stroke: #c2367c; stroke-dasharray: 9 5; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    ".page { fill: #12161b; } .tile { fill: #1c222a; } .track { fill: #1c222a; }\n"
    ".ink { fill: #e7eaee; } .muted { fill: #98a4b1; } .on { fill: #0e1217; }\n"
    ".grid { stroke: #2b333c; }\n"
    ".work { fill: #6f9df6; } .message { fill: #f0a060; }\n"
    ".gather { fill: #4ecab8; } .scatter { fill: #f0a060; } .other { fill: #5d6874; }\n"
    ".mean { stroke: #e7eaee; } .bound { stroke: #4ecab8; } .predicted { stroke: #f27fb2; }\n"
    "}\n"
    "</style>\n";

static void draw_head(FILE *out, const plan_outcome *o)
{
    const plan_case *c = o->what;
    const muon_machine *m = &c->config.machine;
    plan_axes axes = plan_case_axes(c);
    svg_text(out, 36, 46, SVG_START, "ink h1", "%s on %s rank%s", c->model,
             units_count(o->nranks).text, o->nranks == 1 ? "" : "s");
    svg_text(out, 36, 70, SVG_START, "muted",
             "%s%s%s matrices, %s parameters; each rank %s/s, %s/s in a node of %s, %s/s between "
             "nodes, %s wire",
             axes.text, *axes.text ? "; " : "", units_count(o->prediction.matrices).text,
             units_elements((double)(o->cost.muon_elements + o->cost.expert_elements)).text,
             units_flops(m->flops).text, units_bytes(m->node_bandwidth).text,
             units_count(m->ranks_per_node).text, units_bytes(m->bandwidth).text,
             c->config.wire == MUON_BF16 ? "bf16" : "f32");
}

static void draw_tile(FILE *out, int index, const char *value, const char *text)
{
    enum { TOP = 92, WIDTH = 198, GAP = 14, HEIGHT = 62 };
    double x = 36 + index * (WIDTH + GAP);
    fprintf(out, "<rect x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" class=\"tile\"/>\n",
            x, TOP, WIDTH, HEIGHT);
    svg_text(out, x + 14, TOP + 29, SVG_START, "ink big", "%s", value);
    svg_text(out, x + 14, TOP + 50, SVG_START, "muted", "%s", text);
}

static void draw_tiles(FILE *out, const plan_outcome *o)
{
    const muon_prediction *p = &o->prediction;
    draw_tile(out, 0, units_seconds(p->makespan).text, "predicted for a step");
    draw_tile(out, 1, units_ratio(p->makespan, p->lower_bound).text, "the lower bound");
    draw_tile(out, 2, units_ratio(p->imbalance, 1).text, "mean work, busiest rank");
    draw_tile(out, 3, units_bytes((double)p->bytes_max).text, "per rank at most");
    draw_tile(out, 4, units_bytes((double)p->padding_bytes).text, "of padding");
}

static int draw(FILE *out, const plan_outcome *o)
{
    enum { HEAD = 182, SPACE = 26 };
    double load = HEAD, waves = load + LOAD_HEIGHT + SPACE;
    double schemes = waves + svg_waves_height(o) + SPACE, height = schemes + SCHEMES_HEIGHT;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\">\n",
            PAGE_WIDTH, height, PAGE_WIDTH, height);
    fputs(style, out);
    fprintf(out, "<rect width=\"100%%\" height=\"100%%\" class=\"page\"/>\n");
    draw_head(out, o);
    draw_tiles(out, o);
    DO(svg_load_panel(out, o, load));
    DO(svg_waves_panel(out, o, waves));
    DO(svg_schemes_panel(out, o, schemes));
    fprintf(out, "</svg>\n");
    return CLI_DONE;
}

static int write_file(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "w");
    if (!file) return cli_fail("%s: cannot be written: %s", path, strerror(errno));
    errno = 0;
    int lost = fwrite(text, 1, length, file) != length;
    lost |= fclose(file) != 0;
    return lost ? cli_fail("%s: cannot be written: %s", path, strerror(errno)) : CLI_DONE;
}

/* In memory first: a picture that cannot be drawn leaves the old one alone. */
int plan_write_svg(const plan_outcome *o, const char *path)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return cli_fail("out of memory");
    int code = draw(out, o);
    if (fclose(out) != 0 && code == CLI_DONE) code = cli_fail("out of memory");
    if (code == CLI_DONE) code = write_file(path, text, length);
    free(text);
    return code;
}
