#include "io/json_cursor.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the UTF-8 character at `text`; 0 if there is none. */
static size_t utf8_length(const char *text, size_t rest)
{
    static const unsigned smallest[] = {0, 0x80, 0x800, 0x10000}; /* longer forms are forbidden */
    unsigned first = (unsigned char)text[0];
    if (first < 0x80) return 1;
    size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc0 || first >= 0xf8 || more >= rest) return 0;
    unsigned code = first & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        unsigned next = (unsigned char)text[i];
        if ((next & 0xc0) != 0x80) return 0;
        code = code << 6 | (next & 0x3f);
    }
    if (code < smallest[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    return more + 1;
}

static size_t utf8_put(char *to, unsigned code)
{
    size_t more = code >= 0x10000 ? 3 : code >= 0x800 ? 2 : code >= 0x80 ? 1 : 0;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(lead[more] | code >> (6 * more));
    for (size_t i = 1; i <= more; i++)
        to[i] = (char)(0x80 | (code >> (6 * (more - i)) & 0x3f));
    return more + 1;
}

size_t muon__json_utf8(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        size_t bytes = utf8_length(text + at, length - at);
        if (bytes == 0) break;
        at += bytes;
    }
    return at;
}

muon_status muon__json_start(json_cursor *out, const char *text, size_t length, const char *what)
{
    size_t good = muon__json_utf8(text, length);
    REQUIRE(good == length, E_FORMAT, "%s byte %zu is 0x%02x: not UTF-8", what, good,
            (unsigned)(unsigned char)text[good]);
    *out = (json_cursor){text, length, 0, what};
    return MUON_OK;
}

int muon__json_peek(json_cursor *c)
{
    for (; c->at < c->length; c->at++) {
        char next = c->text[c->at];
        if (next != ' ' && next != '\t' && next != '\n' && next != '\r') return (unsigned char)next;
    }
    return -1;
}

muon_status muon__json_take(json_cursor *c, char wanted)
{
    int got = muon__json_peek(c);
    REQUIRE(got >= 0, E_FORMAT, "%s ends at byte %zu, where '%c' is expected", c->what, c->at,
            wanted);
    REQUIRE(got == wanted, E_FORMAT, "%s byte %zu is 0x%02x, expected '%c'", c->what, c->at,
            (unsigned)got, wanted);
    c->at++;
    return MUON_OK;
}

/* Four hexadecimal digits at c->at. */
static muon_status take_hex(unsigned *out, json_cursor *c)
{
    unsigned code = 0;
    for (int i = 0; i < 4; i++, c->at++) {
        int digit = c->at < c->length ? (unsigned char)c->text[c->at] : -1;
        if (digit >= '0' && digit <= '9')
            digit -= '0';
        else if (digit >= 'a' && digit <= 'f')
            digit -= 'a' - 10;
        else if (digit >= 'A' && digit <= 'F')
            digit -= 'A' - 10;
        else
            FAIL(E_FORMAT, "%s byte %zu: \\u without four digits", c->what, c->at);
        code = code << 4 | (unsigned)digit;
    }
    *out = code;
    return MUON_OK;
}

/* What follows "\u", as UTF-8 at `to`: one number, or two for a character beyond 16 bits. */
static muon_status take_unicode(char *to, size_t *bytes, json_cursor *c)
{
    size_t where = c->at;
    unsigned code = 0;
    TRY(take_hex(&code, c));
    REQUIRE(code != 0, E_FORMAT, "%s byte %zu: NUL in a string", c->what, where);
    if (code >= 0xd800 && code < 0xdc00 && c->length - c->at >= 2 && c->text[c->at] == '\\' &&
        c->text[c->at + 1] == 'u') {
        unsigned low = 0;
        c->at += 2;
        TRY(take_hex(&low, c));
        REQUIRE(low >= 0xdc00 && low < 0xe000, E_FORMAT, "%s byte %zu: half a surrogate pair",
                c->what, where);
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    REQUIRE(code < 0xd800 || code >= 0xe000, E_FORMAT, "%s byte %zu: half a surrogate pair",
            c->what, where);
    *bytes = utf8_put(to, code);
    return MUON_OK;
}

/* Decodes up to the closing '"' and takes it. `to` has room for the bytes as they are encoded, and
 * no encoding is shorter than what it stands for. */
static muon_status decode(char *to, json_cursor *c)
{
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    for (;;) {
        REQUIRE(c->at < c->length, E_FORMAT, "%s ends inside a string", c->what);
        char next = c->text[c->at++];
        if (next == '"') break;
        REQUIRE((unsigned char)next >= 0x20, E_FORMAT,
                "%s byte %zu: control character 0x%02x in a string", c->what, c->at - 1,
                (unsigned)next);
        if (next != '\\') {
            *to++ = next;
            continue;
        }
        REQUIRE(c->at < c->length, E_FORMAT, "%s ends inside a string", c->what);
        char escape = c->text[c->at++];
        const char *known = strchr(escapes, escape);
        if (escape == 'u') {
            size_t bytes = 0;
            TRY(take_unicode(to, &bytes, c));
            to += bytes;
        } else {
            REQUIRE(escape != '\0' && known, E_FORMAT, "%s byte %zu: unknown escape", c->what,
                    c->at - 1);
            *to++ = meanings[known - escapes];
        }
    }
    *to = '\0';
    return MUON_OK;
}

muon_status muon__json_take_string(char **out, json_cursor *c)
{
    TRY(muon__json_take(c, '"'));
    size_t end = c->at;
    while (end < c->length && c->text[end] != '"')
        end += c->text[end] == '\\' ? 2 : 1;
    char *string = NULL;
    TRY(CALLOC(&string, end - c->at + 1, c->what));
    muon_status status = decode(string, c);
    if (status != MUON_OK) {
        free(string);
        return status;
    }
    *out = string;
    return MUON_OK;
}

static int digit_at(const json_cursor *c)
{
    return c->at < c->length && c->text[c->at] >= '0' && c->text[c->at] <= '9';
}

muon_status muon__json_take_integer(int64_t *out, json_cursor *c)
{
    int negative = muon__json_peek(c) == '-';
    size_t start = c->at;
    if (negative) c->at++;
    int zero = digit_at(c) && c->text[c->at] == '0';
    size_t first = c->at;
    int64_t value = 0;
    for (; digit_at(c); c->at++) {
        int digit = c->text[c->at] - '0';
        REQUIRE(!__builtin_mul_overflow(value, 10, &value) &&
                    !__builtin_add_overflow(value, digit, &value),
                E_FORMAT, "%s byte %zu: an integer beyond 2^63", c->what, start);
    }
    int whole = c->at > first && !(zero && c->at > first + 1);
    if (c->at < c->length && strchr(".eE", c->text[c->at])) whole = 0;
    REQUIRE(whole, E_FORMAT, "%s byte %zu: not an integer", c->what, start);
    *out = negative ? -value : value;
    return MUON_OK;
}

muon_status muon__json_next(int *more, json_cursor *c, char closing, size_t count)
{
    *more = muon__json_peek(c) != closing;
    if (!*more) return muon__json_take(c, closing);
    return count > 0 ? muon__json_take(c, ',') : MUON_OK;
}

muon_status muon__json_take_key(char **out, json_cursor *c)
{
    char *key = NULL;
    TRY(muon__json_take_string(&key, c));
    muon_status status = muon__json_take(c, ':');
    if (status != MUON_OK) {
        free(key);
        return status;
    }
    *out = key;
    return MUON_OK;
}
