/* muonctl plan - who would orthogonalize what on many ranks, and what that costs, without any of
 * them. */
#include "cli/core/commands.h"
#include "cli/plan/models.h"
#include "cli/plan/outcome.h"
#include "muon/plan.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *mesh, *profile, *wire, *config_path, *models_path, *html_path;
static double flops, node_bandwidth, bandwidth, processor_bandwidth, budget, latency;
static int ranks_per_node, in_flight, team_max, peers_max, threads = 8, list, as_json, with_ranks,
                                                           with_params;

/* Rates are above 0, so that 0 can say: the profile's. */
#define OPTION_RATE(NAME, TARGET, HELP)                                                            \
    .name = (NAME), .argument = "X", .type = OPTION_NUMBER, .target = &(TARGET), .least = 1,       \
    .most = 1e21, .standard = "the profile's", .help = (HELP)

static const option options[] = {
    {.name = "mesh",
     .argument = "AXES",
     .type = OPTION_TEXT,
     .target = &mesh,
     .standard = "one rank",
     .help = "sizes of the axes replicate, fsdp, ep, tp: fsdp=64,ep=8 is 512 ranks"},
    {.name = "profile",
     .argument = "NAME",
     .type = OPTION_TEXT,
     .target = &profile,
     .standard = "cpu, or what the config says",
     .help = "machine: cpu (1.5 Tflop/s, 20 and 6 GB/s, f32 wire) or gpu (400 Tflop/s, 300 and "
             "40 GB/s, bf16 wire), 8 ranks in a node"},
    {OPTION_RATE("flops", flops, "flops per second of a rank")},
    {OPTION_RATE("node-bandwidth", node_bandwidth,
                 "bytes per second and direction of a rank, inside a node")},
    {OPTION_RATE("bandwidth", bandwidth, "the same between nodes")},
    {.name = "ranks-per-node",
     .argument = "N",
     .type = OPTION_INTEGER,
     .target = &ranks_per_node,
     .least = 1,
     .most = 1000000,
     .standard = "the profile's",
     .help = "ranks that share a node"},
    {.name = "latency",
     .argument = "SECONDS",
     .type = OPTION_NUMBER,
     .target = &latency,
     .least = 1e-12,
     .most = 1e3,
     .standard = "the profile's",
     .help = "of an exchange between ranks, besides its bytes"},
    {.name = "processor-bandwidth",
     .argument = "X",
     .type = OPTION_NUMBER,
     .target = &processor_bandwidth,
     .least = 1,
     .most = 1e21,
     .standard = "messages cost the processor nothing",
     .help =
         "bytes per second that a rank's processor sends and receives when it does nothing else"},
    {.name = "team-max",
     .argument = "N",
     .type = OPTION_INTEGER,
     .target = &team_max,
     .least = 1,
     .most = 64,
     .standard = "as many as are of use",
     .help = "ranks that may share one matrix; 1: every matrix has one owner"},
    {.name = "peers-max",
     .argument = "N",
     .type = OPTION_INTEGER,
     .target = &peers_max,
     .least = 1,
     .most = 1 << 20,
     .standard = "no bound",
     .help = "ranks that a rank exchanges messages with; more go through relays"},
    {.name = "wire",
     .argument = "TYPE",
     .type = OPTION_TEXT,
     .target = &wire,
     .standard = "the profile's",
     .help = "elements in messages: f32 or bf16"},
    {.name = "threads",
     .argument = "N",
     .type = OPTION_INTEGER,
     .target = &threads,
     .least = 1,
     .most = 1024,
     .standard = "8",
     .help = "threads of a rank; more threads need more workspace"},
    {.name = "budget",
     .argument = "BYTES",
     .type = OPTION_NUMBER,
     .target = &budget,
     .least = 1,
     .most = 1e15,
     .standard = "no limit, sized for speed",
     .help = "largest workspace of a rank"},
    {.name = "in-flight",
     .argument = "N",
     .type = OPTION_INTEGER,
     .target = &in_flight,
     .least = 1,
     .most = 1e6,
     .standard = "3, or all where that is faster",
     .help = "number of waves whose messages and work overlap"},
    {OPTION_FILE("config", config_path,
                 "groups, matrices and meshes for the tensors of files, as for 'muonctl step'")},
    {OPTION_FILE("models", models_path,
                 "read the shapes of models from FILE instead of the built-in ones")},
    {.name = "list", .type = OPTION_FLAG, .target = &list, .help = "print the names of all models"},
    {.name = "ranks",
     .type = OPTION_FLAG,
     .target = &with_ranks,
     .help = "print what each rank has to do; of more than 64 ranks, the busiest, a middle and the "
             "idlest one"},
    {.name = "params",
     .type = OPTION_FLAG,
     .target = &with_params,
     .help = "print every parameter with its matrices and owners"},
    {OPTION_FILE(
        "html", html_path,
        "write a web page: load of the ranks, waves in time, who sends to whom, other schemes")},
    {.name = "json", .type = OPTION_FLAG, .target = &as_json, .help = "print one line of JSON"},
};

/* ---- settings ----------------------------------------------------------------------------------- */

typedef struct machine_profile {
    const char *name;
    muon_machine machine;
    muon_dtype wire;
} machine_profile;

static const machine_profile profiles[] = {
    {"cpu", {1.5e12, 20e9, 6e9, 8, 1e-5, 0}, MUON_F32},
    {"gpu", {400e12, 300e9, 40e9, 8, 1e-5, 0}, MUON_BF16},
};

/* A config file has a machine of its own, unless a profile is asked for. */
static int set_profile(plan_case *c)
{
    const char *name = profile ? profile : profiles[0].name;
    c->profile = "config";
    if (!profile && config_path) return CLI_DONE;
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++) {
        if (strcmp(name, profiles[i].name) != 0) continue;
        c->profile = profiles[i].name;
        c->config.machine = profiles[i].machine;
        c->config.wire = profiles[i].wire;
        return CLI_DONE;
    }
    return cli_misuse("--profile: '%s' is unknown; known: cpu, gpu", name);
}

static int set_machine(plan_case *c)
{
    DO(set_profile(c));
    if (flops > 0) c->config.machine.flops = flops;
    if (node_bandwidth > 0) c->config.machine.node_bandwidth = node_bandwidth;
    if (bandwidth > 0) c->config.machine.bandwidth = bandwidth;
    if (latency > 0) c->config.machine.latency = latency;
    if (processor_bandwidth > 0) c->config.machine.processor_bandwidth = processor_bandwidth;
    if (team_max) c->config.team_max = team_max;
    if (peers_max) c->config.peers_max = peers_max;
    if (ranks_per_node) c->config.machine.ranks_per_node = ranks_per_node;

    if (!wire) return CLI_DONE;
    if (strcmp(wire, "f32") != 0 && strcmp(wire, "bf16") != 0)
        return cli_misuse("--wire: '%s' is unknown; known: f32, bf16", wire);
    c->config.wire = wire[0] == 'b' ? MUON_BF16 : MUON_F32;
    return CLI_DONE;
}

static int set_config(plan_case *c)
{
    DO(set_machine(c));
    c->config.threads = threads;
    if (budget > 0) c->config.workspace_budget = (int64_t)budget;
    if (in_flight) c->config.in_flight = in_flight;
    return CLI_DONE;
}

/* ---- the model ---------------------------------------------------------------------------------- */

static int looks_like_file(const char *word)
{
    static const char suffix[] = ".safetensors";
    size_t length = strlen(word), end = sizeof suffix - 1;
    return strchr(word, '/') || (length > end && strcmp(word + length - end, suffix) == 0) ||
           access(word, F_OK) == 0;
}

static int load_preset(plan_case *c, const plan_models *models, const char *word, int *found)
{
    const char *other, *name = plan_models_find(models, word, &other);
    *found = name != NULL;
    if (!name) return CLI_DONE;
    if (other) return cli_misuse("'%s' is ambiguous: '%s' or '%s'", word, name, other);
    if (config_path) return cli_misuse("--config: '%s' is a model, not a safetensors file", word);
    return plan_models_load(c, models, name);
}

static int load_model(plan_case *c, const plan_models *models, int nwords, char **words)
{
    int found = 0;
    if (nwords == 1) DO(load_preset(c, models, words[0], &found));
    if (found) return CLI_DONE;
    for (int i = 0; i < nwords; i++) {
        if (looks_like_file(words[i])) continue;
        if (nwords == 1) return plan_models_refuse(models, words[i]);
        return cli_misuse("several MODELs must be files, but there is no '%s'", words[i]);
    }
    if (!config_path) return plan_case_read_files(c, words, nwords);
    return plan_case_read_config(c, config_path, words, nwords, mesh != NULL);
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static int print(const plan_outcome *o)
{
    if (html_path) DO(plan_write_page(o, html_path));
    if (as_json) return plan_print_json(o, with_ranks);
    plan_print_text(o);
    if (with_ranks) DO(plan_print_ranks(o));
    if (with_params) {
        printf("\n");
        muon_plan_print(o->plan, cli_write_stdout, NULL);
    }
    return CLI_DONE;
}

static int plan(plan_case *c, const plan_models *models, int nwords, char **words)
{
    plan_outcome outcome;
    DO(plan_case_set_mesh(c, mesh));
    DO(load_model(c, models, nwords, words));
    DO(set_config(c));
    DO(plan_outcome_make(&outcome, c));
    int code = print(&outcome);
    plan_outcome_destroy(&outcome);
    return code;
}

static int run(int noperands, char **operands)
{
    if (noperands == 0 && !list) return cli_misuse("missing operand MODEL");
    if (as_json && with_params) return cli_misuse("--params cannot be combined with --json");
    plan_models models;
    DO(plan_models_open(&models, models_path));
    int code = CLI_DONE;
    if (list) {
        code = plan_models_print(&models);
    } else {
        plan_case c;
        plan_case_init(&c);
        code = plan(&c, &models, noperands, operands);
        plan_case_destroy(&c);
    }
    plan_models_close(&models);
    return code;
}

const command cmd_plan = {
    .name = "plan",
    .summary = "predict the cost of a step on many ranks, without running it",
    .operands = "MODEL...",
    .most_operands = -1,
    .about = "Plans the step of a model on a mesh: which rank orthogonalizes which matrix, the "
             "predicted time and its lower bound, bytes, balance and workspace, and what two other "
             "schemes would cost. MODEL is the name of a known model (--list), or its files: "
             "safetensors files, an index of them, or a folder with one. Only headers are read. "
             "docs/plan.md explains the numbers.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl plan qwen3.5-397b-a17b --mesh fsdp=64,ep=8\n"
               "  muonctl plan kimi-k2 --mesh fsdp=256,ep=8 --profile gpu --html plan.html\n"
               "  muonctl plan model-*.safetensors --mesh fsdp=16,tp=4 --json",
    .run = run,
};
