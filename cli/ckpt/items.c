#include "cli/ckpt/items.h"

#include "cli/ckpt/values.h"
#include "cli/core/files.h"

#include "muon/comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ckpt_items_start(ckpt_items *items, const ckpt_source *settings)
{
    *items = (ckpt_items){.metadata = json_object()};
    if (settings) json_object_update(items->metadata, settings->metadata);
}

void ckpt_items_close(ckpt_items *items)
{
    for (size_t i = 0; i < items->count; i++)
        free((void *)(uintptr_t)items->list[i].to.name);
    free(items->list);
    json_decref(items->metadata);
    *items = (ckpt_items){.list = NULL};
}

static ckpt_item *add(ckpt_items *items, const char *name)
{
    items->list = cli_grow(items->list, items->count, sizeof *items->list);
    ckpt_item *item = &items->list[items->count++];
    *item = (ckpt_item){.scale = 1};
    item->to.name = cli_format("%s", name);
    return item;
}

ckpt_item *ckpt_items_add(ckpt_items *items, const char *name, const ckpt_source *from,
                          size_t index)
{
    ckpt_item *item = add(items, name);
    const muon_checkpoint_tensor *t = &from->tensors[index];
    item->from = from;
    item->index = index;
    item->to.dtype = t->dtype;
    item->to.ndim = t->ndim;
    memcpy(item->to.shape, t->shape, sizeof item->to.shape);
    item->to.is_weight = t->is_weight;
    return item;
}

void ckpt_items_add_number(ckpt_items *items, const char *name, const char *dtype, int64_t number)
{
    ckpt_item *item = add(items, name);
    item->to.dtype = dtype;
    item->number = number;
}

void ckpt_items_set(ckpt_items *items, const char *key, const char *value)
{
    json_object_set_new(items->metadata, key, json_string(value));
}

void ckpt_items_set_group(ckpt_items *items, int64_t group, const char *field, const char *value)
{
    char key[128];
    snprintf(key, sizeof key, "muon.group.%" PRId64 ".%s", group, field);
    ckpt_items_set(items, key, value);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static muon_status fill_number(const ckpt_item *item, int64_t offset, void *data, size_t bytes)
{
    double number = (double)item->number;
    char whole[8];
    if (strcmp(item->to.dtype, "I64") == 0)
        memcpy(whole, &item->number, sizeof item->number); /* also beyond 2^53 */
    else
        values_store(whole, &number, 1, item->to.dtype);
    memcpy(data, whole + offset, bytes);
    return MUON_OK;
}

/* Elements first .. first + count, at most a block. */
static muon_status make_block(const ckpt_item *item, int64_t first, size_t count, char *out)
{
    const muon_checkpoint_tensor *from = &item->from->tensors[item->index];
    size_t size = values_size(from->dtype);
    double *x = cli_alloc(count, sizeof *x);
    char *bytes = cli_alloc(count, size);
    muon_status status =
        ckpt_read(item->from, item->index, first * (int64_t)size, bytes, count * size);
    if (status == MUON_OK) {
        values_load(x, bytes, count, from->dtype);
        for (size_t i = 0; i < count; i++)
            x[i] *= item->scale;
        size_t bad = values_store(out, x, count, item->to.dtype);
        if (bad < count)
            status = muon_error_set(MUON_E_VALUE,
                                    "tensor '%s': element %" PRId64 " is %g, too large for %s",
                                    item->to.name, first + (int64_t)bad, x[bad], item->to.dtype);
    }
    free(bytes);
    free(x);
    return status;
}

/* Any bytes of the tensor, also such that cut elements at both ends. */
static muon_status fill(const ckpt_item *item, int64_t offset, char *data, size_t bytes)
{
    if (!item->from) return fill_number(item, offset, data, bytes);
    const char *dtype = item->from->tensors[item->index].dtype;
    if (item->scale == 1 && strcmp(dtype, item->to.dtype) == 0)
        return ckpt_read(item->from, item->index, offset, data, bytes);

    int64_t size = (int64_t)values_size(item->to.dtype), end = offset + (int64_t)bytes;
    char *block = cli_alloc(VALUES_BLOCK, (size_t)size);
    muon_status status = MUON_OK;
    for (int64_t at = offset; at < end && status == MUON_OK;) {
        int64_t first = at / size, last = (end + size - 1) / size;
        if (last > first + VALUES_BLOCK) last = first + VALUES_BLOCK;
        status = make_block(item, first, (size_t)(last - first), block);
        int64_t stop = last * size < end ? last * size : end;
        if (status == MUON_OK)
            memcpy(data + (at - offset), block + (at - first * size), (size_t)(stop - at));
        at = stop;
    }
    free(block);
    return status;
}

static muon_status fill_from_plan(void *user, size_t index, int64_t offset, void *data,
                                  size_t bytes)
{
    const ckpt_items *items = user;
    return fill(&items->list[index], offset, data, bytes);
}

/* ---- saving --------------------------------------------------------------------------------- */

/* Borrowed strings; the list is for free. */
static muon_st_entry *list_metadata(const ckpt_items *items, size_t *count)
{
    muon_st_entry *list = cli_alloc(json_object_size(items->metadata), sizeof *list);
    const char *key;
    json_t *value;
    *count = 0;
    json_object_foreach(items->metadata, key, value) list[(*count)++] =
        (muon_st_entry){key, json_string_value(value)};
    return list;
}

int ckpt_items_save(const ckpt_items *items, const char *root, int64_t step)
{
    muon_checkpoint_tensor *tensors = cli_alloc(items->count, sizeof *tensors);
    for (size_t i = 0; i < items->count; i++)
        tensors[i] = items->list[i].to;
    ckpt_items borrowed = *items;
    muon_checkpoint_plan plan;
    muon_checkpoint_plan_init(&plan, sizeof plan);
    muon_st_entry *metadata = list_metadata(items, &plan.nmetadata);
    plan.step = step;
    plan.tensors = tensors;
    plan.ntensors = items->count;
    plan.metadata = metadata;
    plan.source = fill_from_plan;
    plan.user = &borrowed;
    int failed = muon_checkpoint_write(root, &plan) != MUON_OK;
    free(metadata);
    free(tensors);
    return failed ? cli_fail_library() : CLI_DONE;
}

static int fill_all(const ckpt_items *items, muon_st_tensor *tensors, void **memory)
{
    for (size_t i = 0; i < items->count; i++) {
        const muon_checkpoint_tensor *to = &items->list[i].to;
        tensors[i] = (muon_st_tensor){.name = to->name, .dtype = to->dtype, .ndim = to->ndim};
        memcpy(tensors[i].shape, to->shape, sizeof tensors[i].shape);
        tensors[i].bytes = (size_t)ckpt_elements(to) * values_size(to->dtype);
        tensors[i].data = memory[i] = tensors_alloc(tensors[i].bytes);
        if (fill(&items->list[i], 0, memory[i], tensors[i].bytes) != MUON_OK)
            return cli_fail_library();
    }
    return CLI_DONE;
}

int ckpt_items_save_file(const ckpt_items *items, const char *path)
{
    muon_st_tensor *tensors = cli_alloc(items->count, sizeof *tensors);
    void **memory = cli_alloc(items->count, sizeof *memory);
    size_t nmetadata = 0;
    muon_st_entry *metadata = list_metadata(items, &nmetadata);
    int code = fill_all(items, tensors, memory);
    if (code == CLI_DONE &&
        muon_st_write(path, tensors, items->count, metadata, nmetadata) != MUON_OK)
        code = cli_fail_library();
    for (size_t i = 0; i < items->count; i++)
        free(memory[i]);
    free(memory);
    free(metadata);
    free(tensors);
    return code;
}

int ckpt_check(const ckpt_source *source)
{
    for (size_t i = 0; source->checkpoint && i < source->count; i++)
        if (muon_checkpoint_verify(source->checkpoint, i) != MUON_OK) return cli_fail_library();
    return CLI_DONE;
}
