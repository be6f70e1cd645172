#include "cli/plan/units.h"

#include <stdio.h>

typedef struct scale {
    double one;
    const char *unit;
} scale;

static int decimals(double value)
{
    return value < 10 ? 2 : value < 100 ? 1 : 0;
}

/* In the largest unit of which there is one at least; scales go down. */
static units scaled(double value, const scale *scales, size_t nscales)
{
    size_t i = 0;
    /* 999.7 would be printed as 1000. */
    while (i + 1 < nscales && value < 0.9995 * scales[i].one)
        i++;
    units u;
    double number = value / scales[i].one;
    snprintf(u.text, sizeof u.text, "%.*f%s%s", decimals(number), number,
             *scales[i].unit ? " " : "", scales[i].unit);
    return u;
}

/* Of what there are only whole ones. */
static units whole(double value, const char *unit)
{
    units u;
    snprintf(u.text, sizeof u.text, "%.0f%s%s", value, *unit ? " " : "", unit);
    return u;
}

#define SCALED(value, scales) scaled(value, scales, sizeof(scales) / sizeof *(scales))

units units_seconds(double seconds)
{
    static const scale scales[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    return seconds > 0 ? SCALED(seconds, scales) : whole(0, "s");
}

units units_bytes(double bytes)
{
    static const scale scales[] = {
        {1e15, "PB"}, {1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}};
    return bytes < 999.5 ? whole(bytes, "B") : SCALED(bytes, scales);
}

units units_flops(double flops)
{
    static const scale scales[] = {{1e18, "Eflop"}, {1e15, "Pflop"}, {1e12, "Tflop"},
                                   {1e9, "Gflop"},  {1e6, "Mflop"},  {1e3, "kflop"}};
    return flops < 999.5 ? whole(flops, "flop") : SCALED(flops, scales);
}

units units_elements(double count)
{
    static const scale scales[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}};
    return count < 999.5 ? whole(count, "") : SCALED(count, scales);
}

units units_count(int64_t count)
{
    char digits[24];
    units u;
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count);
    size_t used = 0;
    for (int i = 0; i < length; i++) {
        u.text[used++] = digits[i];
        int left = length - 1 - i;
        if (left && left % 3 == 0 && digits[i] != '-') u.text[used++] = ',';
    }
    u.text[used] = '\0';
    return u;
}

units units_ratio(double value, double one)
{
    units u = {"-"};
    if (!(one > 0)) return u;
    double ratio = value / one;
    /* How far above 1 is what a reader wants to know. */
    int shown = value == one ? 0 : ratio < 1.1 ? 3 : decimals(ratio);
    snprintf(u.text, sizeof u.text, "%.*f x", shown, ratio);
    return u;
}
