/* Where tensors are, with many ranks: "meshes", what a rule of "params" says of it, and what happens
 * to tensors that no rule puts anywhere. */
#include "cli/config/config.h"
#include "muon/plan.h"

#include <stdlib.h>
#include <string.h>

static const char default_mesh[] = "all ranks";
enum { MOST_RANKS = 1 << 20 }; /* that the library takes */

static int read_whole_number(const node *at, int64_t least, int64_t most, int64_t *out)
{
    if (!json_is_integer(at->value)) return node_fail_type(at, "a whole number");
    int64_t value = json_integer_value(at->value);
    if (value < least || value > most)
        return node_fail(at, "is %lld, must be %lld..%lld", (long long)value, (long long)least,
                         (long long)most);
    *out = value;
    return CLI_DONE;
}

static int read_rank(config *c, const node *at, int *out)
{
    int64_t rank = 0;
    DO(read_whole_number(at, 0, MOST_RANKS - 1, &rank));
    if (rank >= c->muon.nranks) c->muon.nranks = rank + 1;
    *out = (int)rank;
    return CLI_DONE;
}

/* ---- "meshes" -------------------------------------------------------------------------------- */

typedef struct mesh_keys {
    node axes, ranks;
} mesh_keys;

static const field mesh_fields[] = {
    {.key = "axes", .type = FIELD_ANY, .offset = offsetof(mesh_keys, axes), .required = 1},
    {.key = "ranks", .type = FIELD_ANY, .offset = offsetof(mesh_keys, ranks)},
};

/* jansson keeps the order of the file: the last axis is the fastest. */
static int read_axes(muon_mesh *mesh, const node *object, int64_t *nranks)
{
    if (!json_is_object(object->value)) return node_fail_type(object, "an object");
    size_t count = json_object_size(object->value);
    if (count == 0 || count > MUON_MAX_AXES)
        return node_fail(object, "has %zu axes, must have 1..%d", count, MUON_MAX_AXES);
    const char *key;
    json_t *value;
    *nranks = 1;
    json_object_foreach(object->value, key, value)
    {
        node at = {value, object, key, 0};
        int64_t size = 0;
        DO(read_whole_number(&at, 1, MOST_RANKS, &size));
        mesh->axes[mesh->naxes] = key;
        mesh->sizes[mesh->naxes++] = (int)size;
        *nranks *= size;
        if (*nranks > MOST_RANKS)
            return node_fail(&at, "the axes make more than %d ranks", MOST_RANKS);
    }
    return CLI_DONE;
}

static int read_mesh_ranks(config *c, muon_mesh *mesh, const node *list, int64_t nranks)
{
    if (nranks > c->muon.nranks) c->muon.nranks = nranks;
    if (!list->value) return CLI_DONE;
    if (!json_is_array(list->value)) return node_fail_type(list, "a list");
    size_t count = json_array_size(list->value);
    if ((int64_t)count != nranks)
        return node_fail(list, "has %zu ranks, but the axes make %lld", count, (long long)nranks);
    int *ranks = config_keep(c, cli_alloc(count, sizeof *ranks));
    for (size_t i = 0; i < count; i++) {
        node at = node_element(list, i);
        DO(read_rank(c, &at, &ranks[i]));
    }
    mesh->ranks = ranks;
    return CLI_DONE;
}

static int read_mesh(config *c, const node *object)
{
    mesh_keys keys = {.axes = {.value = NULL}};
    muon_mesh *mesh = &c->meshes[c->muon.nmeshes];
    int64_t nranks = 0;
    DO(node_read(object, mesh_fields, sizeof mesh_fields / sizeof mesh_fields[0], &keys));
    muon_mesh_init(mesh, sizeof *mesh);
    mesh->name = object->key;
    if (strcmp(mesh->name, default_mesh) == 0)
        return node_fail(object, "a mesh of this name always exists");
    DO(read_axes(mesh, &keys.axes, &nranks));
    DO(read_mesh_ranks(c, mesh, &keys.ranks, nranks));
    c->muon.nmeshes++;
    return CLI_DONE;
}

int config_read_meshes(config *c, const node *object)
{
    if (object->value && !json_is_object(object->value)) return node_fail_type(object, "an object");
    c->meshes = cli_alloc(json_object_size(object->value) + 1, sizeof *c->meshes);
    c->muon.meshes = c->meshes;
    c->muon.nranks = 1;
    const char *key;
    json_t *value;
    json_object_foreach(object->value, key, value)
    {
        node at = {value, object, key, 0};
        DO(read_mesh(c, &at));
    }
    return CLI_DONE;
}

/* ---- of a rule of "params" ------------------------------------------------------------------- */

static int find_mesh(const config *c, const node *at, const char *name)
{
    names_nearest nearest;
    names_start(&nearest, name);
    for (size_t i = 0; i < c->muon.nmeshes; i++) {
        if (strcmp(c->meshes[i].name, name) == 0) return CLI_DONE;
        names_offer(&nearest, c->meshes[i].name);
    }
    return node_fail(at, "unknown mesh '%s'%s", name, names_hint(&nearest));
}

/* begin or end of a box: a number for each dim. */
static int read_corner(const node *list, int64_t *corner, int *ndim)
{
    size_t count = json_array_size(list->value);
    if (count == 0 || count > MUON_MAX_DIMS)
        return node_fail(list, "must be a list of 1..%d whole numbers", MUON_MAX_DIMS);
    if (*ndim && (int)count != *ndim)
        return node_fail(list, "has %zu dims, the one before has %d", count, *ndim);
    *ndim = (int)count;
    for (size_t d = 0; d < count; d++) {
        node at = node_element(list, d);
        DO(read_whole_number(&at, 0, INT64_MAX, &corner[d]));
    }
    return CLI_DONE;
}

static int read_box(config *c, const node *triple, muon_box *box, int *ndim)
{
    if (json_array_size(triple->value) != 3)
        return node_fail(triple, "must be [rank, [begin, ...], [end, ...]]");
    node rank = node_element(triple, 0), begin = node_element(triple, 1),
         end = node_element(triple, 2);
    DO(read_rank(c, &rank, &box->rank));
    DO(read_corner(&begin, box->begin, ndim));
    return read_corner(&end, box->end, ndim);
}

static int read_boxes(config *c, config_layout *l)
{
    l->nboxes = json_array_size(l->boxes_at.value); /* 0 for what is no list */
    if (l->nboxes == 0) return node_fail(&l->boxes_at, "must be a list of at least one box");
    l->boxes = config_keep(c, cli_alloc(l->nboxes, sizeof *l->boxes));
    for (size_t i = 0; i < l->nboxes; i++) {
        node at = node_element(&l->boxes_at, i);
        DO(read_box(c, &at, &l->boxes[i], &l->box_dims));
    }
    return CLI_DONE;
}

static int read_range(config *c, const node *triple, muon_range *range)
{
    if (json_array_size(triple->value) != 3) return node_fail(triple, "must be [rank, begin, end]");
    node rank = node_element(triple, 0), begin = node_element(triple, 1),
         end = node_element(triple, 2);
    DO(read_rank(c, &rank, &range->rank));
    DO(read_whole_number(&begin, 0, INT64_MAX, &range->begin));
    return read_whole_number(&end, 0, INT64_MAX, &range->end);
}

static int read_ranges(config *c, config_layout *l)
{
    l->nranges = json_array_size(l->ranges_at.value);
    if (l->nranges == 0) return node_fail(&l->ranges_at, "must be a list of at least one range");
    l->ranges = config_keep(c, cli_alloc(l->nranges, sizeof *l->ranges));
    for (size_t i = 0; i < l->nranges; i++) {
        node at = node_element(&l->ranges_at, i);
        DO(read_range(c, &at, &l->ranges[i]));
    }
    return CLI_DONE;
}

int config_read_layout(config *c, const node *rule, config_layout *l)
{
    int by_mesh = l->mesh || l->placement;
    if (by_mesh + (l->boxes_at.value != NULL) + (l->ranges_at.value != NULL) > 1)
        return node_fail(rule, "only one of 'mesh' with 'placement', 'boxes' and 'ranges' can say "
                               "where a tensor is");
    node mesh_at = {NULL, rule, "mesh", 0};
    if (l->mesh) DO(find_mesh(c, &mesh_at, l->mesh));
    if (l->boxes_at.value) DO(read_boxes(c, l));
    if (l->ranges_at.value) DO(read_ranges(c, l));
    return CLI_DONE;
}

int config_apply_layout(const config_layout *l, muon_param *param)
{
    int by_mesh = l->mesh || l->placement;
    if (!by_mesh && !l->boxes && !l->ranges) return CLI_DONE;
    if (l->boxes && l->box_dims != param->ndim)
        return node_fail(&l->boxes_at, "boxes of %d dims, but '%s' has %d", l->box_dims,
                         param->name, param->ndim);
    if (!by_mesh) param->mesh = param->placement = NULL;
    if (l->mesh) param->mesh = l->mesh;
    if (l->placement) param->placement = l->placement;
    param->boxes = l->boxes;
    param->nboxes = l->nboxes;
    param->ranges = l->ranges;
    param->nranges = l->nranges;
    return CLI_DONE;
}

/* ---- as many ranks as there are ---------------------------------------------------------------- */

/* What the file says of places is not needed, but is to be right all the same. */
static int check_layouts(const config *c)
{
    muon_plan *plan = NULL;
    if (muon_plan_create(&plan, &c->muon, c->params, c->nparams) != MUON_OK)
        return cli_fail_library();
    muon_plan_destroy(plan);
    return CLI_DONE;
}

static int forget_layouts(config *c)
{
    DO(check_layouts(c));
    cli_note("the config is for %lld ranks; this one process holds every tensor whole",
             (long long)c->muon.nranks);
    for (size_t i = 0; i < c->nparams; i++) {
        muon_param *param = &c->params[i];
        param->mesh = param->placement = NULL;
        param->boxes = NULL;
        param->ranges = NULL;
        param->nboxes = param->nranges = 0;
    }
    c->muon.nmeshes = 0;
    return CLI_DONE;
}

static void spread(config *c, int nranks)
{
    muon_mesh *mesh = &c->meshes[c->muon.nmeshes];
    size_t used = 0;
    muon_mesh_init(mesh, sizeof *mesh);
    mesh->name = default_mesh;
    mesh->naxes = 1;
    mesh->axes[0] = "rank";
    mesh->sizes[0] = nranks;
    for (size_t i = 0; i < c->nparams; i++) {
        muon_param *param = &c->params[i];
        if (param->mesh || param->placement || param->boxes || param->ranges) continue;
        param->mesh = default_mesh;
        param->placement = "0: rank";
        used++;
    }
    if (used) c->muon.nmeshes++;
}

int config_place(config *c, int64_t nranks)
{
    if (nranks == 1 && c->muon.nranks > 1) DO(forget_layouts(c));
    if (nranks > 1) spread(c, (int)nranks);
    c->muon.nranks = nranks;
    return CLI_DONE;
}
