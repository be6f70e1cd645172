/* ranks:MODEL - a whole step on all ranks, against the same step on one of them alone, in turns.
 *
 * Every tensor is cut over all ranks on its first dim. Both have taken the same steps when they are
 * verified, so their weights must have the same bits; and the messages must be those of the plan. */
#include "cli/bench/bench.h"
#include "cli/core/files.h"
#include "cli/core/launch.h"
#include "cli/core/report.h"
#include "cli/step/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct team { /* an optimizer with its memory: whole tensors, or shards */
    muon_opt *opt;
    muon_buffers *buffers;
    float **grads;
} team;

typedef struct ranks_problem {
    bench_params m;
    team alone, together; /* alone: on rank 0 only */
    muon_result last;     /* of a step together */
    double seconds_alone, seconds_together;
    int runs;
} ranks_problem;

/* ---- memory ---------------------------------------------------------------------------------- */

static void fill(float *x, int64_t first, int64_t n, uint64_t seed, float scale)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = scale * bench_value(seed, (uint64_t)(first + i));
}

/* Cut by its first dim, a shard is contiguous in the tensor. */
static int allocate(ranks_problem *p, team *t, int rank)
{
    const muon_plan *plan = muon_opt_get_plan(t->opt);
    t->buffers = cli_alloc(p->m.count, sizeof *t->buffers);
    t->grads = cli_alloc(p->m.count, sizeof *t->grads);
    for (size_t i = 0; i < p->m.count; i++) {
        const muon_param *param = &p->m.params[i];
        int64_t first = 0, numel = muon_plan_count_elements(plan, i, rank);
        if (numel) {
            muon_part part;
            if (muon_plan_get_part(plan, i, rank, 0, &part, sizeof part) != MUON_OK)
                return cli_fail_library();
            first = part.begin[0] * (bench_params_numel(param) / param->shape[0]);
        }
        float *weight = tensors_alloc((size_t)numel * sizeof *weight);
        t->grads[i] = tensors_alloc((size_t)numel * sizeof *weight);
        fill(weight, first, numel, 2 * i, 0.02f);
        fill(t->grads[i], first, numel, 2 * i + 1, 1e-3f);
        t->buffers[i] = (muon_buffers){weight, t->grads[i], NULL};
    }
    return CLI_DONE;
}

static void free_team(team *t, size_t count)
{
    muon_destroy(t->opt);
    for (size_t i = 0; t->buffers && i < count; i++) {
        free(t->buffers[i].param);
        free(t->grads[i]);
    }
    free(t->buffers);
    free(t->grads);
}

/* ---- the two teams --------------------------------------------------------------------------- */

static int create_team(ranks_problem *p, team *t, const compute *how, const muon_comm *comm)
{
    DO(bench_params_optimizer(&p->m, &t->opt, how, comm));
    return allocate(p, t, comm ? comm->rank : 0);
}

static int step(team *t, muon_result *result, double *best, int counts)
{
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = t->buffers;
    muon_result_init(result, sizeof *result);
    double start = cli_now();
    if (muon_step(t->opt, &args, result) != MUON_OK) return cli_fail_library();
    double seconds = cli_now() - start;
    if (!result->applied) return cli_fail("wrong result: the step was skipped");
    if (counts && (*best == 0 || seconds < *best)) *best = seconds;
    return CLI_DONE;
}

/* In turns; the first turn of both only warms up. */
static int measure(ranks_problem *p, int repeat, double min_time)
{
    double start = cli_now();
    for (int turn = 0, go = 1; go; turn++) {
        muon_result alone;
        int code = launch_rank() ? CLI_DONE : step(&p->alone, &alone, &p->seconds_alone, turn > 0);
        DO(launch_agree(code));
        DO(launch_agree(step(&p->together, &p->last, &p->seconds_together, turn > 0)));
        p->runs = turn;
        int64_t more = launch_rank() == 0 && (turn < repeat || cli_now() - start < min_time);
        launch_sum(&more, 1);
        go = more > 0;
    }
    return CLI_DONE;
}

/* ---- verification ---------------------------------------------------------------------------- */

static int check_messages(const ranks_problem *p)
{
    muon_rank_load planned;
    if (muon_plan_get_rank(muon_opt_get_plan(p->together.opt), launch_rank(), &planned,
                           sizeof planned) != MUON_OK)
        return cli_fail_library();
    if (p->last.messages_sent == planned.messages_sent && p->last.bytes_sent == planned.bytes_sent)
        return CLI_DONE;
    return cli_fail("wrong result: %lld messages with %lld bytes, planned were %lld with %lld",
                    (long long)p->last.messages_sent, (long long)p->last.bytes_sent,
                    (long long)planned.messages_sent, (long long)planned.bytes_sent);
}

/* Rank 0 puts the shards together and has the whole of its own. */
static int check_weights(const ranks_problem *p)
{
    const shards all = {muon_opt_get_plan(p->together.opt), p->m.params, launch_rank()};
    int code = CLI_DONE;
    for (size_t i = 0; i < p->m.count; i++) {
        const muon_param *param = &p->m.params[i];
        size_t size = sizeof(float), bytes = (size_t)bench_params_numel(param) * size;
        void *memory = NULL;
        const void *whole = shards_gather(&all, i, p->together.buffers[i].param, size, &memory);
        if (whole && memcmp(whole, p->alone.buffers[i].param, bytes) != 0 && code == CLI_DONE)
            code = cli_fail("wrong result: '%s' is not what one process has", param->name);
        free(memory);
    }
    return code;
}

/* ---- output ------------------------------------------------------------------------------------ */

static void print_json(const char *text, const ranks_problem *p, const compute *how,
                       const int64_t totals[2])
{
    json_t *line = json_object();
    json_object_set_new(line, "problem", json_string(text));
    json_object_set_new(line, "ranks", json_integer(launch_size()));
    json_object_set_new(line, "threads", json_integer(how->threads));
    json_object_set_new(line, "seconds", report_number(p->seconds_together));
    json_object_set_new(line, "seconds_alone", report_number(p->seconds_alone));
    json_object_set_new(line, "speedup", report_number(p->seconds_alone / p->seconds_together));
    json_object_set_new(line, "messages", json_integer(totals[0]));
    json_object_set_new(line, "bytes", json_integer(totals[1]));
    json_object_set_new(line, "best_of", json_integer(p->runs));
    json_object_set_new(line, "verified", json_true());
    report_line(line);
}

static void print_text(const char *text, const ranks_problem *p, const compute *how,
                       const int64_t totals[2])
{
    printf("%s: %d ranks x %d threads %.3f s, one rank %.3f s: %.2f times as fast; %lld messages, "
           "%.1f MB, as planned; the same bits\n",
           text, launch_size(), how->threads, p->seconds_together, p->seconds_alone,
           p->seconds_alone / p->seconds_together, (long long)totals[0], 1e-6 * (double)totals[1]);
    for (int i = 0; i < MUON_NPHASES; i++)
        printf("  %-9s %8.3f s .. %.3f s over the ranks\n", muon_phase_name((muon_phase)i),
               p->last.phase_min[i], p->last.phase_max[i]);
}

static int work(ranks_problem *p, const char *text, const bench_settings *settings)
{
    const compute *how = &settings->how;
    int code = launch_rank() ? CLI_DONE : create_team(p, &p->alone, how, NULL);
    DO(launch_agree(code));
    DO(launch_agree(create_team(p, &p->together, how, launch_comm())));
    DO(measure(p, settings->repeat, settings->min_time));
    DO(launch_agree(check_messages(p)));
    DO(launch_agree(check_weights(p)));
    int64_t totals[2] = {p->last.messages_sent, p->last.bytes_sent};
    launch_sum(totals, 2);
    if (launch_rank() == 0) (settings->as_table ? print_text : print_json)(text, p, how, totals);
    return CLI_DONE;
}

int bench_ranks_run(const char *text, const model *m, const bench_settings *settings)
{
    ranks_problem p = {.runs = 0};
    bench_params_create(&p.m, m);
    int code = work(&p, text, settings);
    free_team(&p.alone, p.m.count);
    free_team(&p.together, p.m.count);
    bench_params_destroy(&p.m);
    return code;
}
