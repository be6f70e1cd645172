#include "io/checkpoint/files.h"

#include "base/memory.h"
#include "io/safetensors/header.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CRC_DIGITS 8

static const char *kind_of(int is_model)
{
    return is_model ? "model" : "optimizer";
}

/* ---- What the caller gave, checked and copied */

static muon_status describe_tensor(muon_st_tensor *to, const muon_checkpoint_tensor *from)
{
    REQUIRE(from->dtype, E_ARG, "no dtype");
    const st_dtype *dtype = muon__st_dtype_find(from->dtype);
    REQUIRE(dtype, E_DTYPE, "unknown dtype '%s'", muon__st_show(from->dtype).text);
    REQUIRE(from->ndim >= 0 && from->ndim <= MUON_MAX_DIMS, E_SHAPE, "ndim is %d, must be 0..%d",
            from->ndim, MUON_MAX_DIMS);
    int64_t bytes = 0;
    TRY(muon__st_size(&bytes, MUON_E_SHAPE, dtype, from->ndim, from->shape));
    to->dtype = dtype->word; /* of the table: it stays */
    to->ndim = from->ndim;
    to->bytes = (size_t)bytes;
    for (int i = 0; i < from->ndim; i++)
        to->shape[i] = from->shape[i];
    return MUON_OK;
}

static muon_status copy_tensor(files_tensor *to, const muon_checkpoint_tensor *from, size_t index)
{
    REQUIRE(from->name, E_ARG, "tensor %zu has no name", index);
    char *name = NULL;
    TRY(muon__strdup(&name, from->name));
    to->tensor.name = name;
    to->is_weight = from->is_weight != 0;
    muon_status status = describe_tensor(&to->tensor, from);
    if (status == MUON_OK) return MUON_OK;
    return muon__fail_in(status, "tensor '%s'", muon__st_show(name).text);
}

static muon_status copy_entry(muon_st_entry *to, const muon_st_entry *from, size_t index)
{
    REQUIRE(from->key && from->value, E_ARG, "metadata %zu has no %s", index,
            from->key ? "value" : "key");
    REQUIRE(strcmp(from->key, "format") != 0 &&
                strncmp(from->key, CHECKPOINT_CRC_KEY, strlen(CHECKPOINT_CRC_KEY)) != 0,
            E_NAME, "metadata %zu has the key '%s', which the files have by themselves", index,
            muon__st_show(from->key).text);
    char *text = NULL;
    TRY(muon__strdup(&text, from->key));
    to->key = text;
    TRY(muon__strdup(&text, from->value));
    to->value = text;
    return MUON_OK;
}

static int by_name(const void *a, const void *b)
{
    const files_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->tensor.name, (*y)->tensor.name);
}

/* The tensors of one kind (-1: of both), by name; the caller frees the list. */
static muon_status sort_names(const files_tensor ***out, size_t *count,
                              const checkpoint_files *files, int is_model)
{
    const files_tensor **sorted = NULL;
    TRY(CALLOC(&sorted, files->ntensors, "names of a checkpoint"));
    size_t n = 0;
    for (size_t i = 0; i < files->ntensors; i++)
        if (is_model < 0 || files->tensors[i].is_weight == is_model)
            sorted[n++] = &files->tensors[i];
    if (n) qsort(sorted, n, sizeof *sorted, by_name);
    *out = sorted;
    *count = n;
    return MUON_OK;
}

static muon_status check_names(const checkpoint_files *files)
{
    const files_tensor **sorted = NULL;
    size_t count = 0;
    TRY(sort_names(&sorted, &count, files, -1));
    size_t twice = 1;
    while (twice < count && by_name(&sorted[twice - 1], &sorted[twice]) != 0)
        twice++;
    muon_status status = MUON_OK;
    if (twice < count)
        status = muon__fail(MUON_E_NAME, "two tensors '%s'",
                            muon__st_show(sorted[twice]->tensor.name).text);
    free(sorted);
    return status;
}

static muon_status copy_all(checkpoint_files *files, const muon_checkpoint_tensor *tensors,
                            size_t ntensors, const muon_st_entry *metadata, size_t nmetadata)
{
    TRY(CALLOC(&files->tensors, ntensors, "tensors of a checkpoint"));
    files->ntensors = ntensors;
    for (size_t i = 0; i < ntensors; i++)
        TRY(copy_tensor(&files->tensors[i], &tensors[i], i));
    TRY(check_names(files));
    TRY(CALLOC(&files->metadata, nmetadata, "metadata of a checkpoint"));
    files->nmetadata = nmetadata;
    for (size_t i = 0; i < nmetadata; i++)
        TRY(copy_entry(&files->metadata[i], &metadata[i], i));
    return MUON_OK;
}

/* ---- Which file */

/* Gives each tensor of a kind its file, the first of them `first`, and returns how many there are. */
static size_t fill_files(checkpoint_files *files, int is_model, size_t first, int64_t file_bytes)
{
    size_t count = 0;
    int64_t used = 0;
    for (size_t i = 0; i < files->ntensors; i++) {
        files_tensor *t = &files->tensors[i];
        if (t->is_weight != is_model) continue;
        int64_t bytes = (int64_t)t->tensor.bytes;
        if (count == 0 || (used > 0 && bytes > file_bytes - used)) {
            count++;
            used = 0;
        }
        t->file = first + count - 1;
        used = bytes > file_bytes - used ? file_bytes : used + bytes;
    }
    return count;
}

static muon_status name_file(files_file *file, int is_model, size_t number, size_t count)
{
    char name[96];
    if (count == 1)
        snprintf(name, sizeof name, "%s.safetensors", kind_of(is_model));
    else
        snprintf(name, sizeof name, "%s-%05zu-of-%05zu.safetensors", kind_of(is_model), number,
                 count);
    file->is_model = is_model;
    return muon__strdup(&file->name, name);
}

/* There is always a file, because the metadata need one. */
static muon_status make_files(checkpoint_files *files, int64_t file_bytes)
{
    size_t states = fill_files(files, 0, 0, file_bytes);
    size_t weights = fill_files(files, 1, states, file_bytes);
    if (states + weights == 0) states = 1;
    TRY(CALLOC(&files->files, states + weights, "files of a checkpoint"));
    files->nfiles = states + weights;
    for (size_t i = 0; i < states; i++)
        TRY(name_file(&files->files[i], 0, i + 1, states));
    for (size_t i = 0; i < weights; i++)
        TRY(name_file(&files->files[states + i], 1, i + 1, weights));

    for (size_t i = 0; i < files->ntensors; i++)
        files->files[files->tensors[i].file].ntensors++;
    for (size_t f = 0; f < files->nfiles; f++) {
        TRY(CALLOC(&files->files[f].tensors, files->files[f].ntensors, "files of a checkpoint"));
        files->files[f].ntensors = 0;
    }
    for (size_t i = 0; i < files->ntensors; i++) {
        files_file *file = &files->files[files->tensors[i].file];
        file->tensors[file->ntensors++] = i;
    }
    return MUON_OK;
}

/* ---- Heads */

/* A head's metadata: "format", the general ones if it is the first file's, and the checksums. */
typedef struct head_texts {
    muon_st_tensor *tensors;
    muon_st_entry *entries;
    size_t nentries;
    char *keys; /* of all checksums, one behind the other */
    char (*values)[CRC_DIGITS + 1];
} head_texts;

static void free_texts(head_texts *texts)
{
    free(texts->tensors);
    free(texts->entries);
    free(texts->keys);
    free(texts->values);
}

/* crc32c NULL: zeros stand for what is not known yet. */
static muon_status make_texts(head_texts *texts, const checkpoint_files *files, size_t file,
                              const uint32_t *crc32c)
{
    const files_file *f = &files->files[file];
    size_t nmetadata = file == 0 ? files->nmetadata : 0;
    size_t room = 0;
    for (size_t i = 0; i < f->ntensors; i++)
        room += sizeof CHECKPOINT_CRC_KEY + strlen(files->tensors[f->tensors[i]].tensor.name);
    TRY(CALLOC(&texts->tensors, f->ntensors, "head of a file"));
    TRY(CALLOC(&texts->entries, 1 + nmetadata + f->ntensors, "head of a file"));
    TRY(CALLOC(&texts->keys, room, "head of a file"));
    TRY(CALLOC(&texts->values, f->ntensors, "head of a file"));

    muon_st_entry *entry = texts->entries;
    *entry++ = (muon_st_entry){"format", "pt"};
    for (size_t i = 0; i < nmetadata; i++)
        *entry++ = files->metadata[i];
    char *key = texts->keys;
    for (size_t i = 0; i < f->ntensors; i++) {
        size_t index = f->tensors[i];
        texts->tensors[i] = files->tensors[index].tensor;
        int length = snprintf(key, room, CHECKPOINT_CRC_KEY "%s", texts->tensors[i].name) + 1;
        snprintf(texts->values[i], sizeof texts->values[i], "%08" PRIx32,
                 crc32c ? crc32c[index] : 0);
        *entry++ = (muon_st_entry){key, texts->values[i]};
        key += length;
        room -= (size_t)length;
    }
    texts->nentries = (size_t)(entry - texts->entries);
    return MUON_OK;
}

static muon_status make_layout(st_layout *out, const checkpoint_files *files, size_t file,
                               const uint32_t *crc32c)
{
    head_texts texts = {0};
    muon_status status = make_texts(&texts, files, file, crc32c);
    if (status == MUON_OK)
        status = muon__st_layout_create(out, texts.tensors, files->files[file].ntensors,
                                        texts.entries, texts.nentries);
    /* What the places point at goes; the caller needs only their order. */
    for (size_t i = 0; status == MUON_OK && i < files->files[file].ntensors; i++)
        out->places[i].tensor = NULL;
    free_texts(&texts);
    return status;
}

/* The layout's order becomes the file's: then it is a fixed point, and every later head has it. */
static muon_status place_tensors(checkpoint_files *files, size_t file)
{
    files_file *f = &files->files[file];
    size_t *order = NULL;
    TRY(CALLOC(&order, f->ntensors, "files of a checkpoint"));
    st_layout layout = {0};
    muon_status status = make_layout(&layout, files, file, NULL);
    if (status != MUON_OK) {
        free(order);
        return muon__fail_in(status, "%s", f->name);
    }
    for (size_t i = 0; i < f->ntensors; i++)
        order[i] = f->tensors[layout.places[i].index];
    free(f->tensors);
    f->tensors = order;
    f->head_bytes = (int64_t)layout.head_bytes;
    muon__st_layout_destroy(&layout);

    f->bytes = f->head_bytes;
    for (size_t i = 0; i < f->ntensors; i++) {
        files_tensor *t = &files->tensors[order[i]];
        t->offset = f->bytes;
        REQUIRE(!__builtin_add_overflow(f->bytes, (int64_t)t->tensor.bytes, &f->bytes), E_SHAPE,
                "%s: tensor '%s': what is before it and its %zu bytes overflow", f->name,
                muon__st_show(t->tensor.name).text, t->tensor.bytes);
    }
    return MUON_OK;
}

static muon_status create(checkpoint_files *files, const muon_checkpoint_tensor *tensors,
                          size_t ntensors, const muon_st_entry *metadata, size_t nmetadata,
                          int64_t file_bytes)
{
    TRY(copy_all(files, tensors, ntensors, metadata, nmetadata));
    TRY(make_files(files, file_bytes));
    for (size_t i = 0; i < files->nfiles; i++)
        TRY(place_tensors(files, i));
    return MUON_OK;
}

muon_status muon__files_create(checkpoint_files **out, const muon_checkpoint_tensor *tensors,
                               size_t ntensors, const muon_st_entry *metadata, size_t nmetadata,
                               int64_t file_bytes)
{
    REQUIRE(tensors || ntensors == 0, E_ARG, "%zu tensors at NULL", ntensors);
    REQUIRE(metadata || nmetadata == 0, E_ARG, "%zu metadata entries at NULL", nmetadata);
    REQUIRE(file_bytes > 0, E_VALUE, "file_bytes is %" PRId64 ", must be positive", file_bytes);
    checkpoint_files *files = NULL;
    TRY(CALLOC(&files, 1, "files of a checkpoint"));
    muon_status status = create(files, tensors, ntensors, metadata, nmetadata, file_bytes);
    if (status != MUON_OK) {
        muon__files_destroy(files);
        return status;
    }
    *out = files;
    return MUON_OK;
}

void muon__files_destroy(checkpoint_files *files)
{
    if (!files) return;
    for (size_t i = 0; i < files->ntensors; i++)
        muon__free_const(files->tensors[i].tensor.name);
    for (size_t i = 0; i < files->nfiles; i++) {
        free(files->files[i].name);
        free(files->files[i].tensors);
    }
    for (size_t i = 0; i < files->nmetadata; i++) {
        muon__free_const(files->metadata[i].key);
        muon__free_const(files->metadata[i].value);
    }
    free(files->tensors);
    free(files->files);
    free(files->metadata);
    free(files);
}

muon_status muon__files_head(char **out, const checkpoint_files *files, size_t file,
                             const uint32_t *crc32c)
{
    st_layout layout = {0};
    TRY(make_layout(&layout, files, file, crc32c));
    assert(layout.head_bytes == (size_t)files->files[file].head_bytes);
    *out = layout.head;
    layout.head = NULL;
    muon__st_layout_destroy(&layout);
    return MUON_OK;
}

/* ---- Indices */

/* Keys sorted and two spaces a level, as the tools that made this file usual write it. */
static muon_status put_index(FILE *out, const checkpoint_files *files,
                             const files_tensor *const *sorted, size_t count)
{
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += sorted[i]->tensor.bytes;
    fprintf(out, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n", total);
    fputs("  \"weight_map\": {", out);
    for (size_t i = 0; i < count; i++) {
        fputs(i ? ",\n    " : "\n    ", out);
        TRY(muon__st_put_string(out, sorted[i]->tensor.name, "a tensor's name"));
        fprintf(out, ": \"%s\"", files->files[sorted[i]->file].name);
    }
    fputs("\n  }\n}\n", out);
    return MUON_OK;
}

static muon_status make_index(char **out, size_t *bytes, const checkpoint_files *files,
                              int is_model)
{
    const files_tensor **sorted = NULL;
    size_t count = 0;
    TRY(sort_names(&sorted, &count, files, is_model));
    char *text = NULL;
    FILE *stream = open_memstream(&text, bytes);
    if (!stream) {
        free(sorted);
        FAIL(E_NOMEM, "no memory for an index");
    }
    muon_status status = put_index(stream, files, sorted, count);
    int failed = ferror(stream);
    failed |= fclose(stream);
    failed |= !text; /* glibc sets it to NULL in silence if its last realloc fails */
    free(sorted);
    if (status == MUON_OK && failed) status = muon__fail(MUON_E_NOMEM, "no memory for an index");
    if (status != MUON_OK) {
        free(text);
        return status;
    }
    *out = text;
    return MUON_OK;
}

muon_status muon__files_index(char **name, char **out, size_t *bytes, const checkpoint_files *files,
                              int is_model)
{
    *name = NULL;
    *out = NULL;
    *bytes = 0;
    size_t count = 0;
    for (size_t i = 0; i < files->nfiles; i++)
        count += files->files[i].is_model == is_model;
    if (count < 2) return MUON_OK;
    char full[64];
    snprintf(full, sizeof full, "%s.safetensors.index.json", kind_of(is_model));
    TRY(muon__strdup(name, full));
    muon_status status = make_index(out, bytes, files, is_model);
    if (status != MUON_OK) {
        free(*name);
        *name = NULL;
    }
    return status;
}
