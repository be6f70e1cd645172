/* read.c - what an open checkpoint has, and its bytes. */
#include "io/checkpoint/read.h"

#include "base/versioned.h"
#include "io/checkpoint/opened.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

muon_status muon_checkpoint_list(int64_t **steps, size_t *nsteps, const char *root)
{
    REQUIRE(steps && nsteps && root, E_ARG, "muon_checkpoint_list: %s is NULL",
            !steps    ? "steps"
            : !nsteps ? "nsteps"
                      : "root");
    return muon__checkpoint_steps(steps, nsteps, root);
}

const char *muon_checkpoint_get_path(const muon_checkpoint *checkpoint)
{
    return checkpoint->path;
}

int64_t muon_checkpoint_get_step(const muon_checkpoint *checkpoint)
{
    return checkpoint->marker.step;
}

size_t muon_checkpoint_count(const muon_checkpoint *checkpoint)
{
    return checkpoint->ntensors;
}

/* NULL with a message: MUON_E_ARG. */
static const open_tensor *find_tensor(const muon_checkpoint *cp, size_t index)
{
    if (!cp) {
        muon__fail(MUON_E_ARG, "the checkpoint is NULL");
        return NULL;
    }
    if (index < cp->ntensors) return &cp->tensors[index];
    muon__fail(MUON_E_ARG, "%s: tensor index %zu, but there are %zu tensors", cp->path, index,
               cp->ntensors);
    return NULL;
}

static int64_t bytes_of(const open_tensor *tensor)
{
    return tensor->item->end - tensor->item->begin;
}

static int64_t place_of(const open_tensor *tensor)
{
    return muon__st_data(tensor->file->st) + tensor->item->begin;
}

muon_status muon_checkpoint_get(const muon_checkpoint *checkpoint, size_t index,
                                muon_checkpoint_tensor *tensor, size_t tensor_size)
{
    const open_tensor *found = find_tensor(checkpoint, index);
    if (!found) return MUON_E_ARG;
    muon_checkpoint_tensor full = {
        .name = found->item->name,
        .dtype = found->item->dtype->word,
        .ndim = found->item->ndim,
        .bytes = bytes_of(found),
        .file = found->file->saved->name,
        .offset = place_of(found),
        .crc32c = found->crc32c,
        .is_weight = found->file->is_model,
    };
    memcpy(full.shape, found->item->shape, sizeof full.shape);
    return muon__struct_store(tensor, tensor_size, &full, sizeof full, "muon_checkpoint_tensor");
}

static int compare_name(const void *name, const void *entry)
{
    return strcmp(name, ((const open_name *)entry)->name);
}

int64_t muon_checkpoint_find(const muon_checkpoint *checkpoint, const char *name)
{
    if (checkpoint->ntensors == 0) return -1;
    const open_name *found = bsearch(name, checkpoint->names, checkpoint->ntensors,
                                     sizeof *checkpoint->names, compare_name);
    return found ? (int64_t)found->index : -1;
}

const char *muon_checkpoint_get_metadata(const muon_checkpoint *checkpoint, const char *key)
{
    return muon_st_get_metadata(checkpoint->files[0].st, key);
}

const char *muon_checkpoint_get_key(const muon_checkpoint *checkpoint, size_t index)
{
    return index < checkpoint->nkeys ? checkpoint->keys[index] : NULL;
}

/* ---- Reading */

muon_status muon__checkpoint_place(const muon_checkpoint *checkpoint, size_t index, int *fd,
                                   int64_t *offset)
{
    const open_tensor *tensor = find_tensor(checkpoint, index);
    if (!tensor) return MUON_E_ARG;
    *fd = muon__st_fd(tensor->file->st);
    *offset = place_of(tensor);
    return MUON_OK;
}

static muon_status fail_tensor(muon_status status, const open_tensor *tensor)
{
    return muon__fail_in(status, "%s: tensor '%s'", tensor->file->path,
                         muon__st_show(tensor->item->name).text);
}

muon_status muon_checkpoint_read(muon_checkpoint *checkpoint, size_t index, int64_t offset,
                                 void *data, size_t bytes)
{
    const open_tensor *tensor = find_tensor(checkpoint, index);
    if (!tensor) return MUON_E_ARG;
    int64_t size = bytes_of(tensor);
    muon_status status = MUON_OK;
    if (offset < 0 || offset > size || bytes > (size_t)(size - offset))
        status = muon__fail(MUON_E_ARG, "%zu bytes at byte %" PRId64 ", but it has %" PRId64, bytes,
                            offset, size);
    else if (!data && bytes > 0)
        status = muon__fail(MUON_E_ARG, "the buffer is NULL");
    else
        status =
            muon__st_read_at(muon__st_fd(tensor->file->st), data, bytes, place_of(tensor) + offset);
    return status == MUON_OK ? MUON_OK : fail_tensor(status, tensor);
}

muon_status muon__checkpoint_compare(const muon_checkpoint *checkpoint, size_t index,
                                     uint32_t crc32c)
{
    const open_tensor *tensor = find_tensor(checkpoint, index);
    if (!tensor) return MUON_E_ARG;
    REQUIRE(crc32c == tensor->crc32c, E_FORMAT,
            "%s: tensor '%s': its checksum is %08" PRIx32 ", saved as %08" PRIx32
            ": the file is damaged",
            tensor->file->path, muon__st_show(tensor->item->name).text, crc32c, tensor->crc32c);
    return MUON_OK;
}

muon_status muon_checkpoint_verify(muon_checkpoint *checkpoint, size_t index)
{
    const open_tensor *tensor = find_tensor(checkpoint, index);
    if (!tensor) return MUON_E_ARG;
    uint32_t crc32c = 0;
    muon_status status = muon__opened_sum(&crc32c, muon__st_fd(tensor->file->st), place_of(tensor),
                                          bytes_of(tensor));
    if (status != MUON_OK) return fail_tensor(status, tensor);
    return muon__checkpoint_compare(checkpoint, index, crc32c);
}
