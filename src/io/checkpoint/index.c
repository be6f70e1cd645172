/* index.c - NAME.safetensors.index.json: from text to a list, and whether it is true. */
#include "io/checkpoint/opened.h"

#include "base/crc32c.h"
#include "base/memory.h"
#include "io/json_cursor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static muon_status read_metadata(checkpoint_index *index, json_cursor *c)
{
    TRY(muon__json_take(c, '{'));
    int more = 0;
    TRY(muon__json_next(&more, c, '}', 0));
    REQUIRE(more, E_FORMAT, "no total_size");
    char *key = NULL;
    TRY(muon__json_take_key(&key, c));
    muon_status status = MUON_OK;
    if (strcmp(key, "total_size") != 0)
        status = muon__fail(MUON_E_FORMAT, "unknown key '%s'", muon__st_show(key).text);
    free(key);
    TRY(status);
    TRY(muon__json_take_integer(&index->total_size, c));
    TRY(muon__json_take(c, '}'));
    REQUIRE(index->total_size >= 0, E_FORMAT, "total_size is %" PRId64 ", must not be negative",
            index->total_size);
    return MUON_OK;
}

static muon_status read_entry(checkpoint_index *index, json_cursor *c)
{
    index_entry *entries =
        muon__st_grow(index->entries, index->count, sizeof *index->entries, "index");
    if (!entries) return MUON_E_NOMEM;
    index->entries = entries;
    index_entry *entry = &entries[index->count++];
    TRY(muon__json_take_key(&entry->tensor, c));
    muon_status status = muon__json_take_string(&entry->file, c);
    if (status == MUON_OK) return MUON_OK;
    return muon__fail_in(status, "tensor '%s'", muon__st_show(entry->tensor).text);
}

static muon_status read_map(checkpoint_index *index, json_cursor *c)
{
    TRY(muon__json_take(c, '{'));
    for (;;) {
        int more = 0;
        TRY(muon__json_next(&more, c, '}', index->count));
        if (!more) return MUON_OK;
        TRY(read_entry(index, c));
    }
}

/* Reads the value of `key`, and sets its bit in *seen. */
static muon_status read_member(checkpoint_index *index, unsigned *seen, const char *key,
                               json_cursor *c)
{
    int is_map = strcmp(key, "weight_map") == 0;
    REQUIRE(is_map || strcmp(key, "metadata") == 0, E_FORMAT, "unknown key '%s'",
            muon__st_show(key).text);
    REQUIRE(!(*seen & 1u << is_map), E_FORMAT, "%s appears twice", key);
    *seen |= 1u << is_map;
    muon_status status = is_map ? read_map(index, c) : read_metadata(index, c);
    return status == MUON_OK ? MUON_OK : muon__fail_in(status, "%s", key);
}

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const index_entry *)a)->tensor, ((const index_entry *)b)->tensor);
}

static muon_status parse(checkpoint_index *index, const char *text, size_t bytes)
{
    json_cursor c;
    unsigned seen = 0;
    TRY(muon__json_start(&c, text, bytes, "index"));
    TRY(muon__json_take(&c, '{'));
    for (size_t n = 0;; n++) {
        int more = 0;
        TRY(muon__json_next(&more, &c, '}', n));
        if (!more) break;
        char *key = NULL;
        TRY(muon__json_take_key(&key, &c));
        muon_status status = read_member(index, &seen, key, &c);
        free(key);
        TRY(status);
    }
    REQUIRE(muon__json_peek(&c) < 0, E_FORMAT, "index byte %zu: text after the closing '}'", c.at);
    REQUIRE(seen & 1, E_FORMAT, "no metadata");
    REQUIRE(seen & 2, E_FORMAT, "no weight_map");

    if (index->count) qsort(index->entries, index->count, sizeof *index->entries, by_tensor);
    for (size_t i = 1; i < index->count; i++)
        REQUIRE(by_tensor(&index->entries[i - 1], &index->entries[i]) != 0, E_FORMAT,
                "weight_map: two tensors '%s'", muon__st_show(index->entries[i].tensor).text);
    return MUON_OK;
}

muon_status muon__index_parse(checkpoint_index *out, const char *text, size_t bytes)
{
    checkpoint_index index = {0};
    muon_status status = parse(&index, text, bytes);
    if (status != MUON_OK) {
        muon__index_destroy(&index);
        return status;
    }
    *out = index;
    return MUON_OK;
}

void muon__index_destroy(checkpoint_index *index)
{
    for (size_t i = 0; i < index->count; i++) {
        free(index->entries[i].tensor);
        free(index->entries[i].file);
    }
    free(index->entries);
    *index = (checkpoint_index){0};
}

/* ---- Does it fit? */

static muon_status compare_index(const muon_checkpoint *cp, const checkpoint_index *index,
                                 int is_model)
{
    size_t count = 0;
    uint64_t total = 0; /* files with holes may be larger together than any number: it wraps */
    for (size_t i = 0; i < cp->ntensors; i++) {
        if (cp->tensors[i].file->is_model != is_model) continue;
        count++;
        total += (uint64_t)(cp->tensors[i].item->end - cp->tensors[i].item->begin);
    }
    for (size_t i = 0; i < index->count; i++) {
        const index_entry *entry = &index->entries[i];
        int64_t at = muon_checkpoint_find(cp, entry->tensor);
        REQUIRE(at >= 0 && cp->tensors[at].file->is_model == is_model, E_FORMAT,
                "tensor '%s' is in none of its files", muon__st_show(entry->tensor).text);
        REQUIRE(strcmp(cp->tensors[at].file->saved->name, entry->file) == 0, E_FORMAT,
                "tensor '%s' is listed in '%s', but is in %s", muon__st_show(entry->tensor).text,
                muon__st_show(entry->file).text, cp->tensors[at].file->saved->name);
    }
    REQUIRE(index->count == count, E_FORMAT, "it has %zu tensors, its files have %zu", index->count,
            count);
    REQUIRE((uint64_t)index->total_size == total, E_FORMAT,
            "total_size is %" PRId64 ", its files' tensors have %" PRIu64 " bytes",
            index->total_size, total);
    return MUON_OK;
}

static muon_status read_index(const muon_checkpoint *cp, const checkpoint_file *saved,
                              const char *path, char *text, int is_model)
{
    /* O_NONBLOCK: as for all files of a checkpoint, see muon_st_open. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    REQUIRE(fd >= 0, E_IO, "cannot be opened: %s", strerror(errno));
    muon_status status = muon__st_read_at(fd, text, (size_t)saved->bytes, 0);
    close(fd);
    TRY(status);
    TRY(muon__opened_check_head(saved, saved->bytes, muon__crc32c(0, text, (size_t)saved->bytes)));
    checkpoint_index index = {0};
    TRY(muon__index_parse(&index, text, (size_t)saved->bytes));
    status = compare_index(cp, &index, is_model);
    muon__index_destroy(&index);
    return status;
}

muon_status muon__index_check(const muon_checkpoint *cp, const checkpoint_file *saved, int is_model)
{
    /* A head says more of each tensor than an index does: what is longer than all heads is none, and
     * need not be read. */
    int64_t limit = 0;
    for (size_t i = 0; i < cp->nfiles; i++)
        limit += cp->files[i].saved->head_bytes;
    char *path = NULL, *text = NULL;
    TRY(muon__opened_join(&path, cp->path, saved->name));
    muon_status status = MUON_OK;
    if (saved->bytes > limit)
        status =
            muon__fail(MUON_E_FORMAT, "%" PRId64 " bytes are too many for an index", saved->bytes);
    if (status == MUON_OK) status = CALLOC(&text, (size_t)saved->bytes, "index");
    if (status == MUON_OK) status = read_index(cp, saved, path, text, is_model);
    if (status != MUON_OK) status = muon__fail_in(status, "%s", path);
    free(text);
    free(path);
    return status;
}
