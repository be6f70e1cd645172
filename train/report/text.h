/* report_text.h - text of any origin on a page, and numbers as people write them. */
#ifndef TRAIN_REPORT_TEXT_H
#define TRAIN_REPORT_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The next character of UTF-8 text that is not at its end, and the bytes it takes. What is not UTF-8 is
 * taken byte by byte, each as PAGE_UNKNOWN; so are characters that would change how the text around
 * them is shown. Control characters but tab and line feed become their pictures. */
enum { PAGE_UNKNOWN = 0xFFFD };
size_t page_rune(const char *text, uint32_t *rune);
void page_put_rune(FILE *out, uint32_t rune); /* as UTF-8 */

/* Text as HTML and in attributes of it. NULL is nothing. */
void page_text(FILE *out, const char *text);
/* No more than so many characters of it; what is cut off becomes three dots. */
void page_cut(FILE *out, const char *text, int most);
/* The same for what printf makes of it. */
void page_put(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Any double is fine; what is not finite is called so. */
typedef struct page_word {
    char text[48];
} page_word;
page_word page_number(double value, int digits);  /* significant ones; no exponent if it is usual */
page_word page_power(double value, int decimals); /* 1.2e-8 */
page_word page_loss(double loss);                 /* 1.8423 */
page_word page_seconds(double seconds);           /* 1.23 ms, 2 min 5 s */
page_word page_bytes(double bytes);               /* 1.23 MB */
page_word page_count(double count);               /* 1,234,567 */
page_word page_short(double count);               /* 1.23 M */
page_word page_percent(double part);              /* 12.3 % */

#endif
