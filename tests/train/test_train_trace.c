/* test_train_trace.c - the trace of a training run, read back as the viewers read it. */
#include "tests/train/train_records.h"

#include "train/run/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

static char folder[] = "/tmp/muon-test-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A trace is written while the run goes on. */
static void follow(void *user, const train_record *run)
{
    trace **t = user;
    if (!*t) assert_ok(train_trace_open(t, path_of("trace.json"), run));
    assert_int_equal(access(path_of("trace.json"), F_OK), -1); /* not before it is complete */
    train_trace_step(*t, run);
}

/* The events of a run's trace; the caller drops the root. */
static json_t *trace_of(const made_run *how, void (*change)(train_step *, train_rank_step *),
                        json_t **events)
{
    json_error_t error;
    trace *t = NULL;
    train_record run =
        made_watched(how, &(made_watch){.change = change, .look = follow, .user = &t});
    train_record_free(&run);
    assert_ok(train_trace_close(t, MUON_OK));
    json_t *root = json_load_file(path_of("trace.json"), JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("line %d: %s", error.line, error.text);
    unlink(path_of("trace.json"));
    *events = json_object_get(root, "traceEvents");
    assert_true(json_is_array(*events));
    return root;
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static int is(const json_t *event, const char *kind, int process)
{
    return strcmp(text_of(event, "ph"), kind) == 0 &&
           json_integer_value(json_object_get(event, "pid")) == process;
}

/* In nanoseconds, exactly. */
static int64_t time_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    if (!json_is_number(value)) fail_msg("%s has no %s", text_of(event, "name"), key);
    return (int64_t)llround(json_number_value(value) * 1000);
}

/* Slices of a process come in the order in which they begin; each is inside of the one that is open or
 * begins when it is over. Counts those at each depth. */
static void check_nesting(const json_t *events, int process, size_t depths[4])
{
    struct {
        int64_t begin, end;
    } open[4];
    size_t i, depth = 0;
    int64_t last = 0;
    json_t *event;
    memset(depths, 0, 4 * sizeof *depths);
    json_array_foreach(events, i, event)
    {
        if (!is(event, "X", process)) continue;
        int64_t begin = time_of(event, "ts"), end = begin + time_of(event, "dur");
        if (begin < last) fail_msg("slice %zu begins before the one in front of it", i);
        last = begin;
        while (depth > 0 && begin >= open[depth - 1].end)
            depth--;
        if (depth > 0 && end > open[depth - 1].end)
            fail_msg("slice %zu (%s) ends at %lld, what it is in at %lld", i,
                     text_of(event, "name"), (long long)end, (long long)open[depth - 1].end);
        assert_true(depth < 4);
        depths[depth]++;
        open[depth].begin = begin;
        open[depth++].end = end;
    }
}

TEST(slices_nest_on_every_rank)
{
    static const int ranks[] = {1, 2, 64};
    for (size_t i = 0; i < COUNT(ranks); i++) {
        made_run how = {"Muon", 1, 20, 20, ranks[i], 0.01};
        json_t *events, *root = trace_of(&how, NULL, &events);
        for (int rank = 0; rank < ranks[i]; rank++) {
            size_t depths[4];
            check_nesting(events, rank + 1, depths);
            assert_int_equal(depths[0], 20);                          /* steps */
            assert_int_equal(depths[1], 20 * (ranks[i] > 1 ? 4 : 2)); /* parts */
            assert_int_equal(depths[2], 20 * (ranks[i] > 1 ? 8 : 6)); /* phases */
        }
        json_decref(root);
    }
}

/* Clocks of ranks differ, phases may add up to more than the step they are in, and numbers may be
 * none. */
static void disturb(train_step *step, train_rank_step *ranks)
{
    int i = (int)step->step - 1;
    step->begin *= 0.7; /* before the last one is over */
    ranks[0].phase[MUON_PHASE_ORTHO] *= 3;
    ranks[1].phase[i % MUON_NPHASES] = i % 3 ? (double)NAN : -1;
    if (i == 2) ranks[0].optimizer = HUGE_VAL;
    if (i == 7) step->begin = (double)NAN;
}

TEST(slices_nest_whatever_clocks_say)
{
    made_run how = {"Muon", 1, 50, 50, 2, 0.01};
    size_t depths[4];
    json_t *events, *root = trace_of(&how, disturb, &events);
    for (int rank = 0; rank < 2; rank++) {
        check_nesting(events, rank + 1, depths);
        assert_int_equal(depths[0], 50);
        assert_int_equal(depths[3], 0);
    }
    json_decref(root);
}

TEST(processes_are_named_for_their_ranks)
{
    made_run how = {"Mu\"on\\\n\xff", 1, 2, 2, 2, 0.01};
    json_t *events, *root = trace_of(&how, NULL, &events), *event;
    static const char *const want[] = {"Mu\"on\\\n\xef\xbf\xbd, rank 0",
                                       "Mu\"on\\\n\xef\xbf\xbd, rank 1",
                                       "Mu\"on\\\n\xef\xbf\xbd, numbers"};
    size_t i, found = 0;
    json_array_foreach(events, i, event)
    {
        if (strcmp(text_of(event, "name"), "process_name") != 0) continue;
        const char *name = text_of(json_object_get(event, "args"), "name");
        assert_true(found < 3);
        assert_string_equal(name, want[found]);
        assert_int_equal(json_integer_value(json_object_get(event, "pid")), found + 1);
        found++;
    }
    assert_int_equal(found, 3);
    json_decref(root);
}

static void lose_losses(train_step *step, train_rank_step *ranks)
{
    (void)ranks;
    if (step->step == 4) step->loss = (double)NAN;
    if (step->step == 5) step->loss = HUGE_VAL;
}

TEST(counters_have_every_finite_number_in_order)
{
    made_run how = {"Muon", 1, 60, 60, 1, 0.01};
    json_t *events, *root = trace_of(&how, lose_losses, &events), *event;
    static const struct {
        const char *name;
        size_t want;
    } cases[] = {
        {"loss", 58}, {"learning rate", 60}, {"gradient norm", 60}, {"validation loss", 4}};
    for (size_t c = 0; c < COUNT(cases); c++) {
        size_t i, got = 0;
        int64_t last = -1;
        json_array_foreach(events, i, event)
        {
            if (!is(event, "C", 2) || strcmp(text_of(event, "name"), cases[c].name) != 0) continue;
            assert_true(json_is_number(json_object_get(json_object_get(event, "args"), "value")));
            assert_true(time_of(event, "ts") >= last);
            last = time_of(event, "ts");
            got++;
        }
        if (got != cases[c].want)
            fail_msg("%s: got %zu, want %zu", cases[c].name, got, cases[c].want);
    }
    json_decref(root);
}

/* More steps than any record keeps. */
TEST(a_long_run_has_a_slice_for_every_step)
{
    made_run how = {"Muon", 1, 2 * TRAIN_HISTORY + 5, 2 * TRAIN_HISTORY + 5, 1, 0.01};
    size_t depths[4];
    json_t *events, *root = trace_of(&how, NULL, &events);
    check_nesting(events, 1, depths);
    assert_int_equal(depths[0], 2 * TRAIN_HISTORY + 5);
    json_decref(root);
}

TEST(a_trace_that_cannot_be_written_says_so)
{
    train_record run = {.nranks = 0};
    trace *t = NULL;
    assert_fails(train_trace_open(&t, path_of("missing/trace.json"), &run), MUON_E_IO,
                 "missing/trace.json: cannot be written");
    assert_ok(train_trace_open(&t, "/dev/full", &run));
    assert_fails(train_trace_close(t, MUON_OK), MUON_E_IO, "No space left");
    assert_fails(train_trace_open(&t, NULL, &run), MUON_E_ARG, "path");
    assert_fails(train_trace_open(&t, path_of("x"), NULL), MUON_E_ARG, "run");
    muon_status status = MUON_E_NOMEM;
    for (int64_t k = 0; status != MUON_OK; k++) {
        assert_int_equal(status, MUON_E_NOMEM);
        testlib_allow_allocations(k);
        status = train_trace_open(&t, path_of("x"), &run);
        testlib_allow_allocations(-1);
    }
    /* What is not complete leaves nothing. */
    assert_int_equal(train_trace_close(t, MUON_E_IO), MUON_E_IO);
    assert_int_equal(access(path_of("x"), F_OK) & access(path_of("x.new"), F_OK), -1);
    assert_ok(train_trace_close(NULL, MUON_OK));
}

static void make_folder(void)
{
    assert_non_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    assert_int_equal(rmdir(folder), 0);
}

AROUND_ALL(make_folder, remove_folder)
