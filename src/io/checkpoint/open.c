/* open.c - from a directory to an open checkpoint, with every doubt about it settled. */
#include "io/checkpoint/opened.h"

#include "base/crc32c.h"
#include "base/memory.h"
#include "io/checkpoint/files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)1 << 18) /* read at a time for a checksum */

/* ---- Files */

typedef enum file_kind {
    KIND_STATE,
    KIND_MODEL,
    KIND_STATE_INDEX,
    KIND_MODEL_INDEX,
    KIND_NONE
} file_kind;

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static file_kind find_kind(const char *name)
{
    static const char *const words[] = {"optimizer", "model"};
    for (int is_model = 0; is_model < 2; is_model++) {
        size_t length = strlen(words[is_model]);
        if (strncmp(name, words[is_model], length) != 0) continue;
        if (strcmp(name + length, ".safetensors.index.json") == 0)
            return is_model ? KIND_MODEL_INDEX : KIND_STATE_INDEX;
        if ((name[length] == '.' || name[length] == '-') && ends_with(name, ".safetensors"))
            return is_model ? KIND_MODEL : KIND_STATE;
    }
    return KIND_NONE;
}

muon_status muon__opened_join(char **out, const char *dir, const char *name)
{
    size_t room = strlen(dir) + strlen(name) + 2;
    TRY(CALLOC(out, room, "name of a file"));
    snprintf(*out, room, "%s/%s", dir, name);
    return MUON_OK;
}

muon_status muon__opened_sum(uint32_t *out, int fd, int64_t offset, int64_t bytes)
{
    size_t room = bytes < (int64_t)CHUNK_BYTES ? (size_t)bytes : CHUNK_BYTES;
    char *chunk = NULL;
    TRY(CALLOC(&chunk, room, "part of a file"));
    uint32_t crc = 0;
    muon_status status = MUON_OK;
    for (int64_t done = 0; status == MUON_OK && done < bytes;) {
        size_t n = bytes - done < (int64_t)room ? (size_t)(bytes - done) : room;
        status = muon__st_read_at(fd, chunk, n, offset + done);
        if (status == MUON_OK) crc = muon__crc32c(crc, chunk, n);
        done += (int64_t)n;
    }
    free(chunk);
    *out = crc;
    return status;
}

muon_status muon__opened_check_head(const checkpoint_file *saved, int64_t head_bytes,
                                    uint32_t crc32c)
{
    REQUIRE(head_bytes == saved->head_bytes, E_FORMAT,
            "its head has %" PRId64 " bytes, saved with %" PRId64 ": the file is damaged",
            head_bytes, saved->head_bytes);
    REQUIRE(crc32c == saved->head_crc32c, E_FORMAT,
            "its head's checksum is %08" PRIx32 ", saved as %08" PRIx32 ": the file is damaged",
            crc32c, saved->head_crc32c);
    return MUON_OK;
}

static muon_status open_one(muon_checkpoint *cp, const checkpoint_file *saved, int is_model)
{
    open_file *file = &cp->files[cp->nfiles++];
    *file = (open_file){.saved = saved, .is_model = is_model};
    TRY(muon__opened_join(&file->path, cp->path, saved->name));
    TRY(muon_st_open(&file->st, file->path));
    uint32_t crc32c = 0;
    muon_status status =
        muon__opened_sum(&crc32c, muon__st_fd(file->st), 0, muon__st_data(file->st));
    if (status == MUON_OK) status = muon__opened_check_head(saved, muon__st_data(file->st), crc32c);
    return status == MUON_OK ? MUON_OK : muon__fail_in(status, "%s", file->path);
}

static muon_status open_files(muon_checkpoint *cp)
{
    const checkpoint_marker *marker = &cp->marker;
    TRY(CALLOC(&cp->files, marker->nfiles, "files of a checkpoint"));
    for (size_t i = 0; i < marker->nfiles; i++)
        REQUIRE(find_kind(marker->files[i].name) != KIND_NONE, E_FORMAT,
                "%s/" CHECKPOINT_MARKER ": '%s' is not the name of a checkpoint's file", cp->path,
                muon__st_show(marker->files[i].name).text);
    for (int is_model = 0; is_model < 2; is_model++)
        for (size_t i = 0; i < marker->nfiles; i++)
            if (find_kind(marker->files[i].name) == (is_model ? KIND_MODEL : KIND_STATE))
                TRY(open_one(cp, &marker->files[i], is_model));
    REQUIRE(cp->nfiles > 0, E_FORMAT, "%s/" CHECKPOINT_MARKER ": it names no safetensors file",
            cp->path);
    return MUON_OK;
}

/* ---- Tensors */

/* Eight lower-case hexadecimal digits and nothing else. */
static int parse_crc(uint32_t *out, const char *text)
{
    uint32_t value = 0;
    int n = 0;
    for (; n < 8; n++) {
        char c = text[n];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return 0;
        value = value << 4 | (uint32_t)digit;
    }
    *out = value;
    return text[n] == '\0';
}

static muon_status find_crc(open_tensor *tensor)
{
    char *key = NULL;
    size_t room = sizeof CHECKPOINT_CRC_KEY + strlen(tensor->item->name);
    TRY(CALLOC(&key, room, "name of a checksum"));
    snprintf(key, room, CHECKPOINT_CRC_KEY "%s", tensor->item->name);
    const char *text = muon_st_get_metadata(tensor->file->st, key);
    free(key);
    REQUIRE(text, E_FORMAT, "%s: tensor '%s' has no checksum", tensor->file->path,
            muon__st_show(tensor->item->name).text);
    REQUIRE(parse_crc(&tensor->crc32c, text), E_FORMAT,
            "%s: tensor '%s' has the checksum '%s', must be 8 hexadecimal digits",
            tensor->file->path, muon__st_show(tensor->item->name).text, muon__st_show(text).text);
    return MUON_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const open_name *)a)->name, ((const open_name *)b)->name);
}

/* What is twice is side by side once it is sorted. */
static muon_status check_names(const muon_checkpoint *cp)
{
    for (size_t i = 1; i < cp->ntensors; i++) {
        if (by_name(&cp->names[i - 1], &cp->names[i]) != 0) continue;
        FAIL(E_FORMAT, "%s: tensor '%s' is in %s and in %s", cp->path,
             muon__st_show(cp->names[i].name).text,
             cp->tensors[cp->names[i - 1].index].file->saved->name,
             cp->tensors[cp->names[i].index].file->saved->name);
    }
    return MUON_OK;
}

static muon_status list_tensors(muon_checkpoint *cp)
{
    for (size_t f = 0; f < cp->nfiles; f++)
        cp->ntensors += muon_st_count(cp->files[f].st);
    TRY(CALLOC(&cp->tensors, cp->ntensors, "tensors of a checkpoint"));
    TRY(CALLOC(&cp->names, cp->ntensors, "names of a checkpoint"));
    size_t n = 0;
    for (size_t f = 0; f < cp->nfiles; f++) {
        const st_header *header = muon__st_header(cp->files[f].st);
        for (size_t i = 0; i < header->count; i++, n++) {
            cp->tensors[n] = (open_tensor){.item = &header->items[i], .file = &cp->files[f]};
            TRY(find_crc(&cp->tensors[n]));
            cp->names[n] = (open_name){header->items[i].name, n};
        }
    }
    if (n) qsort(cp->names, n, sizeof *cp->names, by_name);
    return check_names(cp);
}

static muon_status check_indices(const muon_checkpoint *cp)
{
    for (size_t i = 0; i < cp->marker.nfiles; i++) {
        const checkpoint_file *saved = &cp->marker.files[i];
        file_kind kind = find_kind(saved->name);
        if (kind == KIND_STATE_INDEX || kind == KIND_MODEL_INDEX)
            TRY(muon__index_check(cp, saved, kind == KIND_MODEL_INDEX));
    }
    return MUON_OK;
}

/* ---- Metadata */

static int is_own_key(const char *key)
{
    return strcmp(key, "format") == 0 || strcmp(key, "muon.step") == 0 ||
           strncmp(key, CHECKPOINT_CRC_KEY, strlen(CHECKPOINT_CRC_KEY)) == 0;
}

static muon_status list_keys(muon_checkpoint *cp)
{
    const st_header *header = muon__st_header(cp->files[0].st);
    TRY(CALLOC(&cp->keys, header->nmetadata, "metadata of a checkpoint"));
    for (size_t i = 0; i < header->nmetadata; i++)
        if (!is_own_key(header->metadata[i].key)) cp->keys[cp->nkeys++] = header->metadata[i].key;
    return MUON_OK;
}

static muon_status check_metadata(const muon_checkpoint *cp)
{
    const char *format = muon_checkpoint_get_metadata(cp, "muon.format");
    REQUIRE(!format || strcmp(format, "1") == 0, E_VERSION,
            "%s: its format is '%s', this library knows 1", cp->path, muon__st_show(format).text);
    const char *step = muon_checkpoint_get_metadata(cp, "muon.step");
    char want[24];
    snprintf(want, sizeof want, "%" PRId64, cp->marker.step);
    REQUIRE(step && strcmp(step, want) == 0, E_FORMAT,
            "%s: muon.step is %s, but the marker says %s", cp->files[0].path,
            step ? muon__st_show(step).text : "missing", want);
    return MUON_OK;
}

/* ---- Opening */

static muon_status open_checkpoint(muon_checkpoint *cp, const char *path)
{
    TRY(muon__checkpoint_resolve(&cp->path, path));
    TRY(muon__marker_read(&cp->marker, cp->path));
    TRY(open_files(cp));
    TRY(list_tensors(cp));
    TRY(check_indices(cp));
    TRY(list_keys(cp));
    return check_metadata(cp);
}

muon_status muon_checkpoint_open(muon_checkpoint **out, const char *path)
{
    REQUIRE(out && path, E_ARG, "muon_checkpoint_open: %s is NULL", out ? "path" : "out");
    muon_checkpoint *cp = NULL;
    TRY(CALLOC(&cp, 1, "checkpoint"));
    muon_status status = open_checkpoint(cp, path);
    if (status != MUON_OK) {
        muon_checkpoint_close(cp);
        return status;
    }
    *out = cp;
    return MUON_OK;
}

void muon_checkpoint_close(muon_checkpoint *checkpoint)
{
    if (!checkpoint) return;
    for (size_t i = 0; i < checkpoint->nfiles; i++) {
        muon_st_close(checkpoint->files[i].st);
        free(checkpoint->files[i].path);
    }
    muon__marker_destroy(&checkpoint->marker);
    free(checkpoint->files);
    free(checkpoint->tensors);
    free(checkpoint->names);
    free(checkpoint->keys);
    free(checkpoint->path);
    free(checkpoint);
}
