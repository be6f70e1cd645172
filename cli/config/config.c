/* The file as a whole: the keys of its top level, and who reads which. */
#include "cli/config/config.h"
#include "cli/core/cli.h"

#include <stdlib.h>

void *config_keep(config *c, void *memory)
{
    c->kept = cli_grow(c->kept, c->nkept, sizeof *c->kept);
    c->kept[c->nkept++] = memory;
    return memory;
}

void config_destroy(config *c)
{
    for (size_t i = 0; i < c->nkept; i++)
        free(c->kept[i]);
    free(c->kept);
    free(c->groups);
    free(c->params);
    free(c->attention);
    free(c->meshes);
    json_decref(c->root);
    *c = (config){.root = NULL};
}

typedef struct top {
    const char *preset;
    node groups, classify, params, qk_clip, meshes, machine;
    muon_config muon;
    double grad_scale, grad_norm;
} top;

static const char *const wires[] = {"", "f32", "bf16", NULL};
static const char *const missing[] = {"error", "skip", NULL};
static const char *const paths[] = {"pipeline", "reference", NULL};

static const field top_fields[] = {
    {.key = "preset", .type = FIELD_TEXT, .offset = offsetof(top, preset)},
    {.key = "groups", .type = FIELD_ANY, .offset = offsetof(top, groups)},
    {.key = "classify", .type = FIELD_ANY, .offset = offsetof(top, classify)},
    {.key = "params", .type = FIELD_ANY, .offset = offsetof(top, params)},
    {.key = "qk_clip", .type = FIELD_ANY, .offset = offsetof(top, qk_clip)},
    {.key = "clip_norm", .type = FIELD_NUMBER, .offset = offsetof(top, muon.clip_norm)},
    {.key = "skip_norm", .type = FIELD_NUMBER, .offset = offsetof(top, muon.skip_norm)},
    {.key = "grad_norm", .type = FIELD_NUMBER, .offset = offsetof(top, grad_norm)},
    {.key = "grad_scale", .type = FIELD_NUMBER, .offset = offsetof(top, grad_scale)},
    {.key = "wire", .type = FIELD_CHOICE, .offset = offsetof(top, muon.wire), .choices = wires},
    {.key = "seed", .type = FIELD_UINT64, .offset = offsetof(top, muon.seed)},
    {.key = "missing_grad",
     .type = FIELD_CHOICE,
     .offset = offsetof(top, muon.missing_grad),
     .choices = missing},
    {.key = "allow_no_muon", .type = FIELD_FLAG, .offset = offsetof(top, muon.allow_no_muon)},
    {.key = "workspace_budget",
     .type = FIELD_INT64,
     .offset = offsetof(top, muon.workspace_budget)},
    {.key = "meshes", .type = FIELD_ANY, .offset = offsetof(top, meshes)},
    {.key = "machine", .type = FIELD_ANY, .offset = offsetof(top, machine)},
    {.key = "path", .type = FIELD_CHOICE, .offset = offsetof(top, muon.path), .choices = paths},
    {.key = "in_flight", .type = FIELD_INT, .offset = offsetof(top, muon.in_flight)},
    {.key = "timeout", .type = FIELD_NUMBER, .offset = offsetof(top, muon.timeout)},
    {.key = "team_max", .type = FIELD_INT64, .offset = offsetof(top, muon.team_max)},
    {.key = "team_min", .type = FIELD_INT64, .offset = offsetof(top, muon.team_min)},
    {.key = "peers_max", .type = FIELD_INT64, .offset = offsetof(top, muon.peers_max)},
};

static const field machine_fields[] = {
    {.key = "flops", .type = FIELD_NUMBER, .offset = offsetof(muon_machine, flops)},
    {.key = "node_bandwidth",
     .type = FIELD_NUMBER,
     .offset = offsetof(muon_machine, node_bandwidth)},
    {.key = "bandwidth", .type = FIELD_NUMBER, .offset = offsetof(muon_machine, bandwidth)},
    {.key = "ranks_per_node",
     .type = FIELD_INT64,
     .offset = offsetof(muon_machine, ranks_per_node)},
    {.key = "latency", .type = FIELD_NUMBER, .offset = offsetof(muon_machine, latency)},
    {.key = "processor_bandwidth",
     .type = FIELD_NUMBER,
     .offset = offsetof(muon_machine, processor_bandwidth)},
};

/* Once, at the place where it is written; the groups then take it without looking. */
static int check_preset(const node *root, const char *preset)
{
    node at = {NULL, root, "preset", 0};
    muon_group trial;
    muon_group_init(&trial, sizeof trial);
    if (!preset || muon_group_set_preset(&trial, preset) == MUON_OK) return CLI_DONE;
    return node_fail(&at, "%s", muon_last_error());
}

static int read_all(config *c, const char *path, const files *tensors)
{
    node root = {c->root, NULL, path, 0};
    top t = {.grad_scale = 1, .grad_norm = MUON_UNKNOWN};
    muon_config_init(&t.muon, sizeof t.muon);
    DO(node_read(&root, top_fields, sizeof top_fields / sizeof top_fields[0], &t));
    c->muon = t.muon;
    c->grad_scale = t.grad_scale;
    c->grad_norm = t.grad_norm;
    DO(check_preset(&root, t.preset));
    if (t.machine.value)
        DO(node_read(&t.machine, machine_fields, sizeof machine_fields / sizeof machine_fields[0],
                     &c->muon.machine));
    DO(config_read_groups(c, &t.groups, t.preset));
    DO(config_read_meshes(c, &t.meshes));
    DO(config_read_params(c, &t.params, &t.classify, tensors));
    DO(config_read_attention(c, &t.qk_clip));
    c->muon.groups = c->groups;
    c->muon.attention = c->attention;
    return CLI_DONE;
}

int config_load(config *out, const char *path, const files *tensors)
{
    *out = (config){.root = NULL};
    DO(node_load(&out->root, path));
    int code = read_all(out, path, tensors);
    if (code != CLI_DONE) config_destroy(out);
    return code;
}
