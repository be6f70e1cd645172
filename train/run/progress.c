#include "train/run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

enum { RECENT = 20 }; /* steps that speed is measured over */

static const double pause_live = 0.1, pause_log = 30; /* seconds between lines */

void progress_start(progress *p, FILE *out, const train_record *record)
{
    *p = (progress){.out = out, .is_live = out && isatty(fileno(out))};
    if (out) fprintf(out, "%s: %s\n", record->label, record->description);
}

progress_time progress_time_of(double seconds)
{
    progress_time t;
    int64_t s = seconds > 0 ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(t.text, sizeof t.text, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60),
                 (int)(s % 60));
    else
        snprintf(t.text, sizeof t.text, "%d:%02d", (int)(s / 60), (int)(s % 60));
    return t;
}

/* "950", "18.3k": bytes in a second. */
static void print_rate(char *text, size_t size, double rate)
{
    if (rate < 1000)
        snprintf(text, size, "%.0f", rate);
    else
        snprintf(text, size, "%.*fk", rate < 1e5 ? 1 : 0, 1e-3 * rate);
}

static int print_line(char *line, size_t size, const train_record *r)
{
    const train_step *last = train_record_last(r);
    size_t recent = r->nsteps < RECENT ? r->nsteps : RECENT;
    double all = 0, optimizer = 0;
    for (size_t i = r->nsteps - recent; i < r->nsteps; i++) {
        all += r->steps[i].seconds;
        optimizer += r->steps[i].optimizer_seconds;
    }
    char rate[32], skipped[32] = "";
    print_rate(rate, sizeof rate, (double)(r->tokens_per_step * (int64_t)recent) / all);
    if (r->skipped) snprintf(skipped, sizeof skipped, "  skipped %lld", (long long)r->skipped);
    double left =
        (double)(r->planned - last->step) * (last->begin + last->seconds) / (double)r->totals.steps;
    return snprintf(line, size,
                    "step %lld/%lld  loss %.4f  val %.4f  %s tokens/s  optimizer %.0f %%%s  ETA %s",
                    (long long)last->step, (long long)r->planned, last->loss,
                    r->validations[r->nvalidations - 1].loss, rate, 100 * optimizer / all, skipped,
                    progress_time_of(left).text);
}

/* A line that is longer than the terminal is wide could not be rewritten. */
static int cut_to_terminal(FILE *out, char *line, int width)
{
    struct winsize window;
    if (ioctl(fileno(out), TIOCGWINSZ, &window) != 0 || window.ws_col == 0) return width;
    if (width < window.ws_col) return width;
    line[window.ws_col - 1] = '\0';
    return window.ws_col - 1;
}

void progress_step(progress *p, const train_record *record)
{
    if (!p->out) return;
    const train_step *last = train_record_last(record);
    double now = last->begin + last->seconds;
    int validated = record->validations[record->nvalidations - 1].step == last->step;
    int due = now - p->printed >= (p->is_live ? pause_live : pause_log);
    if (record->nsteps > 1 && !validated && !due) return;
    char line[256];
    int width = print_line(line, sizeof line, record);
    if (p->is_live) {
        width = cut_to_terminal(p->out, line, width);
        fprintf(p->out, "\r%s%*s", line, p->width > width ? p->width - width : 0, "");
    } else {
        fprintf(p->out, "%s\n", line);
    }
    fflush(p->out);
    p->width = width;
    p->printed = now;
}

void progress_saved(progress *p, const train_record *record)
{
    if (!p->out) return;
    progress_end(p);
    fprintf(p->out, "saved step %lld (%.1f s)\n", (long long)record->saved, record->saved_seconds);
    fflush(p->out);
}

void progress_end(progress *p)
{
    if (p->out && p->is_live && p->width) fprintf(p->out, "\n");
    p->width = 0;
}
