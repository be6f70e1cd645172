/* header.c - from the text of a header to a list of tensors that can be trusted. */
#include "io/safetensors/header.h"

#include "base/memory.h"
#include "io/json_cursor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void *muon__st_grow(void *list, size_t count, size_t size, const char *what)
{
    if ((count & (count - 1)) != 0) return list;
    void *larger = muon__calloc(count ? 2 * count : 1, size, what);
    if (!larger) return NULL;
    if (count) memcpy(larger, list, count * size);
    free(list);
    return larger;
}

static muon_status read_dtype(st_item *item, json_cursor *c)
{
    char *word = NULL;
    TRY(muon__json_take_string(&word, c));
    item->dtype = muon__st_dtype_find(word);
    muon_status status = MUON_OK;
    if (!item->dtype)
        status = muon__fail(MUON_E_FORMAT, "unknown dtype '%s'", muon__st_show(word).text);
    free(word);
    return status;
}

/* A list of at most `max` numbers that are not negative. */
static muon_status read_list(int64_t *out, size_t *count, size_t max, json_cursor *c)
{
    TRY(muon__json_take(c, '['));
    for (size_t n = 0;; n++) {
        int more = 0;
        TRY(muon__json_next(&more, c, ']', n));
        if (!more) {
            *count = n;
            return MUON_OK;
        }
        REQUIRE(n < max, E_FORMAT, "more than %zu numbers", max);
        TRY(muon__json_take_integer(&out[n], c));
        REQUIRE(out[n] >= 0, E_FORMAT, "number %zu is %" PRId64 ", must not be negative", n,
                out[n]);
    }
}

static muon_status read_shape(st_item *item, json_cursor *c)
{
    size_t ndim = 0;
    TRY(read_list(item->shape, &ndim, MUON_MAX_DIMS, c));
    item->ndim = (int)ndim;
    return MUON_OK;
}

static muon_status read_offsets(st_item *item, json_cursor *c)
{
    int64_t offsets[2];
    size_t count = 0;
    TRY(read_list(offsets, &count, 2, c));
    REQUIRE(count == 2, E_FORMAT, "%zu numbers, must be 2", count);
    item->begin = offsets[0];
    item->end = offsets[1];
    return MUON_OK;
}

/* Reads the value of `key`, and sets its bit in *seen. */
static muon_status read_field(st_item *item, unsigned *seen, const char *key, json_cursor *c)
{
    static const struct {
        const char *key;
        muon_status (*read)(st_item *item, json_cursor *c);
    } fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
    size_t i = 0;
    while (i < 3 && strcmp(fields[i].key, key) != 0)
        i++;
    REQUIRE(i < 3, E_FORMAT, "unknown key '%s'", muon__st_show(key).text);
    REQUIRE(!(*seen & 1u << i), E_FORMAT, "%s appears twice", key);
    *seen |= 1u << i;
    muon_status status = fields[i].read(item, c);
    return status == MUON_OK ? MUON_OK : muon__fail_in(status, "%s", key);
}

/* The three fields in any order, nothing else. */
static muon_status read_description(st_item *item, json_cursor *c)
{
    unsigned seen = 0;
    TRY(muon__json_take(c, '{'));
    for (size_t n = 0;; n++) {
        int more = 0;
        TRY(muon__json_next(&more, c, '}', n));
        if (!more) break;
        char *key = NULL;
        TRY(muon__json_take_key(&key, c));
        muon_status status = read_field(item, &seen, key, c);
        free(key);
        TRY(status);
    }
    REQUIRE(seen & 1, E_FORMAT, "no dtype");
    REQUIRE(seen & 2, E_FORMAT, "no shape");
    REQUIRE(seen & 4, E_FORMAT, "no data_offsets");
    return MUON_OK;
}

static muon_status check_range(const st_item *item, int64_t data_bytes)
{
    REQUIRE(item->begin <= item->end, E_FORMAT,
            "data_offsets run backwards, from %" PRId64 " to %" PRId64, item->begin, item->end);
    REQUIRE(item->end <= data_bytes, E_FORMAT,
            "ends at byte %" PRId64 " of the data, but the file has only %" PRId64, item->end,
            data_bytes);
    int64_t bytes = 0;
    TRY(muon__st_size(&bytes, MUON_E_FORMAT, item->dtype, item->ndim, item->shape));
    REQUIRE(item->end - item->begin == bytes, E_FORMAT,
            "data_offsets %" PRId64 "..%" PRId64 " are %" PRId64
            " bytes, but shape and dtype %s need %" PRId64,
            item->begin, item->end, item->end - item->begin, item->dtype->word, bytes);
    return MUON_OK;
}

/* Takes over `name`. */
static muon_status parse_tensor(st_header *h, json_cursor *c, char *name, int64_t data_bytes)
{
    st_item *items = muon__st_grow(h->items, h->count, sizeof *h->items, "safetensors header");
    if (!items) {
        free(name);
        return MUON_E_NOMEM;
    }
    h->items = items;
    st_item *item = &items[h->count];
    item->name = name;
    item->order = h->count++;
    muon_status status = read_description(item, c);
    if (status == MUON_OK) status = check_range(item, data_bytes);
    if (status == MUON_OK) return MUON_OK;
    return muon__fail_in(status, "tensor '%s'", muon__st_show(name).text);
}

static muon_status parse_pair(st_header *h, json_cursor *c)
{
    st_pair *pairs =
        muon__st_grow(h->metadata, h->nmetadata, sizeof *h->metadata, "safetensors header");
    if (!pairs) return MUON_E_NOMEM;
    h->metadata = pairs;
    st_pair *pair = &pairs[h->nmetadata++];
    TRY(muon__json_take_key(&pair->key, c));
    muon_status status = muon__json_take_string(&pair->value, c);
    if (status == MUON_OK) return MUON_OK;
    return muon__fail_in(status, "key '%s'", muon__st_show(pair->key).text);
}

static muon_status parse_metadata(st_header *h, json_cursor *c)
{
    REQUIRE(!h->has_metadata, E_FORMAT, "appears twice");
    h->has_metadata = 1;
    TRY(muon__json_take(c, '{'));
    for (;;) {
        int more = 0;
        TRY(muon__json_next(&more, c, '}', h->nmetadata));
        if (!more) return MUON_OK;
        TRY(parse_pair(h, c));
    }
}

static int by_place(const void *a, const void *b)
{
    const st_item *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1; /* empty tensors come first */
    return x->order < y->order ? -1 : 1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const st_name *)a)->name, ((const st_name *)b)->name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const st_pair *)a)->key, ((const st_pair *)b)->key);
}

/* Sorts for lookup; what is twice is then side by side. */
static muon_status index_names(st_header *h)
{
    TRY(CALLOC(&h->names, h->count, "safetensors names"));
    for (size_t i = 0; i < h->count; i++)
        h->names[i] = (st_name){h->items[i].name, i};
    if (h->count) qsort(h->names, h->count, sizeof *h->names, by_name);
    for (size_t i = 1; i < h->count; i++)
        REQUIRE(by_name(&h->names[i - 1], &h->names[i]) != 0, E_FORMAT, "two tensors '%s'",
                muon__st_show(h->names[i].name).text);

    if (h->nmetadata) qsort(h->metadata, h->nmetadata, sizeof *h->metadata, by_key);
    for (size_t i = 1; i < h->nmetadata; i++)
        REQUIRE(by_key(&h->metadata[i - 1], &h->metadata[i]) != 0, E_FORMAT, "%s: two keys '%s'",
                ST_METADATA, muon__st_show(h->metadata[i].key).text);
    return MUON_OK;
}

/* The format allows neither holes nor overlaps: bytes that belong to nobody could hide anything. */
static muon_status check_cover(const st_header *h, int64_t data_bytes)
{
    int64_t end = 0;
    for (size_t i = 0; i < h->count; i++) {
        const st_item *item = &h->items[i];
        REQUIRE(item->begin <= end, E_FORMAT,
                "bytes %" PRId64 "..%" PRId64
                " of the data, before tensor '%s', belong to no tensor",
                end, item->begin, muon__st_show(item->name).text);
        if (item->begin < end)
            FAIL(E_FORMAT,
                 "tensor '%s' (bytes %" PRId64 "..%" PRId64 " of the data) overlaps tensor '%s' "
                 "(%" PRId64 "..%" PRId64 ")",
                 muon__st_show(item->name).text, item->begin, item->end,
                 muon__st_show(item[-1].name).text, item[-1].begin, item[-1].end);
        end = item->end;
    }
    REQUIRE(end == data_bytes, E_FORMAT,
            "the tensors end at byte %" PRId64 " of the data, but the file has %" PRId64, end,
            data_bytes);
    return MUON_OK;
}

/* One member of the header. */
static muon_status parse_entry(st_header *h, json_cursor *c, int64_t data_bytes)
{
    char *name = NULL;
    TRY(muon__json_take_key(&name, c));
    if (strcmp(name, ST_METADATA) != 0) return parse_tensor(h, c, name, data_bytes);
    free(name);
    muon_status status = parse_metadata(h, c);
    return status == MUON_OK ? MUON_OK : muon__fail_in(status, ST_METADATA);
}

static muon_status parse(st_header *h, const char *text, size_t length, int64_t data_bytes)
{
    REQUIRE(length > 0 && text[0] == '{', E_FORMAT, "the header does not begin with '{'");
    json_cursor c;
    TRY(muon__json_start(&c, text, length, "header"));
    TRY(muon__json_take(&c, '{'));
    for (size_t n = 0;; n++) {
        int more = 0;
        TRY(muon__json_next(&more, &c, '}', n));
        if (!more) break;
        TRY(parse_entry(h, &c, data_bytes));
    }
    REQUIRE(muon__json_peek(&c) < 0, E_FORMAT, "header byte %zu: text after the closing '}'", c.at);

    if (h->count) qsort(h->items, h->count, sizeof *h->items, by_place);
    TRY(index_names(h));
    return check_cover(h, data_bytes);
}

muon_status muon__st_header_parse(st_header *out, const char *text, size_t length,
                                  int64_t data_bytes)
{
    st_header header = {0};
    muon_status status = parse(&header, text, length, data_bytes);
    if (status != MUON_OK) {
        muon__st_header_destroy(&header);
        return status;
    }
    *out = header;
    return MUON_OK;
}

void muon__st_header_destroy(st_header *header)
{
    for (size_t i = 0; i < header->count; i++)
        free(header->items[i].name);
    for (size_t i = 0; i < header->nmetadata; i++) {
        free(header->metadata[i].key);
        free(header->metadata[i].value);
    }
    free(header->items);
    free(header->names);
    free(header->metadata);
    *header = (st_header){0};
}

muon_status muon__st_header_length(size_t *length, const unsigned char prefix[ST_LENGTH_BYTES],
                                   int64_t file_bytes)
{
    uint64_t value = 0;
    for (int i = ST_LENGTH_BYTES - 1; i >= 0; i--)
        value = value << 8 | prefix[i];
    REQUIRE(value > 0, E_FORMAT, "header length is 0");
    REQUIRE(value <= ST_HEADER_MAX, E_FORMAT,
            "header length is %" PRIu64 ", more than %d: not a safetensors file", value,
            ST_HEADER_MAX);
    REQUIRE((int64_t)value <= file_bytes - ST_LENGTH_BYTES, E_FORMAT,
            "header length is %" PRIu64 ", but the file has only %" PRId64 " bytes", value,
            file_bytes);
    *length = (size_t)value;
    return MUON_OK;
}
