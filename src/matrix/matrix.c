/* matrix.c - folds a tensor to batch x rows x cols and lays the described bands over it. */
#include "matrix/matrix.h"

#include "base/memory.h"
#include "base/text.h"
#include "matrix/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE_TEXT 192 /* bytes for MUON_MAX_DIMS dims of up to 20 digits */
#define QUOTE_MAX  96  /* bytes of a text that messages show */

static const char *shape_text(char buffer[SHAPE_TEXT], int ndim, const int64_t *shape)
{
    text t = muon__text_in(buffer, SHAPE_TEXT);
    muon__text_add_shape(&t, ndim, shape);
    return buffer;
}

static int64_t product(const int64_t *shape, int64_t first, int64_t last)
{
    int64_t result = 1;
    for (int64_t i = first; i < last; i++)
        result *= shape[i];
    return result;
}

muon_status muon__matrix_check_shape(int ndim, const int64_t *shape)
{
    REQUIRE(ndim >= 1 && ndim <= MUON_MAX_DIMS, E_SHAPE, "ndim is %d, must be 1..%d", ndim,
            MUON_MAX_DIMS);
    char buffer[SHAPE_TEXT];
    int64_t elements = 1;
    for (int i = 0; i < ndim; i++) {
        REQUIRE(shape[i] >= 1, E_SHAPE, "shape %s: dim %d is %" PRId64 ", must be at least 1",
                shape_text(buffer, ndim, shape), i, shape[i]);
        REQUIRE(!__builtin_mul_overflow(elements, shape[i], &elements), E_SHAPE,
                "shape %s: the number of elements does not fit 64 bits",
                shape_text(buffer, ndim, shape));
    }
    return MUON_OK;
}

/* More than 2 dims could be matrices in several ways, so we ask which. */
static muon_status fail_undescribed(int64_t batch, int ndim, const int64_t *shape)
{
    char buffer[SHAPE_TEXT], b[32];
    text t = muon__text_in(b, sizeof b);
    if (batch > 0) muon__text_add(&t, "batch %" PRId64 "; ", batch);
    FAIL(E_SHAPE,
         "shape %s: which of the last %" PRId64
         " dims are rows and columns? \"batch %d\" makes %" PRId64 " matrices of [%" PRId64
         ", %" PRId64 "], \"%sflatten 1\" (a convolution) makes %" PRId64 " of [%" PRId64
         ", %" PRId64 "]",
         shape_text(buffer, ndim, shape), ndim - batch, ndim - 2, product(shape, 0, ndim - 2),
         shape[ndim - 2], shape[ndim - 1], b, product(shape, 0, batch), shape[batch],
         product(shape, batch + 1, ndim));
}

static muon_status fold(matrix_spec *spec, const description *d, int ndim, const int64_t *shape)
{
    TRY(muon__matrix_check_shape(ndim, shape));
    char buffer[SHAPE_TEXT];
    REQUIRE(ndim >= 2, E_SHAPE, "shape %s: a matrix needs at least 2 dims",
            shape_text(buffer, ndim, shape));
    REQUIRE(d->batch <= ndim - 2, E_SHAPE,
            "shape %s: batch %" PRId64 " leaves %" PRId64 " of %d dims, a matrix needs 2",
            shape_text(buffer, ndim, shape), d->batch, d->batch < ndim ? ndim - d->batch : 0, ndim);
    int64_t rest = ndim - d->batch;
    if (d->flatten == 0 && rest > 2) return fail_undescribed(d->batch, ndim, shape);
    int64_t flatten = d->flatten ? d->flatten : 1;
    REQUIRE(flatten < rest, E_SHAPE,
            "shape %s: flatten %" PRId64 " leaves no dim for columns, %" PRId64
            " dims follow the batch",
            shape_text(buffer, ndim, shape), flatten, rest);
    spec->batch_dims = (int)d->batch;
    spec->row_dims = (int)flatten;
    spec->batch = product(shape, 0, d->batch);
    spec->rows = product(shape, d->batch, d->batch + flatten);
    spec->cols = product(shape, d->batch + flatten, ndim);
    spec->transposed = d->transposed;
    return MUON_OK;
}

/* The rows of all repetitions, 0 for the rest; -1 if they do not fit 64 bits. */
static int64_t part_length(const part *p)
{
    int64_t sum = 0;
    for (size_t i = 0; i < p->nsizes; i++) {
        if (__builtin_add_overflow(sum, p->sizes[i], &sum)) return -1;
    }
    return __builtin_mul_overflow(sum, p->repeat, &sum) ? -1 : sum;
}

static int64_t cut_length(const cut *c)
{
    int64_t sum = 0;
    for (size_t i = 0; i < c->nparts; i++) {
        int64_t length = part_length(&c->parts[i]);
        if (length < 0 || __builtin_add_overflow(sum, length, &sum)) return -1;
    }
    return sum;
}

/* "8*[512, 128, 128] + skip 64": the parts as a sum. '*' for the rest adds nothing. */
static void add_parts(text *t, const cut *c)
{
    const char *plus = "";
    for (size_t i = 0; i < c->nparts && !t->full; i++) {
        const part *p = &c->parts[i];
        if (p->kind == PART_REST) continue;
        muon__text_add(t, "%s%s", plus, p->kind == PART_SKIP ? "skip " : "");
        plus = " + ";
        if (p->repeat > 1) muon__text_add(t, "%" PRId64 "*", p->repeat);
        int bracket = p->nsizes > 1 || p->kind == PART_TOGETHER;
        if (bracket) muon__text_add(t, p->kind == PART_TOGETHER ? "[" : "(");
        for (size_t j = 0; j < p->nsizes && !t->full; j++) {
            muon__text_add(t, "%s%" PRId64, j ? ", " : "", p->sizes[j]);
        }
        if (bracket) muon__text_add(t, p->kind == PART_TOGETHER ? "]" : ")");
    }
}

/* The parts take `used` rows, which is not what there is to take. */
static muon_status fail_sum(const cut *c, int64_t used, int64_t length, const char *rows)
{
    char sum[QUOTE_MAX];
    text t = muon__text_in(sum, sizeof sum);
    add_parts(&t, c);
    int plain = sum[strspn(sum, "0123456789")] == '\0'; /* one size needs no "=" */
    REQUIRE(used >= 0, E_SHAPE, "%s = more than %" PRId64 " %s, but the tensor has %" PRId64, sum,
            INT64_MAX, rows, length);
    REQUIRE(used < length, E_SHAPE, "%s%s%" PRId64 " %s, but the tensor has %" PRId64,
            plain ? "" : sum, plain ? "" : " = ", used, rows, length);
    FAIL(E_SHAPE,
         "%s%s%" PRId64 " %s, but the tensor has %" PRId64 " (use 'skip %" PRId64
         "' for %s in no matrix)",
         plain ? "" : sum, plain ? "" : " = ", used, rows, length, length - used, rows);
}

static size_t count_bands(const cut *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->nparts; i++) {
        const part *p = &c->parts[i];
        if (p->kind == PART_EACH) n += (size_t)p->repeat * p->nsizes;
        if (p->kind == PART_TOGETHER) n += p->nsizes;
    }
    return n;
}

static band contiguous(int64_t start, int64_t size)
{
    return (band){.start = start, .size = size, .count = 1, .stride = size};
}

/* Writes the bands of a part that starts at `start`; returns the end of what it wrote. */
static band *lay(band *out, const part *p, int64_t start)
{
    if (p->kind == PART_EACH) {
        for (int64_t r = 0; r < p->repeat; r++) {
            for (size_t i = 0; i < p->nsizes; start += p->sizes[i++]) {
                *out++ = contiguous(start, p->sizes[i]);
            }
        }
    } else if (p->kind == PART_TOGETHER && p->nsizes == 1) {
        *out++ = contiguous(start, part_length(p)); /* the repetitions touch each other */
    } else if (p->kind == PART_TOGETHER) {
        int64_t period = part_length(p) / p->repeat;
        for (size_t i = 0; i < p->nsizes; start += p->sizes[i++]) {
            *out++ = (band){start, p->sizes[i], p->repeat, p->repeat > 1 ? period : p->sizes[i]};
        }
    }
    return out;
}

/* Cuts `length` rows (or columns; `rows` is the word for messages). */
static muon_status lay_bands(band **bands, size_t *nbands, int64_t *skipped, const cut *c,
                             int64_t length, const char *rows)
{
    int64_t nequal = c->equal > 0 ? c->equal : 1;
    int64_t size = length / nequal;
    part equal = {.kind = PART_EACH, .repeat = nequal, .sizes = &size, .nsizes = 1};
    cut whole = {.parts = &equal, .nparts = 1};
    if (c->nparts == 0) {
        REQUIRE(length % nequal == 0, E_SHAPE,
                "%" PRId64 " %s cannot be cut into %" PRId64 " equal blocks (remainder %" PRId64
                ")",
                length, rows, nequal, length % nequal);
        c = &whole;
    }

    int64_t used = cut_length(c);
    int has_rest = 0;
    for (size_t i = 0; i < c->nparts; i++)
        has_rest |= c->parts[i].kind == PART_REST;
    if (used < 0 || used > length || (used < length && !has_rest)) {
        return fail_sum(c, used, length, rows);
    }
    int64_t rest = length - used;

    size_t n = count_bands(c); /* at most `length`, so nothing overflowed */
    REQUIRE(n > 0, E_SHAPE, "all %" PRId64 " %s are skipped, so there is no matrix", length, rows);
    REQUIRE(n <= MUON__MAX_BANDS, E_SHAPE,
            "the %s are cut into %zu blocks, at most %d are possible", rows, n, MUON__MAX_BANDS);
    TRY(CALLOC(bands, n, "blocks"));
    band *out = *bands;
    int64_t start = 0;
    for (size_t i = 0; i < c->nparts; i++) {
        const part *p = &c->parts[i];
        int64_t part_rows = p->kind == PART_REST ? rest : part_length(p);
        if (p->kind == PART_REST || p->kind == PART_SKIP) *skipped += part_rows;
        out = lay(out, p, start);
        start += part_rows;
    }
    *nbands = n;
    return MUON_OK;
}

static muon_status build(matrix_spec *spec, const description *d, int ndim, const int64_t *shape)
{
    TRY(fold(spec, d, ndim, shape));
    TRY(lay_bands(&spec->row_bands, &spec->nrow_bands, &spec->skipped_rows, &d->rows, spec->rows,
                  "rows"));
    return lay_bands(&spec->col_bands, &spec->ncol_bands, &spec->skipped_cols, &d->cols, spec->cols,
                     "columns");
}

/* What a message shows of a text: printable, and of a long one the part around `at`. */
static const char *quote(char buffer[QUOTE_MAX + 8], const char *matrices, size_t at)
{
    size_t length = strlen(matrices);
    size_t first = length <= QUOTE_MAX || at < QUOTE_MAX / 2 ? 0 : at - QUOTE_MAX / 2;
    snprintf(buffer, QUOTE_MAX + 8, "%s%.*s%s", first > 0 ? "..." : "", QUOTE_MAX, matrices + first,
             length - first > QUOTE_MAX ? "..." : "");
    for (char *c = buffer; *c; c++) {
        if (*c < ' ' || *c > '~') *c = '?';
    }
    return buffer;
}

muon_status muon__matrix_spec_create(matrix_spec *out, const char *matrices, int ndim,
                                     const int64_t *shape)
{
    description d;
    matrix_spec spec = {0};
    muon_status status = muon__matrices_parse(&d, matrices);
    size_t at = d.stopped_at;
    if (status == MUON_OK) status = build(&spec, &d, ndim, shape);
    muon__matrices_free(&d);
    if (status == MUON_OK) {
        *out = spec;
        return MUON_OK;
    }
    muon__matrix_spec_destroy(&spec);
    if (!matrices || !*matrices) return status;
    char buffer[QUOTE_MAX + 8];
    return muon__fail_in(status, "matrices \"%s\"", quote(buffer, matrices, at));
}

void muon__matrix_spec_destroy(matrix_spec *spec)
{
    free(spec->row_bands);
    free(spec->col_bands);
    *spec = (matrix_spec){0};
}

int64_t muon__matrix_count(const matrix_spec *spec)
{
    int64_t count;
    if (__builtin_mul_overflow(spec->batch, spec->nrow_bands, &count) ||
        __builtin_mul_overflow(count, spec->ncol_bands, &count)) {
        return -1;
    }
    return count;
}
