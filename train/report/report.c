/* The page from top to bottom. */
#include "train/report/report.h"

#include "base/status.h"
#include "train/report/file.h"
#include "train/report/page.h"

const char *page_label(const train_record *run)
{
    return run->label ? run->label : "run";
}

void page_section(page *p, const char *title, const char *text)
{
    fputs("<section>\n<h2>", p->out);
    page_text(p->out, title);
    fputs("</h2>\n", p->out);
    if (!text) return;
    fputs("<p>", p->out);
    page_text(p->out, text);
    fputs("</p>\n", p->out);
}

/* A column for each run, after one with the names of rows. */
void page_table_begin(page *p, const char *corner)
{
    fputs("<div class=\"scroll\"><table><thead><tr><th scope=\"col\">", p->out);
    page_text(p->out, corner);
    fputs("</th>", p->out);
    for (size_t run = 0; run < p->nruns; run++) {
        fputs("<th scope=\"col\">", p->out);
        page_text(p->out, page_label(&p->runs[run]));
        fputs("</th>", p->out);
    }
    fputs("</tr></thead><tbody>\n", p->out);
}

void page_table_end(page *p)
{
    fputs("</tbody></table></div>\n", p->out);
}

static void put_all(FILE *out, const char *const *parts)
{
    for (; *parts; parts++)
        fputs(*parts, out);
}

/* Nothing may be fetched, even if a text should get past the escaping. */
static void put_head(page *p)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          p->out);
    for (size_t i = 0; i < p->nruns && i < 3; i++)
        page_put(p->out, "%s%s", i ? ", " : "", page_label(&p->runs[i]));
    fputs(" - muonctl train</title>\n<style>\n", p->out);
    put_all(p->out, page_style);
    fputs("</style>\n</head>\n<body>\n", p->out);
}

/* Marks of series, and the hatching of what is waiting: told apart without colours. */
static void put_symbols(page *p)
{
    fputs("<svg class=\"symbols\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\n"
          "<circle id=\"mark0\" r=\"4\"/>\n"
          "<rect id=\"mark1\" x=\"-3.6\" y=\"-3.6\" width=\"7.2\" height=\"7.2\"/>\n"
          "<polygon id=\"mark2\" points=\"0,-5 4.6,3.4 -4.6,3.4\"/>\n"
          "<polygon id=\"mark3\" points=\"0,-5.2 5.2,0 0,5.2 -5.2,0\"/>\n"
          "<polygon id=\"mark4\" points=\"0,5 4.6,-3.4 -4.6,-3.4\"/>\n"
          "<polygon id=\"mark5\" points=\"-1.6,-4.8 1.6,-4.8 1.6,-1.6 4.8,-1.6 4.8,1.6 1.6,1.6 "
          "1.6,4.8 -1.6,4.8 -1.6,1.6 -4.8,1.6 -4.8,-1.6 -1.6,-1.6\"/>\n"
          "<rect id=\"mark6\" x=\"-5.4\" y=\"-2.2\" width=\"10.8\" height=\"4.4\"/>\n"
          "<rect id=\"mark7\" x=\"-2.2\" y=\"-5.4\" width=\"4.4\" height=\"10.8\"/>\n",
          p->out);
    static const struct {
        const char *name;
        int angle;
    } hatches[] = {{"exchange", 45}, {"scatter", -45}};
    for (size_t i = 0; i < sizeof hatches / sizeof *hatches; i++)
        fprintf(p->out,
                "<pattern id=\"%s\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
                "patternTransform=\"rotate(%d)\"><rect width=\"6\" height=\"6\" "
                "style=\"fill: var(--%s)\"/><rect width=\"1.6\" height=\"6\" "
                "style=\"fill: var(--page)\"/></pattern>\n",
                hatches[i].name, hatches[i].angle, hatches[i].name);
    fputs("</defs></svg>\n", p->out);
}

static muon_status put_page(page *p)
{
    put_head(p);
    put_symbols(p);
    fputs("<main>\n", p->out);
    page_summary(p);
    TRY(page_curves(p));
    TRY(page_times(p));
    TRY(page_ranks(p));
    TRY(page_spectra(p));
    page_samples(p);
    page_settings(p);
    fprintf(p->out, "<footer>libmuon %s, muonctl train.</footer>\n</main>\n<script>\n",
            muon_version());
    put_all(p->out, page_script);
    fputs("</script>\n</body>\n</html>\n", p->out);
    return MUON_OK;
}

muon_status train_report_write(const char *path, const train_record *runs, size_t nruns)
{
    report_file file;
    REQUIRE(path && runs && nruns > 0, E_ARG, "a report needs a path and at least one run");
    TRY(report_file_open(&file));
    page p = {.out = file.out, .runs = runs, .nruns = nruns};
    return report_file_close(&file, path, put_page(&p));
}
