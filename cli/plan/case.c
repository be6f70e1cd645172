#include "cli/plan/case.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const axis_names[PLAN_AXES] = {"replicate", "fsdp", "ep", "tp"};

enum { MOST_RANKS = 65536 };

void plan_case_init(plan_case *c)
{
    static const struct {
        const char *name;
        muon_rule rule;
    } groups[PLAN_GROUPS] = {
        {"muon", MUON_RULE_MUON}, {"adamw", MUON_RULE_ADAMW}, {"frozen", MUON_RULE_FROZEN}};
    *c = (plan_case){.model = "model"};
    for (int i = 0; i < PLAN_GROUPS; i++) {
        muon_group_init(&c->groups[i], sizeof c->groups[i]);
        c->groups[i].name = groups[i].name;
        c->groups[i].rule = groups[i].rule;
    }
    muon_mesh_init(&c->mesh, sizeof c->mesh);
    c->mesh.name = "mesh";
    c->mesh.naxes = PLAN_AXES;
    for (int a = 0; a < PLAN_AXES; a++) {
        c->mesh.axes[a] = axis_names[a];
        c->mesh.sizes[a] = 1;
    }
    muon_config_init(&c->config, sizeof c->config);
    c->config.groups = c->groups;
    c->config.ngroups = PLAN_GROUPS;
    c->config.meshes = &c->mesh;
    c->config.nmeshes = 1;
}

void plan_case_destroy(plan_case *c)
{
    if (c->has_file)
        config_destroy(&c->file);
    else
        free(c->params);
    files_close(&c->tensors);
    for (size_t i = 0; i < c->nkept; i++)
        free(c->kept[i]);
    free(c->kept);
    *c = (plan_case){.model = NULL};
}

/* Twice the room whenever the count reaches a power of two. */
static void *grow(void *list, size_t count, size_t size)
{
    if (count & (count - 1)) return list;
    char *larger = cli_alloc(count ? 2 * count : 1, size);
    if (count) memcpy(larger, list, count * size);
    free(list);
    return larger;
}

void *plan_case_keep(plan_case *c, void *memory)
{
    c->kept = grow(c->kept, c->nkept, sizeof *c->kept);
    return c->kept[c->nkept++] = memory;
}

muon_param *plan_case_add(plan_case *c)
{
    c->params = grow(c->params, c->nparams, sizeof *c->params);
    muon_param *param = &c->params[c->nparams++];
    muon_param_init(param, sizeof *param);
    return param;
}

void plan_case_place(muon_param *param, plan_cut cut)
{
    static const char *const dense[] = {"0: tp, fsdp, ep", "0: fsdp, ep; 1: tp", "0: fsdp, ep"};
    static const char *const expert[] = {"0: ep, fsdp, tp", "0: ep, fsdp; 1: tp", "0: ep, fsdp"};
    /* An expert is an entry of dim 0, so that tp can cut its own rows and columns. */
    static const char *const stacked[] = {"0: ep, fsdp; 1: tp", "0: ep, fsdp; 2: tp",
                                          "0: ep, fsdp"};
    const char *const *kinds = dense;
    if (param->expert) kinds = param->ndim == 3 ? stacked : expert;
    param->mesh = "mesh";
    param->placement = kinds[param->ndim == 1 ? PLAN_CUT_NONE : cut];
}

/* ---- "fsdp=64,ep=8" -------------------------------------------------------------------------- */

static int find_axis(const char *name)
{
    for (int a = 0; a < PLAN_AXES; a++)
        if (strcmp(name, axis_names[a]) == 0) return a;
    return -1;
}

static int refuse_axis(const char *name)
{
    names_nearest nearest;
    names_start(&nearest, name);
    for (int a = 0; a < PLAN_AXES; a++)
        names_offer(&nearest, axis_names[a]);
    return cli_misuse("--mesh: unknown axis '%s'; axes: %s%s", name, nearest.known,
                      names_hint(&nearest));
}

static int set_axis(plan_case *c, char *item, char *seen)
{
    char *equals = strchr(item, '='), *end = NULL;
    if (!equals) return cli_misuse("--mesh: '%s' is not AXIS=SIZE", item);
    *equals = '\0';
    int axis = find_axis(item);
    if (axis < 0) return refuse_axis(item);
    if (seen[axis]++) return cli_misuse("--mesh: '%s' is given twice", item);
    const char *digits = equals + 1;
    errno = 0;
    long long size = strtoll(digits, &end, 10);
    if (!*digits || *end || errno || size < 1 || size > MOST_RANKS)
        return cli_misuse("--mesh: %s is '%s', must be a number 1..%d", item, digits, MOST_RANKS);
    c->mesh.sizes[axis] = (int)size;
    return CLI_DONE;
}

static int set_axes(plan_case *c, char *text)
{
    char seen[PLAN_AXES] = {0};
    for (char *item = text, *comma; item; item = comma) {
        comma = strchr(item, ',');
        if (comma) *comma++ = '\0';
        DO(set_axis(c, item, seen));
    }
    return CLI_DONE;
}

int plan_case_set_mesh(plan_case *c, const char *text)
{
    int code = CLI_DONE;
    if (text) {
        char *copy = cli_format("%s", text);
        code = set_axes(c, copy);
        free(copy);
    }
    DO(code);
    c->config.nranks = 1;
    for (int a = 0; a < PLAN_AXES; a++) {
        c->config.nranks *= c->mesh.sizes[a];
        if (c->config.nranks > MOST_RANKS)
            return cli_misuse("--mesh: '%s' is more than %d ranks", text, MOST_RANKS);
    }
    return CLI_DONE;
}

plan_axes plan_case_axes(const plan_case *c)
{
    plan_axes axes = {""};
    for (size_t i = 0; i < c->config.nmeshes; i++) {
        const muon_mesh *mesh = &c->config.meshes[i];
        const char *between = *axes.text ? "; " : "";
        for (int a = 0; a < mesh->naxes; a++) {
            size_t used = strlen(axes.text);
            if (mesh->sizes[a] == 1) continue;
            snprintf(axes.text + used, sizeof axes.text - used, "%s%s %d", between, mesh->axes[a],
                     mesh->sizes[a]);
            between = " x ";
        }
    }
    return axes;
}
