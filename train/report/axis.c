#include "train/report/page.h"

#include <math.h>

const page_span page_span_empty = {HUGE_VAL, -HUGE_VAL, HUGE_VAL};

void page_span_add(page_span *span, const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        span->low = fmin(span->low, values[i]);
        span->high = fmax(span->high, values[i]);
        if (values[i] > 0) span->least = fmin(span->least, values[i]);
    }
}

/* 1, 2 or 5 times a power of ten, at least `rough`. */
static double round_step(double rough)
{
    double power = pow(10, floor(log10(rough))), factor = rough / power;
    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

page_axis page_axis_linear(double low, double high, int ticks, int wide)
{
    static const double most = 1e300; /* differences are finite */
    page_axis a = {.is_log = 0};
    if (!(low <= high)) low = 0, high = 1;
    low = fmax(low, -most);
    high = fmin(high, most);
    /* Rounding would make the ticks of a very narrow axis one number. */
    double least = fmax(1e-9 * fmax(fabs(low), fabs(high)), 1e-300);
    if (high - low < least) {
        double half = fmax(fmax(fabs(low), fabs(high)) * 0.05, least);
        if (low == 0 && high == 0) half = 0.5;
        low -= low >= 0 && low < half ? low : half;
        high += half;
    }
    double step = round_step((high - low) / ticks);
    a.low = wide ? floor(low / step + 1e-9) * step : low;
    a.high = wide ? ceil(high / step - 1e-9) * step : high;
    for (double i = ceil(a.low / step - 1e-9); a.count < PAGE_MOST_TICKS; i++) {
        if (i * step > a.high + 1e-6 * step) break;
        a.ticks[a.count++] = i * step;
    }
    return a;
}

page_axis page_axis_log(double low, double high, int ticks)
{
    page_axis a = {.is_log = 1};
    low = fmax(low, 1e-300);
    high = fmin(fmax(high, low * 10), 1e300);
    int first = (int)floor(log10(low) + 1e-9), last = (int)floor(log10(high) + 1e-9);
    a.low = pow(10, first);
    a.high = high;
    int every = 1;
    while ((last - first) / every >= ticks)
        every++;
    for (int i = first; i <= last && a.count < PAGE_MOST_TICKS; i += every) {
        static const double between[] = {1, 2, 5};
        for (int k = 0; k < (last - first < 2 ? 3 : 1); k++) {
            double tick = pow(10, i) * between[k];
            if (tick <= high * (1 + 1e-9) && a.count < PAGE_MOST_TICKS) a.ticks[a.count++] = tick;
        }
    }
    return a;
}

double page_axis_place(const page_axis *axis, double value)
{
    double place;
    if (axis->is_log)
        place = (log(fmax(value, axis->low)) - log(axis->low)) / (log(axis->high) - log(axis->low));
    else
        place = (value - axis->low) / (axis->high - axis->low);
    return place > 0 ? fmin(place, 1) : 0; /* NaN: 0 */
}

page_word page_axis_label(const page_axis *axis, int tick)
{
    page_word w;
    double value = axis->ticks[tick],
           size = fmax(fabs(axis->ticks[0]), fabs(axis->ticks[axis->count - 1]));
    double step = axis->count > 1 ? axis->ticks[1] - axis->ticks[0] : size;
    if (value == 0) {
        snprintf(w.text, sizeof w.text, "0");
    } else if (axis->is_log) {
        if (value < 1e-3 || value >= 1e4) return page_power(value, 0);
        snprintf(w.text, sizeof w.text, "%.3g", value);
    } else if (size >= 1e7 || size < 1e-3) {
        /* The same power of ten for all of them. */
        int exponent = (int)floor(log10(size) + 1e-9);
        int decimals = exponent - (int)floor(log10(step) + 1e-9);
        snprintf(w.text, sizeof w.text, "%.*fe%d", decimals > 0 ? decimals : 0,
                 value / pow(10, exponent), exponent);
    } else if (size >= 1e4 && fmod(step, 1000) == 0) {
        snprintf(w.text, sizeof w.text, "%.0f k", value / 1000);
    } else {
        int decimals = (int)ceil(-log10(step) - 1e-9);
        snprintf(w.text, sizeof w.text, "%.*f", decimals > 0 ? decimals : 0, value);
    }
    return w;
}
