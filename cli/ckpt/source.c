/* The two kinds of sources. Of a plain file the header is read once more: the library, which has
 * checked it before, gives neither its list of metadata nor the places of tensors. */
#include "cli/ckpt/source.h"

#include "cli/core/tensors.h"

#include "muon/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char crc_key[] = "muon.crc32c.";

/* ---- bytes of files ------------------------------------------------------------------------- */

static muon_status read_at(int fd, const char *path, int64_t offset, void *data, size_t bytes)
{
    char *to = data;
    while (bytes > 0) {
        ssize_t got = pread(fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return muon_error_set(MUON_E_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0)
            return muon_error_set(MUON_E_IO, "%s: it ends at byte %" PRId64 ", it was longer", path,
                                  offset);
        to += got;
        offset += got;
        bytes -= (size_t)got;
    }
    return MUON_OK;
}

/* Bytes of the header, from the 8 that a file begins with. */
static int64_t header_bytes(const unsigned char *word)
{
    uint64_t bytes = 0;
    for (int i = 7; i >= 0; i--)
        bytes = bytes << 8 | word[i];
    return (int64_t)bytes;
}

static int load_header(json_t **out, int64_t *data_at, int fd, const char *path)
{
    unsigned char word[8];
    struct stat info;
    if (read_at(fd, path, 0, word, sizeof word) != MUON_OK) return cli_fail_library();
    int64_t bytes = header_bytes(word);
    /* The library has seen a header that fits; what is there now may be another file. */
    if (fstat(fd, &info) != 0 || bytes < 0 || bytes > info.st_size - 8)
        return cli_fail("%s: it was changed while it was read", path);
    char *text = cli_alloc((size_t)bytes, 1);
    json_error_t error;
    muon_status status = read_at(fd, path, 8, text, (size_t)bytes);
    json_t *header = status == MUON_OK ? json_loadb(text, (size_t)bytes, 0, &error) : NULL;
    free(text);
    if (status != MUON_OK) return cli_fail_library();
    if (!header) return cli_fail("%s: its header cannot be read: %s", path, error.text);
    *out = header;
    *data_at = 8 + bytes;
    return CLI_DONE;
}

/* Not what files have by themselves: "format", checksums and the step. */
static int is_setting(const char *key)
{
    return strcmp(key, "format") != 0 && strcmp(key, "muon.step") != 0 &&
           strncmp(key, crc_key, sizeof crc_key - 1) != 0;
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

static void load_keys(ckpt_source *s)
{
    const char *key;
    for (size_t i = 0; (key = muon_checkpoint_get_key(s->checkpoint, i)); i++)
        json_object_set_new(s->metadata, key,
                            json_string(muon_checkpoint_get_metadata(s->checkpoint, key)));
}

static int open_checkpoint(ckpt_source *s, const char *path)
{
    if (muon_checkpoint_open(&s->checkpoint, path) != MUON_OK) return cli_fail_library();
    s->path = cli_format("%s", muon_checkpoint_get_path(s->checkpoint));
    s->step = muon_checkpoint_get_step(s->checkpoint);
    load_keys(s);
    s->count = muon_checkpoint_count(s->checkpoint);
    s->tensors = cli_alloc(s->count, sizeof *s->tensors);
    for (size_t i = 0; i < s->count; i++)
        if (muon_checkpoint_get(s->checkpoint, i, &s->tensors[i], sizeof s->tensors[i]) != MUON_OK)
            return cli_fail_library();
    return CLI_DONE;
}

/* ---- plain files ---------------------------------------------------------------------------- */

/* Where the bytes of a tensor are, by the header; data_at is where those of the first one are. */
static int place_tensor(const ckpt_source *s, json_t *header, int64_t data_at,
                        const muon_st_tensor *t, muon_checkpoint_tensor *out)
{
    json_t *range = json_object_get(json_object_get(header, t->name), "data_offsets");
    int64_t begin = json_integer_value(json_array_get(range, 0));
    if (json_integer_value(json_array_get(range, 1)) - begin != (int64_t)t->bytes)
        return cli_fail("%s: it was changed while it was read", s->path);
    *out = (muon_checkpoint_tensor){.name = t->name,
                                    .dtype = t->dtype,
                                    .ndim = t->ndim,
                                    .bytes = (int64_t)t->bytes,
                                    .file = s->path,
                                    .offset = data_at + begin};
    memcpy(out->shape, t->shape, sizeof out->shape);
    return CLI_DONE;
}

static int list_file(ckpt_source *s, json_t *header, int64_t data_at)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(header, "__metadata__"), key, value) if (is_setting(key))
        json_object_set(s->metadata, key, value);
    s->count = muon_st_count(s->file);
    s->tensors = cli_alloc(s->count, sizeof *s->tensors);
    for (size_t i = 0; i < s->count; i++) {
        muon_st_tensor t;
        DO(tensors_get(s->file, i, &t));
        DO(place_tensor(s, header, data_at, &t, &s->tensors[i]));
    }
    return CLI_DONE;
}

static int open_file(ckpt_source *s, const char *path)
{
    DO(tensors_open(&s->file, path));
    s->path = cli_format("%s", path);
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0) return cli_fail("%s: cannot open: %s", path, strerror(errno));
    json_t *header = NULL;
    int64_t data_at = 0;
    DO(load_header(&header, &data_at, s->fd, path));
    int code = list_file(s, header, data_at);
    json_decref(header);
    const char *step = muon_st_get_metadata(s->file, "muon.step");
    if (step && *step && strlen(step) < 19 && !step[strspn(step, "0123456789")])
        s->step = strtoll(step, NULL, 10);
    return code;
}

/* ---- both ----------------------------------------------------------------------------------- */

int ckpt_open(ckpt_source *out, const char *path)
{
    struct stat info;
    *out = (ckpt_source){.fd = -1, .step = -1};
    if (stat(path, &info) != 0) return cli_fail("%s: %s", path, strerror(errno));
    out->metadata = json_object();
    int code = S_ISDIR(info.st_mode) ? open_checkpoint(out, path) : open_file(out, path);
    if (code != CLI_DONE) ckpt_close(out);
    return code;
}

void ckpt_close(ckpt_source *s)
{
    muon_checkpoint_close(s->checkpoint);
    if (s->file && s->fd >= 0) close(s->fd);
    muon_st_close(s->file);
    json_decref(s->metadata);
    free(s->tensors);
    free(s->path);
    *s = (ckpt_source){.fd = -1, .step = -1};
}

muon_status ckpt_read(const ckpt_source *s, size_t index, int64_t offset, void *data, size_t bytes)
{
    if (s->checkpoint) return muon_checkpoint_read(s->checkpoint, index, offset, data, bytes);
    return read_at(s->fd, s->path, s->tensors[index].offset + offset, data, bytes);
}

int64_t ckpt_find(const ckpt_source *s, const char *name)
{
    return s->checkpoint ? muon_checkpoint_find(s->checkpoint, name) : muon_st_find(s->file, name);
}

const char *ckpt_metadata(const ckpt_source *s, const char *key)
{
    return json_string_value(json_object_get(s->metadata, key));
}

ckpt_crc ckpt_checksum(const ckpt_source *s, size_t index)
{
    ckpt_crc crc = {""};
    if (s->checkpoint) {
        snprintf(crc.text, sizeof crc.text, "%08" PRIx32, s->tensors[index].crc32c);
        return crc;
    }
    char *key = cli_format("%s%s", crc_key, s->tensors[index].name);
    const char *text = muon_st_get_metadata(s->file, key);
    snprintf(crc.text, sizeof crc.text, "%.8s", text ? text : "");
    free(key);
    return crc;
}

int64_t ckpt_elements(const muon_checkpoint_tensor *tensor)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->ndim; d++)
        count *= tensor->shape[d];
    return count;
}

int64_t ckpt_bytes(const ckpt_source *s)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < s->count; i++)
        bytes += s->tensors[i].bytes;
    return bytes;
}

size_t ckpt_match(const ckpt_source *s, const char *pattern, char *hit)
{
    size_t found = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (!muon_glob_match(pattern, s->tensors[i].name)) continue;
        hit[i] = 1;
        found++;
    }
    return found;
}

int ckpt_choose(const ckpt_source *s, int npatterns, char **patterns, char *hit)
{
    memset(hit, npatterns == 0, s->count);
    for (int k = 0; k < npatterns; k++)
        if (!ckpt_match(s, patterns[k], hit))
            return cli_fail("%s: '%s' matches none of its %zu tensors", s->path, patterns[k],
                            s->count);
    return CLI_DONE;
}
