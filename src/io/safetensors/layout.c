/* layout.c - from tensors to the head of a file: what to write, and where. */
#include "base/memory.h"
#include "io/json_cursor.h"
#include "io/safetensors/header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static muon_status check_named(st_place *p, const muon_st_tensor *t)
{
    REQUIRE(t->dtype, E_ARG, "no dtype");
    const st_dtype *dtype = muon__st_dtype_find(t->dtype);
    REQUIRE(dtype, E_DTYPE, "unknown dtype '%s'", muon__st_show(t->dtype).text);
    REQUIRE(t->ndim >= 0 && t->ndim <= MUON_MAX_DIMS, E_SHAPE, "ndim is %d, must be 0..%d", t->ndim,
            MUON_MAX_DIMS);
    int64_t bytes = 0;
    TRY(muon__st_size(&bytes, MUON_E_SHAPE, dtype, t->ndim, t->shape));
    REQUIRE(t->bytes == (size_t)bytes, E_SHAPE, "%zu bytes, but shape and dtype %s need %" PRId64,
            t->bytes, dtype->word, bytes);
    p->bits = dtype->bits;
    return MUON_OK;
}

static muon_status check_tensor(st_place *p, const muon_st_tensor *t, size_t index)
{
    REQUIRE(t->name, E_ARG, "tensor %zu has no name", index);
    REQUIRE(strcmp(t->name, ST_METADATA) != 0, E_NAME, "tensor %zu is called %s, which is reserved",
            index, ST_METADATA);
    *p = (st_place){.tensor = t, .index = index};
    muon_status status = check_named(p, t);
    if (status == MUON_OK) return MUON_OK;
    return muon__fail_in(status, "tensor '%s'", muon__st_show(t->name).text);
}

static int by_name(const void *a, const void *b)
{
    const st_place *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

static int by_width(const void *a, const void *b)
{
    const st_place *x = a, *y = b;
    if (x->bits != y->bits) return x->bits > y->bits ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks everything but UTF-8, and puts the tensors in their order. */
static muon_status arrange(st_place *places, const muon_st_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        TRY(check_tensor(&places[i], &tensors[i], i));
    if (count == 0) return MUON_OK;
    qsort(places, count, sizeof *places, by_name);
    for (size_t i = 1; i < count; i++)
        REQUIRE(by_name(&places[i - 1], &places[i]) != 0, E_NAME, "two tensors '%s'",
                muon__st_show(places[i].tensor->name).text);
    qsort(places, count, sizeof *places, by_width);
    return MUON_OK;
}

static muon_status check_metadata(const muon_st_entry *metadata, size_t count)
{
    for (size_t i = 0; i < count; i++)
        REQUIRE(metadata[i].key && metadata[i].value, E_ARG, "metadata %zu has no %s", i,
                metadata[i].key ? "value" : "key");
    const char **keys = NULL;
    TRY(CALLOC(&keys, count, "safetensors metadata"));
    for (size_t i = 0; i < count; i++)
        keys[i] = metadata[i].key;
    if (count) qsort(keys, count, sizeof *keys, by_text);
    size_t twice = 1;
    while (twice < count && strcmp(keys[twice - 1], keys[twice]) != 0)
        twice++;
    muon_status status = MUON_OK;
    if (twice < count)
        status =
            muon__fail(MUON_E_NAME, "metadata: two keys '%s'", muon__st_show(keys[twice]).text);
    free(keys);
    return status;
}

muon_status muon__st_put_string(FILE *out, const char *text, const char *what)
{
    static const char escapes[] = "\"\\bfnrt", meanings[] = "\"\\\b\f\n\r\t";
    size_t length = strlen(text);
    REQUIRE(muon__json_utf8(text, length) == length, E_NAME, "%s is not UTF-8: '%s'", what,
            muon__st_show(text).text);
    fputc('"', out);
    for (const char *c = text; *c; c++) {
        const char *known = strchr(meanings, *c);
        if (known)
            fprintf(out, "\\%c", escapes[known - meanings]);
        else if ((unsigned char)*c < 0x20)
            fprintf(out, "\\u%04X", (unsigned)*c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
    return MUON_OK;
}

static muon_status put_metadata(FILE *out, const muon_st_entry *metadata, size_t count)
{
    fputs("\"" ST_METADATA "\":{", out);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) fputc(',', out);
        TRY(muon__st_put_string(out, metadata[i].key, "a metadata key"));
        fputc(':', out);
        TRY(muon__st_put_string(out, metadata[i].value, "a metadata value"));
    }
    fputc('}', out);
    return MUON_OK;
}

static muon_status put_tensor(FILE *out, const muon_st_tensor *t, int64_t begin, int64_t end)
{
    TRY(muon__st_put_string(out, t->name, "a tensor's name"));
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype);
    for (int i = 0; i < t->ndim; i++)
        fprintf(out, i ? ",%" PRId64 : "%" PRId64, t->shape[i]);
    fprintf(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
    return MUON_OK;
}

static muon_status put_header(FILE *out, const st_place *places, size_t count,
                              const muon_st_entry *metadata, size_t nmetadata)
{
    fputc('{', out);
    if (nmetadata) TRY(put_metadata(out, metadata, nmetadata));
    int64_t begin = 0;
    for (size_t i = 0; i < count; i++) {
        const muon_st_tensor *t = places[i].tensor;
        int64_t end;
        REQUIRE(!__builtin_add_overflow(begin, (int64_t)t->bytes, &end), E_SHAPE,
                "tensor '%s': the tensors before it and its %zu bytes overflow",
                muon__st_show(t->name).text, t->bytes);
        if (i > 0 || nmetadata) fputc(',', out);
        TRY(put_tensor(out, t, begin, end));
        begin = end;
    }
    fputc('}', out);
    return MUON_OK;
}

static muon_status make_head(st_layout *layout, size_t count, const muon_st_entry *metadata,
                             size_t nmetadata)
{
    static const char length_to_come[ST_LENGTH_BYTES];
    FILE *out = open_memstream(&layout->head, &layout->head_bytes);
    REQUIRE(out, E_NOMEM, "no memory for a header");
    fwrite(length_to_come, 1, sizeof length_to_come, out);
    muon_status status = put_header(out, layout->places, count, metadata, nmetadata);
    fflush(out); /* updates head_bytes */
    for (size_t i = layout->head_bytes; i % 8 != 0; i++)
        fputc(' ', out);
    int failed = ferror(out);
    failed |= fclose(out);
    failed |= !layout->head; /* glibc sets it to NULL in silence if its last realloc fails */
    TRY(status);
    REQUIRE(!failed, E_NOMEM, "no memory for a header of %zu bytes", layout->head_bytes);

    size_t length = layout->head_bytes - ST_LENGTH_BYTES;
    REQUIRE(length <= ST_HEADER_MAX, E_VALUE,
            "the header would have %zu bytes, more than the %d that readers accept", length,
            ST_HEADER_MAX);
    for (int i = 0; i < ST_LENGTH_BYTES; i++)
        layout->head[i] = (char)(length >> (8 * i) & 0xff);
    return MUON_OK;
}

muon_status muon__st_layout_create(st_layout *out, const muon_st_tensor *tensors, size_t count,
                                   const muon_st_entry *metadata, size_t nmetadata)
{
    TRY(check_metadata(metadata, nmetadata));
    st_layout layout = {0};
    TRY(CALLOC(&layout.places, count, "safetensors layout"));
    muon_status status = arrange(layout.places, tensors, count);
    if (status == MUON_OK) status = make_head(&layout, count, metadata, nmetadata);
    if (status != MUON_OK) {
        muon__st_layout_destroy(&layout);
        return status;
    }
    *out = layout;
    return MUON_OK;
}

void muon__st_layout_destroy(st_layout *layout)
{
    free(layout->head);
    free(layout->places);
    *layout = (st_layout){0};
}
