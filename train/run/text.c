#include "train/run/text.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALIDATION_PART = 10 }; /* one of so many */

/* ---- reading ------------------------------------------------------------------------------------ */

/* Doubles its memory as the file goes on: a pipe does not know its length. */
static muon_status read_all(FILE *file, const char *path, uint8_t **out, int64_t *length)
{
    size_t have = 0, room = 0;
    uint8_t *bytes = NULL;
    for (size_t got = 1; got > 0;) {
        if (have == room) {
            room = room ? 2 * room : 1 << 16;
            uint8_t *more = room > PTRDIFF_MAX ? NULL : realloc(bytes, room);
            if (!more) {
                free(bytes);
                FAIL(E_NOMEM, "%s: no memory for %zu bytes", path, room);
            }
            bytes = more;
        }
        got = fread(bytes + have, 1, room - have, file);
        have += got;
    }
    if (ferror(file)) {
        free(bytes);
        FAIL(E_IO, "%s: cannot be read: %s", path, strerror(errno));
    }
    *out = bytes;
    *length = (int64_t)have;
    return MUON_OK;
}

static muon_status read_file(text *t, const char *path, int64_t *length)
{
    FILE *file = fopen(path, "rb");
    REQUIRE(file, E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    muon_status status = read_all(file, path, &t->memory, length);
    fclose(file);
    t->bytes = t->memory;
    return status;
}

/* Validation has at least one sequence, even if that is more than a tenth. */
static muon_status split(text *t, int64_t length, int context)
{
    int64_t one = (int64_t)context + 1;
    REQUIRE(length >= 2 * one, E_VALUE,
            "%s: %lld bytes; with a context of %d at least %lld are needed, %lld to train on and "
            "%lld to validate with",
            t->name, (long long)length, context, (long long)(2 * one), (long long)one,
            (long long)one);
    t->validation = length / VALIDATION_PART > one ? length / VALIDATION_PART : one;
    t->train = length - t->validation;
    return MUON_OK;
}

muon_status text_open(text *t, const char *path, int context)
{
    int64_t length = built_in_text_end - built_in_text;
    *t = (text){.name = path ? path : "built-in text", .bytes = built_in_text};
    muon_status status = path ? read_file(t, path, &length) : MUON_OK;
    if (status == MUON_OK) status = split(t, length, context);
    if (status != MUON_OK) text_close(t);
    return status;
}

void text_close(text *t)
{
    free(t->memory);
    *t = (text){.name = NULL};
}

/* ---- sequences ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t text_draw(uint64_t seed, uint64_t a, uint64_t b)
{
    return mix(mix(mix(seed) ^ a) ^ b);
}

uint64_t text_hash(const text *t)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (int64_t i = 0; i < t->train + t->validation; i++)
        hash = (hash ^ t->bytes[i]) * 0x100000001b3u;
    return hash;
}

static void copy(const text *t, int64_t at, int context, uint8_t *tokens, uint8_t *next)
{
    memcpy(tokens, t->bytes + at, (size_t)context);
    memcpy(next, t->bytes + at + 1, (size_t)context);
}

void text_sequence(const text *t, uint64_t seed, int64_t step, int64_t number, int context,
                   uint8_t *tokens, uint8_t *next)
{
    uint64_t places = (uint64_t)(t->train - context);
    uint64_t at = text_draw(seed, (uint64_t)step, (uint64_t)number) % places;
    copy(t, (int64_t)at, context, tokens, next);
}

int64_t text_validations(const text *t, int context, int64_t most)
{
    int64_t fit = (t->validation - 1) / context;
    return fit < most ? fit : most;
}

void text_validation(const text *t, int64_t number, int64_t count, int context, uint8_t *tokens,
                     uint8_t *next)
{
    int64_t last = t->validation - context - 1; /* where the last one begins */
    /* In double: the product of two lengths may be beyond int64. */
    int64_t at = count > 1 ? (int64_t)((double)last * (double)number / (double)(count - 1)) : 0;
    copy(t, t->train + (at < last ? at : last), context, tokens, next);
}
