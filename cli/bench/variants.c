/* variants:MODEL - a step with each variant of Muon that `muonctl train` knows, against a step of plain
 * Muon.
 *
 * One variant after the other, each in turns with plain Muon: both have tensors of the same values and take
 * the same number of steps. Each is verified in the end. */
#include "cli/bench/bench.h"
#include "cli/core/report.h"

#include <stdio.h>
#include <time.h>

static const double wanted = 1.03; /* times as long as plain Muon, at most */

typedef struct best {
    double seconds, cpu; /* of a step: the least of each; cpu: of all threads */
} best;

static int take_turn(bench_problem *problem, best *b, int counts)
{
    bench_sample sample;
    clock_t before = clock();
    DO(problem->run(problem, &sample));
    double cpu = (double)(clock() - before) / CLOCKS_PER_SEC;
    if (counts && (b->seconds == 0 || sample.seconds < b->seconds)) b->seconds = sample.seconds;
    if (counts && (b->cpu == 0 || cpu < b->cpu)) b->cpu = cpu;
    return CLI_DONE;
}

/* The first turn only warms up. Which of the two begins changes from turn to turn. */
static int take_turns(bench_problem **both, best *b, const bench_settings *settings, int *runs)
{
    double start = cli_now();
    for (int turn = 0; turn <= settings->repeat || cli_now() - start < settings->min_time; turn++) {
        for (int i = 0; i < 2; i++) {
            int which = (turn + i) % 2;
            DO(take_turn(both[which], &b[which], turn > 0));
        }
        *runs = turn;
    }
    return both[1]->verify(both[1]);
}

static void print_json(const char *text, const train_variant *variant, const best *b, int runs,
                       const bench_settings *settings)
{
    json_t *line = json_object();
    json_object_set_new(line, "problem", json_string(text));
    json_object_set_new(line, "variant", json_string(variant->name));
    json_object_set_new(line, "threads", json_integer(settings->how.threads));
    json_object_set_new(line, "seconds", report_number(b[1].seconds));
    json_object_set_new(line, "seconds_muon", report_number(b[0].seconds));
    json_object_set_new(line, "ratio", report_number(b[1].seconds / b[0].seconds));
    json_object_set_new(line, "cpu_ratio", report_number(b[1].cpu / b[0].cpu));
    json_object_set_new(line, "best_of", json_integer(runs));
    json_object_set_new(line, "verified", json_true());
    report_line(line);
}

static void print_row(const train_variant *variant, const best *b)
{
    double ratio = b[1].seconds / b[0].seconds;
    printf("  %-14s %11.6f %11.6f %6.3f %9.3f  %s\n", variant->name, b[1].seconds, b[0].seconds,
           ratio, b[1].cpu / b[0].cpu, ratio <= wanted ? "met" : "MISSED");
}

static int compare(const char *text, const model *m, const train_variant *variant,
                   bench_problem *plain, const bench_settings *settings)
{
    bench_problem *both[] = {plain, NULL};
    best b[2] = {{0}};
    int runs = 0;
    DO(bench_step_create(&both[1], m, variant, &settings->how));
    int code = take_turns(both, b, settings, &runs);
    both[1]->destroy(both[1]);
    DO(code);
    if (settings->as_table)
        print_row(variant, b);
    else
        print_json(text, variant, b, runs, settings);
    fflush(stdout); /* the next one may take minutes */
    return CLI_DONE;
}

int bench_variants_run(const char *text, const model *m, const bench_settings *settings)
{
    const train_variant *variant;
    bench_problem *plain = NULL;
    DO(bench_step_create(&plain, m, NULL, &settings->how));
    if (settings->as_table)
        printf("%s: at least %d turns each; at most %.2f times as long is wanted\n"
               "  %-14s %11s %11s %6s %9s\n",
               text, settings->repeat, wanted, "variant", "seconds", "plain Muon", "ratio",
               "CPU ratio");
    int code = CLI_DONE;
    for (size_t i = 0; code == CLI_DONE && (variant = train_variant_at(i)); i++)
        code = compare(text, m, variant, plain, settings);
    if (code == CLI_DONE) code = plain->verify(plain);
    plain->destroy(plain);
    return code;
}
