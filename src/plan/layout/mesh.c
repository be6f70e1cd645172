/* mesh.c - ranks arranged along named axes. */
#include "base/memory.h"
#include "base/versioned.h"
#include "plan/layout/parts.h"

#include <stdlib.h>
#include <string.h>

/* A name that a placement can spell. */
static muon_status check_axis(const muon_mesh *in, int axis)
{
    const char *name = in->axes[axis];
    REQUIRE(name && *name, E_NAME, "axis %d has no name", axis);
    for (const char *c = name; *c; c++)
        REQUIRE((unsigned char)*c > ' ' && !strchr(",;:", *c), E_NAME,
                "axis '%s': a name has no spaces, ',', ';' and ':'", name);
    for (int i = 0; i < axis; i++)
        REQUIRE(strcmp(in->axes[i], name) != 0, E_NAME, "axis '%s' is given twice", name);
    REQUIRE(in->sizes[axis] >= 1, E_LAYOUT, "axis '%s' has size %d, must be at least 1", name,
            in->sizes[axis]);
    return MUON_OK;
}

static muon_status load_axes(mesh *out, const muon_mesh *in, int nranks)
{
    REQUIRE(in->naxes >= 1 && in->naxes <= MUON_MAX_AXES, E_LAYOUT, "naxes is %d, must be 1..%d",
            in->naxes, MUON_MAX_AXES);
    out->nranks = 1;
    for (int i = 0; i < in->naxes; i++) {
        TRY(check_axis(in, i));
        TRY(muon__strdup(&out->axes[i], in->axes[i]));
        out->sizes[i] = in->sizes[i];
        out->naxes = i + 1;
        out->nranks *= in->sizes[i];
        REQUIRE(out->nranks <= nranks, E_LAYOUT,
                "the axes up to '%s' make %lld ranks, but there are %d", in->axes[i],
                (long long)out->nranks, nranks);
    }
    return MUON_OK;
}

static muon_status load_ranks(mesh *out, const int *ranks, int nranks)
{
    TRY(CALLOC(&out->ranks, (size_t)out->nranks, "ranks of a mesh"));
    TRY(CALLOC(&out->positions, (size_t)nranks, "ranks of a mesh"));
    for (int i = 0; i < nranks; i++)
        out->positions[i] = -1;
    for (int i = 0; i < (int)out->nranks; i++) {
        int rank = ranks ? ranks[i] : i;
        REQUIRE(rank >= 0 && rank < nranks, E_LAYOUT, "ranks[%d] is %d, must be 0..%d", i, rank,
                nranks - 1);
        REQUIRE(out->positions[rank] < 0, E_LAYOUT, "rank %d is at ranks[%d] and at ranks[%d]",
                rank, out->positions[rank], i);
        out->ranks[i] = rank;
        out->positions[rank] = i;
    }
    return MUON_OK;
}

static muon_status load_mesh(mesh *out, const muon_mesh *in, int nranks)
{
    TRY(load_axes(out, in, nranks));
    return load_ranks(out, in->ranks, nranks);
}

static muon_status load_all(mesh *out, const muon_mesh *meshes, size_t nmeshes, int nranks)
{
    for (size_t i = 0; i < nmeshes; i++) {
        muon_mesh in;
        muon_mesh_init(&in, sizeof in);
        TRY(muon__struct_load_at(&in, sizeof in, sizeof in, meshes, i, "muon_mesh"));
        REQUIRE(in.name && *in.name, E_NAME, "meshes[%zu] has no name", i);
        for (size_t j = 0; j < i; j++)
            REQUIRE(strcmp(out[j].name, in.name) != 0, E_NAME, "mesh '%s' is given twice", in.name);
        TRY(muon__strdup(&out[i].name, in.name));
        muon_status status = load_mesh(&out[i], &in, nranks);
        if (status != MUON_OK) return muon__fail_in(status, "mesh '%s'", in.name);
    }
    mesh *all = &out[nmeshes];
    all->naxes = 1;
    all->sizes[0] = nranks;
    all->nranks = nranks;
    return load_ranks(all, NULL, nranks);
}

muon_status muon__meshes_create(mesh **out, const muon_mesh *meshes, size_t nmeshes, int nranks)
{
    mesh *loaded = NULL;
    TRY(CALLOC(&loaded, nmeshes + 1, "meshes"));
    muon_status status = load_all(loaded, meshes, nmeshes, nranks);
    if (status == MUON_OK) {
        *out = loaded;
    } else {
        muon__meshes_destroy(loaded, nmeshes);
    }
    return status;
}

void muon__meshes_destroy(mesh *meshes, size_t nmeshes)
{
    for (size_t i = 0; meshes && i <= nmeshes; i++) {
        mesh *m = &meshes[i];
        for (int a = 0; a < m->naxes; a++)
            free(m->axes[a]);
        free(m->name);
        free(m->ranks);
        free(m->positions);
        muon__grids_destroy(m->grids);
        muon__lists_destroy(m->lists);
    }
    free(meshes);
}
