/* muonctl bench - how fast, compared with what this machine can do, and whether it is right. */
#include "cli/bench/bench.h"
#include "cli/core/commands.h"
#include "cli/core/launch.h"
#include "cli/core/options.h"
#include "cli/core/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bench_settings settings = {.dir = "/tmp", .repeat = 7, .min_time = 1, .ranks_per_node = 1};
static muon_backend_info computes;
static int list;
static const char *ram_budget;

static const option options[] = {
    {.name = "repeat",
     .argument = "N",
     .type = OPTION_INTEGER,
     .target = &settings.repeat,
     .least = 1,
     .most = 1000,
     .standard = "7",
     .help = "minimum number of runs of each problem; the best one counts"},
    {.name = "min-time",
     .argument = "S",
     .type = OPTION_NUMBER,
     .target = &settings.min_time,
     .least = 0,
     .most = 3600,
     .standard = "1",
     .help = "minimum time for each problem, in seconds"},
    {.name = "dir",
     .argument = "DIR",
     .type = OPTION_TEXT,
     .target = &settings.dir,
     .standard = "/tmp",
     .help = "directory for the files of save: and offload:"},
    {.name = "ram-budget",
     .argument = "SIZE",
     .type = OPTION_TEXT,
     .target = &ram_budget,
     .standard = "a quarter of the state",
     .help = "offload: bytes of state in memory, such as 500M"},
    {.name = "mesh",
     .argument = "AXES",
     .type = OPTION_TEXT,
     .target = &settings.mesh,
     .standard = "fsdp over all ranks",
     .help = "plan: sizes of the axes, as for 'muonctl plan'"},
    {.name = "ranks-per-node",
     .argument = "N",
     .type = OPTION_INTEGER,
     .target = &settings.ranks_per_node,
     .least = 1,
     .most = 1000000,
     .standard = "1",
     .help = "plan: ranks that share a node"},
    {.name = "models",
     .argument = "FILE",
     .type = OPTION_TEXT,
     .target = &settings.models,
     .help = "plan: read the shapes of models from FILE, as for 'muonctl plan'"},
    {.name = "table",
     .type = OPTION_FLAG,
     .target = &settings.as_table,
     .help = "print a table instead of JSON lines"},
    {.name = "list", .type = OPTION_FLAG, .target = &list, .help = "print what PROBLEM can be"},
    COMPUTE_OPTIONS(settings.how),
};

static const bench_kind *const kinds[] = {&bench_ns,     &bench_adamw, &bench_momentum,
                                          &bench_update, &bench_norm,  &bench_step};
enum { NKINDS = sizeof kinds / sizeof kinds[0] };

static const char *const standard_problems[] = {"ns:768x2048",  "ns:1024x4096",  "ns:2048x2048",
                                                "ns:4096x1024", "ns:64x192x512", "adamw:50M",
                                                "momentum:50M", "update:50M",    "step:gpt2-124m"};
enum { NSTANDARD = sizeof standard_problems / sizeof standard_problems[0] };

/* Problems that are not rated against the machine's best are measured by drivers of their own. */
static const struct driver {
    const char *name, *grammar, *help;
    int many_ranks; /* under mpirun, too */
    int (*run)(const char *text, const model *m, const bench_settings *settings);
    /* or, if MODEL is one of `muonctl plan` */
    int (*run_planned)(const char *text, const char *name, const bench_settings *settings);
} drivers[] = {
    {"ranks", "ranks:MODEL", "the same on all ranks of mpirun, against one of them", 1,
     bench_ranks_run, NULL},
    {"save", "save:MODEL", "a checkpoint, saved and loaded, against one plain file", 1,
     bench_save_run, NULL},
    {"offload", "offload:MODEL", "a step with its state in a file, against memory", 0,
     bench_offload_run, NULL},
    {"variants", "variants:MODEL", "a step with each variant of Muon, against plain Muon", 0,
     bench_variants_run, NULL},
    {"plan", "plan:MODEL", "a step on all ranks, against what 'muonctl plan' predicts", 1, NULL,
     bench_plan_run},
};
enum { NDRIVERS = sizeof drivers / sizeof drivers[0] };

/* The driver of a problem and what follows the ':', or NULL. */
static const struct driver *find_driver(const char *text, const char **rest)
{
    for (size_t i = 0; i < NDRIVERS; i++) {
        size_t length = strlen(drivers[i].name);
        if (strncmp(text, drivers[i].name, length) != 0 || text[length] != ':') continue;
        *rest = text + length + 1;
        return &drivers[i];
    }
    return NULL;
}

static void print_list(void)
{
    for (size_t i = 0; i < NKINDS; i++)
        printf("%-28s %s\n", kinds[i]->grammar, kinds[i]->help);
    for (size_t i = 0; i < NDRIVERS; i++)
        printf("%-28s %s\n", drivers[i].grammar, drivers[i].help);
    printf("\nwithout PROBLEM:");
    for (size_t i = 0; i < NSTANDARD; i++)
        printf(" %s", standard_problems[i]);
    printf("\n");
}

/* The kind of a problem, and what follows the ':'. */
static const bench_kind *find_kind(const char *text, const char **rest)
{
    size_t length = strcspn(text, ":");
    *rest = text + length + (text[length] == ':');
    for (size_t i = 0; i < NKINDS; i++)
        if (strlen(kinds[i]->name) == length && memcmp(kinds[i]->name, text, length) == 0)
            return kinds[i];
    return NULL;
}

static int check(const char *text)
{
    const char *rest;
    const model *m;
    const struct driver *own = find_driver(text, &rest);
    if (launch_size() > 1 && !(own && own->many_ranks))
        return cli_misuse(
            "'%s' needs a single process; under mpirun use ranks:MODEL, save:MODEL or plan:MODEL",
            text);
    if (own && own->run_planned) return bench_plan_check(rest, &settings);
    if (own) return bench_model_find(rest, &m);
    const bench_kind *kind = find_kind(text, &rest);
    if (kind && *rest) return kind->check(rest);
    if (kind) return cli_misuse("'%s' is incomplete: %s", text, kind->grammar);
    names_nearest nearest;
    char *name = cli_format("%.*s", (int)strcspn(text, ":"), text);
    names_start(&nearest, name);
    for (size_t i = 0; i < NKINDS; i++)
        names_offer(&nearest, kinds[i]->name);
    for (size_t i = 0; i < NDRIVERS; i++)
        names_offer(&nearest, drivers[i].name);
    int code = cli_misuse("unknown problem '%s'%s", text, names_hint(&nearest));
    free(name);
    return code;
}

typedef struct outcome {
    double seconds, rate, peak; /* the best of each; peak 0: not measured */
    int runs;
} outcome;

/* Machine and problem in turns. The first turn of both only warms up. */
static int measure(bench_problem *problem, bench_machine *machine, outcome *best)
{
    double start = cli_now();
    *best = (outcome){.runs = 0};
    for (int turn = 0; turn <= settings.repeat || cli_now() - start < settings.min_time; turn++) {
        bench_sample sample;
        double peak = machine ? bench_machine_rate(machine) : 0;
        DO(problem->run(problem, &sample));
        if (turn == 0) continue;
        best->runs++;
        if (peak > best->peak) best->peak = peak;
        if (best->runs > 1 && sample.seconds >= best->seconds) continue;
        best->seconds = sample.seconds;
        best->rate = sample.work / sample.seconds;
    }
    return problem->verify(problem);
}

static void print_json(const char *text, const bench_problem *problem, const outcome *best)
{
    int memory = problem->limit != BENCH_SGEMM, known = best->peak > 0;
    json_t *line = json_object();
    json_object_set_new(line, "problem", json_string(text));
    json_object_set_new(line, "seconds", report_number(best->seconds));
    json_object_set_new(line, "rate", report_number(1e-9 * best->rate));
    json_object_set_new(line, "peak", known ? report_number(1e-9 * best->peak) : json_null());
    json_object_set_new(line, "ratio",
                        known ? report_number(best->rate / best->peak) : json_null());
    json_object_set_new(line, "threads", json_integer(settings.how.threads));
    json_object_set_new(line, "unit", json_string(memory ? "GB/s" : "GFLOP/s"));
    json_object_set_new(line, "algorithm",
                        problem->algorithm ? json_string(problem->algorithm) : json_null());
    json_object_set_new(line, "best_of", json_integer(best->runs));
    json_object_set_new(line, "verified", json_true());
    json_object_set_new(line, "cpu", json_string(computes.cpu));
    json_object_set_new(line, "backend", json_string(computes.name));
    json_object_set_new(line, "version", json_string(computes.version));
    json_object_set_new(line, "kernels", json_string(computes.kernels));
    report_line(line);
}

static void print_row(const char *text, const bench_problem *problem, const outcome *best)
{
    printf("%-28s %11.6f %9.1f", text, best->seconds, 1e-9 * best->rate);
    if (best->peak > 0)
        printf(" %9.1f %6.3f", 1e-9 * best->peak, best->rate / best->peak);
    else
        printf(" %9s %6s", "-", "-");
    printf(" %s\n", problem->limit == BENCH_SGEMM ? "GFLOP/s" : "GB/s");
}

static int bench(const char *text)
{
    bench_problem *problem = NULL;
    outcome best;
    const char *rest;
    const struct driver *own = find_driver(text, &rest);
    if (own) {
        const model *m;
        if (own->run_planned) return own->run_planned(text, rest, &settings);
        DO(bench_model_find(rest, &m));
        return own->run(text, m, &settings);
    }
    DO(find_kind(text, &rest)->create(&problem, rest, &settings.how));
    if (isatty(STDERR_FILENO)) fprintf(stderr, "%s ...\n", text);
    bench_machine *machine = bench_machine_create(problem->limit, problem->bytes, &settings.how);
    int code = measure(problem, machine, &best);
    bench_machine_destroy(machine);
    if (code == CLI_DONE) (settings.as_table ? print_row : print_json)(text, problem, &best);
    fflush(stdout);
    problem->destroy(problem);
    return code;
}

static int bench_all(int noperands, char **operands)
{
    DO(compute_resolve(&settings.how));
    DO(compute_ask(settings.how.backend, &computes));
    if (noperands == 0 && launch_size() > 1)
        return cli_misuse("under mpirun name a problem: ranks:MODEL, save:MODEL or plan:MODEL");
    if (ram_budget) DO(size_parse("ram-budget", ram_budget, &settings.ram_budget));
    int rated = noperands == 0; /* is there a row for the table? */
    const char *rest;
    for (int i = 0; i < noperands; i++) {
        DO(check(operands[i]));
        if (!find_driver(operands[i], &rest)) rated = 1;
    }
    if (settings.as_table && rated) {
        compute_print(&computes);
        printf("%-28s %11s %9s %9s %6s\n", "problem", "seconds", "rate", "peak", "ratio");
    }
    for (int i = 0; i < noperands; i++)
        DO(bench(operands[i]));
    for (size_t i = 0; noperands == 0 && i < NSTANDARD; i++)
        DO(bench(standard_problems[i]));
    return CLI_DONE;
}

static int run(int noperands, char **operands)
{
    if (list) {
        print_list();
        return CLI_DONE;
    }
    DO(launch_start());
    int code = launch_agree(bench_all(noperands, operands));
    launch_end();
    return code;
}

const command cmd_bench = {
    .name = "bench",
    .summary = "measure speed against the machine's own, and check the results",
    .operands = "[PROBLEM...]",
    .most_operands = -1,
    .about =
        "Runs each problem, alternating with the machine's own best: matrix products of its BLAS "
        "at "
        "2048 cubed, or loops over memory. Prints a line of JSON for each: problem, seconds, rate "
        "(useful GFLOP/s or GB/s), peak (the machine's rate, null if unknown), ratio, threads, "
        "unit, algorithm, best_of, verified, and the hardware and software: cpu, backend, version, "
        "kernels. The timed results are verified; a wrong one ends the run with exit code 1. Under "
        "mpirun, ranks:MODEL compares a step on all ranks with the same step on one of them, "
        "save:MODEL a checkpoint with a plain file of the same size, and offload:MODEL a step "
        "whose state is in a file with one whose state is in memory. variants:MODEL compares a "
        "step with each variant of 'muonctl train --list' with one of plain Muon. plan:MODEL "
        "measures the machine, predicts a step for it as 'muonctl plan' does, and measures the "
        "step. These five have their own keys. Without PROBLEM, a standard list is run; --list "
        "prints it.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl bench ns:1024x4096 ns:64x192x512 adamw:50M step:gpt2-124m\n"
               "  muonctl bench ns:1024x4096@coefficients=polar_express,algorithm=gram --table\n"
               "  mpirun -n 2 muonctl bench ranks:gpt2-124m --threads 1\n"
               "  mpirun -n 4 muonctl bench plan:gpt2-124m --mesh fsdp=2,tp=2 --threads 1 --table\n"
               "  muonctl bench offload:gpt2-350m --dir /scratch --ram-budget 400M --table",
    .run = run,
};
