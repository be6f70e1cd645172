/* offload:MODEL - a whole step with its state in a file, against the same step with all of it in memory.
 *
 * Twice: with the file in the page cache, and past it (O_DIRECT). The two optimizers take turns. A step
 * with a file counts until nothing is written behind it or read ahead for the next one any more, so that
 * nothing is left for others to pay. Both have taken the same steps in the end: weights and state must
 * have the same bits. Last, the one in memory goes to a file, too, and the memory of the process must fall
 * by what is not in the budget. */

#include "cli/bench/bench.h"
#include "cli/core/files.h"
#include "cli/core/report.h"
#include "cli/plan/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 18 }; /* elements of state that are copied at once */

typedef struct runner { /* an optimizer and its weights */
    muon_opt *opt;
    muon_buffers *buffers;
} runner;

typedef struct way {                /* to the file and back */
    double seconds, seconds_memory; /* of a step: the best of each */
    int runs, direct;
    int64_t bytes_read, bytes_written, resident_most; /* bytes of a step; bytes in memory */
} way;

enum { DIRECT, CACHED, WAYS };

typedef struct offload_problem {
    const bench_settings *settings;
    bench_params m;
    float **grads;
    runner memory, file;
    int64_t budget, state_bytes;
    int64_t rss_memory, rss_file; /* of the process */
    way ways[WAYS];
} offload_problem;

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t bytes_of(const offload_problem *p, size_t i)
{
    return (size_t)bench_params_numel(&p->m.params[i]) * sizeof(float);
}

/* Weights are filled later, or copied. */
static int create(offload_problem *p, runner *r, const char *dir, int cached)
{
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = p->m.groups;
    config.ngroups = BENCH_NGROUPS;
    config.threads = p->settings->how.threads;
    config.backend = p->settings->how.backend;
    config.offload_dir = dir;
    config.offload_budget = dir ? p->budget : 0;
    config.offload_cached = cached;
    if (muon_create(&r->opt, &config, p->m.params, p->m.count) != MUON_OK)
        return cli_fail_library();
    r->buffers = cli_alloc(p->m.count, sizeof *r->buffers);
    for (size_t i = 0; i < p->m.count; i++)
        r->buffers[i] = (muon_buffers){tensors_alloc(bytes_of(p, i)), p->grads[i], NULL};
    return CLI_DONE;
}

static void destroy(const offload_problem *p, runner *r)
{
    muon_destroy(r->opt);
    for (size_t i = 0; r->buffers && i < p->m.count; i++)
        free(r->buffers[i].param);
    free(r->buffers);
    *r = (runner){NULL, NULL};
}

static void fill_grads(offload_problem *p)
{
    p->grads = cli_alloc(p->m.count, sizeof *p->grads);
    for (size_t i = 0; i < p->m.count; i++) {
        p->grads[i] = tensors_alloc(bytes_of(p, i));
        bench_fill(p->grads[i], bench_params_numel(&p->m.params[i]), 2 * i + 1, 1e-3f);
    }
}

static int64_t process_bytes(void)
{
    long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lld %lld", &all, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* ---- both the same --------------------------------------------------------------------------- */

typedef int (*tensor_fn)(offload_problem *p, size_t index, const muon_tensor *t, int64_t at,
                         int64_t n, void *x, void *y);

/* All state, some elements at a time. */
static int for_state(offload_problem *p, tensor_fn fn)
{
    char *x = tensors_alloc(CHUNK * sizeof(int64_t)), *y = tensors_alloc(CHUNK * sizeof(int64_t));
    int code = CLI_DONE;
    for (size_t i = 0; i < muon_state_count(p->memory.opt) && code == CLI_DONE; i++) {
        muon_tensor t;
        if (muon_state_get(p->memory.opt, i, &t, sizeof t) != MUON_OK) code = cli_fail_library();
        int64_t n = code != CLI_DONE      ? 0
                    : t.dtype == MUON_I64 ? 1
                                          : (int64_t)(t.bytes / sizeof(float));
        for (int64_t at = 0; at < n && code == CLI_DONE; at += CHUNK)
            code = fn(p, i, &t, at, n - at < CHUNK ? n - at : CHUNK, x, y);
    }
    free(x);
    free(y);
    return code;
}

static int copy_state(offload_problem *p, size_t index, const muon_tensor *t, int64_t at, int64_t n,
                      void *x, void *y)
{
    (void)t;
    (void)y;
    if (muon_state_read(p->memory.opt, index, at, n, x) != MUON_OK ||
        muon_state_write(p->file.opt, index, at, n, x) != MUON_OK)
        return cli_fail_library();
    return CLI_DONE;
}

static int compare_state(offload_problem *p, size_t index, const muon_tensor *t, int64_t at,
                         int64_t n, void *x, void *y)
{
    if (muon_state_read(p->memory.opt, index, at, n, x) != MUON_OK ||
        muon_state_read(p->file.opt, index, at, n, y) != MUON_OK)
        return cli_fail_library();
    if (memcmp(x, y, (size_t)n * (t->dtype == MUON_I64 ? 8 : 4)) == 0) return CLI_DONE;
    return cli_fail("wrong result: '%s' is not what it is in memory", t->name);
}

static int compare(offload_problem *p)
{
    for (size_t i = 0; i < p->m.count; i++)
        if (memcmp(p->file.buffers[i].param, p->memory.buffers[i].param, bytes_of(p, i)) != 0)
            return cli_fail("wrong result: '%s' is not what it is with state in memory",
                            p->m.params[i].name);
    return for_state(p, compare_state);
}

/* ---- turns ------------------------------------------------------------------------------------- */

static int step(const runner *r)
{
    muon_step_args args;
    muon_result result;
    muon_step_args_init(&args, sizeof args);
    muon_result_init(&result, sizeof result);
    args.buffers = r->buffers;
    if (muon_step(r->opt, &args, &result) != MUON_OK) return cli_fail_library();
    return result.applied ? CLI_DONE : cli_fail("wrong result: the step was skipped");
}

static int get_info(const runner *r, muon_offload_info *info)
{
    return muon_opt_get_offload(r->opt, info, sizeof *info) == MUON_OK ? CLI_DONE
                                                                       : cli_fail_library();
}

/* *last: when the file was last read or written, if that is later. */
static int wait_for_quiet(const runner *r, double *last)
{
    enum { MOMENTS = 10 }; /* without any */
    const struct timespec a_moment = {.tv_nsec = 5000000};
    muon_offload_info before, after;
    DO(get_info(r, &before));
    for (int quiet = 0; quiet < MOMENTS; quiet++) {
        nanosleep(&a_moment, NULL);
        DO(get_info(r, &after));
        if (before.bytes_read == after.bytes_read && before.bytes_written == after.bytes_written)
            continue;
        *last = cli_now();
        before = after;
        quiet = 0;
    }
    return CLI_DONE;
}

static int time_step(const runner *r, double *best, int counts)
{
    double start = cli_now();
    DO(step(r));
    double end = cli_now();
    DO(wait_for_quiet(r, &end));
    if (counts && (*best == 0 || end - start < *best)) *best = end - start;
    return CLI_DONE;
}

static int take_turns(offload_problem *p, way *w)
{
    double start = cli_now();
    muon_offload_info before, after;
    DO(get_info(&p->file, &before));
    for (int turn = 0; turn <= p->settings->repeat || cli_now() - start < p->settings->min_time;
         turn++) { /* the first one only warms up */
        DO(time_step(&p->memory, &w->seconds_memory, turn > 0));
        DO(time_step(&p->file, &w->seconds, turn > 0));
        w->runs = turn;
    }
    DO(get_info(&p->file, &after));
    int64_t steps = w->runs + 1;
    w->direct = after.direct != 0;
    w->resident_most = after.resident_most;
    w->bytes_read = (after.bytes_read - before.bytes_read) / steps;
    w->bytes_written = (after.bytes_written - before.bytes_written) / steps;
    if (after.resident_most > p->budget)
        return cli_fail("wrong result: %lld bytes of state were in memory, the budget is %lld",
                        (long long)after.resident_most, (long long)p->budget);
    return compare(p);
}

static int run_way(offload_problem *p, int cached)
{
    DO(create(p, &p->file, p->settings->dir, cached));
    for (size_t i = 0; i < p->m.count; i++)
        memcpy(p->file.buffers[i].param, p->memory.buffers[i].param, bytes_of(p, i));
    DO(for_state(p, copy_state));
    return take_turns(p, &p->ways[cached]);
}

/* What the process has, whatever anybody believes. The file has been compared; it may go. */
static int measure_memory(offload_problem *p)
{
    destroy(p, &p->file);
    p->rss_memory = process_bytes();
    if (muon_offload(p->memory.opt, p->settings->dir, p->budget) != MUON_OK)
        return cli_fail_library();
    DO(step(&p->memory));
    p->rss_file = process_bytes();
    int64_t left = p->state_bytes - (p->rss_memory - p->rss_file), noise = 16 << 20;
    if (left <= p->budget + noise) return CLI_DONE;
    return cli_fail("wrong result: %lld bytes of state are still in memory, the budget is %lld",
                    (long long)left, (long long)p->budget);
}

/* ---- output ------------------------------------------------------------------------------------ */

static void print_json(const char *text, const offload_problem *p)
{
    const way *cached = &p->ways[CACHED], *direct = &p->ways[DIRECT];
    json_t *line = json_object();
    json_object_set_new(line, "problem", json_string(text));
    json_object_set_new(line, "threads", json_integer(p->settings->how.threads));
    json_object_set_new(line, "seconds", report_number(cached->seconds));
    json_object_set_new(line, "seconds_memory", report_number(cached->seconds_memory));
    json_object_set_new(line, "ratio", report_number(cached->seconds / cached->seconds_memory));
    json_object_set_new(line, "direct_seconds",
                        direct->direct ? report_number(direct->seconds) : json_null());
    json_object_set_new(line, "direct_ratio",
                        direct->direct ? report_number(direct->seconds / direct->seconds_memory)
                                       : json_null());
    json_object_set_new(line, "state_bytes", json_integer(p->state_bytes));
    json_object_set_new(line, "ram_budget", json_integer(p->budget));
    json_object_set_new(line, "resident_most", json_integer(cached->resident_most));
    json_object_set_new(line, "rss_memory", json_integer(p->rss_memory));
    json_object_set_new(line, "rss_offloaded", json_integer(p->rss_file));
    json_object_set_new(line, "bytes_read", json_integer(cached->bytes_read));
    json_object_set_new(line, "bytes_written", json_integer(cached->bytes_written));
    json_object_set_new(line, "best_of", json_integer(cached->runs));
    json_object_set_new(line, "verified", json_true());
    report_line(line);
}

static void print_text(const char *text, const offload_problem *p)
{
    const way *cached = &p->ways[CACHED], *direct = &p->ways[DIRECT];
    printf("%s: %s of state, %s of it in memory; %.3f s, in memory %.3f s: %.2f times as long",
           text, units_bytes((double)p->state_bytes).text, units_bytes((double)p->budget).text,
           cached->seconds, cached->seconds_memory, cached->seconds / cached->seconds_memory);
    if (direct->direct)
        printf("; past the page cache %.3f s, %.2f times", direct->seconds,
               direct->seconds / direct->seconds_memory);
    printf("; the same bits\n");
    printf("  a step reads %s and writes %s; the process had %s and then %s\n",
           units_bytes((double)cached->bytes_read).text,
           units_bytes((double)cached->bytes_written).text, units_bytes((double)p->rss_memory).text,
           units_bytes((double)p->rss_file).text);
}

/* ---- all of it --------------------------------------------------------------------------------- */

static int work(offload_problem *p, const char *text)
{
    fill_grads(p);
    DO(create(p, &p->memory, NULL, 0));
    for (size_t i = 0; i < p->m.count; i++)
        bench_fill(p->memory.buffers[i].param, bench_params_numel(&p->m.params[i]), 2 * i, 0.02f);
    muon_offload_info info;
    DO(get_info(&p->memory, &info));
    p->state_bytes = info.state_bytes;
    p->budget = p->settings->ram_budget ? p->settings->ram_budget : info.state_bytes / 4;
    for (int i = DIRECT; i < WAYS; i++) {
        destroy(p, &p->file);
        DO(run_way(p, i == CACHED));
    }
    DO(measure_memory(p));
    (p->settings->as_table ? print_text : print_json)(text, p);
    return CLI_DONE;
}

int bench_offload_run(const char *text, const model *m, const bench_settings *settings)
{
    offload_problem p = {.settings = settings};
    bench_params_create(&p.m, m);
    int code = work(&p, text);
    destroy(&p, &p.memory);
    destroy(&p, &p.file);
    for (size_t i = 0; p.grads && i < p.m.count; i++)
        free(p.grads[i]);
    free(p.grads);
    bench_params_destroy(&p.m);
    return code;
}
