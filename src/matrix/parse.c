/* parse.c - a recursive-descent parser, one function per rule of the grammar in parse.h. It keeps no
 * stack of its own: the grammar nests one level deep. */
#include "matrix/parse.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    description *d;
    const char *start, *at;
    const char *next; /* what may follow the item just read, for messages */
} parser;

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The next character that means something; 0 at the end. */
static char peek(parser *p)
{
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')
        p->at++;
    return *p->at;
}

static int accept(parser *p, char c)
{
    if (peek(p) != c) return 0;
    p->at++;
    return 1;
}

/* The length of the word at the parser; digits count, so that "rows3" is one unknown word. */
static int word_length(parser *p)
{
    int n = 0;
    if (is_letter(peek(p))) {
        while (is_letter(p->at[n]) || is_digit(p->at[n]))
            n++;
    }
    return n;
}

static int accept_word(parser *p, const char *word)
{
    int n = word_length(p);
    if ((size_t)n != strlen(word) || memcmp(p->at, word, (size_t)n) != 0) return 0;
    p->at += n;
    return 1;
}

/* The column of `at`, for a message about what is there. */
static size_t stop(parser *p, const char *at)
{
    p->d->stopped_at = (size_t)(at - p->start);
    return p->d->stopped_at + 1;
}

static muon_status unexpected(parser *p, const char *expected)
{
    char c = peek(p);
    int n = is_digit(c) ? (int)strspn(p->at, "0123456789") : word_length(p);
    if (n == 0) n = 1;
    char found[48];
    if (c == '\0') {
        snprintf(found, sizeof found, "the end");
    } else if (c < ' ' || c > '~') {
        snprintf(found, sizeof found, "the byte 0x%02x", (unsigned)(unsigned char)c);
    } else {
        snprintf(found, sizeof found, "'%.*s%s'", n > 32 ? 32 : n, p->at, n > 32 ? "..." : "");
    }
    FAIL(E_ARG, "column %zu: expected %s, found %s", stop(p, p->at), expected, found);
}

static muon_status parse_number(parser *p, int64_t *out, const char *expected)
{
    if (!is_digit(peek(p))) return unexpected(p, expected);
    const char *before = p->at;
    int64_t value = 0;
    for (; is_digit(*p->at); p->at++) {
        REQUIRE(!__builtin_mul_overflow(value, 10, &value) &&
                    !__builtin_add_overflow(value, *p->at - '0', &value),
                E_ARG, "column %zu: the number does not fit 64 bits", stop(p, before));
    }
    REQUIRE(value > 0, E_ARG, "column %zu: expected %s, found 0 (numbers start at 1)",
            stop(p, before), expected);
    *out = value;
    return MUON_OK;
}

/* One more size of the part being read; the array has room for all that fit in the text. */
static muon_status parse_size(parser *p, part *out, const char *expected)
{
    int64_t *size = &p->d->sizes[p->d->nsizes];
    TRY(parse_number(p, size, expected));
    p->d->nsizes++;
    out->nsizes++;
    return MUON_OK;
}

static muon_status parse_sequence(parser *p, part *out, char close)
{
    const char *expected = close == ')' ? "',' or ')'" : "',' or ']'";
    do {
        TRY(parse_size(p, out, "a size (sequences do not nest)"));
    } while (accept(p, ','));
    if (!accept(p, close)) return unexpected(p, expected);
    return MUON_OK;
}

static muon_status parse_part(parser *p, part *out)
{
    *out = (part){.kind = PART_EACH, .repeat = 1, .sizes = p->d->sizes + p->d->nsizes};
    p->next = "',', ';' or the end";
    if (accept_word(p, "skip")) {
        out->kind = accept(p, '*') ? PART_REST : PART_SKIP;
        return out->kind == PART_REST ? MUON_OK : parse_size(p, out, "a size or '*' after 'skip'");
    }
    int64_t number = 0;
    TRY(parse_number(p, &number, "a size, N * ... or 'skip'"));
    if (!accept(p, '*')) { /* the number was the size */
        p->d->sizes[p->d->nsizes++] = number;
        out->nsizes = 1;
        p->next = "'*', ',', ';' or the end";
        return MUON_OK;
    }
    out->repeat = number;
    if (accept(p, '(')) return parse_sequence(p, out, ')');
    if (accept(p, '[')) {
        out->kind = PART_TOGETHER;
        return parse_sequence(p, out, ']');
    }
    return parse_size(p, out, "a size, '(' or '['");
}

static muon_status parse_cut(parser *p, cut *out)
{
    if (accept(p, '/')) return parse_number(p, &out->equal, "the number of equal blocks");
    int rests = 0;
    out->parts = p->d->parts + p->d->nparts;
    do {
        peek(p);
        const char *before = p->at;
        part *read = &p->d->parts[p->d->nparts];
        TRY(parse_part(p, read));
        rests += read->kind == PART_REST;
        REQUIRE(rests <= 1, E_ARG, "column %zu: 'skip *' appears twice", stop(p, before));
        p->d->nparts++;
        out->nparts++;
    } while (accept(p, ','));
    return MUON_OK;
}

static muon_status parse_item(parser *p, unsigned *seen)
{
    enum { BATCH, FLATTEN, ROWS, COLS, TRANSPOSED, NITEMS };
    static const char *const words[NITEMS] = {"batch", "flatten", "rows", "cols", "transposed"};
    peek(p);
    const char *before = p->at;
    int item = 0;
    while (item < NITEMS && !accept_word(p, words[item]))
        item++;
    if (item == NITEMS) return unexpected(p, "batch, flatten, rows, cols or transposed");
    REQUIRE(!(*seen & 1u << item), E_ARG, "column %zu: '%s' appears twice", stop(p, before),
            words[item]);
    *seen |= 1u << item;
    p->next = "';' or the end";
    switch (item) {
    case BATCH:
        return parse_number(p, &p->d->batch, "the number of batch dims");
    case FLATTEN:
        return parse_number(p, &p->d->flatten, "the number of dims that become rows");
    case ROWS:
        return parse_cut(p, &p->d->rows);
    case COLS:
        return parse_cut(p, &p->d->cols);
    default:
        p->d->transposed = 1;
        return MUON_OK;
    }
}

muon_status muon__matrices_parse(description *out, const char *matrices)
{
    *out = (description){0};
    parser p = {.d = out, .start = matrices ? matrices : "", .at = matrices ? matrices : ""};
    size_t length = strnlen(p.start, MUON__MATRICES_TEXT_MAX + 1);
    REQUIRE(length <= MUON__MATRICES_TEXT_MAX, E_ARG, "the text is longer than %d bytes",
            MUON__MATRICES_TEXT_MAX);
    if (peek(&p) == '\0') return MUON_OK;

    /* Numbers, and so parts, have a separator between them; "skip *" is longer than a number. */
    TRY(CALLOC(&out->sizes, length / 2 + 1, "reading the text"));
    TRY(CALLOC(&out->parts, length / 2 + 1, "reading the text"));
    unsigned seen = 0;
    do {
        TRY(parse_item(&p, &seen));
    } while (accept(&p, ';'));
    if (peek(&p) != '\0') return unexpected(&p, p.next);
    return MUON_OK;
}

void muon__matrices_free(description *d)
{
    free(d->parts);
    free(d->sizes);
    *d = (description){0};
}
