/* json_cursor.h - the part of JSON that safetensors headers and indices use, read where it stands.
 *
 * A general parser builds a tree first: for a hostile 100 MB header that is gigabytes, and jansson
 * 2.14 writes beyond its buffer when it runs out of memory inside a string. Here the caller asks
 * for what must come next, so anything else is refused at its first byte, nesting needs no stack, and
 * the only memory is that of the strings handed out. Messages say where, "header byte 17". */
#ifndef IO_JSON_CURSOR_H
#define IO_JSON_CURSOR_H

#include "base/status.h"

typedef struct json_cursor {
    const char *text;
    size_t length;
    size_t at;
    const char *what; /* the text is, in messages: "header" */
} json_cursor;

/* Bytes before the first that is not UTF-8: `length` if all of the text is. */
size_t muon__json_utf8(const char *text, size_t length);

/* Starts at the first byte; all of the text must be UTF-8. */
muon_status muon__json_start(json_cursor *out, const char *text, size_t length, const char *what);

/* The next character that is not white space, left where it is; -1 at the end. */
int muon__json_peek(json_cursor *c);

/* Takes this character. */
muon_status muon__json_take(json_cursor *c, char wanted);

/* A string without NUL, decoded; the caller frees it. */
muon_status muon__json_take_string(char **out, json_cursor *c);

/* A number without fraction and exponent that fits. */
muon_status muon__json_take_integer(int64_t *out, json_cursor *c);

/* Members of a list or object whose opening is taken: 1 if another one comes, after its comma; 0 if
 * `closing` was taken. `count` are the members so far. */
muon_status muon__json_next(int *more, json_cursor *c, char closing, size_t count);

/* The key of the next member of an object, up to its ':'. */
muon_status muon__json_take_key(char **out, json_cursor *c);

#endif
