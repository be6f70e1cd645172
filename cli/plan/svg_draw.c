#include "cli/plan/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else if ((unsigned char)*text >= ' ') /* XML has no other control characters */
            fputc(*text, out);
    }
}

void svg_text(FILE *out, double x, double y, svg_anchor anchor, const char *class,
              const char *format, ...)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y,
            anchors[anchor], class);
    put_escaped(out, text);
    fprintf(out, "</text>\n");
}

void svg_rect(FILE *out, double x, double y, double width, double height, const char *class)
{
    fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"%s\"/>\n", x,
            y, width, height, class);
}

void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *class)
{
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1,
            x2, y2, class);
}

void svg_title(FILE *out, double top, const char *title, const char *text)
{
    svg_text(out, 36, top + 18, SVG_START, "ink h2", "%s", title);
    svg_text(out, 36, top + 37, SVG_START, "muted", "%s", text);
}

/* About as wide as the widest of the style's fonts draws it at 13 px. */
static double width_of(const char *text)
{
    static const struct {
        const char *letters;
        double width;
    } widths[] = {{"mwMW", 11.6}, {"ijl.,:;' ", 4.1}, {"frt", 5.2}, {"sckxz", 7}, {"", 8.3}};
    double width = 0;
    for (; *text; text++) {
        size_t i = 0;
        while (*widths[i].letters && !strchr(widths[i].letters, *text))
            i++;
        width += widths[i].width;
    }
    return width;
}

void svg_legend(FILE *out, double y, const svg_key *keys, size_t nkeys)
{
    enum { SAMPLE = 26, GAP = 18 };
    double x = RIGHT;
    for (size_t i = nkeys; i-- > 0;) {
        x -= width_of(keys[i].text);
        svg_text(out, x, y, SVG_START, "ink", "%s", keys[i].text);
        x -= SAMPLE;
        if (keys[i].is_line)
            svg_line(out, x, y - 4.5, x + 20, y - 4.5, keys[i].class);
        else
            svg_rect(out, x + 8, y - 10, 12, 12, keys[i].class);
        x -= GAP;
    }
}

/* 1, 2 or 5 times a power of ten: at least most / steps. */
static double round_step(double most, int steps)
{
    double rough = most / steps, power = pow(10, floor(log10(rough)));
    double factor = rough / power;
    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

svg_scale svg_time_scale(double most, int steps)
{
    static const struct {
        double one;
        const char *name;
    } names[] = {{1, "seconds"}, {1e-3, "milliseconds"}, {1e-6, "microseconds"}};
    svg_scale s = {.one = 1};
    if (!(most > 0)) most = 1;
    size_t i = 0;
    while (i < 2 && most < names[i].one)
        i++;
    s.one = names[i].one;
    s.unit = names[i].name;
    s.step = round_step(most, steps);
    s.end = s.step * ceil(most / s.step - 1e-9);
    double shown = s.step / s.one;
    while (s.decimals < 6 && shown < 0.999) {
        shown *= 10;
        s.decimals++;
    }
    return s;
}

void svg_time_axis(FILE *out, const svg_scale *scale, double top, double bottom)
{
    int count = (int)lround(scale->end / scale->step);
    for (int i = 0; i <= count; i++) {
        double x = LEFT + (RIGHT - LEFT) * (double)i / count;
        svg_line(out, x, top, x, bottom, "grid");
        svg_text(out, x, bottom + 17, SVG_MIDDLE, "muted", "%.*f", scale->decimals,
                 i * scale->step / scale->one);
    }
    svg_text(out, (LEFT + RIGHT) / 2.0, bottom + 36, SVG_MIDDLE, "muted", "%s", scale->unit);
}
