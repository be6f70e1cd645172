/* text.h - text that grows in a buffer of fixed size and ends in "..." when it does not fit. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct text {
    char *buffer; /* always terminated, unless size is 0 */
    size_t size, used;
    int full; /* something was cut; whatever follows is dropped */
} text;

text muon__text_in(char *buffer, size_t size);
void muon__text_add(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void muon__text_add_shape(text *t, int ndim, const int64_t *shape); /* "[64, 128, 512]" */

#endif
