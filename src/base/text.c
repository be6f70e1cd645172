#include "base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

text muon__text_in(char *buffer, size_t size)
{
    if (size > 0) buffer[0] = '\0';
    return (text){.buffer = buffer, .size = size, .full = size == 0};
}

void muon__text_add(text *t, const char *format, ...)
{
    if (t->full) return;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(t->buffer + t->used, t->size - t->used, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < t->size - t->used) {
        t->used += (size_t)length;
        return;
    }
    t->full = 1;
    t->used = t->size - 1;
    if (t->size >= sizeof "...") memcpy(t->buffer + t->size - sizeof "...", "...", sizeof "...");
}

void muon__text_add_shape(text *t, int ndim, const int64_t *shape)
{
    muon__text_add(t, "[");
    for (int i = 0; i < ndim; i++)
        muon__text_add(t, "%s%" PRId64, i ? ", " : "", shape[i]);
    muon__text_add(t, "]");
}
