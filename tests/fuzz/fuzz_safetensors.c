/* fuzz_safetensors.c - any bytes as a file: refused with a message, or all of it can be read. */
#include "tests/fuzz/fuzz.h"

#include "io/safetensors/header.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

unsigned long fuzz_accepted;

/* What was read is written as a header and read again: the same tensors and metadata. */
static void check_round_trip(const st_header *h)
{
    muon_st_tensor *tensors = calloc(h->count + 1, sizeof *tensors);
    muon_st_entry *metadata = calloc(h->nmetadata + 1, sizeof *metadata);
    PROMISE(tensors && metadata);
    int64_t bytes = 0;
    for (size_t i = 0; i < h->count; i++) {
        const st_item *item = &h->items[i];
        tensors[i] = (muon_st_tensor){.name = item->name,
                                      .dtype = item->dtype->word,
                                      .ndim = item->ndim,
                                      .bytes = (size_t)(item->end - item->begin),
                                      .data = item};
        memcpy(tensors[i].shape, item->shape, sizeof tensors[i].shape);
        bytes += item->end - item->begin;
    }
    for (size_t i = 0; i < h->nmetadata; i++)
        metadata[i] = (muon_st_entry){h->metadata[i].key, h->metadata[i].value};

    st_layout layout;
    PROMISE(muon__st_layout_create(&layout, tensors, h->count, metadata, h->nmetadata) == MUON_OK);
    PROMISE(layout.head_bytes % 8 == 0);
    st_header again;
    PROMISE(muon__st_header_parse(&again, layout.head + ST_LENGTH_BYTES,
                                  layout.head_bytes - ST_LENGTH_BYTES, bytes) == MUON_OK);
    PROMISE(again.count == h->count && again.nmetadata == h->nmetadata);
    for (size_t i = 0; i < h->count; i++) {
        PROMISE(strcmp(again.names[i].name, h->names[i].name) == 0);
        const st_item *x = &h->items[h->names[i].index], *y = &again.items[again.names[i].index];
        PROMISE(x->dtype == y->dtype && x->ndim == y->ndim);
        PROMISE(x->end - x->begin == y->end - y->begin);
        PROMISE(memcmp(x->shape, y->shape, sizeof x->shape) == 0);
    }
    for (size_t i = 0; i < h->nmetadata; i++) {
        PROMISE(strcmp(again.metadata[i].key, h->metadata[i].key) == 0);
        PROMISE(strcmp(again.metadata[i].value, h->metadata[i].value) == 0);
    }
    muon__st_header_destroy(&again);
    muon__st_layout_destroy(&layout);
    free(tensors);
    free(metadata);
}

/* Another parser agrees that this is JSON, with these names and metadata. */
static void check_json(const st_header *h, const char *text, size_t length)
{
    json_error_t error;
    json_t *tree = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    PROMISE(tree);
    const json_t *metadata = json_object_get(tree, ST_METADATA);
    PROMISE(json_object_size(tree) == h->count + (metadata ? 1 : 0));
    PROMISE(json_object_size(metadata) == h->nmetadata);
    for (size_t i = 0; i < h->count; i++) {
        const st_item *item = &h->items[i];
        const json_t *tensor = json_object_get(tree, item->name);
        PROMISE(json_object_size(tensor) == 3);
        const json_t *shape = json_object_get(tensor, "shape");
        PROMISE(json_array_size(shape) == (size_t)item->ndim);
        for (size_t k = 0; k < json_array_size(shape); k++)
            PROMISE(json_integer_value(json_array_get(shape, k)) == item->shape[k]);
        const json_t *offsets = json_object_get(tensor, "data_offsets");
        PROMISE(json_integer_value(json_array_get(offsets, 0)) == item->begin);
        PROMISE(json_integer_value(json_array_get(offsets, 1)) == item->end);
        const char *dtype = json_string_value(json_object_get(tensor, "dtype"));
        PROMISE(dtype && strcmp(dtype, item->dtype->word) == 0);
    }
    for (size_t i = 0; i < h->nmetadata; i++) {
        const char *value = json_string_value(json_object_get(metadata, h->metadata[i].key));
        PROMISE(value && strcmp(value, h->metadata[i].value) == 0);
    }
    json_decref(tree);
}

/* The header alone, up to the last '}' and its padding, so that a wrong length hides nothing. */
static void check_header(const uint8_t *data, size_t size)
{
    size_t length = size;
    while (length > 0 && data[length - 1] != '}')
        length--;
    char *text = malloc(length ? length : 1); /* of exactly this size, for the sanitizers */
    PROMISE(text);
    if (length) memcpy(text, data, length);
    st_header header;
    if (muon__st_header_parse(&header, text, length, (int64_t)(size - length)) == MUON_OK) {
        fuzz_accepted++;
        check_json(&header, text, length);
        check_round_trip(&header);
        muon__st_header_destroy(&header);
    }
    free(text);
}

/* Two parts are the whole, where muon_st_get_offset says; nothing is read beyond them. */
static void check_parts(muon_st *file, size_t index, const char *whole, size_t size)
{
    size_t cut = size / 3;
    char *parts = malloc(size + 1);
    PROMISE(parts);
    PROMISE(muon_st_read_part(file, index, 0, parts, cut) == MUON_OK);
    PROMISE(muon_st_read_part(file, index, (int64_t)cut, parts + cut, size - cut) == MUON_OK);
    PROMISE(memcmp(parts, whole, size) == 0);
    PROMISE(muon_st_read_part(file, index, (int64_t)cut, parts, size - cut + 1) == MUON_E_ARG);
    PROMISE(muon_st_get_offset(file, index) >= ST_LENGTH_BYTES);
    free(parts);
}

/* The metadata are those that can be asked for, each key once and in order. */
static void check_metadata(const muon_st *file)
{
    const char *key, *before = NULL;
    for (size_t i = 0; (key = muon_st_get_key(file, i)); i++) {
        PROMISE(muon_st_get_metadata(file, key));
        PROMISE(!before || strcmp(before, key) < 0);
        before = key;
    }
}

/* Every tensor of an accepted file can be found and read, and together they are all of the data. */
static void check_tensors(muon_st *file, size_t size)
{
    size_t total = 0;
    for (size_t i = 0; i < muon_st_count(file); i++) {
        muon_st_tensor t;
        PROMISE(muon_st_get(file, i, &t, sizeof t) == MUON_OK);
        PROMISE(muon_st_find(file, t.name) == (int64_t)i);
        PROMISE(t.bytes <= size - total);
        total += t.bytes;
        char *bytes = malloc(t.bytes + 1);
        PROMISE(bytes);
        PROMISE(muon_st_read(file, i, bytes, t.bytes) == MUON_OK);
        check_parts(file, i, bytes, t.bytes);
        free(bytes);

        size_t count = 1;
        for (int k = 0; k < t.ndim; k++)
            count *= (size_t)t.shape[k];
        float *values = calloc(count < size ? count + 1 : size, sizeof *values);
        PROMISE(values);
        muon_status status = muon_st_read_f32(file, i, values, count);
        PROMISE(status == MUON_OK || status == MUON_E_DTYPE);
        free(values);
    }
    PROMISE(total < size);
}

static void check_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1; /* open until the program ends */
    if (fd < 0) {
        FILE *file = tmpfile();
        PROMISE(file);
        fd = fileno(file);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    PROMISE(ftruncate(fd, (off_t)size) == 0);
    PROMISE(pwrite(fd, data, size, 0) == (ssize_t)size);
    muon_st *opened = NULL;
    muon_status status = muon_st_open(&opened, path);
    if (status == MUON_OK) {
        fuzz_accepted++;
        check_tensors(opened, size);
        check_metadata(opened);
        muon_st_close(opened);
    } else {
        PROMISE(status == MUON_E_FORMAT && !opened);
        PROMISE(strlen(muon_last_error()) > strlen(path));
        PROMISE(strpbrk(muon_last_error(), "\n\r\x1b") == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_file(data, size);
    if (size > ST_LENGTH_BYTES) check_header(data + ST_LENGTH_BYTES, size - ST_LENGTH_BYTES);
    return 0;
}

/* ---- For fuzz_main.c */

static const double zeros[16];
static const muon_st_tensor tensors[] = {
    {"w", "F32", 2, {2, 3}, 24, zeros},         {"h", "F16", 1, {5}, 10, zeros},
    {"b", "BF16", 3, {1, 2, 2}, 8, zeros},      {"d", "F64", 0, {0}, 8, zeros},
    {"none", "F32", 2, {0, 7}, 0, zeros},       {"ids", "I64", 1, {2}, 16, zeros},
    {"\xc3\xa9\"\\\n", "U8", 1, {3}, 3, zeros}, {"f", "F4", 1, {4}, 2, zeros},
};
static const muon_st_entry metadata[] = {{"format", "pt"}, {"note", "a \"b\" \xe2\x82\xac"}};

/* Seed k: some of the tensors, with or without metadata. */
static const struct {
    size_t first, count, nmetadata;
} seeds[] = {{0, 0, 0}, {0, 1, 0}, {3, 2, 1}, {0, 8, 2}, {4, 4, 0}, {0, 0, 2}};

size_t fuzz_seed(uint8_t *bytes, size_t room, size_t k)
{
    if (k >= sizeof seeds / sizeof seeds[0]) return 0;
    st_layout layout;
    PROMISE(muon__st_layout_create(&layout, tensors + seeds[k].first, seeds[k].count, metadata,
                                   seeds[k].nmetadata) == MUON_OK);
    size_t size = layout.head_bytes;
    PROMISE(size <= room);
    memcpy(bytes, layout.head, size);
    for (size_t i = 0; i < seeds[k].count; i++) {
        const muon_st_tensor *tensor = layout.places[i].tensor;
        PROMISE(tensor->bytes <= room - size);
        memcpy(bytes + size, tensor->data, tensor->bytes);
        size += tensor->bytes;
    }
    muon__st_layout_destroy(&layout);
    return size;
}

void fuzz_mend(uint8_t *bytes, size_t size)
{
    fuzz_mend_length(bytes, size);
}
