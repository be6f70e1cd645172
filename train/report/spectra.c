/* Singular values before and after orthogonalization. */
#include "train/report/page.h"

#include "base/status.h"

#include <math.h>

enum { MOST_PICTURES = 24 };
static const double floor_of_axis = 1e-8; /* below it f32 has nothing to say */

static muon_status fill(page_points *points, const double *values, int count)
{
    TRY(page_points_take(points, (size_t)count));
    for (int i = 0; i < count; i++) {
        points->x[i] = i + 1;
        points->y[i] = values[i];
    }
    return MUON_OK;
}

static void draw(page *p, const train_record *run, const train_spectrum *s,
                 const page_series *series)
{
    char text[384], description[512];
    int last = s->count - 1;
    page_span span = page_span_empty;
    page_span_add(&span, s->before, (size_t)s->count);
    page_span_add(&span, s->after, (size_t)s->count);
    double low = isfinite(span.least) ? fmax(span.least, floor_of_axis) : 0.1;
    double high = span.high > 0 ? span.high : 1;
    snprintf(text, sizeof text, "%s, step %lld. Before: %s to %s; after: %s to %s.",
             page_label(run), (long long)s->step, page_number(s->before[last], 2).text,
             page_number(s->before[0], 2).text, page_number(s->after[last], 2).text,
             page_number(s->after[0], 2).text);
    snprintf(description, sizeof description, "%d singular values, descending. %s", s->count, text);
    page_chart chart = {.title = s->name ? s->name : "matrix",
                        .text = text,
                        .description = description,
                        .x_name = "singular value, largest first",
                        .x = page_axis_linear(1, fmax(s->count, 2), s->count > 5 ? 5 : 1, 0),
                        .y = page_axis_log(fmin(low, high), high * 1.3, 5),
                        .height = 170,
                        .series = series,
                        .nseries = 2};
    page_draw(p, &chart);
}

static muon_status draw_spectrum(page *p, const train_record *run, const train_spectrum *s)
{
    page_series series[] = {
        {.kind = PAGE_LINE, .style = 1, .key = "before", .name = "before"},
        {.kind = PAGE_LINE, .style = 0, .key = "after", .name = "after"},
    };
    muon_status status = fill(&series[0].points, s->before, s->count);
    if (status == MUON_OK) status = fill(&series[1].points, s->after, s->count);
    if (status == MUON_OK) draw(p, run, s, series);
    page_points_free(&series[0].points);
    page_points_free(&series[1].points);
    return status;
}

muon_status page_spectra(page *p)
{
    size_t all = 0, shown = 0;
    for (size_t i = 0; i < p->nruns; i++)
        all += p->runs[i].nspectra;
    if (all == 0) return MUON_OK;
    page_section(
        p, "What orthogonalization does",
        "Singular values of an update, the largest being 1, and of what Muon makes of it. "
        "Before, few directions have nearly all of the strength; after, all have about the "
        "same.");
    fputs("<div class=\"grid small\">\n", p->out);
    for (size_t i = 0; i < p->nruns; i++)
        for (size_t k = 0; k < p->runs[i].nspectra && shown < MOST_PICTURES; k++) {
            const train_spectrum *s = &p->runs[i].spectra[k];
            if (s->count < 1) continue;
            TRY(draw_spectrum(p, &p->runs[i], s));
            shown++;
        }
    fputs("</div>\n", p->out);
    if (shown < all) {
        fputs("<p>", p->out);
        page_put(p->out, "%zu of %zu are shown.", shown, all);
        fputs("</p>\n", p->out);
    }
    fputs("</section>\n", p->out);
    return MUON_OK;
}
