/* save:MODEL - a checkpoint of state and weights, saved and loaded by all ranks, in turns with one
 * process that writes as many bytes to one file, in order, and reads them again.
 *
 * Both sync what they write. Both read from the page cache, into memory of that size. After the last
 * turn everything is loaded into an optimizer that had other numbers, and compared. */
#include "muon/plan.h"

#include "cli/bench/bench.h"
#include "cli/core/files.h"
#include "cli/core/launch.h"
#include "cli/core/report.h"

#include "muon/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CALL = 4 << 20 }; /* bytes of one call of the plain file */

typedef struct best_of {
    double save, load, plain_write, plain_read; /* seconds */
} best_of;

typedef struct save_problem {
    bench_params m;
    muon_opt *opt;
    muon_buffers *buffers;
    char *root, *plain_path, *plain_before; /* in settings.dir */
    int64_t bytes;                          /* of all tensors */
    char *plain;                            /* so much memory, on rank 0 */
    best_of best;
    int runs;
} save_problem;

/* ---- the optimizer --------------------------------------------------------------------------- */

static int64_t shard_numel(const save_problem *p, size_t i)
{
    return muon_plan_count_elements(muon_opt_get_plan(p->opt), i, launch_rank());
}

/* Weights and state: element e of tensor i is a number of (seed, i, e). */
static int fill(save_problem *p, uint64_t seed)
{
    for (size_t i = 0; i < p->m.count; i++)
        bench_fill(p->buffers[i].param, shard_numel(p, i), seed + 2 * i, 0.02f);
    for (size_t i = 0; i < muon_state_count(p->opt); i++) {
        muon_tensor t;
        if (muon_state_get(p->opt, i, &t, sizeof t) != MUON_OK) return cli_fail_library();
        if (t.dtype == MUON_F32)
            bench_fill(t.data, (int64_t)(t.bytes / sizeof(float)), seed + 2 * i + 1, 1e-3f);
    }
    return CLI_DONE;
}

static void allocate(save_problem *p)
{
    p->buffers = cli_alloc(p->m.count, sizeof *p->buffers);
    for (size_t i = 0; i < p->m.count; i++) {
        int64_t n = shard_numel(p, i);
        p->buffers[i].param = tensors_alloc((size_t)(n ? n : 1) * sizeof(float));
        p->bytes += n * (int64_t)sizeof(float);
    }
    for (size_t i = 0; i < muon_state_count(p->opt); i++) {
        muon_tensor t;
        if (muon_state_get(p->opt, i, &t, sizeof t) == MUON_OK && t.dtype == MUON_F32)
            p->bytes += (int64_t)t.bytes;
    }
    launch_sum(&p->bytes, 1);
    if (launch_rank() != 0) return;
    p->plain = tensors_alloc((size_t)p->bytes);
    bench_fill((float *)(void *)p->plain, p->bytes / (int64_t)sizeof(float), 7, 1);
}

static void destroy(save_problem *p)
{
    muon_destroy(p->opt);
    for (size_t i = 0; p->buffers && i < p->m.count; i++)
        free(p->buffers[i].param);
    if (launch_rank() == 0 && p->plain_path) unlink(p->plain_path);
    if (launch_rank() == 0 && p->plain_before) unlink(p->plain_before);
    free(p->buffers);
    free(p->plain);
    free(p->root);
    free(p->plain_path);
    free(p->plain_before);
    bench_params_destroy(&p->m);
}

/* ---- one turn ---------------------------------------------------------------------------------- */

static void take(double *best, double seconds, int counts)
{
    if (counts && (*best == 0 || seconds < *best)) *best = seconds;
}

static int write_plain(save_problem *p, int counts)
{
    /* The last one stays until this one is there, as with checkpoints: a disk may be slow, or fast, where it
     * has just been written. */
    char *before = p->plain_path;
    p->plain_path = p->plain_before;
    p->plain_before = before;
    unlink(p->plain_path);
    double start = cli_now();
    int fd = open(p->plain_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int64_t done = 0;
    while (fd >= 0 && done < p->bytes) {
        size_t n = p->bytes - done < CALL ? (size_t)(p->bytes - done) : CALL;
        ssize_t put = write(fd, p->plain + done, n);
        if (put <= 0) break;
        done += put;
    }
    int failed = fd < 0 || done < p->bytes || fsync(fd) != 0;
    int error = errno;
    if (fd >= 0) close(fd);
    if (failed) return cli_fail("%s: %s", p->plain_path, strerror(error));
    take(&p->best.plain_write, cli_now() - start, counts);
    return CLI_DONE;
}

static int read_plain(save_problem *p, int counts)
{
    double start = cli_now();
    int fd = open(p->plain_path, O_RDONLY | O_CLOEXEC);
    int64_t done = 0;
    while (fd >= 0 && done < p->bytes) {
        size_t n = p->bytes - done < CALL ? (size_t)(p->bytes - done) : CALL;
        ssize_t got = read(fd, p->plain + done, n);
        if (got <= 0) break;
        done += got;
    }
    int error = errno;
    if (fd >= 0) close(fd);
    if (fd < 0 || done < p->bytes) return cli_fail("%s: %s", p->plain_path, strerror(error));
    take(&p->best.plain_read, cli_now() - start, counts);
    return CLI_DONE;
}

static int save(save_problem *p, int turn)
{
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    args.step = turn;
    args.buffers = p->buffers;
    args.file_bytes = INT64_MAX; /* one file, like the plain one */
    args.replace = 1;
    double start = cli_now();
    if (muon_save(p->opt, p->root, &args) != MUON_OK) return cli_fail_library();
    take(&p->best.save, cli_now() - start, turn > 0);
    return CLI_DONE;
}

static int load(save_problem *p, int counts)
{
    muon_load_args args;
    muon_load_args_init(&args, sizeof args);
    args.buffers = p->buffers;
    double start = cli_now();
    if (muon_load(p->opt, p->root, &args, NULL) != MUON_OK) return cli_fail_library();
    take(&p->best.load, cli_now() - start, counts);
    return CLI_DONE;
}

/* What a turn has saved. Not while the clock runs: a plain file is removed before it starts, too. */
static void remove_step(const save_problem *p, int turn)
{
    static const char *const written[] = {"COMPLETE", "model.safetensors", "optimizer.safetensors",
                                          ""};
    for (size_t i = 0; launch_rank() == 0 && i < sizeof written / sizeof *written; i++) {
        char *path = cli_format("%s/step-%08d/%s", p->root, turn, written[i]);
        if (*written[i])
            unlink(path);
        else
            rmdir(path);
        free(path);
    }
}

static void remove_root(const save_problem *p)
{
    char *latest = cli_format("%s/latest", p->root);
    remove_step(p, p->runs);
    if (launch_rank() == 0) {
        unlink(latest);
        rmdir(p->root);
    }
    free(latest);
}

/* The first turn only warms up. */
static int measure(save_problem *p, int repeat, double min_time)
{
    double start = cli_now();
    for (int turn = 0, go = 1; go; turn++) {
        p->runs = turn;
        /* Who comes second may find a disk that is still busy with the first. */
        if (turn % 2) DO(launch_agree(save(p, turn)));
        DO(launch_agree(launch_rank() ? CLI_DONE : write_plain(p, turn > 0)));
        if (turn % 2 == 0) DO(launch_agree(save(p, turn)));
        DO(launch_agree(launch_rank() ? CLI_DONE : read_plain(p, turn > 0)));
        DO(launch_agree(load(p, turn > 0)));
        if (turn > 0) remove_step(p, turn - 1);
        int64_t more = launch_rank() == 0 && (turn < repeat || cli_now() - start < min_time);
        launch_sum(&more, 1);
        go = more > 0;
    }
    return CLI_DONE;
}

/* ---- verification ------------------------------------------------------------------------------ */

static int check(const float *got, int64_t n, uint64_t seed, float scale, const char *name)
{
    for (int64_t e = 0; e < n; e++) {
        float want = scale * bench_value(seed, (uint64_t)e);
        if (!(got[e] <= want && got[e] >= want))
            return cli_fail("wrong result: element %lld of '%s' is %g, was saved as %g",
                            (long long)e, name, (double)got[e], (double)want);
    }
    return CLI_DONE;
}

static int verify(save_problem *p)
{
    DO(fill(p, 1000000)); /* other numbers, so that the load has something to do */
    DO(load(p, 0));
    for (size_t i = 0; i < p->m.count; i++)
        DO(check(p->buffers[i].param, shard_numel(p, i), 2 * i, 0.02f, p->m.params[i].name));
    for (size_t i = 0; i < muon_state_count(p->opt); i++) {
        muon_tensor t;
        if (muon_state_get(p->opt, i, &t, sizeof t) != MUON_OK) return cli_fail_library();
        if (t.dtype == MUON_F32)
            DO(check(t.data, (int64_t)(t.bytes / sizeof(float)), 2 * i + 1, 1e-3f, t.name));
    }
    return CLI_DONE;
}

/* ---- output ------------------------------------------------------------------------------------ */

static void print_json(const char *text, const save_problem *p)
{
    const best_of *b = &p->best;
    json_t *line = json_object();
    json_object_set_new(line, "problem", json_string(text));
    json_object_set_new(line, "ranks", json_integer(launch_size()));
    json_object_set_new(line, "bytes", json_integer(p->bytes));
    json_object_set_new(line, "save_seconds", report_number(b->save));
    json_object_set_new(line, "plain_write_seconds", report_number(b->plain_write));
    json_object_set_new(line, "save_ratio", report_number(b->plain_write / b->save));
    json_object_set_new(line, "load_seconds", report_number(b->load));
    json_object_set_new(line, "plain_read_seconds", report_number(b->plain_read));
    json_object_set_new(line, "load_ratio", report_number(b->plain_read / b->load));
    json_object_set_new(line, "best_of", json_integer(p->runs));
    json_object_set_new(line, "verified", json_true());
    report_line(line);
}

static void print_text(const char *text, const save_problem *p)
{
    const best_of *b = &p->best;
    double gigabytes = 1e-9 * (double)p->bytes;
    printf("%s: %.2f GB by %d rank%s, best of %d, verified\n", text, gigabytes, launch_size(),
           launch_size() == 1 ? "" : "s", p->runs);
    printf("  save  %7.3f s %6.2f GB/s; one plain file %7.3f s %6.2f GB/s: ratio %.2f\n", b->save,
           gigabytes / b->save, b->plain_write, gigabytes / b->plain_write,
           b->plain_write / b->save);
    printf("  load  %7.3f s %6.2f GB/s; one plain file %7.3f s %6.2f GB/s: ratio %.2f\n", b->load,
           gigabytes / b->load, b->plain_read, gigabytes / b->plain_read, b->plain_read / b->load);
}

static int work(save_problem *p, const char *text, const bench_settings *settings)
{
    int64_t id = launch_rank() == 0 ? getpid() : 0; /* nobody else's files */
    launch_sum(&id, 1);
    p->root = cli_format("%s/muon-bench-save-%lld", settings->dir, (long long)id);
    p->plain_path = cli_format("%s/muon-bench-plain-%lld", settings->dir, (long long)id);
    p->plain_before = cli_format("%s/muon-bench-plain-%lld-before", settings->dir, (long long)id);
    DO(launch_agree(bench_params_optimizer(&p->m, &p->opt, &settings->how, launch_comm())));
    allocate(p);
    DO(launch_agree(fill(p, 0)));
    DO(measure(p, settings->repeat, settings->min_time));
    DO(launch_agree(verify(p)));
    if (launch_rank() == 0) (settings->as_table ? print_text : print_json)(text, p);
    return CLI_DONE;
}

int bench_save_run(const char *text, const model *m, const bench_settings *settings)
{
    save_problem p = {.runs = 0};
    bench_params_create(&p.m, m);
    int code = work(&p, text, settings);
    if (p.root) remove_root(&p);
    destroy(&p);
    return code;
}
