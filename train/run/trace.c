/* Times are whole nanoseconds, and every slice is cut to what it is inside of: so slices nest and
 * follow each other to the digit, whatever clocks have said. */
#include "train/run/trace.h"

#include "base/memory.h"
#include "train/report/file.h"
#include "train/report/web.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { FIRST_PROCESS = 1 }; /* process 0 is the idle one for Perfetto */

struct trace {
    report_file file;
    FILE *out; /* the file's */
    int events;
    int64_t *at; /* [nranks] where each rank is, in nanoseconds */
};

typedef struct slice {
    int64_t begin, end; /* nanoseconds */
} slice;

static int64_t nanoseconds(double seconds)
{
    return seconds > 0 && seconds < 1e9 ? llround(seconds * 1e9) : 0;
}

/* ---- events ------------------------------------------------------------------------------------- */

static void put_string(FILE *out, const char *text)
{
    json_t *string = web_text(text);
    if (json_dumpf(string, out, JSON_ENCODE_ANY) != 0) fputs("null", out);
    json_decref(string);
}

/* Starts an event; the caller adds its arguments and ends it. */
static void event(trace *w, char kind, const char *name, int process)
{
    fprintf(w->out, "%s\n{\"ph\":\"%c\",\"pid\":%d,\"tid\":1,\"name\":", w->events++ ? "," : "",
            kind, process);
    put_string(w->out, name);
}

/* In microseconds, which is what the format has. */
static void time_of(trace *w, const char *key, int64_t ns)
{
    fprintf(w->out, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void put_slice(trace *w, const char *name, int process, const slice *s)
{
    event(w, 'X', name, process);
    time_of(w, "ts", s->begin);
    time_of(w, "dur", s->end - s->begin);
}

static void end_event(trace *w)
{
    fputs("}", w->out);
}

/* A slice from *at on, inside of `outer`; *at moves to its end. Nothing if it took no time. */
static slice place(int64_t *at, double seconds, const slice *outer)
{
    slice s = {*at, *at + nanoseconds(seconds)};
    if (outer && s.end > outer->end) s.end = outer->end;
    *at = s.end;
    return s;
}

static void put_part(trace *w, const char *name, int process, const slice *s)
{
    if (s->end == s->begin) return;
    put_slice(w, name, process, s);
    end_event(w);
}

/* JSON has no number for NaN and infinity. */
static void argument(trace *w, const char *key, double value, int *count)
{
    if (!isfinite(value)) return;
    fprintf(w->out, "%s\"%s\":%.9g", (*count)++ ? "," : "", key, value);
}

/* ---- the run ------------------------------------------------------------------------------------ */

static void name_process(trace *w, int process, const char *name, int order)
{
    event(w, 'M', "process_name", process);
    fputs(",\"args\":{\"name\":", w->out);
    put_string(w->out, name);
    fputs("}", w->out);
    end_event(w);
    event(w, 'M', "process_sort_index", process);
    fprintf(w->out, ",\"args\":{\"sort_index\":%d}", order);
    end_event(w);
}

static void name_processes(trace *w, const train_record *run)
{
    char name[128];
    for (int rank = 0; rank < run->nranks; rank++) {
        snprintf(name, sizeof name, "%s, rank %d", run->label ? run->label : "run", rank);
        name_process(w, FIRST_PROCESS + rank, name, rank + 1);
    }
    snprintf(name, sizeof name, "%s, numbers", run->label ? run->label : "run");
    name_process(w, FIRST_PROCESS + run->nranks, name, 0);
}

static void put_optimizer(trace *w, const train_rank_step *r, int process, const slice *outer)
{
    int64_t at = outer->begin;
    put_part(w, "optimizer", process, outer);
    for (int i = 0; i < MUON_NPHASES; i++) {
        slice s = place(&at, r->phase[i], outer);
        put_part(w, muon_phase_name((muon_phase)i), process, &s);
    }
}

static void put_step(trace *w, const train_step *step, const train_rank_step *r, int process,
                     int64_t *at)
{
    enum { MODEL, REDUCE, OPTIMIZER, GATHER, PARTS };
    slice parts[PARTS], whole;
    char name[48];
    int arguments = 0;
    int64_t begin = nanoseconds(step->begin);
    /* Ranks have clocks of their own, so a step may seem to begin before the last one has ended. */
    if (begin > *at) *at = begin;
    whole.begin = *at;
    parts[MODEL] = place(at, r->model, NULL);
    parts[REDUCE] = place(at, r->reduce, NULL);
    parts[OPTIMIZER] = place(at, r->optimizer, NULL);
    parts[GATHER] = place(at, r->gather, NULL);
    whole.end = *at;

    snprintf(name, sizeof name, "step %" PRId64, step->step);
    put_slice(w, name, process, &whole);
    fputs(",\"args\":{", w->out);
    argument(w, "loss", step->loss, &arguments);
    argument(w, "grad_norm", step->grad_norm, &arguments);
    if (step->skipped) argument(w, "skipped", 1, &arguments);
    fputs("}", w->out);
    end_event(w);
    put_part(w, "model", process, &parts[MODEL]);
    put_part(w, "reduce gradients", process, &parts[REDUCE]);
    put_optimizer(w, r, process, &parts[OPTIMIZER]);
    put_part(w, "gather weights", process, &parts[GATHER]);
}

static void put_counter(trace *w, const train_record *run, const char *name, int64_t at,
                        double value)
{
    if (!isfinite(value)) return;
    event(w, 'C', name, FIRST_PROCESS + run->nranks);
    time_of(w, "ts", at);
    fprintf(w->out, ",\"args\":{\"value\":%.9g}", value);
    end_event(w);
}

static void put_validation(trace *w, const train_record *run, int64_t at)
{
    if (run->nvalidations)
        put_counter(w, run, "validation loss", at, run->validations[run->nvalidations - 1].loss);
}

/* ---- the file ----------------------------------------------------------------------------------- */

static muon_status start(trace *t, const char *path, const train_record *run)
{
    TRY(CALLOC(&t->at, (size_t)run->nranks, "a trace"));
    TRY(report_file_open(&t->file, path));
    t->out = t->file.out;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", t->out);
    name_processes(t, run);
    put_validation(t, run, 0);
    return MUON_OK;
}

static void drop(trace *t)
{
    free(t->at);
    free(t);
}

muon_status train_trace_open(trace **out, const char *path, const train_record *run)
{
    trace *t = NULL;
    REQUIRE(path && run, E_ARG, "a trace needs a path and a run");
    TRY(CALLOC(&t, 1, "a trace"));
    muon_status status = start(t, path, run);
    if (status == MUON_OK)
        *out = t;
    else
        drop(t);
    return status;
}

void train_trace_step(trace *t, const train_record *run)
{
    const train_step *s = train_record_last(run);
    int64_t begin = nanoseconds(s->begin), end = begin + nanoseconds(s->seconds);
    for (int rank = 0; rank < run->nranks; rank++)
        put_step(t, s, &run->rank_steps[rank], FIRST_PROCESS + rank, &t->at[rank]);
    put_counter(t, run, "loss", end, s->loss);
    put_counter(t, run, "learning rate", begin, s->lr);
    put_counter(t, run, "gradient norm", end, s->grad_norm);
    if (run->nvalidations && run->validations[run->nvalidations - 1].step == s->step)
        put_validation(t, run, end);
}

muon_status train_trace_close(trace *t, muon_status status)
{
    if (!t) return status;
    fputs("\n]}\n", t->out);
    status = report_file_close(&t->file, status);
    drop(t);
    return status;
}
