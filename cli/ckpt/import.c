/* muonctl ckpt import - the state of another optimizer as a checkpoint. */
#include "cli/ckpt/old.h"
#include "cli/ckpt/peers.h"
#include "cli/ckpt/settings.h"
#include "cli/core/commands.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *from_name, *names_paths;
static ckpt_momentum momentum = {.mu = -1};
static int given_step = -1, ignore_unknown;

static const option options[] = {
    {.name = "from",
     .argument = "PEER",
     .type = OPTION_TEXT,
     .target = &from_name,
     .required = 1,
     .help = "where it comes from: torch, keller, moonlight, megatron, dion, xtuner or motif; the "
             "settings are those of that preset (docs/presets.md). Or muonctl, for a "
             "state.safetensors of 'muonctl step' before 0.5.0, which has its own settings"},
    {.name = "names",
     .argument = "LIST[,...]",
     .type = OPTION_TEXT,
     .target = &names_paths,
     .help = "files with the names of parameters, one per line or as JSON, in the order of the "
             "optimizer: needed if keys have numbers, as in torch's state_dict(); one for all "
             "FILEs, or one for each"},
    {.name = "step",
     .argument = "N",
     .type = OPTION_INTEGER,
     .target = &given_step,
     .least = 0,
     .most = INT_MAX,
     .standard = "muon.step in the files, or the largest step of a parameter",
     .help = "the step of the checkpoint, and of parameters that have none"},
    CKPT_MOMENTUM_OPTIONS(momentum),
    CKPT_MU_OPTION(momentum.mu, "the preset's", "the run's momentum"),
    {.name = "ignore-unknown",
     .type = OPTION_FLAG,
     .target = &ignore_unknown,
     .help = "omit tensors that are not recognized, instead of failing"},
};

/* ---- names ---------------------------------------------------------------------------------- */

/* Of parameters; torch has an optimizer for Muon and one for AdamW, and each counts from 0. */
typedef struct name_lists {
    ckpt_names *lists;
    size_t count;
} name_lists;

static const ckpt_names *list_for(const name_lists *names, size_t file)
{
    static const ckpt_names none = {NULL, 0};
    return names->count == 0 ? &none : &names->lists[names->count == 1 ? 0 : file];
}

static int load_lists(name_lists *names, size_t nfiles)
{
    if (!names_paths) return CLI_DONE;
    size_t count = 1;
    for (const char *c = names_paths; *c; c++)
        count += *c == ',';
    if (count != 1 && count != nfiles)
        return cli_misuse("--names: %zu lists for %zu files; one, or one for each", count, nfiles);
    names->lists = cli_alloc(count, sizeof *names->lists);
    const char *at = names_paths;
    while (names->count < count) {
        size_t length = strcspn(at, ",");
        char *path = cli_format("%.*s", (int)length, at);
        int code = ckpt_names_load(&names->lists[names->count++], path);
        free(path);
        DO(code);
        at += length + 1;
    }
    return CLI_DONE;
}

/* ---- steps ---------------------------------------------------------------------------------- */

typedef struct steps {
    int64_t known; /* from the command line or a file's metadata; -1: neither */
    int64_t most;  /* that a parameter says, or -1 */
} steps;

static steps find_steps(const ckpt_state *state, const ckpt_source *files, size_t nfiles)
{
    steps s = {given_step, -1};
    for (size_t i = 0; i < nfiles && given_step < 0; i++)
        if (files[i].step > s.known) s.known = files[i].step;
    for (size_t i = 0; i < state->count; i++)
        if (state->params[i].step > s.most) s.most = state->params[i].step;
    return s;
}

static int64_t step_of_run(const steps *s)
{
    return s->known >= 0 ? s->known : s->most >= 0 ? s->most : 0;
}

/* AdamW divides by what depends on the step, and guessing it would be wrong quietly. Muon does not, but
 * at step 0 there is no momentum yet. */
static int settle_steps(ckpt_state *state, const steps *s)
{
    names_list without = {0};
    for (size_t i = 0; i < state->count; i++) {
        ckpt_param *p = &state->params[i];
        if (p->step >= 0) continue;
        if (s->known < 0 && (p->rule == MUON_RULE_ADAMW || s->most < 0))
            names_add(&without, p->name);
        p->step = step_of_run(s);
    }
    if (!without.count) return CLI_DONE;
    return cli_fail("parameters without a step: %s; use --step", names_text(&without));
}

/* ---- the checkpoint ------------------------------------------------------------------------- */

typedef struct rules {
    int64_t index[2]; /* of the group of Muon and of AdamW; -1: none */
    muon_group group[2];
    muon_momentum_form peer_form;
} rules;

static int has_rule(const ckpt_state *state, muon_rule rule)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->params[i].rule == rule) return 1;
    return 0;
}

/* bf16 if all of it is: one group has one dtype, and f32 holds both. */
static muon_dtype momentum_dtype(const ckpt_state *state)
{
    if (momentum.dtype) return strcmp(momentum.dtype, "BF16") == 0 ? MUON_BF16 : MUON_F32;
    for (size_t i = 0; i < state->count; i++) {
        const ckpt_place *place = &state->params[i].role[ROLE_MOMENTUM];
        if (place->from && strcmp(place->from->tensors[place->index].dtype, "BF16") != 0)
            return MUON_F32;
    }
    return MUON_BF16;
}

/* The settings that the state was made with. */
static int start_group(muon_group *group, muon_rule rule, const ckpt_peer *peer,
                       const ckpt_old *old)
{
    if (old) return ckpt_old_group(old, rule, group);
    muon_group_init(group, sizeof *group);
    group->rule = rule;
    return muon_group_set_preset(group, peer->name) == MUON_OK ? CLI_DONE : cli_fail_library();
}

static int make_groups(rules *r, ckpt_items *out, const ckpt_state *state, const ckpt_peer *peer,
                       const ckpt_old *old)
{
    static const char *const names[] = {"muon", "adamw"};
    int64_t count = 0;
    for (int k = 0; k < 2; k++) {
        muon_group *group = &r->group[k];
        DO(start_group(group, k == 0 ? MUON_RULE_MUON : MUON_RULE_ADAMW, peer, old));
        r->index[k] = -1;
        if (k == 0) r->peer_form = group->momentum_form;
        if (k == 0 && momentum.mu >= 0) group->momentum = momentum.mu;
        if (k == 0 && momentum.form_word) group->momentum_form = momentum.form;
        if (k == 0) group->momentum_dtype = momentum_dtype(state);
        if (!has_rule(state, group->rule)) continue;
        r->index[k] = count;
        DO(ckpt_group_store(out, count++, names[k], group));
    }
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, count);
    ckpt_items_set(out, "muon.ngroups", text);
    return CLI_DONE;
}

/* Files that export wrote, or that are libmuon's own, say of which form momentum is. */
static int check_form(const ckpt_source *file, const rules *r, const ckpt_peer *peer)
{
    for (int64_t g = 0; g < ckpt_ngroups(file); g++) {
        const char *rule = ckpt_group_value(file, g, "rule");
        const char *form = ckpt_group_value(file, g, "momentum_form");
        if (rule && form && strcmp(rule, "muon") == 0 &&
            strcmp(form, ckpt_form_word(r->peer_form).text) != 0)
            return cli_fail("%s: its momentum is %s, %s's is %s", file->path, form, peer->name,
                            ckpt_form_word(r->peer_form).text);
    }
    return CLI_DONE;
}

static void set_general(ckpt_items *out)
{
    muon_config config;
    char text[64];
    muon_config_init(&config, sizeof config);
    ckpt_items_set(out, "muon.format", "1");
    ckpt_items_set(out, "muon.version", muon_version());
    snprintf(text, sizeof text, "%" PRIu64, config.seed);
    ckpt_items_set(out, "muon.seed", text);
    snprintf(text, sizeof text, "%.17g", config.clip_norm);
    ckpt_items_set(out, "muon.clip_norm", text);
    snprintf(text, sizeof text, "%.17g", config.skip_norm);
    ckpt_items_set(out, "muon.skip_norm", text);
    snprintf(text, sizeof text, "%.17g", config.qk_threshold);
    ckpt_items_set(out, "muon.qk_threshold", text);
    ckpt_items_set(out, "muon.qk_log_only", config.qk_log_only ? "1" : "0");
}

static void add_role(ckpt_items *out, const ckpt_param *p, ckpt_role role, const char *dtype,
                     double scale)
{
    char *name = cli_format("%s.%s", p->name, ckpt_role_word(role));
    ckpt_item *item = ckpt_items_add(out, name, p->role[role].from, p->role[role].index);
    item->to.dtype = dtype;
    item->to.is_weight = 0;
    item->scale = scale;
    free(name);
}

static void add_param(ckpt_items *out, const ckpt_param *p, const rules *r)
{
    int k = p->rule == MUON_RULE_ADAMW;
    const muon_group *group = &r->group[k];
    if (p->rule == MUON_RULE_FROZEN) return;
    if (p->rule == MUON_RULE_MUON) {
        add_role(out, p, ROLE_MOMENTUM, group->momentum_dtype == MUON_BF16 ? "BF16" : "F32",
                 ckpt_form_scale(r->peer_form, group->momentum_form, group->momentum));
    } else {
        add_role(out, p, ROLE_FIRST, "F32", 1);
        add_role(out, p, ROLE_SECOND, "F32", 1);
    }
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, r->index[k]);
    char *key = cli_format("muon.param.%s", p->name), *step = cli_format("%s.step", p->name);
    ckpt_items_set(out, key, text);
    ckpt_items_add_number(out, step, "I64", p->step);
    free(step);
    free(key);
}

static int check_unknown(ckpt_state *state)
{
    if (!state->unknown.count) return CLI_DONE;
    if (ignore_unknown) {
        cli_note("omitted: %s", names_text(&state->unknown));
        return CLI_DONE;
    }
    return cli_fail("tensors that are not state of Muon or AdamW: %s; --ignore-unknown omits them",
                    names_text(&state->unknown));
}

static void report(const ckpt_state *state, const rules *r, const ckpt_peer *peer, int64_t step)
{
    size_t count[3] = {0};
    for (size_t i = 0; i < state->count; i++)
        count[state->params[i].rule]++;
    printf("step %" PRId64 ", parameters: %zu of Muon", step, count[MUON_RULE_MUON]);
    if (count[MUON_RULE_MUON]) {
        printf(" (%s", ckpt_form_word(r->peer_form).text);
        if (r->group[0].momentum_form != r->peer_form)
            printf(" to %s", ckpt_form_word(r->group[0].momentum_form).text);
        printf(")");
    }
    printf(", %zu of AdamW; settings of %s\n", count[MUON_RULE_ADAMW], peer->name);
}

static int convert(ckpt_state *state, const ckpt_source *files, size_t nfiles,
                   const ckpt_peer *peer, const ckpt_old *old, const char *root, ckpt_items *out)
{
    rules r;
    DO(ckpt_state_finish(state));
    DO(check_unknown(state));
    steps s = find_steps(state, files, nfiles);
    DO(settle_steps(state, &s));
    set_general(out);
    DO(make_groups(&r, out, state, peer, old));
    for (size_t i = 0; i < nfiles && has_rule(state, MUON_RULE_MUON); i++)
        DO(check_form(&files[i], &r, peer));
    for (size_t i = 0; i < state->count; i++)
        add_param(out, &state->params[i], &r);
    if (!out->count) return cli_fail("the files have no state of Muon or AdamW");
    DO(ckpt_items_save(out, root, step_of_run(&s)));
    report(state, &r, peer, step_of_run(&s));
    return CLI_DONE;
}

/* A checkpoint has settings and checksums of its own, which would be lost here. */
static int open_state(ckpt_source *file, const char *path)
{
    DO(ckpt_open(file, path));
    if (!file->checkpoint) return CLI_DONE;
    int code = cli_fail("%s: it is already a checkpoint; use 'muonctl ckpt convert'", path);
    ckpt_close(file);
    return code;
}

static int import(size_t nfiles, char **paths, const char *root, const ckpt_peer *peer,
                  const name_lists *names)
{
    ckpt_source *files = cli_alloc(nfiles, sizeof *files);
    ckpt_state state;
    ckpt_items out;
    ckpt_old *old = NULL;
    ckpt_state_start(&state);
    ckpt_items_start(&out, NULL);
    int code = CLI_DONE;
    size_t opened = 0;
    for (; opened < nfiles && code == CLI_DONE; opened++) {
        code = open_state(&files[opened], paths[opened]);
        if (code == CLI_DONE)
            code = ckpt_state_add(&state, &files[opened], list_for(names, opened));
    }
    if (code == CLI_DONE && peer->is_own) code = ckpt_old_open(&old, &files[0]);
    if (code == CLI_DONE) code = convert(&state, files, nfiles, peer, old, root, &out);
    for (size_t i = 0; i < opened; i++)
        ckpt_close(&files[i]);
    free(files);
    ckpt_items_close(&out);
    ckpt_state_free(&state);
    ckpt_old_close(old);
    return code;
}

static int run(int noperands, char **operands)
{
    const ckpt_peer *peer = NULL;
    name_lists names = {NULL, 0};
    size_t nfiles = (size_t)noperands - 1;
    DO(ckpt_peer_find(&peer, "from", from_name));
    DO(ckpt_momentum_check(&momentum));
    int code = load_lists(&names, nfiles);
    if (code == CLI_DONE) code = import(nfiles, operands, operands[nfiles], peer, &names);
    for (size_t i = 0; i < names.count; i++)
        ckpt_names_free(&names.lists[i]);
    free(names.lists);
    return code;
}

const command ckpt_import = {
    .name = "ckpt import",
    .summary = "make a checkpoint from the state of another optimizer",
    .operands = "FILE... OUT_ROOT",
    .least_operands = 2,
    .most_operands = -1,
    .about =
        "Reads the state of another Muon implementation, saved as safetensors, and writes a "
        "checkpoint to the directory OUT_ROOT, with a group for Muon and one for AdamW. Keys are "
        "PARAM.WORD, state.PARAM.WORD or optimizer.state.PARAM.WORD; PARAM is a name, or a number "
        "with --names; WORD is momentum_buffer or momentum (Muon), exp_avg or moment1 or momentum, "
        "exp_avg_sq or moment2 or variance (AdamW), step or step_dev. Tensors that are not "
        "recognized are listed as an error. Momentum keeps its form unless --momentum asks for the "
        "other; it is an error if the metadata of a file say that it has another form than PEER's.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example =
        "  muonctl ckpt import muon.safetensors adamw.safetensors checkpoints --from torch \\\n"
        "      --names muon.txt,adamw.txt --step 1000\n"
        "  muonctl ckpt import state.safetensors checkpoints --from keller \\\n"
        "      --momentum heavy_ball",
    .run = run,
};
