/* test_train_report.c - the page of training runs: its data. What it makes of them is seen in a browser,
 * by scripts/check-report.
 *
 *     test_train_report --examples DIR    write pages for scripts/check-report to look at
 */
#include "tests/train/train_records.h"

#include "train/report/report.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files -------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/muon-test-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    char *text = malloc((size_t)size + 1);
    rewind(file);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    text[size] = 0;
    fclose(file);
    return text;
}

static char *report_of(const train_record *runs, size_t nruns)
{
    const char *path = path_of("report.html");
    assert_ok(train_report_write(path, runs, nruns));
    char *text = read_text(path);
    unlink(path);
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("the page does not say: %s", part);
}

static void assert_has_not(const char *text, const char *part)
{
    const char *at = strstr(text, part);
    if (at) fail_msg("the page says: %.80s", at);
}

/* ---- examples ----------------------------------------------------------------------------------- */

static const made_run muon = {"Muon", 1, 300, 300, 2, 0.01};
static const made_run adamw = {"AdamW", 0, 300, 300, 2, 0.004};

enum { MOST_RUNS = 7 };
typedef struct example {
    train_record runs[MOST_RUNS];
    size_t count;
} example;

static void free_example(example *e)
{
    for (size_t i = 0; i < e->count; i++)
        train_record_free(&e->runs[i]);
}

static void add_run(example *e, const made_run *how)
{
    e->runs[e->count++] = made_record(how);
}

static void make_two(example *e)
{
    add_run(e, &muon);
    add_run(e, &adamw);
}

/* Down by 0.1 in each 25 steps: 4, 3.9, ... 2.8; the other one falls half as fast, to 3.39. */
static void make_ahead(example *e)
{
    make_two(e);
    for (size_t i = 0; i < 13; i++) {
        e->runs[0].validations[i].loss = 4 - 0.1 * (double)i;
        e->runs[1].validations[i].loss = 4 - 0.05 * (double)i - (i == 12 ? 0.01 : 0);
    }
}

static void make_level(example *e)
{
    make_ahead(e);
    e->runs[1].validations[12].loss = e->runs[0].validations[12].loss;
}

static void make_stopped(example *e)
{
    add_run(e, &(made_run){"Muon", 1, 300, 120, 1, 0.01});
    e->runs[0].skipped = 3;
}

/* The first has none; so the second has nobody to be ahead of. */
static void make_no_loss(example *e)
{
    make_two(e);
    for (size_t i = 0; i < e->runs[0].nsteps; i++)
        e->runs[0].steps[i].loss = (double)NAN;
    for (size_t i = 0; i < e->runs[0].nvalidations; i++)
        e->runs[0].validations[i].loss = (double)NAN;
}

static void make_one_step(example *e)
{
    add_run(e, &(made_run){"Muon", 1, 1, 1, 1, 0.01});
}

static void make_no_step(example *e)
{
    add_run(e, &(made_run){"Muon", 1, 300, 0, 1, 0.01});
    e->runs[0].nvalidations = 0;
    e->runs[0].nspectra = 0; /* freed below: the record frees what it counts */
    for (size_t i = 0; i < 3; i++)
        train_spectrum_free(&e->runs[0].spectra[i]);
    e->runs[0].sample[0] = 0;
}

/* Everything that may be left out. */
static void make_bare(example *e)
{
    add_run(e, &(made_run){"AdamW", 0, 40, 40, 1, 0.004});
    free(e->runs[0].description);
    free(e->runs[0].sample);
    e->runs[0].description = e->runs[0].sample = NULL;
    e->runs[0].nvalidations = 0;
    e->runs[0].label = NULL;
}

static void make_many(example *e)
{
    static const char *const labels[MOST_RUNS] = {"Muon 0.005", "Muon 0.01",   "Muon 0.02",
                                                  "Muon 0.04",  "AdamW 0.002", "AdamW 0.004",
                                                  "AdamW 0.008"};
    for (int i = 0; i < MOST_RUNS; i++)
        add_run(e, &(made_run){labels[i], i < 4, 600, 600 - 17 * i, i ? 16 : 64, 0.005});
}

static const char hostile[] = "</pre></title><script>alert(\"1\")</script>&amp; 'x' \xff\xc0\x80"
                              "\xed\xa0\x80\xf5\x80\x80\x80 \x1b[31m\x7f \xe2\x80\xae"
                              "drawkcab \xe6\xb5\x8b\xe8\xaf\x95 \xc3";
static const char spaces[] = "                                                                    "
                             "                              an end of a very long line of blanks";

static void make_hostile(example *e)
{
    make_two(e);
    for (size_t i = 0; i < e->count; i++) {
        train_record *r = &e->runs[i];
        r->label =
            i ? "a name that is much too long for a key of a chart but stays readable" : hostile;
        free(r->description);
        free(r->sample);
        r->description = made_text(hostile);
        r->sample = made_text(i ? spaces : hostile);
    }
    train_record *r = &e->runs[0];
    r->steps[100].loss = (double)NAN;
    r->steps[101].loss = HUGE_VAL;
    r->steps[102].loss = 2;
    r->steps[103].loss = -HUGE_VAL;
    r->steps[104].loss = 1e300;
    r->steps[105].lr = 1e-30;
    r->steps[106].grad_norm = (double)NAN;
    r->steps[107].max_logit = 1e38;
    r->steps[108].seconds = 1e12;
    r->steps[109].clipped_heads = INT64_MAX / 4;
    r->ranks[0].seconds.phase[MUON_PHASE_ORTHO] = (double)NAN;
    r->totals.seconds = 1e12;
    r->totals.logit_max = 1e38;
    r->ranks[0].bytes_sent = INT64_MAX;
    r->ranks[1].seconds.model = HUGE_VAL;
    r->validations[3].loss = (double)NAN;
    r->validations[4].loss = 1e200;
    r->skipped = 4;
    r->parameters = INT64_MAX;
    r->spectra[0].name = hostile;
    r->spectra[1].before[5] = (double)NAN;
    for (int i = 0; i < r->spectra[2].count; i++)
        r->spectra[2].before[i] = r->spectra[2].after[i] = 0;
}

static const struct {
    const char *name;
    void (*make)(example *e);
} examples[] = {{"two", make_two},         {"ahead", make_ahead},     {"level", make_level},
                {"stopped", make_stopped}, {"no-loss", make_no_loss}, {"one-step", make_one_step},
                {"no-step", make_no_step}, {"bare", make_bare},       {"many", make_many},
                {"hostile", make_hostile}};

/* ---- what holds for every page ------------------------------------------------------------------ */

/* The data of a page; the caller drops them. */
static json_t *data_of(const char *page)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    const char *from = strstr(page, begin), *end = from ? strstr(from, "</script>") : NULL;
    json_error_t error;
    if (!end) fail_msg("the page has no data");
    from += sizeof begin - 1;
    json_t *data = json_loadb(from, (size_t)(end - from), JSON_REJECT_DUPLICATES, &error);
    if (!data) fail_msg("column %d: %s", error.column, error.text);
    return data;
}

static json_t *data_of_runs(const train_record *runs, size_t nruns)
{
    char *page = report_of(runs, nruns);
    json_t *data = data_of(page);
    free(page);
    return data;
}

/* The value at a path like "runs.0.curves.loss". */
static json_t *at(json_t *data, const char *path)
{
    char key[64];
    const char *begin = path;
    for (int n; *path; path += n + (path[n] == '.')) {
        n = (int)strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", n, path);
        data = json_is_array(data) ? json_array_get(data, (size_t)atoi(key))
                                   : json_object_get(data, key);
        if (!data) fail_msg("there is no %s", begin);
    }
    return data;
}

TEST(every_page_is_sound)
{
    for (size_t i = 0; i < COUNT(examples); i++) {
        example e = {.count = 0};
        examples[i].make(&e);
        char *first = report_of(e.runs, e.count), *second = report_of(e.runs, e.count);
        assert_string_equal(first, second);
        json_t *data = data_of(first);
        assert_int_equal(json_array_size(at(data, "runs")), e.count);
        json_decref(data);
        assert_has_not(first, "<script>alert");
        assert_has_not(first, "https:");
        assert_has_not(first, "src=");
        assert_has_not(first, "@data@");
        /* Besides the data, and both as long as they are: no text has ended one. */
        assert_int_equal(count_of(first, "<script"), 2);
        assert_int_equal(count_of(first, "</script>"), 2);
        free(first);
        free(second);
        free_example(&e);
    }
}

/* ---- what pages say ----------------------------------------------------------------------------- */

TEST(numbers_are_those_of_the_record)
{
    example e = {.count = 0};
    make_two(&e);
    json_t *data = data_of_runs(e.runs, e.count);
    for (size_t i = 0; i < e.count; i++) {
        const train_record *r = &e.runs[i];
        double seconds = 0, model = 0, clipped = 0;
        for (size_t k = 0; k < r->nsteps; k++) {
            seconds += r->steps[k].seconds;
            clipped += (double)r->steps[k].clipped_heads;
        }
        for (int rank = 0; rank < r->nranks; rank++)
            model += r->ranks[rank].seconds.model / (r->nranks * (double)r->nsteps);
        const struct {
            const char *key;
            double want;
        } cases[] = {{"done", 300},
                     {"ranks", 2},
                     {"totals.steps", 300},
                     {"totals.seconds", seconds},
                     {"totals.clipped_heads", clipped},
                     {"totals.lr_max", i ? 0.004 : 0.01},
                     {"tokens", 300 * 4096},
                     {"tokens_per_second", 300 * 4096 / seconds},
                     {"step_seconds", seconds / 300},
                     {"time.model.seconds", model},
                     {"last_loss", r->steps[299].loss},
                     {"final_loss", r->validations[12].loss},
                     {"best.loss", r->best.loss},
                     {"curves.loss.17", r->steps[17].loss},
                     {"curves.step.17", 18},
                     {"curves.end.299", r->steps[299].begin + r->steps[299].seconds},
                     {"validations.loss.3", r->validations[3].loss},
                     {"columns.1.bytes_sent", (double)r->ranks[1].bytes_sent}};
        for (size_t k = 0; k < COUNT(cases); k++) {
            char path[96];
            snprintf(path, sizeof path, "runs.%zu.%s", i, cases[k].key);
            double got = json_number_value(at(data, path)), want = cases[k].want;
            if (fabs(got - want) > 1e-8 * fabs(want))
                fail_msg("%s: got %.9g, want %.9g", path, got, want);
        }
    }
    json_decref(data);
    free_example(&e);
}

TEST(what_is_no_number_is_null)
{
    static const char *const nulls[] = {"curves.loss.100",    "curves.loss.101",
                                        "curves.loss.103",    "curves.grad_norm.106",
                                        "validations.loss.3", "spectra.1.before.5"};
    example e = {.count = 0};
    make_hostile(&e);
    json_t *data = data_of_runs(e.runs, e.count);
    for (size_t i = 0; i < COUNT(nulls); i++) {
        char path[64];
        snprintf(path, sizeof path, "runs.0.%s", nulls[i]);
        if (!json_is_null(at(data, path))) fail_msg("%s is not null", path);
    }
    json_decref(data);
    free_example(&e);
}

TEST(text_is_escaped_and_what_is_not_utf8_is_marked)
{
    example e = {.count = 0};
    make_hostile(&e);
    char *page = report_of(e.runs, e.count);
    assert_has(page, "\\u003c/pre>\\u003c/title>\\u003cscript>alert(");
    json_t *data = data_of(page);
    /* One mark for each byte that is wrong; the page shows control characters as pictures. */
    assert_string_equal(json_string_value(at(data, "runs.0.sample")),
                        "</pre></title><script>alert(\"1\")</script>&amp; 'x' "
                        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd "
                        "\x1b[31m\x7f \xe2\x80\xae"
                        "drawkcab \xe6\xb5\x8b\xe8\xaf\x95 \xef\xbf\xbd");
    json_decref(data);
    free(page);
    free_example(&e);
}

TEST(ranks_have_columns_and_very_many_share_them)
{
    static const struct {
        int ranks;
        size_t columns;
    } cases[] = {{1, 1}, {2, 2}, {64, 64}, {128, 128}, {1000, 128}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        example e = {.count = 0};
        add_run(&e, &(made_run){"Muon", 1, 2, 2, cases[i].ranks, 0.01});
        json_t *data = data_of_runs(e.runs, e.count);
        size_t got = json_array_size(at(data, "runs.0.columns"));
        if (got != cases[i].columns)
            fail_msg("%d ranks: got %zu columns, want %zu", cases[i].ranks, got, cases[i].columns);
        json_decref(data);
        free_example(&e);
    }
}

/* ---- what can go wrong -------------------------------------------------------------------------- */

TEST(a_page_that_cannot_be_written_says_so_and_leaves_nothing)
{
    example e = {.count = 0};
    make_one_step(&e);
    assert_fails(train_report_write(path_of("missing/report.html"), e.runs, 1), MUON_E_IO,
                 "missing/report.html: cannot be written: No such file");
    assert_fails(train_report_write(folder, e.runs, 1), MUON_E_IO, "Is a directory");
    assert_fails(train_report_write("/dev/full", e.runs, 1), MUON_E_IO, "No space left");
    assert_fails(train_report_write("", e.runs, 1), MUON_E_ARG, "needs a name");
    assert_fails(train_report_write(NULL, e.runs, 1), MUON_E_ARG, "needs a path");
    assert_fails(train_report_write(path_of("x"), NULL, 1), MUON_E_ARG, "at least one run");
    assert_fails(train_report_write(path_of("x"), e.runs, 0), MUON_E_ARG, "at least one run");

    /* A directory in place of the file on the way: the old page stays. */
    FILE *old = fopen(path_of("report.html"), "w");
    assert_non_null(old);
    fputs("old", old);
    fclose(old);
    assert_int_equal(mkdir(path_of("report.html.new"), 0700), 0);
    assert_fails(train_report_write(path_of("report.html"), e.runs, 1), MUON_E_IO,
                 "report.html: cannot be written");
    char *text = read_text(path_of("report.html"));
    assert_string_equal(text, "old");
    free(text);
    rmdir(path_of("report.html.new"));
    assert_ok(train_report_write(path_of("report.html"), e.runs, 1));
    assert_int_equal(access(path_of("report.html.new"), F_OK), -1);
    unlink(path_of("report.html"));
    free_example(&e);
}

/* jansson's allocations are counted like ours. */
static void *take(size_t size)
{
    return malloc(size);
}

static void give_back(void *memory)
{
    free(memory);
}

TEST(without_memory_there_is_no_page_and_no_leak)
{
    example e = {.count = 0};
    make_one_step(&e);
    json_set_alloc_funcs(take, give_back);
    int64_t k = 0;
    muon_status status;
    do {
        char path[4096];
        snprintf(path, sizeof path, "%s", path_of("report.html"));
        testlib_allow_allocations(k);
        status = train_report_write(path, e.runs, e.count);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        assert_int_equal(access(path, F_OK), -1);
        k++;
    } while (k < 10000);
    json_set_alloc_funcs(malloc, free);
    assert_int_equal(status, MUON_OK);
    assert_true(k > 100);
    unlink(path_of("report.html"));
    free_example(&e);
}

/* ---- running ------------------------------------------------------------------------------------ */

static void make_folder(void)
{
    assert_non_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    assert_int_equal(rmdir(folder), 0);
}

AROUND_ALL(make_folder, remove_folder)

static int write_examples(const char *dir)
{
    for (size_t i = 0; i < COUNT(examples); i++) {
        char path[4096];
        example e = {.count = 0};
        examples[i].make(&e);
        snprintf(path, sizeof path, "%s/%s.html", dir, examples[i].name);
        muon_status status = train_report_write(path, e.runs, e.count);
        free_example(&e);
        if (status != MUON_OK) {
            fprintf(stderr, "%s\n", muon_last_error());
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--examples") == 0) return write_examples(argv[2]);
    return testlib_run();
}
