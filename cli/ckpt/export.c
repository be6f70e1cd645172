/* muonctl ckpt export - a checkpoint's state for another optimizer, in its names and form. */
#include "cli/ckpt/peers.h"
#include "cli/ckpt/settings.h"
#include "cli/core/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *to_name, *names_path, *prefix = "";
static double mu = -1;

static const option options[] = {
    {.name = "to",
     .argument = "PEER",
     .type = OPTION_TEXT,
     .target = &to_name,
     .required = 1,
     .help = "the target: torch, keller, moonlight, megatron, dion, xtuner or motif"},
    {OPTION_FILE("names", names_path,
                 "names of parameters, one per line or as JSON, in the order of the optimizer: "
                 "keys then have numbers, state.0.exp_avg, as in torch's state_dict(), and other "
                 "parameters are omitted")},
    {.name = "prefix",
     .argument = "TEXT",
     .type = OPTION_TEXT,
     .target = &prefix,
     .standard = "none, and state. with --names",
     .help = "prefix of every key, such as optimizer.state."},
    CKPT_MU_OPTION(mu, "the group's momentum", "the momentum with which the buffers were made"),
};

typedef struct job {
    const ckpt_source *in;
    const ckpt_peer *peer;
    muon_momentum_form form; /* the peer's */
    ckpt_names names;
    char *found; /* for each name: whether there is state for it */
    names_list left_out;
    ckpt_items out;
} job;

static int peer_form(job *j)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    if (muon_group_set_preset(&group, j->peer->name) != MUON_OK) return cli_fail_library();
    j->form = group.momentum_form;
    return CLI_DONE;
}

/* "state.3.exp_avg" or "w.exp_avg", for free. */
static char *make_key(const job *j, const char *param, const char *word)
{
    if (!names_path) return cli_format("%s%s.%s", prefix, param, word);
    int64_t number = ckpt_names_find(&j->names, param);
    return cli_format("%s%" PRId64 ".%s", *prefix ? prefix : "state.", number, word);
}

static void add_tensor(job *j, size_t index, const char *param, const char *word, double scale)
{
    char *key = make_key(j, param, word);
    ckpt_items_add(&j->out, key, j->in, index)->scale = scale;
    free(key);
}

static int add_momentum(job *j, size_t index, const char *param)
{
    muon_group group;
    DO(ckpt_group_of_buffer(j->in, param, &group));
    double scale = ckpt_form_scale(group.momentum_form, j->form, mu >= 0 ? mu : group.momentum);
    add_tensor(j, index, param, j->peer->momentum, scale);
    return CLI_DONE;
}

/* The counters of Muon's parameters have no place in a peer's state. */
static int add_step(job *j, size_t index, const char *param)
{
    char *first = cli_format("%s.exp_avg", param);
    int is_adamw = ckpt_find(j->in, first) >= 0;
    free(first);
    int64_t step = 0;
    if (!is_adamw) return CLI_DONE;
    if (ckpt_read(j->in, index, 0, &step, sizeof step) != MUON_OK) return cli_fail_library();
    char *key = make_key(j, param, j->peer->step);
    ckpt_items_add_number(&j->out, key, j->peer->step_dtype, step);
    free(key);
    return CLI_DONE;
}

static int add_part(job *j, size_t index, const char *param, const char *part)
{
    const muon_checkpoint_tensor *t = &j->in->tensors[index];
    if (strcmp(part, "momentum_buffer") == 0) return add_momentum(j, index, param);
    if (strcmp(part, "step") == 0 && strcmp(t->dtype, "I64") == 0 && t->ndim == 0)
        return add_step(j, index, param);
    if (strcmp(part, "exp_avg") == 0)
        add_tensor(j, index, param, j->peer->first, 1);
    else if (strcmp(part, "exp_avg_sq") == 0)
        add_tensor(j, index, param, j->peer->second, 1);
    else if (strncmp(part, "momentum_", 9) == 0)
        return cli_fail("%s: tensor '%s' is momentum in 8 bits, which the format of %s does not "
                        "have",
                        j->in->path, t->name, j->peer->name);
    else if (strcmp(part, "second_moment") == 0)
        return cli_fail("%s: tensor '%s' is state of a variant of Muon, which the format of %s "
                        "does not have",
                        j->in->path, t->name, j->peer->name);
    else
        return cli_fail("%s: tensor '%s' is not state of Muon or AdamW", j->in->path, t->name);
    return CLI_DONE;
}

static int add(job *j, size_t index)
{
    const muon_checkpoint_tensor *t = &j->in->tensors[index];
    if (t->is_weight) return CLI_DONE;
    ckpt_name name = ckpt_split(t->name);
    int code = CLI_DONE;
    int64_t number = ckpt_names_find(&j->names, name.param);
    if (number >= 0) j->found[number] = 1;
    if (names_path && number < 0)
        names_add(&j->left_out, t->name);
    else
        code = add_part(j, index, name.param, name.part);
    free(name.param);
    return code;
}

/* A name that is misspelt would be a parameter that starts again from zeros. */
static int check_names(const job *j)
{
    names_list without = {0};
    for (size_t i = 0; i < j->names.count; i++)
        if (!j->found[i]) names_add(&without, j->names.list[i]);
    if (!without.count) return CLI_DONE;
    return cli_fail("%s: %s has no state for %s", names_path, j->in->path, names_text(&without));
}

static void set_metadata(job *j)
{
    char step[32];
    snprintf(step, sizeof step, "%" PRId64, j->in->step);
    ckpt_items_set(&j->out, "format", "pt");
    ckpt_items_set(&j->out, "muon.step", step);
    for (int64_t g = 0; g < ckpt_ngroups(j->in); g++)
        if (ckpt_group_value(j->in, g, "momentum_form"))
            ckpt_items_set_group(&j->out, g, "momentum_form", ckpt_form_word(j->form).text);
}

static int export(job *j, const char *path)
{
    if (!j->in->checkpoint) return cli_fail("%s: IN must be a checkpoint", j->in->path);
    DO(peer_form(j));
    if (names_path) DO(ckpt_names_load(&j->names, names_path));
    j->found = cli_alloc(j->names.count, 1);
    set_metadata(j);
    for (size_t i = 0; i < j->in->count; i++)
        DO(add(j, i));
    DO(check_names(j));
    if (!j->out.count) return cli_fail("%s: there is no state to export", j->in->path);
    if (j->left_out.count)
        cli_note("omitted, since %s does not have them: %s", names_path, names_text(&j->left_out));
    DO(ckpt_check(j->in));
    return ckpt_items_save_file(&j->out, path);
}

static int run(int noperands, char **operands)
{
    (void)noperands;
    ckpt_source in;
    job j = {.in = &in};
    DO(ckpt_peer_find(&j.peer, "to", to_name));
    DO(ckpt_open(&in, operands[0]));
    ckpt_items_start(&j.out, &in);
    int code = export(&j, operands[1]);
    ckpt_items_close(&j.out);
    ckpt_names_free(&j.names);
    free(j.found);
    ckpt_close(&in);
    return code;
}

const command ckpt_export = {
    .name = "ckpt export",
    .summary = "write a checkpoint's state for another optimizer",
    .operands = "IN OUT.safetensors",
    .least_operands = 2,
    .most_operands = 2,
    .about =
        "Writes the state of a checkpoint as one safetensors file with the keys, and momentum in "
        "the form, of another Muon implementation. Only AdamW has steps; other implementations "
        "have none for Muon. The settings are in the file's metadata. IN, a checkpoint or a root, "
        "does not change, and its checksums are checked first. The whole state is held in memory.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl ckpt export checkpoints state.safetensors --to torch\n"
               "  muonctl ckpt export checkpoints state.safetensors --to dion --prefix "
               "optimizer.state.",
    .run = run,
};
