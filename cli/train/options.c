#include "cli/train/options.h"

#include "cli/config/node.h"
#include "cli/core/launch.h"
#include "cli/core/options.h"
#include "cli/plan/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model ---------------------------------------------------------------------------------- */

static const char *const attention_names[] = {"gqa", "mla", NULL};

#define INT(name)                                                                                  \
    {                                                                                              \
#name, FIELD_INT, offsetof(model_config, name), NULL, 0                                    \
    }
#define NUMBER(name)                                                                               \
    {                                                                                              \
#name, FIELD_NUMBER, offsetof(model_config, name), NULL, 0                                 \
    }

static const field model_fields[] = {
    INT(layers),
    INT(width),
    INT(context),
    {"attention", FIELD_CHOICE, offsetof(model_config, attention), attention_names, 0},
    INT(heads),
    INT(kv_heads),
    INT(head_dim),
    INT(q_rank),
    INT(kv_rank),
    INT(nope_dim),
    INT(rope_dim),
    INT(v_dim),
    INT(hidden),
    INT(experts),
    INT(top_k),
    INT(expert_hidden),
    INT(shared_hidden),
    INT(dense_layers),
    NUMBER(balance),
    NUMBER(rope_theta),
    NUMBER(norm_eps),
};

static int find_model(model_config *out, const char *name)
{
    if (model_config_named(out, name)) return CLI_DONE;
    names_nearest nearest;
    names_start(&nearest, name);
    for (size_t i = 0; model_config_name(i); i++)
        names_offer(&nearest, model_config_name(i));
    return cli_misuse("--model: unknown model '%s'; known: %s%s", name, nearest.known,
                      names_hint(&nearest));
}

static int read_model_file(model_config *out, const char *path)
{
    json_t *json = NULL;
    DO(node_load(&json, path));
    node root = {json, NULL, path, 0};
    int code = node_read(&root, model_fields, sizeof model_fields / sizeof *model_fields, out);
    json_decref(json);
    return code;
}

static void replace(int *value, int given)
{
    if (given != TRAIN_NOT_GIVEN) *value = given;
}

static int resolve_model(train_options *o)
{
    model_config *m = &o->settings.model;
    DO(find_model(m, o->model));
    if (o->model_file) DO(read_model_file(m, o->model_file));
    replace(&m->layers, o->layers);
    replace(&m->width, o->width);
    replace(&m->context, o->context);
    replace(&m->heads, o->heads);
    replace(&m->kv_heads, o->kv_heads);
    replace(&m->hidden, o->hidden);
    replace(&m->experts, o->experts);
    replace(&m->top_k, o->top_k);
    replace(&m->expert_hidden, o->expert_hidden);
    const char *problem = model_config_check(m);
    if (problem) return cli_misuse("the model does not fit: %s", problem);
    o->settings.model_name = o->model_file ? o->model_file : o->model;
    return CLI_DONE;
}

int train_options_list(void)
{
    printf("%-10s%12s%8s%8s%9s%9s  attention\n", "model", "parameters", "layers", "width",
           "context", "experts");
    for (size_t i = 0; model_config_name(i); i++) {
        model_config c;
        model_config_named(&c, model_config_name(i));
        model *m = model_create(&c, 1, 1);
        if (!m) return cli_fail("no memory for model '%s'", model_config_name(i));
        printf("%-10s%10.2f M%8d%8d%9d%9d  %s\n", model_config_name(i),
               1e-6 * (double)model_numel(m), c.layers, c.width, c.context, c.experts,
               attention_names[c.attention]);
        model_destroy(m);
    }
    printf("\n%-14swhat it changes in Muon\n", "variant");
    const train_variant *v;
    for (size_t i = 0; (v = train_variant_at(i)); i++)
        printf("%-14s%s\n", v->name, v->help);
    return CLI_DONE;
}

/* ---- the rest ----------------------------------------------------------------------------------- */

static int find_optimizer(train_choice *out, const char *name)
{
    *out = (train_choice){.muon = strcmp(name, "muon") == 0};
    return out->muon || strcmp(name, "adamw") == 0;
}

static int find_variant(train_choice *out, const char *name)
{
    *out = (train_choice){.muon = 1, .variant = train_variant_named(name)};
    return out->variant != NULL;
}

/* `more`: names that are also known. */
static int fail_name(const char *where, const char *what, const char *name, const char *const *more)
{
    const train_variant *v;
    names_nearest nearest;
    names_start(&nearest, name);
    for (; *more; more++)
        names_offer(&nearest, *more);
    for (size_t i = 0; (v = train_variant_at(i)); i++)
        names_offer(&nearest, v->name);
    return cli_misuse("--%s: unknown %s '%s'; known: %s%s", where, what, name, nearest.known,
                      names_hint(&nearest));
}

static int resolve_first(train_options *o, train_choice *first)
{
    static const char *const no_others[] = {NULL};
    if (!find_optimizer(first, o->optimizer))
        return cli_misuse("--optimizer: unknown optimizer '%s'; optimizers: muon, adamw",
                          o->optimizer);
    if (!o->variant) return CLI_DONE;
    if (!first->muon) return cli_misuse("--variant: needs --optimizer muon");
    if (!find_variant(first, o->variant))
        return fail_name("variant", "variant", o->variant, no_others);
    return CLI_DONE;
}

static int resolve_optimizers(train_options *o)
{
    static const char *const plain[] = {"muon", "adamw", NULL};
    train_choice first;
    DO(resolve_first(o, &first));
    train_choice_set(&o->settings.optimizer, &first);
    if (!o->compare) return CLI_DONE;
    if (!find_optimizer(&o->other, o->compare) && !find_variant(&o->other, o->compare))
        return fail_name("compare", "optimizer", o->compare, plain);
    if (o->other.muon == first.muon && o->other.variant == first.variant)
        return cli_misuse("--compare: the run already uses %s", o->compare);
    return CLI_DONE;
}

void train_choice_set(optimizer_settings *settings, const train_choice *choice)
{
    settings->muon = choice->muon;
    settings->variant = choice->variant;
}

/* The axes are those of `muonctl plan`. */
static int resolve_mesh(train_options *o)
{
    plan_case c;
    plan_case_init(&c);
    int code = plan_case_set_mesh(&c, o->mesh);
    if (code == CLI_DONE && c.mesh.sizes[PLAN_TP] != 1)
        code = cli_misuse("--mesh: the model has no tensor parallelism, tp must be 1");
    optimizer_settings *s = &o->settings.optimizer;
    s->replicate = c.mesh.sizes[PLAN_REPLICATE];
    s->fsdp = c.mesh.sizes[PLAN_FSDP];
    s->ep = c.mesh.sizes[PLAN_EP];
    plan_case_destroy(&c);
    DO(code);
    if (optimizer_fit_mesh(s, launch_size()) != MUON_OK)
        return cli_misuse("--%s", muon_last_error());
    return CLI_DONE;
}

static int resolve_saving(const train_options *o)
{
    const train_saving *s = &o->settings.saving;
    const char *lonely = s->every    ? "save-every"
                         : s->keep   ? "keep"
                         : s->async  ? "save-async"
                         : s->resume ? "resume"
                                     : NULL;
    if (!s->dir && lonely) return cli_misuse("--%s: needs --save DIR", lonely);
    if (s->from && o->compare)
        return cli_misuse(
            "--from: a checkpoint has the state of one optimizer, and --compare trains with two");
    return CLI_DONE;
}

static int resolve_offload(train_options *o)
{
    optimizer_settings *s = &o->settings.optimizer;
    if (!s->offload_dir && o->ram_budget) return cli_misuse("--ram-budget: needs --offload DIR");
    if (s->offload_dir && !o->ram_budget)
        return cli_misuse("--offload: needs --ram-budget SIZE, the memory for the state");
    return o->ram_budget ? size_parse("ram-budget", o->ram_budget, &s->offload_budget) : CLI_DONE;
}

int train_options_resolve(train_options *o)
{
    DO(compute_resolve(&o->how));
    o->settings.threads = o->how.threads;
    o->settings.optimizer.backend = o->how.backend;
    DO(resolve_model(o));
    DO(resolve_optimizers(o));
    if (o->mesh) DO(resolve_mesh(o));
    DO(resolve_saving(o));
    DO(resolve_offload(o));
    if (schedule_check(&o->settings.schedule) != MUON_OK)
        return cli_misuse("%s", muon_last_error());
    o->sample.seed = (uint64_t)o->settings.seed;
    return CLI_DONE;
}
