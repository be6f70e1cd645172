/* test_train_data.c - what a run learns from, and how fast: the text, its sequences, the schedule, and the
 * text that a model writes. */
#include "tests/support/testlib.h"
#include "train/model/sample.h"
#include "train/run/schedule.h"
#include "train/run/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 16 };

/* ---- files -------------------------------------------------------------------------------------- */

static char path[] = "/tmp/test_train_data.XXXXXX";

/* A file whose bytes count up. */
static const char *make_file(size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < length; i++)
        fputc((int)(i % 251), file);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void make_path(void)
{
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
}

static void remove_path(void)
{
    assert_int_equal(unlink(path), 0);
}

TEST(the_last_tenth_is_for_validation)
{
    static const struct {
        int64_t length, train, validation;
    } cases[] = {
        {2 * (CONTEXT + 1), CONTEXT + 1, CONTEXT + 1}, /* the least there can be */
        {100, 83, 17},                                 /* a tenth would be no sequence */
        {170, 153, 17},
        {179, 162, 17},
        {180, 162, 18},
        {100000, 90000, 10000},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        text t;
        assert_ok(text_open(&t, make_file((size_t)cases[i].length), CONTEXT));
        if (t.train != cases[i].train || t.validation != cases[i].validation)
            fail_msg("%lld bytes: got %lld and %lld, want %lld and %lld",
                     (long long)cases[i].length, (long long)t.train, (long long)t.validation,
                     (long long)cases[i].train, (long long)cases[i].validation);
        for (int64_t b = 0; b < cases[i].length; b++)
            assert_int_equal(t.bytes[b], b % 251);
        text_close(&t);
    }
}

TEST(too_little_text_is_refused_with_numbers)
{
    static const int lengths[] = {0, 1, CONTEXT, 2 * CONTEXT + 1};
    text t;
    for (size_t i = 0; i < COUNT(lengths); i++) {
        char want[128];
        snprintf(want, sizeof want, "%d bytes; with a context of 16 at least 34 are needed, 17 to",
                 lengths[i]);
        assert_fails(text_open(&t, make_file((size_t)lengths[i]), CONTEXT), MUON_E_VALUE, want);
    }
    assert_fails(text_open(&t, "/no/such/file", CONTEXT), MUON_E_IO,
                 "/no/such/file: cannot be opened: No such file");
    assert_fails(text_open(&t, "/", CONTEXT), MUON_E_IO, "/: cannot be read: Is a directory");
}

TEST(no_memory_for_a_text_is_an_error)
{
    text t;
    make_file(200000); /* its memory grows twice */
    for (int64_t k = 1;; k++) {
        testlib_fail_allocation(k);
        muon_status status = text_open(&t, path, CONTEXT);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        assert_non_null(strstr(muon_last_error(), "no memory for"));
        assert_true(k < 10);
    }
    testlib_fail_allocation(0);
    assert_int_equal(t.train + t.validation, 200000);
    text_close(&t);
}

/* The losses in the documentation are those of this text. */
TEST(the_built_in_text_never_changes)
{
    text t;
    assert_ok(text_open(&t, NULL, 1024));
    assert_int_equal(t.train + t.validation, 2007965);
    assert_true(text_hash(&t) == 0x413f8e769183f387u);
    text_close(&t);
}

TEST(another_byte_gives_another_hash)
{
    text a, b;
    assert_ok(text_open(&a, make_file(1000), CONTEXT));
    assert_ok(text_open(&b, path, CONTEXT));
    assert_true(text_hash(&a) == text_hash(&b));
    b.memory[999]++;
    assert_true(text_hash(&a) != text_hash(&b));
    text_close(&a);
    text_close(&b);
}

/* ---- sequences ---------------------------------------------------------------------------------- */

/* Where in a text that counts up, of less than 251 bytes, a sequence begins; checks that it goes on. */
static int begin_of(const uint8_t *tokens, const uint8_t *next)
{
    for (int i = 0; i < CONTEXT; i++) {
        assert_int_equal(tokens[i], tokens[0] + i);
        assert_int_equal(next[i], tokens[i] + 1);
    }
    return tokens[0];
}

TEST(sequences_are_drawn_by_seed_step_and_number)
{
    text t;
    assert_ok(text_open(&t, make_file(240), CONTEXT));
    enum { DRAWS = 20000 };
    int counts[256] = {0}, last = (int)t.train - CONTEXT - 1;
    for (int i = 0; i < DRAWS; i++) {
        uint8_t tokens[2][CONTEXT], next[2][CONTEXT];
        for (int k = 0; k < 2; k++)
            text_sequence(&t, 7, i / 100, i % 100, CONTEXT, tokens[k], next[k]);
        assert_memory_equal(tokens[0], tokens[1], CONTEXT);
        counts[begin_of(tokens[0], next[0])]++;
    }
    /* Every place is drawn, about as often as any other, and none beyond the training part. */
    int places = last + 1, expected = DRAWS / places;
    for (int i = 0; i < 256; i++)
        if (i <= last ? abs(counts[i] - expected) > expected / 2 : counts[i] > 0)
            fail_msg("place %d of %d: %d times, want about %d", i, places, counts[i], expected);
    text_close(&t);
}

TEST(seed_step_and_number_all_count)
{
    uint64_t base = text_draw(1, 2, 3);
    assert_true(base == text_draw(1, 2, 3));
    assert_true(base != text_draw(2, 2, 3));
    assert_true(base != text_draw(1, 3, 3));
    assert_true(base != text_draw(1, 2, 4));
    assert_true(text_draw(1, 2, 3) != text_draw(1, 3, 2));
    assert_true(text_draw(1, 2, 3) != text_draw(2, 1, 3));
}

TEST(validation_is_spread_over_its_part)
{
    text t;
    assert_ok(text_open(&t, make_file(240), CONTEXT)); /* 24 of them for validation */
    assert_int_equal(text_validations(&t, CONTEXT, 64), 1);
    t.train -= 80; /* more of it */
    t.validation += 80;
    static const struct {
        int64_t most, count;
    } cases[] = {{1, 1}, {2, 2}, {5, 5}, {6, 6}, {7, 6}, {64, 6}}; /* 103 places / 16 */
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t count = text_validations(&t, CONTEXT, cases[i].most);
        assert_int_equal(count, cases[i].count);
        int before = (int)t.train - CONTEXT;
        for (int64_t k = 0; k < count; k++) {
            uint8_t tokens[CONTEXT], next[CONTEXT];
            text_validation(&t, k, count, CONTEXT, tokens, next);
            int begin = begin_of(tokens, next);
            if (begin < before + CONTEXT)
                fail_msg("sequence %lld of %lld begins at %d, the one before at %d", (long long)k,
                         (long long)count, begin, before);
            before = begin;
        }
        if (count > 1) assert_int_equal(before, 240 - CONTEXT - 1); /* to the very end */
    }
    text_close(&t);
}

/* ---- the schedule ------------------------------------------------------------------------------- */

TEST(the_learning_rate_rises_stays_and_falls)
{
    static const struct {
        schedule s;
        int64_t step;
        double want;
    } cases[] = {
        {{100, 0.1, 0.2, 0}, 1, 0.1},
        {{100, 0.1, 0.2, 0}, 9, 0.9},
        {{100, 0.1, 0.2, 0}, 10, 1},
        {{100, 0.1, 0.2, 0}, 11, 1},
        {{100, 0.1, 0.2, 0}, 80, 1},
        {{100, 0.1, 0.2, 0}, 81, 20.0 / 21},
        {{100, 0.1, 0.2, 0}, 100, 1.0 / 21},
        {{100, 0.1, 0.2, 0.1}, 100, 0.1 + 0.9 / 21},
        {{100, 0, 0, 0}, 1, 1},
        {{100, 0, 0, 0}, 100, 1},
        {{100, 0.5, 0.5, 0}, 50, 1},
        {{100, 0.5, 0.5, 0}, 51, 50.0 / 51},
        {{100, 1, 0, 0}, 100, 1},
        {{100, 0, 1, 1}, 70, 1},
        {{1, 0.5, 0.5, 0}, 1, 1},
        {{3, 0.1, 0.1, 0}, 3, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_ok(schedule_check(&cases[i].s));
        double got = schedule_factor(&cases[i].s, cases[i].step);
        testlib_assert_error(fabs(got - cases[i].want), 1e-15, "case %zu: got %.17g, want %.17g", i,
                             got, cases[i].want);
    }
}

TEST(the_learning_rate_is_never_zero)
{
    for (int steps = 1; steps < 60; steps++)
        for (int part = 0; part <= 10; part++) {
            schedule s = {steps, 0.1 * part, 1 - 0.1 * part, 0};
            for (int64_t step = 1; step <= steps; step++) {
                double factor = schedule_factor(&s, step);
                if (!(factor > 0 && factor <= 1))
                    fail_msg("%d steps, warmup %g: %g in step %lld", steps, s.warmup, factor,
                             (long long)step);
            }
        }
}

TEST(bad_schedules_are_refused)
{
    assert_fails(schedule_check(&(schedule){0, 0, 0, 0}), MUON_E_VALUE, "0 steps");
    assert_fails(schedule_check(&(schedule){9, 0.6, 0.5, 0}), MUON_E_VALUE,
                 "warmup 0.6 and decay 0.5");
    assert_fails(schedule_check(&(schedule){9, -0.1, 0.5, 0}), MUON_E_VALUE, "warmup -0.1");
    assert_fails(schedule_check(&(schedule){9, (double)NAN, 0, 0}), MUON_E_VALUE, "warmup nan");
    assert_fails(schedule_check(&(schedule){9, 0, 0, 1.5}), MUON_E_VALUE, "ends at 1.5");
}

/* ---- samples ------------------------------------------------------------------------------------ */

TEST(what_cannot_be_printed_becomes_a_question_mark)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"", ""},
        {"plain\n\ttext", "plain\n\ttext"},
        {"\x1b[2J\r\x7f", "?[2J??"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc3", "?"},                       /* cut short */
        {"\xe2\x82", "??"},                  /* the same */
        {"\x80 \xbf", "? ?"},                /* a middle without a beginning */
        {"\xc0\xaf \xe0\x80\xaf", "?? ???"}, /* longer than needed */
        {"\xed\xa0\x80", "???"},             /* a surrogate */
        {"\xf4\x90\x80\x80 \xff", "???? ?"}, /* beyond the last character */
        {"\xc2\x9b", "??"},                  /* a control */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char got[64];
        strcpy(got, cases[i].in);
        sample_make_printable(got);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("case %zu: got \"%s\", want \"%s\"", i, got, cases[i].want);
    }
}

typedef struct writer {
    model *m;
    float **weights;
    size_t count;
} writer;

static const model_config tiny = {.layers = 1,
                                  .width = 16,
                                  .context = 8,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .head_dim = 8,
                                  .hidden = 24,
                                  .rope_theta = 10000,
                                  .norm_eps = 1e-5};

static writer make_writer(void)
{
    writer w = {.m = model_create(&tiny, 1, 1)};
    assert_non_null(w.m);
    w.count = model_ntensors(w.m);
    w.weights = calloc(w.count, sizeof *w.weights);
    assert_non_null(w.weights);
    for (size_t i = 0; i < w.count; i++) {
        int64_t numel = model_tensor_at(w.m, i)->numel;
        w.weights[i] = calloc((size_t)numel, sizeof **w.weights);
        assert_non_null(w.weights[i]);
        model_fill(w.m, i, w.weights[i], 0, numel, 1);
    }
    return w;
}

static void free_writer(writer *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->weights[i]);
    free(w->weights);
    model_destroy(w->m);
}

static char *write_text(const writer *w, sample_settings settings)
{
    char *written = NULL;
    assert_ok(
        sample_text(&written, w->m, (const float *const *)w->weights, tiny.context, &settings));
    return written;
}

TEST(a_sample_follows_its_prompt_and_its_seed)
{
    writer w = make_writer();
    /* Prompts around the context's length; the sample goes far beyond it. */
    static const char *const prompts[] = {"a", "1234567", "12345678", "123456789",
                                          "a long prompt "};
    for (size_t i = 0; i < COUNT(prompts); i++) {
        sample_settings settings = {.bytes = 40, .temperature = 1, .prompt = prompts[i], .seed = 3};
        char *first = write_text(&w, settings), *again = write_text(&w, settings);
        settings.seed = 4;
        char *other = write_text(&w, settings);
        assert_int_equal(strncmp(first, prompts[i], strlen(prompts[i])), 0);
        assert_int_equal(strlen(first), strlen(prompts[i]) + 40);
        assert_string_equal(first, again);
        assert_string_not_equal(first, other);
        free(first);
        free(again);
        free(other);
    }
    sample_settings nothing = {.bytes = 0, .prompt = ""};
    char *empty = write_text(&w, nothing);
    assert_string_equal(empty, "\n");
    free(empty);
    free_writer(&w);
}

TEST(without_temperature_the_likeliest_byte_is_taken)
{
    writer w = make_writer();
    sample_settings settings = {.bytes = 3, .temperature = 0, .prompt = "ab", .seed = 1};
    char *written = write_text(&w, settings);
    for (int i = 2; i < 5; i++) {
        float logits[MODEL_VOCABULARY];
        int best = 0;
        model_next(w.m, (const float *const *)w.weights, (const uint8_t *)written, i, logits);
        for (int k = 1; k < MODEL_VOCABULARY; k++)
            if (logits[k] > logits[best]) best = k;
        char want[] = {(char)best, 0};
        if (best == 0) want[0] = '?';
        sample_make_printable(want);
        assert_int_equal(written[i], want[0]);
        if (written[i] != (char)best) break; /* what follows was written after another byte */
    }
    free(written);
    free_writer(&w);
}

AROUND_ALL(make_path, remove_path)
