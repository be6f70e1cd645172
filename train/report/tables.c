/* Text that the models write, and all numbers of the runs as a table. */
#include "train/report/page.h"

#include <math.h>

void page_samples(page *p)
{
    int any = 0;
    for (size_t i = 0; i < p->nruns; i++)
        any |= p->runs[i].sample && *p->runs[i].sample;
    if (!any) return;
    page_section(p, "What the models write", "Byte by byte, from what they have learned.");
    fputs("<div class=\"grid\">\n", p->out);
    for (size_t i = 0; i < p->nruns; i++) {
        if (!p->runs[i].sample || !*p->runs[i].sample) continue;
        fputs("<article><h3>", p->out);
        page_text(p->out, page_label(&p->runs[i]));
        /* HTML drops the first line feed after the tag. */
        fputs("</h3><pre>\n", p->out);
        page_text(p->out, p->runs[i].sample);
        fputs("</pre></article>\n", p->out);
    }
    fputs("</div>\n</section>\n", p->out);
}

/* ---- settings ----------------------------------------------------------------------------------- */

static page_word plain(const char *text)
{
    page_word w;
    snprintf(w.text, sizeof w.text, "%s", text);
    return w;
}

static page_word parameters(const train_record *r)
{
    return page_count((double)r->parameters);
}

static page_word ranks(const train_record *r)
{
    page_word w;
    snprintf(w.text, sizeof w.text, "%d × %d thread%s", r->nranks, r->threads,
             r->threads == 1 ? "" : "s");
    return w;
}

static page_word steps(const train_record *r)
{
    double done = (double)train_record_done(r);
    page_word w = page_count(done);
    if (done != (double)r->planned)
        snprintf(w.text, sizeof w.text, "%.20s of %.20s", page_count(done).text,
                 page_count((double)r->planned).text);
    return w;
}

static page_word resumed(const train_record *r)
{
    return r->resumed ? page_count((double)r->resumed) : plain("–");
}

static page_word checkpoints(const train_record *r)
{
    page_word w = page_count((double)r->saves);
    if (r->saves)
        snprintf(w.text, sizeof w.text, "%.20s in %.20s", page_count((double)r->saves).text,
                 page_seconds(r->save_seconds).text);
    return w;
}

static page_word skipped(const train_record *r)
{
    return page_count((double)r->skipped);
}

static page_word tokens_per_step(const train_record *r)
{
    return page_count((double)r->tokens_per_step);
}

static page_word tokens(const train_record *r)
{
    return page_count((double)r->tokens_before + (double)r->tokens_per_step * (double)r->nsteps);
}

static page_word peak_lr(const train_record *r)
{
    double most = 0;
    for (size_t i = 0; i < r->nsteps; i++)
        most = fmax(most, r->steps[i].lr);
    page_word w;
    snprintf(w.text, sizeof w.text, "%.4g", most);
    return w;
}

static page_word last_loss(const train_record *r)
{
    return r->nsteps ? page_loss(r->steps[r->nsteps - 1].loss) : plain("none");
}

static page_word first_validation(const train_record *r)
{
    return r->nvalidations ? page_loss(r->validations[0].loss) : plain("none");
}

static page_word last_validation(const train_record *r)
{
    return r->nvalidations ? page_loss(r->validations[r->nvalidations - 1].loss) : plain("none");
}

static const train_validation *best(const train_record *r)
{
    const train_validation *best = NULL;
    for (size_t i = 0; i < r->nvalidations; i++)
        if (isfinite(r->validations[i].loss) && (!best || r->validations[i].loss < best->loss))
            best = &r->validations[i];
    return best;
}

static page_word best_validation(const train_record *r)
{
    const train_validation *v = best(r);
    page_word w;
    if (!v) return plain("none");
    snprintf(w.text, sizeof w.text, "%.20s, step %.20s", page_loss(v->loss).text,
             page_count((double)v->step).text);
    return w;
}

static page_word bits(const train_record *r)
{
    const train_validation *v = best(r);
    return v ? page_number(v->loss / log(2), 4) : plain("none");
}

static page_word largest_logit(const train_record *r)
{
    double most = 0;
    for (size_t i = 0; i < r->nsteps; i++)
        most = fmax(most, r->steps[i].max_logit);
    return page_number(most, 3);
}

static page_word clipped(const train_record *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->nsteps; i++)
        sum += (double)r->steps[i].clipped_heads;
    return page_count(sum);
}

static page_word share(const train_record *r)
{
    return page_percent(train_record_optimizer_share(r));
}

static page_word throughput(const train_record *r)
{
    double seconds = r->totals.seconds;
    double all = (double)r->tokens_per_step * (double)r->nsteps;
    return page_count(seconds > 0 ? all / seconds : 0);
}

static page_word run_time(const train_record *r)
{
    return page_seconds(r->seconds);
}

void page_settings(page *p)
{
    static const struct {
        const char *name;
        page_word (*value)(const train_record *run);
    } rows[] = {
        {"Parameters", parameters},
        {"Ranks", ranks},
        {"Steps", steps},
        {"Steps skipped", skipped},
        {"Resumed after step", resumed},
        {"Checkpoints", checkpoints},
        {"Tokens in a step", tokens_per_step},
        {"Tokens in all", tokens},
        {"Learning rate at its peak", peak_lr},
        {"Training loss, last step", last_loss},
        {"Validation loss, first", first_validation},
        {"Validation loss, last", last_validation},
        {"Validation loss, best", best_validation},
        {"The best in bits per byte", bits},
        {"Largest attention logit", largest_logit},
        {"Heads above the QK-clip threshold", clipped},
        {"Tokens per second", throughput},
        {"Optimizer's share of a step", share},
        {"Time with validation", run_time},
    };
    page_section(p, "Runs", NULL);
    page_table_begin(p, "");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        fprintf(p->out, "<tr><th scope=\"row\">");
        page_text(p->out, rows[k].name);
        fputs("</th>", p->out);
        for (size_t i = 0; i < p->nruns; i++) {
            fputs("<td>", p->out);
            page_text(p->out, rows[k].value(&p->runs[i]).text);
            fputs("</td>", p->out);
        }
        fputs("</tr>\n", p->out);
    }
    page_table_end(p);
    fputs("</section>\n", p->out);
}
