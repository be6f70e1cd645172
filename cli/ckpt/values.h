/* ckpt_values.h - elements of a dtype as doubles, and back. */
#ifndef CLI_CKPT_VALUES_H
#define CLI_CKPT_VALUES_H

#include <stddef.h>

/* Elements that are handled at a time: their doubles fit into a processor's cache. */
enum { VALUES_BLOCK = 1 << 14 };

/* Bytes of an element; 0 for a dtype whose elements are no numbers we know. */
size_t values_size(const char *dtype);
void values_load(double *to, const void *from, size_t count, const char *dtype);

/* Whether values_store writes it: F32, BF16, F64 and I64. */
int values_can_store(const char *dtype);
/* Rounded to nearest even. Returns the index of the first finite number that the dtype cannot hold, or
 * count. */
size_t values_store(void *to, const double *from, size_t count, const char *dtype);

#endif
