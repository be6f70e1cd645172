#include "cli/ckpt/source.h"

#include "cli/core/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char crc_key[] = "muon.crc32c.";

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

static int list_file(ckpt_source *s)
{
    const char *key;
    for (size_t i = 0; (key = muon_st_get_key(s->file, i)); i++)
        if (is_setting(key))
            json_object_set_new(s->metadata, key, json_string(muon_st_get_metadata(s->file, key)));
    s->count = muon_st_count(s->file);
    s->tensors = cli_alloc(s->count, sizeof *s->tensors);
    for (size_t i = 0; i < s->count; i++) {
        muon_st_tensor t;
        DO(tensors_get(s->file, i, &t));
        s->tensors[i] = (muon_checkpoint_tensor){.name = t.name,
                                                 .dtype = t.dtype,
                                                 .ndim = t.ndim,
                                                 .bytes = (int64_t)t.bytes,
                                                 .file = s->path,
                                                 .offset = muon_st_get_offset(s->file, i)};
        memcpy(s->tensors[i].shape, t.shape, sizeof t.shape);
    }
    return CLI_DONE;
}

static int open_file(ckpt_source *s, const char *path)
{
    DO(tensors_open(&s->file, path));
    s->path = cli_format("%s", path);
    const char *step = muon_st_get_metadata(s->file, "muon.step");
    if (step && *step && strlen(step) < 19 && !step[strspn(step, "0123456789")])
        s->step = strtoll(step, NULL, 10);
    return list_file(s);
}

/* ---- both ----------------------------------------------------------------------------------- */

int ckpt_open(ckpt_source *out, const char *path)
{
    struct stat info;
    *out = (ckpt_source){.step = -1};
    if (stat(path, &info) != 0) return cli_fail("%s: %s", path, strerror(errno));
    out->metadata = json_object();
    int code = S_ISDIR(info.st_mode) ? open_checkpoint(out, path) : open_file(out, path);
    if (code != CLI_DONE) ckpt_close(out);
    return code;
}

void ckpt_close(ckpt_source *s)
{
    muon_checkpoint_close(s->checkpoint);
    muon_st_close(s->file);
    json_decref(s->metadata);
    free(s->tensors);
    free(s->path);
    *s = (ckpt_source){.step = -1};
}

muon_status ckpt_read(const ckpt_source *s, size_t index, int64_t offset, void *data, size_t bytes)
{
    if (s->checkpoint) return muon_checkpoint_read(s->checkpoint, index, offset, data, bytes);
    return muon_st_read_part(s->file, index, offset, data, bytes);
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
    return tensors_elements(tensor->ndim, tensor->shape);
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
