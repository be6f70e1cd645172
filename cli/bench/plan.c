/* plan:MODEL - a step as `muonctl plan` plans it, predicted and measured.
 *
 * The machine is measured first, on all ranks; the plan is made for that machine and followed by real
 * steps, in turns with the measurement of flops. `muonctl plan` with the numbers that are printed makes
 * the same prediction. */
#include "cli/bench/bench.h"
#include "cli/core/files.h"
#include "cli/core/launch.h"
#include "cli/core/report.h"
#include "cli/plan/models.h"

#include "muon/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct planned {
    plan_case c;
    muon_machine machine; /* measured */
    double latency;
    muon_opt *opt;
    muon_buffers *buffers;
    muon_prediction prediction;
    muon_result last;
    double *seconds, *flops; /* [runs] of steps and of the machine, in turns; sorted at the end */
    int runs;
} planned;

/* ---- the model on its mesh --------------------------------------------------------------------- */

static int find(plan_case *c, const plan_models *models, const char *name)
{
    const char *other, *found = plan_models_find(models, name, &other);
    if (!found) return plan_models_refuse(models, name);
    if (other) return cli_misuse("'%s' is ambiguous: '%s' or '%s'", name, found, other);
    return plan_models_load(c, models, found);
}

static int load(plan_case *c, const char *name, const bench_settings *settings)
{
    char *all = cli_format("fsdp=%d", launch_size());
    int code = plan_case_set_mesh(c, settings->mesh ? settings->mesh : all);
    free(all);
    DO(code);
    if (c->config.nranks != launch_size())
        return cli_misuse("--mesh: '%s' has %lld ranks, but there are %d", settings->mesh,
                          (long long)c->config.nranks, launch_size());
    plan_models models;
    DO(plan_models_open(&models, settings->models));
    code = find(c, &models, name);
    plan_models_close(&models);
    return code;
}

int bench_plan_check(const char *name, const bench_settings *settings)
{
    plan_case c;
    plan_case_init(&c);
    int code = load(&c, name, settings);
    plan_case_destroy(&c);
    return code;
}

/* Of the plan for this machine, made without the ranks. */
static int predict(planned *p, muon_plan **plan)
{
    muon_config alone = p->c.config;
    alone.machine = p->machine;
    alone.comm = NULL;
    if (muon_plan_create(plan, &alone, p->c.params, p->c.nparams) != MUON_OK ||
        muon_plan_predict(*plan, &p->prediction, sizeof p->prediction) != MUON_OK)
        return cli_fail_library();
    return CLI_DONE;
}

static int measure_machine(planned *p, const bench_settings *settings)
{
    muon_plan *plan = NULL;
    p->machine.ranks_per_node = settings->ranks_per_node;
    int code = launch_agree(predict(p, &plan));
    if (code == CLI_DONE) code = bench_rates_send(&p->machine, &p->latency);
    if (code == CLI_DONE) code = bench_rates_cost(&p->machine, &settings->how);
    if (code == CLI_DONE) code = bench_rates_compute(&p->machine.flops, plan, &settings->how);
    muon_plan_destroy(plan);
    return code;
}

static int create(planned *p, const compute *how)
{
    muon_config *to = &p->c.config;
    to->machine = p->machine;
    to->comm = launch_comm();
    to->threads = how->threads;
    to->backend = how->backend;
    if (muon_create(&p->opt, to, p->c.params, p->c.nparams) != MUON_OK) return cli_fail_library();
    const muon_plan *plan = muon_opt_get_plan(p->opt);
    p->buffers = cli_alloc(p->c.nparams, sizeof *p->buffers);
    for (size_t i = 0; i < p->c.nparams; i++) {
        int64_t numel = muon_plan_count_elements(plan, i, launch_rank());
        muon_part part = {.elements = 0};
        if (numel == 0) continue;
        if (muon_plan_get_part(plan, i, launch_rank(), 0, &part, sizeof part) != MUON_OK)
            return cli_fail_library();
        /* Replicas have the same values, other shards have others. */
        uint64_t seed =
            2 * (i + (uint64_t)part.begin[0] * 1000003 + (uint64_t)part.begin[1] * 7919);
        float *weight = tensors_alloc((size_t)numel * sizeof *weight);
        float *grad = tensors_alloc((size_t)numel * sizeof *grad);
        p->buffers[i] = (muon_buffers){weight, grad, NULL};
        bench_fill(weight, numel, seed, 0.02f);
        bench_fill(grad, numel, seed + 1, 1e-3f);
    }
    return CLI_DONE;
}

static void destroy(planned *p)
{
    muon_destroy(p->opt);
    for (size_t i = 0; p->buffers && i < p->c.nparams; i++) {
        free(p->buffers[i].param);
        union { /* it is only read */
            const void *in;
            void *out;
        } grad = {p->buffers[i].grad};
        free(grad.out);
    }
    free(p->buffers);
    free(p->seconds);
    free(p->flops);
    plan_case_destroy(&p->c);
}

/* ---- steps ------------------------------------------------------------------------------------- */

static int step(planned *p, double *seconds)
{
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = p->buffers;
    muon_result_init(&p->last, sizeof p->last);
    if (muon_step(p->opt, &args, &p->last) != MUON_OK) return cli_fail_library();
    if (!p->last.applied) return cli_fail("wrong result: the step was skipped");
    *seconds = p->last.seconds_max;
    return CLI_DONE;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return 0.5 * (values[n / 2] + values[(n - 1) / 2]);
}

/* In turns, so that whatever else happens on the machine happens to both; the first turn only warms up. */
static int measure(planned *p, const bench_settings *settings)
{
    const muon_plan *plan = muon_opt_get_plan(p->opt);
    int repeat = settings->repeat;
    p->seconds = cli_alloc((size_t)repeat + 1, sizeof *p->seconds);
    p->flops = cli_alloc((size_t)repeat + 1, sizeof *p->flops);
    for (int turn = 0; turn <= repeat; turn++) {
        p->runs = turn ? turn : 1;
        DO(launch_agree(step(p, &p->seconds[p->runs - 1])));
        DO(bench_rates_compute(&p->flops[p->runs - 1], plan, &settings->how));
    }
    muon_status same = muon_opt_check_replicas(p->opt, p->buffers);
    DO(launch_agree(same == MUON_OK ? CLI_DONE : cli_fail_library()));
    p->machine.flops = median(p->flops, p->runs);
    muon_plan *again = NULL;
    int code = launch_agree(predict(p, &again));
    muon_plan_destroy(again);
    return code;
}

/* ---- output ------------------------------------------------------------------------------------ */

static void print_json(const char *text, const planned *p, const compute *how)
{
    const muon_machine *m = &p->machine;
    double seconds = median(p->seconds, p->runs);
    json_t *line = json_object(), *machine = json_object(), *phases = json_object();
    json_object_set_new(line, "problem", json_string(text));
    json_object_set_new(line, "mesh", json_string(plan_case_axes(&p->c).text));
    json_object_set_new(line, "ranks", json_integer(launch_size()));
    json_object_set_new(line, "threads", json_integer(how->threads));
    json_object_set_new(machine, "flops", report_number(m->flops));
    json_object_set_new(machine, "node_bandwidth", report_number(m->node_bandwidth));
    json_object_set_new(machine, "bandwidth", report_number(m->bandwidth));
    json_object_set_new(machine, "ranks_per_node", json_integer(m->ranks_per_node));
    json_object_set_new(machine, "processor_bandwidth", report_number(m->processor_bandwidth));
    json_object_set_new(line, "machine", machine);
    json_object_set_new(line, "latency", report_number(p->latency));
    json_object_set_new(line, "predicted", report_number(p->prediction.makespan));
    json_object_set_new(line, "seconds", report_number(seconds));
    json_object_set_new(line, "ratio", report_number(seconds / p->prediction.makespan));
    for (int i = 0; i < MUON_NPHASES; i++)
        json_object_set_new(phases, muon_phase_name((muon_phase)i),
                            report_number(p->last.phase_max[i]));
    json_object_set_new(line, "phases", phases);
    json_object_set_new(line, "median_of", json_integer(p->runs));
    report_line(line);
}

static void print_text(const char *text, const planned *p, const compute *how)
{
    const muon_machine *m = &p->machine;
    double seconds = median(p->seconds, p->runs);
    printf("%s on %s: predicted %.3f s, measured %.3f s, ratio %.2f; %d ranks x %d threads, %lld "
           "waves\n",
           text, plan_case_axes(&p->c).text, p->prediction.makespan, seconds,
           seconds / p->prediction.makespan, launch_size(), how->threads,
           (long long)p->prediction.waves);
    printf("  a rank computes %.4g Gflop/s and sends %.4g MB/s inside a node, %.4g MB/s between "
           "nodes of %lld; latency %.3g ms\n",
           1e-9 * m->flops, 1e-6 * m->node_bandwidth, 1e-6 * m->bandwidth,
           (long long)m->ranks_per_node, 1e3 * p->latency);
    if (m->processor_bandwidth > 0)
        printf("  sending and receiving takes the processor's time: %.4g MB/s, both together\n",
               1e-6 * m->processor_bandwidth);
    for (int i = 0; i < MUON_NPHASES; i++)
        if (p->last.phase_max[i] > 0)
            printf("  %-9s %8.3f s .. %.3f s over the ranks\n", muon_phase_name((muon_phase)i),
                   p->last.phase_min[i], p->last.phase_max[i]);
}

static int work(planned *p, const char *text, const char *name, const bench_settings *settings)
{
    DO(launch_agree(load(&p->c, name, settings)));
    DO(measure_machine(p, settings));
    DO(launch_agree(create(p, &settings->how)));
    DO(measure(p, settings));
    if (launch_rank() == 0) (settings->as_table ? print_text : print_json)(text, p, &settings->how);
    return CLI_DONE;
}

int bench_plan_run(const char *text, const char *name, const bench_settings *settings)
{
    planned p = {.runs = 0};
    plan_case_init(&p.c);
    p.machine = p.c.config.machine;
    int code = work(&p, text, name, settings);
    destroy(&p);
    return code;
}
