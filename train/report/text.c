#include "train/report/text.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- characters --------------------------------------------------------------------------------- */

static size_t decode(const unsigned char *s, uint32_t *rune)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least; /* shorter forms are not UTF-8 */
    } forms[] = {{0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
    for (size_t extra = 0; extra < 4; extra++) {
        if ((s[0] & forms[extra].mask) != forms[extra].lead) continue;
        uint32_t value = s[0] & (unsigned char)~forms[extra].mask;
        for (size_t i = 1; i <= extra;
             i++) { /* a text that ends here ends with 0, which stops it */
            if ((s[i] & 0xC0) != 0x80) goto unknown;
            value = value << 6 | (s[i] & 0x3FU);
        }
        if (value < forms[extra].least || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
            break;
        *rune = value;
        return extra + 1;
    }
unknown:
    *rune = PAGE_UNKNOWN;
    return 1;
}

/* The directions of writing that Unicode can override, and the marks of byte order. */
static int rearranges(uint32_t rune)
{
    return (rune >= 0x202A && rune <= 0x202E) || (rune >= 0x2066 && rune <= 0x2069) ||
           rune == 0xFEFF || rune == 0xFFFE || rune == 0xFFFF;
}

size_t page_rune(const char *text, uint32_t *rune)
{
    size_t length = decode((const unsigned char *)text, rune);
    if (*rune < ' ' && *rune != '\n' && *rune != '\t')
        *rune += 0x2400;
    else if (*rune == 0x7F)
        *rune = 0x2421;
    else if ((*rune >= 0x80 && *rune < 0xA0) || rearranges(*rune))
        *rune = PAGE_UNKNOWN;
    return length;
}

void page_put_rune(FILE *out, uint32_t rune)
{
    if (rune < 0x80) {
        fputc((int)rune, out);
        return;
    }
    int extra = rune < 0x800 ? 1 : rune < 0x10000 ? 2 : 3;
    static const uint32_t leads[] = {0, 0xC0, 0xE0, 0xF0};
    fputc((int)(leads[extra] | rune >> 6 * extra), out);
    while (extra-- > 0)
        fputc((int)(0x80 | (rune >> 6 * extra & 0x3F)), out);
}

/* What stands for a character that HTML has other uses for, or NULL. */
static const char *entity_of(uint32_t rune)
{
    static const struct {
        char rune;
        const char *entity;
    } entities[] = {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (rune == (uint32_t)entities[i].rune) return entities[i].entity;
    return NULL;
}

void page_cut(FILE *out, const char *text, int most)
{
    for (int count = 0; text && *text && count < most; count++) {
        uint32_t rune;
        text += page_rune(text, &rune);
        if (count == most - 1 && *text) rune = 0x2026;
        const char *entity = entity_of(rune);
        if (entity)
            fputs(entity, out);
        else
            page_put_rune(out, rune);
    }
}

void page_text(FILE *out, const char *text)
{
    page_cut(out, text, INT_MAX);
}

void page_put(FILE *out, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    page_text(out, text);
}

/* ---- numbers ------------------------------------------------------------------------------------ */

static page_word word(const char *format, ...) __attribute__((format(printf, 1, 2)));

static page_word word(const char *format, ...)
{
    page_word w;
    va_list args;
    va_start(args, format);
    vsnprintf(w.text, sizeof w.text, format, args);
    va_end(args);
    return w;
}

static page_word not_finite(double value)
{
    return word("%s", isnan(value) ? "not a number" : value > 0 ? "infinite" : "minus infinite");
}

/* A number as printf's %e has it, apart. */
typedef struct parts {
    char digits[48];
    int exponent; /* of the rounded value: 0.9999 in three digits has 0 */
} parts;

static parts take_apart(double value, int decimals)
{
    parts p;
    snprintf(p.digits, sizeof p.digits, "%.*e", decimals, value);
    char *e = strchr(p.digits, 'e');
    p.exponent = (int)strtol(e + 1, NULL, 10);
    *e = 0;
    return p;
}

page_word page_power(double value, int decimals)
{
    parts p = take_apart(value, decimals);
    return word("%.40se%d", p.digits, p.exponent);
}

page_word page_number(double value, int digits)
{
    if (!isfinite(value)) return not_finite(value);
    int exponent = take_apart(value, digits - 1).exponent, decimals = digits - 1 - exponent;
    if (exponent < -4 || exponent > 6) return page_power(value, digits - 1);
    return word("%.*f", decimals > 0 ? decimals : 0, value);
}

page_word page_loss(double loss)
{
    if (!isfinite(loss)) return not_finite(loss);
    return fabs(loss) < 1000 ? word("%.4f", loss) : word("%.4g", loss);
}

/* The largest unit that is not larger than the value; three digits. */
static page_word with_unit(double value, const char *const *units, size_t nunits, double smallest)
{
    if (!isfinite(value)) return not_finite(value);
    double one = smallest;
    size_t i = 0;
    while (i + 1 < nunits && fabs(value) >= 999.5 * one) {
        one *= 1000;
        i++;
    }
    double shown = value / one;
    if (fabs(shown) >= 999.5) return word("%.3g%s", shown, units[i]);
    if (shown == floor(shown)) return word("%.0f%s", shown, units[i]);
    return word("%s%s", page_number(shown, 3).text, units[i]);
}

page_word page_seconds(double seconds)
{
    static const char *const units[] = {" ns", " µs", " ms", " s"};
    if (!(seconds >= 99.95)) return with_unit(seconds, units, 4, 1e-9);
    if (!isfinite(seconds)) return not_finite(seconds);
    if (seconds >= 360000) return word("%.40s h", page_count(seconds / 3600).text);
    long long whole = llround(seconds);
    if (whole < 3600) return word("%lld min %lld s", whole / 60, whole % 60);
    return word("%lld h %lld min", whole / 3600, whole % 3600 / 60);
}

page_word page_bytes(double bytes)
{
    static const char *const units[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    return with_unit(bytes, units, 6, 1);
}

page_word page_short(double count)
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P"};
    return with_unit(count, units, 6, 1);
}

page_word page_count(double count)
{
    char digits[32];
    page_word w;
    size_t used = 0;
    if (!isfinite(count)) return not_finite(count);
    if (fabs(count) >= 1e18) return word("%.4g", count);
    int n = snprintf(digits, sizeof digits, "%.0f", count);
    for (int i = 0; i < n; i++) {
        int left = n - 1 - i;
        w.text[used++] = digits[i];
        if (left > 0 && left % 3 == 0 && digits[i] != '-') w.text[used++] = ',';
    }
    w.text[used] = 0;
    return w;
}

page_word page_percent(double part)
{
    if (!isfinite(part)) return not_finite(part);
    return word(fabs(part) < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * part);
}
