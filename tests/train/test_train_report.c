/* test_train_report.c - the report of a training run, as text.
 *
 *     test_train_report --examples DIR    write pages for scripts/check-report to look at
 */
#include "tests/train/train_records.h"

#include "train/report/report.h"
#include "train/report/text.h"

#include <errno.h>
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
    r->rank_steps[50].model = (double)NAN;
    r->rank_steps[51].phase[MUON_PHASE_ORTHO] = -1;
    r->ranks[0].bytes_sent = INT64_MAX;
    r->ranks[1].model_seconds = HUGE_VAL;
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
} examples[] = {{"two", make_two},   {"one-step", make_one_step}, {"no-step", make_no_step},
                {"bare", make_bare}, {"many", make_many},         {"hostile", make_hostile}};

/* ---- what holds for every page ------------------------------------------------------------------ */

static void check_utf8(const char *text)
{
    while (*text) {
        uint32_t rune;
        const char *at = text;
        text += page_rune(text, &rune);
        /* What the page writes for what it does not know is that character itself. */
        if (rune == PAGE_UNKNOWN && strncmp(at, "\xef\xbf\xbd", 3) != 0)
            fail_msg("not UTF-8: byte %02x before %.40s", (unsigned char)*at, text);
    }
}

/* Tags are closed in the order in which they were opened. */
static void check_tags(const char *html)
{
    static const char *const bodiless[] = {"!doctype", "meta"};
    char open[64][16];
    int depth = 0;
    for (const char *at = html; (at = strchr(at, '<')); at++) {
        char name[16];
        int closes = at[1] == '/', length = 0;
        const char *end = strchr(at, '>'), *first = at + 1 + closes;
        if (!end) fail_msg("a tag without an end: %.40s", at);
        while (length < 15 && !strchr(" >/\n", first[length]))
            length++;
        snprintf(name, sizeof name, "%.*s", length, first);
        if (closes) {
            if (depth == 0 || strcmp(open[--depth], name) != 0)
                fail_msg("</%s> after <%s>", name, depth ? open[depth] : "nothing");
        } else if (end[-1] != '/' && strcmp(name, bodiless[0]) != 0 &&
                   strcmp(name, bodiless[1]) != 0) {
            assert_true(depth < 64);
            snprintf(open[depth++], sizeof open[0], "%s", name);
        }
        if (strcmp(name, "script") == 0 && !closes) end = strstr(end, "</script>") - 1;
        at = end;
    }
    if (depth) fail_msg("<%s> is not closed", open[depth - 1]);
}

TEST(every_page_is_sound)
{
    for (size_t i = 0; i < COUNT(examples); i++) {
        example e = {.count = 0};
        examples[i].make(&e);
        char *first = report_of(e.runs, e.count), *second = report_of(e.runs, e.count);
        assert_string_equal(first, second);
        check_utf8(first);
        check_tags(first);
        assert_has_not(first, "nan");
        assert_has_not(first, "\"inf");
        assert_has_not(first, "-inf");
        assert_has_not(first, "<script>alert");
        assert_has_not(first, "http:");
        assert_has_not(first, "https:");
        assert_has_not(first, "src=");
        assert_int_equal(count_of(first, "<script>"), 1);
        assert_int_equal(count_of(first, "role=\"img\""), count_of(first, "<desc id="));
        free(first);
        free(second);
        free_example(&e);
    }
}

/* ---- what pages say ----------------------------------------------------------------------------- */

TEST(the_page_says_who_is_ahead_and_how_much_sooner)
{
    example e = {.count = 0};
    make_two(&e);
    /* Down by 0.1 in each 25 steps: 4, 3.9, ... 2.8; the other one falls half as fast, to 3.4. */
    for (size_t i = 0; i < 13; i++) {
        e.runs[0].validations[i].loss = 4 - 0.1 * (double)i;
        e.runs[1].validations[i].loss = 4 - 0.05 * (double)i - (i == 12 ? 0.01 : 0);
    }
    char *page = report_of(e.runs, e.count);
    assert_has(page, "<strong>Muon is ahead of AdamW by 0.5900</strong>");
    assert_has(page, "validation loss of 2.8000 against 3.3900 nats per byte");
    assert_has(page, "after about 153 steps, 147 steps (49 %) sooner");
    free(page);

    /* Whoever is ahead is, whichever comes first. */
    train_record swapped[] = {e.runs[1], e.runs[0]};
    page = report_of(swapped, 2);
    assert_has(page, "<strong>Muon is ahead of AdamW by 0.5900</strong>");
    free(page);

    e.runs[1].validations[12].loss = e.runs[0].validations[12].loss;
    page = report_of(e.runs, e.count);
    assert_has(page, "Muon and AdamW end level");
    free(page);
    free_example(&e);
}

TEST(the_page_tells_of_stopped_and_skipped_steps)
{
    example e = {.count = 0};
    add_run(&e, &(made_run){"Muon", 1, 300, 120, 1, 0.01});
    e.runs[0].skipped = 3;
    char *page = report_of(e.runs, e.count);
    assert_has(page, "Muon was stopped after 120 of 300 steps.");
    assert_has(page, "Muon skipped 3 steps that had a NaN or infinity.");
    assert_has(page, "One rank did all of the work");
    free(page);
    free_example(&e);
}

TEST(a_run_without_a_loss_is_no_match)
{
    example e = {.count = 0};
    make_two(&e);
    for (size_t i = 0; i < e.runs[0].nsteps; i++)
        e.runs[0].steps[i].loss = (double)NAN;
    for (size_t i = 0; i < e.runs[0].nvalidations; i++)
        e.runs[0].validations[i].loss = (double)NAN;
    char *page = report_of(e.runs, e.count);
    assert_has(page, "AdamW ended at a validation loss of");
    assert_has_not(page, "ahead of");
    free(page);
    free_example(&e);
}

TEST(text_is_escaped_and_what_is_not_utf8_is_marked)
{
    example e = {.count = 0};
    make_hostile(&e);
    char *page = report_of(e.runs, e.count);
    assert_has(page, "<pre>\n&lt;/pre&gt;&lt;/title&gt;&lt;script&gt;alert(&quot;1&quot;)"
                     "&lt;/script&gt;&amp;amp; &#39;x&#39; ");
    /* One mark for each byte that is wrong, pictures of control characters, no override of the
     * direction, and other writing as it is. */
    assert_has(page, "&#39;x&#39; \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                     "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd "
                     "\xe2\x90\x9b[31m\xe2\x90\xa1 \xef\xbf\xbd"
                     "drawkcab \xe6\xb5\x8b\xe8\xaf\x95 \xef\xbf\xbd</pre>");
    free(page);
    free_example(&e);
}

TEST(a_line_has_a_point_for_each_step_and_gaps_where_there_is_none)
{
    example e = {.count = 0};
    make_two(&e);
    e.runs[0].steps[10].loss = e.runs[0].steps[200].loss = (double)NAN;
    char *page = report_of(e.runs, e.count);
    /* Single batches and their mean, in the chart of all and, from step 150 on, of the second half. */
    assert_int_equal(count_of(page, "data-points=\"298\""), 2);
    assert_int_equal(count_of(page, "data-points=\"150\""), 2);
    assert_int_equal(count_of(page, "data-points=\"151\""), 2);
    /* AdamW's loss twice; rate, norm, logit and clipped heads of both. */
    assert_int_equal(count_of(page, "data-points=\"300\""), 2 + 4 * 2);
    assert_int_equal(count_of(page, "data-points=\"13\""), 2); /* validations */
    const char *line = strstr(page, "class=\"faint s0\"");
    assert_non_null(line);
    char *first = made_text(line);
    *strstr(first, "/>") = 0;
    assert_int_equal(count_of(first, "M"), 3); /* pieces */
    free(first);
    free(page);
    free_example(&e);
}

TEST(a_long_run_is_thinned_but_keeps_its_peaks)
{
    example e = {.count = 0};
    add_run(&e, &(made_run){"Muon", 1, 20000, 20000, 1, 0.01});
    e.runs[0].steps[13333].loss = 9;
    e.runs[0].steps[17777].loss = 0.5;
    char *page = report_of(e.runs, e.count);
    if (strlen(page) > 400000) fail_msg("%zu bytes", strlen(page));
    assert_has(page, "values from 0.5000 to 9.000");
    const char *line = strstr(page, "class=\"faint s0\"");
    assert_non_null(line);
    /* From 0 to 10: 9 is a tenth from the top, 0.5 a twentieth from the bottom. */
    const char *high = strstr(line, " 100.00"), *low = strstr(line, " 950.00");
    assert_true(high && high < strstr(line, "/>"));
    assert_true(low && low < strstr(line, "/>"));
    free(page);
    free_example(&e);
}

TEST(ranks_have_columns_and_very_many_share_them)
{
    static const struct {
        int ranks;
        size_t columns;
    } cases[] = {{1, 0}, {2, 2}, {64, 64}, {128, 128}, {1000, 128}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        example e = {.count = 0};
        add_run(&e, &(made_run){"Muon", 1, 2, 2, cases[i].ranks, 0.01});
        char *page = report_of(e.runs, e.count);
        size_t got = count_of(page, "class=\"bar bytes\"");
        if (got != cases[i].columns)
            fail_msg("%d ranks: got %zu columns, want %zu", cases[i].ranks, got, cases[i].columns);
        free(page);
        free_example(&e);
    }
}

TEST(numbers_are_written_as_people_write_them)
{
    const struct {
        page_word got;
        const char *want;
    } cases[] = {
        {page_number(0, 3), "0.00"},
        {page_number(0.99996, 4), "1.000"},
        {page_number(5e-324, 3), "4.94e-324"},
        {page_number(1234.6, 3), "1235"},
        {page_number(0.012345, 3), "0.0123"},
        {page_number(-1.5e-8, 2), "-1.5e-8"},
        {page_number(1e300, 3), "1.00e300"},
        {page_number((double)NAN, 3), "not a number"},
        {page_number(-HUGE_VAL, 3), "minus infinite"},
        {page_loss(1.84231), "1.8423"},
        {page_loss(123456), "1.235e+05"},
        {page_seconds(0), "0 ns"},
        {page_seconds(1.5e-6), "1.50 µs"},
        {page_seconds(0.0123), "12.3 ms"},
        {page_seconds(0.9999), "1.00 s"},
        {page_seconds(99.9), "99.9 s"},
        {page_seconds(125.4), "2 min 5 s"},
        {page_seconds(7265), "2 h 1 min"},
        {page_seconds(1e12), "277,777,778 h"},
        {page_seconds(HUGE_VAL), "infinite"},
        {page_bytes(0), "0 B"},
        {page_bytes(999), "999 B"},
        {page_bytes(1536000), "1.54 MB"},
        {page_bytes(9.3e18), "9.3e+03 PB"},
        {page_count(0), "0"},
        {page_count(999), "999"},
        {page_count(1234567), "1,234,567"},
        {page_count(-1000), "-1,000"},
        {page_count(1e30), "1e+30"},
        {page_short(2.5e9), "2.50 G"},
        {page_percent(0.0444), "4.4 %"},
        {page_percent(0.123), "12 %"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        if (strcmp(cases[i].got.text, cases[i].want) != 0)
            fail_msg("case %zu: got '%s', want '%s'", i, cases[i].got.text, cases[i].want);
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

TEST(without_memory_there_is_no_page_and_no_leak)
{
    example e = {.count = 0};
    make_two(&e);
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
    assert_int_equal(status, MUON_OK);
    assert_true(k > 10);
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
