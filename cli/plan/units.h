/* units.h - quantities for people: three digits and the unit that suits them. By value, so that
 * several fit into one printf: units_seconds(t).text lives until the end of the expression. */
#ifndef CLI_PLAN_UNITS_H
#define CLI_PLAN_UNITS_H

#include <stdint.h>

typedef struct units {
    char text[32];
} units;

units units_seconds(double seconds);         /* "41.3 ms" */
units units_bytes(double bytes);             /* "1.24 GB" */
units units_flops(double flops);             /* "16.9 Pflop" */
units units_count(int64_t count);            /* "69,668" */
units units_elements(double count);          /* "1.02 T" */
units units_ratio(double value, double one); /* "3.61 x", "1.002 x", "-" if there is no ratio */

#endif
