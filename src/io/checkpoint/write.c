/* A checkpoint out of nothing but a callback, and the last acts of every save. */
#include "io/checkpoint/write.h"

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "io/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Asked of a source at a time: a number that holds whole elements of each dtype, of 6 bits too. */
#define CHUNK_BYTES ((size_t)3 << 19)

/* ---- The last acts */

int muon__checkpoint_open_saving(int from, const char *root, int64_t step, const char *name)
{
    char path[PATH_MAX]; /* what is longer the system would not take */
    int length =
        snprintf(path, sizeof path, "%s/%s/%s", root, muon__checkpoint_saving(step).text, name);
    int fd = -1;
    if (length < (int)sizeof path)
        fd = openat(from, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    else
        errno = ENAMETOOLONG;
    if (fd < 0) muon__fail(MUON_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    return fd;
}

/* Everything in the file goes to the disk, whoever wrote it. */
static muon_status put_head(int fd, const char *name, const char *head, size_t bytes)
{
    TRY(muon__write_all(fd, head, bytes, name));
    REQUIRE(muon__sync_file(fd) == 0, E_IO, "%s: syncing it failed: %s", name, strerror(errno));
    return MUON_OK;
}

static muon_status finish_file(checkpoint_file *saved, const checkpoint_dir *dir,
                               const checkpoint_files *files, size_t file, const uint32_t *crc32c)
{
    const files_file *f = &files->files[file];
    char *head = NULL;
    TRY(muon__files_head(&head, files, file, crc32c));
    saved->bytes = f->bytes;
    saved->head_bytes = f->head_bytes;
    saved->head_crc32c = muon__crc32c(0, head, (size_t)f->head_bytes);
    muon_status status = muon__strdup(&saved->name, f->name);
    int fd = status == MUON_OK ? muon__checkpoint_open_file(dir, f->name) : -1;
    if (status == MUON_OK && fd < 0) status = MUON_E_IO;
    if (status == MUON_OK) status = put_head(fd, f->name, head, (size_t)f->head_bytes);
    if (fd >= 0) close(fd);
    free(head);
    return status;
}

/* The index, if there is one, and its place in the marker. */
static muon_status put_index(checkpoint_marker *marker, checkpoint_dir *dir,
                             const checkpoint_files *files, int is_model)
{
    char *name = NULL, *text = NULL;
    size_t bytes = 0;
    TRY(muon__files_index(&name, &text, &bytes, files, is_model));
    if (!text) return MUON_OK;
    checkpoint_file *saved = &marker->files[marker->nfiles++];
    *saved = (checkpoint_file){.name = name,
                               .bytes = (int64_t)bytes,
                               .head_bytes = (int64_t)bytes,
                               .head_crc32c = muon__crc32c(0, text, bytes)};
    muon_status status = muon__checkpoint_put(dir, name, text, bytes);
    free(text);
    return status;
}

static muon_status finish_files(checkpoint_marker *marker, checkpoint_dir *dir, int64_t step,
                                const checkpoint_files *files, const uint32_t *crc32c)
{
    marker->step = step;
    TRY(CALLOC(&marker->files, files->nfiles + 2, "files of a checkpoint"));
    for (size_t i = 0; i < files->nfiles; i++)
        TRY(finish_file(&marker->files[marker->nfiles++], dir, files, i, crc32c));
    TRY(put_index(marker, dir, files, 0));
    return put_index(marker, dir, files, 1);
}

muon_status muon__checkpoint_complete(checkpoint_dir *dir, int64_t step,
                                      const checkpoint_files *files, const uint32_t *crc32c,
                                      int keep)
{
    checkpoint_marker marker = {0};
    muon_status status = finish_files(&marker, dir, step, files, crc32c);
    if (status == MUON_OK)
        status = muon__checkpoint_commit(dir, &marker, keep);
    else
        muon__checkpoint_abort(dir);
    muon__marker_destroy(&marker);
    return status;
}

/* ---- Out of a callback */

void muon_checkpoint_plan_init(muon_checkpoint_plan *plan, size_t struct_size)
{
    const muon_checkpoint_plan defaults = {.struct_size = sizeof defaults,
                                           .file_bytes = CHECKPOINT_FILE_BYTES};
    muon__struct_init(plan, sizeof defaults, &defaults, struct_size);
}

static muon_status check_plan(const muon_checkpoint_plan *plan)
{
    REQUIRE(plan->source || plan->ntensors == 0, E_ARG, "%zu tensors, but no source",
            plan->ntensors);
    REQUIRE(plan->step >= 0, E_VALUE, "step is %" PRId64 ", must not be negative", plan->step);
    REQUIRE(plan->keep >= 0, E_VALUE, "keep is %d, must not be negative", plan->keep);
    REQUIRE(plan->replace == 0 || plan->replace == 1, E_VALUE, "replace is %d, must be 0 or 1",
            plan->replace);
    REQUIRE(plan->metadata || plan->nmetadata == 0, E_ARG, "%zu metadata entries at NULL",
            plan->nmetadata);
    for (size_t i = 0; i < plan->nmetadata; i++)
        REQUIRE(!plan->metadata[i].key || strcmp(plan->metadata[i].key, "muon.step") != 0, E_NAME,
                "metadata %zu has the key 'muon.step', which is the plan's step", i);
    return MUON_OK;
}

/* The plan's metadata and its step. */
static muon_status make_files(checkpoint_files **out, const muon_checkpoint_plan *plan)
{
    muon_st_entry *metadata = NULL;
    TRY(CALLOC(&metadata, plan->nmetadata + 1, "metadata of a checkpoint"));
    char step[24];
    snprintf(step, sizeof step, "%" PRId64, plan->step);
    for (size_t i = 0; i < plan->nmetadata; i++)
        metadata[i] = plan->metadata[i];
    metadata[plan->nmetadata] = (muon_st_entry){"muon.step", step};
    muon_status status = muon__files_create(out, plan->tensors, plan->ntensors, metadata,
                                            plan->nmetadata + 1, plan->file_bytes);
    free(metadata);
    return status;
}

typedef struct writing {
    const muon_checkpoint_plan *plan;
    const char *root;
    checkpoint_files *files;
    uint32_t *crc32c; /* of all tensors, as they become known */
    char *chunk;
} writing;

static muon_status write_tensor(writing *w, int fd, const char *name, size_t index)
{
    int64_t bytes = (int64_t)w->files->tensors[index].tensor.bytes;
    uint32_t crc32c = 0;
    for (int64_t done = 0; done < bytes;) {
        size_t n = bytes - done < (int64_t)CHUNK_BYTES ? (size_t)(bytes - done) : CHUNK_BYTES;
        TRY(w->plan->source(w->plan->user, index, done, w->chunk, n));
        crc32c = muon__crc32c(crc32c, w->chunk, n);
        TRY(muon__write_all(fd, w->chunk, n, name));
        done += (int64_t)n;
    }
    w->crc32c[index] = crc32c;
    return MUON_OK;
}

/* The tensors of a file, one behind the other; its head comes when their checksums are known. */
static muon_status write_tensors(writing *w, int fd, const files_file *file)
{
    REQUIRE(lseek(fd, (off_t)file->head_bytes, SEEK_SET) == file->head_bytes, E_IO, "%s: %s",
            file->name, strerror(errno));
    for (size_t i = 0; i < file->ntensors; i++)
        TRY(write_tensor(w, fd, file->name, file->tensors[i]));
    return MUON_OK;
}

static muon_status write_file(writing *w, const checkpoint_dir *dir, const files_file *file)
{
    int fd = muon__checkpoint_open_file(dir, file->name);
    if (fd < 0) return MUON_E_IO;
    muon_status status = write_tensors(w, fd, file);
    close(fd); /* what it would report, the sync of muon__checkpoint_complete reports */
    return status;
}

static muon_status write_files(writing *w, checkpoint_dir *dir)
{
    /* All files first: a disk that is too small is noticed before anything is read. */
    for (size_t i = 0; i < w->files->nfiles; i++)
        TRY(muon__checkpoint_add(dir, w->files->files[i].name, w->files->files[i].bytes));
    for (size_t i = 0; i < w->files->nfiles; i++)
        TRY(write_file(w, dir, &w->files->files[i]));
    return MUON_OK;
}

static muon_status write_checkpoint(writing *w)
{
    const muon_checkpoint_plan *plan = w->plan;
    TRY(make_files(&w->files, plan));
    TRY(CALLOC(&w->crc32c, plan->ntensors, "checksums of a checkpoint"));
    TRY(CALLOC(&w->chunk, CHUNK_BYTES, "part of a tensor"));
    checkpoint_dir *dir = NULL;
    TRY(muon__checkpoint_begin(&dir, w->root, plan->step, plan->replace));
    muon_status status = write_files(w, dir);
    if (status != MUON_OK) {
        muon__checkpoint_abort(dir);
        return status;
    }
    return muon__checkpoint_complete(dir, plan->step, w->files, w->crc32c, plan->keep);
}

muon_status muon_checkpoint_write(const char *root, const muon_checkpoint_plan *plan)
{
    REQUIRE(root && plan, E_ARG, "muon_checkpoint_write: %s is NULL", root ? "plan" : "root");
    muon_checkpoint_plan known;
    muon_checkpoint_plan_init(&known, sizeof known);
    TRY(muon__struct_load(&known, sizeof known, sizeof known, plan, "muon_checkpoint_plan"));
    TRY(check_plan(&known));
    writing w = {.plan = &known, .root = root};
    muon_status status = write_checkpoint(&w);
    muon__files_destroy(w.files);
    free(w.crc32c);
    free(w.chunk);
    return status;
}
