/* write.c - a whole file at once, replacing the old one only when it is complete. */
#include "muon/safetensors.h"

#include "io/replace.h"
#include "io/safetensors/header.h"

static muon_status write_all(replacement *r, const st_layout *layout, size_t count)
{
    TRY(muon__replace_write(r, layout->head, layout->head_bytes));
    for (size_t i = 0; i < count; i++) {
        const muon_st_tensor *tensor = layout->places[i].tensor;
        TRY(muon__replace_write(r, tensor->data, tensor->bytes));
    }
    return MUON_OK;
}

static muon_status check_data(const muon_st_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        REQUIRE(tensors[i].data || tensors[i].bytes == 0, E_ARG, "tensor '%s': no data",
                muon__st_show(tensors[i].name).text);
    return MUON_OK;
}

static muon_status replace_file(const char *path, const st_layout *layout, size_t count)
{
    replacement r;
    TRY(muon__replace_begin(&r, path));
    muon_status status = write_all(&r, layout, count);
    if (status == MUON_OK) return muon__replace_commit(&r);
    muon__replace_abort(&r);
    return status;
}

muon_status muon_st_write(const char *path, const muon_st_tensor *tensors, size_t count,
                          const muon_st_entry *metadata, size_t nmetadata)
{
    REQUIRE(path, E_ARG, "muon_st_write: path is NULL");
    REQUIRE(tensors || count == 0, E_ARG, "%s: %zu tensors at NULL", path, count);
    REQUIRE(metadata || nmetadata == 0, E_ARG, "%s: %zu metadata entries at NULL", path, nmetadata);
    st_layout layout = {0};
    muon_status status = muon__st_layout_create(&layout, tensors, count, metadata, nmetadata);
    if (status == MUON_OK) status = check_data(tensors, count);
    if (status == MUON_OK)
        status = replace_file(path, &layout, count);
    else
        status = muon__fail_in(status, "%s", path);
    muon__st_layout_destroy(&layout);
    return status;
}
