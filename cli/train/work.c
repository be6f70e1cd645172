#include "cli/train/options.h"

#include "cli/core/launch.h"
#include "cli/core/outputs.h"
#include "train/report/report.h"
#include "train/run/metrics.h"
#include "train/run/progress.h"
#include "train/run/trace.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_RUNS = 2 };

typedef struct session {
    train_options *o;
    metrics *lines;                 /* rank 0's; NULL: none */
    trace *events;                  /* the same, of the first run */
    int lines_go_on;                /* the file was there, and has earlier steps */
    char *metrics, *report, *trace; /* paths, for free; NULL: not wanted */
    outputs out;                    /* rank 0's; count 0: none */
    outputs saves;                  /* the directory of checkpoints, rank 0's */
    train_record records[MOST_RUNS];
    size_t nrecords;
} session;

/* ---- Ctrl-C ------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* The first one asks; the second finds the system's own handler, and ends the program. mpirun ends ranks
 * a second after Ctrl-C, however long their step may take, but hands SIGUSR1 on and waits. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt,
                               .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

/* ---- files -------------------------------------------------------------------------------------- */

/* Whatever cannot be written is found before the first step. */
static int check_directory(const char *dir)
{
    if (access(dir, W_OK | X_OK) == 0) return CLI_DONE;
    return cli_fail("cannot write to the directory '%s': %s", dir, strerror(errno));
}

static int check_file(const char *path)
{
    struct stat info;
    if (!path) return CLI_DONE;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return cli_fail("cannot write to '%s': it is a directory", path);
    const char *slash = strrchr(path, '/');
    char *dir = slash ? cli_format("%.*s", (int)(slash - path + 1), path) : cli_format(".");
    int code = check_directory(dir);
    free(dir);
    return code;
}

static int open_directory(session *s)
{
    if (launch_rank() != 0) return CLI_DONE;
    if (s->o->out_dir) {
        DO(outputs_open(&s->out, s->o->out_dir));
        DO(check_directory(s->o->out_dir));
    }
    const char *saves = s->o->settings.saving.dir;
    if (saves) {
        DO(outputs_open(&s->saves, saves));
        DO(check_directory(saves));
    }
    DO(check_file(s->metrics));
    DO(check_file(s->report));
    return check_file(s->trace);
}

/* As given, or by its usual name in the directory. */
static char *choose_path(const session *s, const char *given, const char *usual)
{
    if (given) return cli_format("%s", given);
    return s->o->out_dir ? cli_format("%s/%s", s->o->out_dir, usual) : NULL;
}

static void choose_paths(session *s)
{
    s->metrics = choose_path(s, s->o->metrics, "metrics.jsonl");
    s->report = choose_path(s, s->o->report, "report.html");
    s->trace = choose_path(s, s->o->trace, "trace.json");
}

/* For the first run. If that goes on from a checkpoint, so do they. */
static muon_status start_metrics(session *s, const train_record *record)
{
    s->lines_go_on = s->o->settings.saving.resume && record->resumed;
    return s->lines_go_on ? metrics_append(&s->lines, s->metrics)
                          : metrics_open(&s->lines, s->metrics);
}

static int open_metrics(session *s, const train_record *record)
{
    muon_status status = MUON_OK;
    if (launch_rank() != 0 || !s->metrics) return CLI_DONE;
    if (!s->lines) status = start_metrics(s, record);
    if (status == MUON_OK && s->lines_go_on)
        status = metrics_cut(s->lines, record->label, record->resumed);
    return status == MUON_OK ? CLI_DONE : cli_fail_library();
}

static int close_metrics(session *s)
{
    metrics *lines = s->lines;
    s->lines = NULL;
    return metrics_close(lines) == MUON_OK ? CLI_DONE : cli_fail_library();
}

/* Of the first run, if it has a step to take. */
static int open_trace(session *s, const train_record *record)
{
    if (launch_rank() != 0 || !s->trace || record != s->records) return CLI_DONE;
    return train_trace_open(&s->events, s->trace, record) == MUON_OK ? CLI_DONE
                                                                     : cli_fail_library();
}

static int close_trace(session *s, muon_status status)
{
    trace *events = s->events;
    s->events = NULL;
    return train_trace_close(events, status) == MUON_OK ? CLI_DONE : cli_fail_library();
}

/* ---- one run ------------------------------------------------------------------------------------ */

/* What a run's calls return is the same on every rank, unless the ranks have lost each other. */
static int settle(muon_status status)
{
    if (status == MUON_OK) return CLI_DONE;
    int code = cli_fail_library();
    return status == MUON_E_COMM || status == MUON_E_TIMEOUT ? launch_give_up(code)
                                                             : launch_agree(code);
}

static int take_steps(session *s, train_run *run, progress *shown, const train_record *record)
{
    while (!train_run_is_over(run)) {
        int64_t before = record->totals.steps;
        int64_t saves = record->saves;
        muon_status status = train_run_step(run);
        int taken =
            record->totals.steps > before; /* also if it was one too many that was skipped */
        if (taken) progress_step(shown, record);
        if (taken && s->lines) metrics_step(s->lines, record);
        if (taken && s->events && record == s->records) train_trace_step(s->events, record);
        if (status == MUON_OK) status = train_run_save(run);
        if (record->saves > saves) progress_saved(shown, record);
        if (status != MUON_OK) progress_end(shown);
        DO(settle(status));
    }
    progress_end(shown);
    return settle(train_run_finish(run));
}

/* Rank 0 alone: the others have the same weights. */
static int write_sample(session *s, train_run *run, train_record *record)
{
    const train_options *o = s->o;
    if (o->sample.bytes == 0) return CLI_DONE;
    muon_status status = sample_text(&record->sample, train_run_model(run),
                                     (const float *const *)train_run_weights(run),
                                     o->settings.model.context, &o->sample);
    return status == MUON_OK ? CLI_DONE : cli_fail_library();
}

static int write_weights(session *s, train_run *run)
{
    model *m = train_run_model(run);
    size_t count = model_ntensors(m);
    muon_st_tensor *tensors = cli_alloc(count, sizeof *tensors);
    for (size_t i = 0; i < count; i++) {
        const model_tensor *t = model_tensor_at(m, i);
        tensors[i] = (muon_st_tensor){.name = t->name,
                                      .dtype = "F32",
                                      .ndim = t->ndim,
                                      .bytes = (size_t)t->numel * sizeof(float),
                                      .data = train_run_weights(run)[i]};
        memcpy(tensors[i].shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
    }
    int code = outputs_add(&s->out, "params.safetensors", tensors, count, NULL, 0);
    free(tensors);
    return code;
}

static int end_run(session *s, train_run *run, train_record *record)
{
    if (launch_rank() != 0) return CLI_DONE;
    DO(write_sample(s, run, record));
    return s->o->out_dir && record == s->records ? write_weights(s, run) : CLI_DONE;
}

/* Where a run begins is told like its progress; what has changed since it was saved, always. */
static void show_log(void *user, muon_log_level level, const char *message)
{
    const session *s = user;
    if (level >= MUON_LOG_WARN)
        cli_note("%s", message);
    else if (launch_rank() == 0 && !s->o->quiet)
        fprintf(stderr, "%s\n", message);
}

static int run_once(session *s, const train_settings *settings)
{
    train_run *run = NULL;
    train_record *record = &s->records[s->nrecords++];
    progress shown;
    DO(settle(train_run_create(&run, settings, launch_comm(), record)));
    progress_start(&shown, launch_rank() == 0 && !s->o->quiet ? stderr : NULL, record);
    int code = launch_agree(open_metrics(s, record));
    if (code == CLI_DONE && !train_run_is_over(run)) code = launch_agree(open_trace(s, record));
    if (code == CLI_DONE) code = take_steps(s, run, &shown, record);
    if (code == CLI_DONE) code = launch_agree(end_run(s, run, record));
    train_run_destroy(run);
    return code;
}

/* One of two: each has checkpoints of its own, in a directory of its optimizer's name. */
static int run_beside(session *s, train_settings settings)
{
    const char *dir = settings.saving.dir;
    char *inside = dir ? cli_format("%s/%s", dir, optimizer_name(&settings.optimizer)) : NULL;
    settings.saving.dir = inside;
    int code = run_once(s, &settings);
    free(inside);
    return code;
}

static int run_all(session *s)
{
    const train_options *o = s->o;
    train_settings settings = o->settings;
    settings.interrupted = &interrupted;
    settings.log = show_log;
    settings.log_user = s;
    if (!o->compare) return run_once(s, &settings);
    DO(run_beside(s, settings));
    if (s->records[0].interrupted) return CLI_DONE;
    train_choice_set(&settings.optimizer, &o->other);
    return run_beside(s, settings);
}

/* ---- results --------------------------------------------------------------------------- */

static void print_run(const train_record *r, int width)
{
    double tokens = (double)r->tokens_per_step * (double)r->totals.steps;
    double validation = r->validations[r->nvalidations - 1].loss, best = r->best.loss;
    printf("%-*s%7lld%8lld", width, r->label, (long long)train_record_done(r),
           (long long)r->skipped);
    if (r->nsteps == 0) { /* all of them were taken before */
        printf("%10s%12.4f%10.4f%11s%12s%8s\n", "-", validation, best, "-", "-", "-");
        return;
    }
    printf("%10.4f%12.4f%10.4f%11.0f%10.1f %%%8s\n", train_record_last(r)->loss, validation, best,
           tokens / r->totals.seconds, 100 * train_record_optimizer_share(r),
           progress_time_of(r->seconds).text);
}

static void print_results(const session *s)
{
    int width = 6;
    for (size_t i = 0; i < s->nrecords; i++)
        if ((int)strlen(s->records[i].label) > width) width = (int)strlen(s->records[i].label);
    printf("%-*s  steps skipped      loss  validation      best   tokens/s   optimizer    time\n",
           width, "run");
    for (size_t i = 0; i < s->nrecords; i++)
        print_run(&s->records[i], width);
    for (size_t i = 0; i < s->nrecords; i++)
        if (s->records[i].sample)
            printf("\n%s writes:\n%s\n", s->records[i].label, s->records[i].sample);
    const char *const paths[] = {s->out.count ? s->out.list[0].final : NULL, s->metrics, s->trace,
                                 s->report};
    const char *before = "\n";
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (!paths[i]) continue;
        printf("%swrote %s\n", before, paths[i]);
        before = "";
    }
}

static int write_results(session *s)
{
    if (launch_rank() != 0) return CLI_DONE;
    DO(close_metrics(s));
    if (s->o->out_dir) DO(outputs_commit(&s->out));
    DO(close_trace(s, MUON_OK));
    if (s->report && train_report_write(s->report, s->records, s->nrecords) != MUON_OK)
        return cli_fail_library();
    return CLI_DONE;
}

static void drop(char **path)
{
    free(*path);
    *path = NULL;
}

/* A run that was complete when it was resumed has nothing to tell that its files do not have already. */
static void keep_files(session *s)
{
    for (size_t i = 0; i < s->nrecords; i++)
        if (s->records[i].nsteps > 0) return;
    if (s->metrics || s->report || s->trace)
        cli_note("no steps are left: metrics, trace and report do not change");
    drop(&s->metrics);
    drop(&s->report);
    drop(&s->trace);
}

static int work(session *s)
{
    DO(launch_agree(train_options_resolve(s->o)));
    DO(launch_agree(open_directory(s)));
    catch_signals();
    DO(run_all(s));
    keep_files(s);
    DO(launch_agree(write_results(s)));
    if (launch_rank() == 0) print_results(s);
    return s->records[s->nrecords - 1].interrupted ? TRAIN_INTERRUPTED : CLI_DONE;
}

int train_work(train_options *o)
{
    session s = {.o = o};
    choose_paths(&s);
    DO(launch_start());
    int code = work(&s);
    if (s.events) train_trace_close(s.events, MUON_E_IO); /* it is not complete */
    if (s.lines && close_metrics(&s) != CLI_DONE && code == CLI_DONE) code = CLI_FAILED;
    if (s.out.dir) outputs_close(&s.out);
    if (s.saves.dir) outputs_close(&s.saves);
    for (size_t i = 0; i < s.nrecords; i++)
        train_record_free(&s.records[i]);
    drop(&s.metrics);
    drop(&s.report);
    drop(&s.trace);
    launch_end();
    return code;
}
