/* test_train_resume.c - what a run that goes on finds different from when it was saved, and what it reads
 * from the checkpoint besides tensors. */
#include "tests/train/train_saves.h"
#include "train/run/metrics.h"
#include "train/run/state.h"

/* ---- what has changed --------------------------------------------------------------------------- */

TEST(what_may_change_is_noted_with_both_values)
{
    place here = place_of("here");
    lines l;
    train_settings s = settings_of(&dense, 4);
    s.saving = (train_saving){.dir = here.path, .resume = 1};
    free_part(run_part(1, &s, TO_ITS_END));
    s.schedule.steps = 5;
    s.schedule.final = 0.25;
    s.batch = 14;
    s.micro_batch = 4;
    s.seed = 2;
    s.optimizer.lr = 0.02;
    s.optimizer.clip_norm = 2;
    s.optimizer.qk_clip = 3;
    s.model.context = 11;
    s.model.balance = 0.5;
    s.data = NULL;
    part *p = run_and_listen(s, TO_ITS_END, &l);
    static const char *const said[] = {
        "Muon: steps was 4 until step 4, and is now 5",
        "final_lr was 0 until step 4, and is now 0.25",
        "batch was 13 until step 4, and is now 14",
        "micro_batch was 3 until step 4, and is now 4",
        "seed was 1 until step 4, and is now 2",
        "lr was 0.01",
        "clip was 1 until step 4, and is now 2",
        "qk_clip was 0 until step 4, and is now 3",
        "context was 12 until step 4, and is now 11",
        "balance was 0 until step 4, and is now 0.5",
        "text was ",
    };
    for (size_t i = 0; i < COUNT(said); i++)
        assert_said(&l, said[i]);
    assert_int_equal(l.warnings, COUNT(said));
    /* And the new values hold. */
    assert_true(p->out[0].record.steps[0].lr > 0.005);
    assert_int_equal(p->out[0].record.tokens_per_step, 14 * 11);
    assert_int_equal(p->out[0].record.tokens_before, 4 * 13 * 12);
    free_part(p);
}

TEST(another_number_of_ranks_is_noted_unless_it_makes_no_difference)
{
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        place here = place_of("here");
        lines l;
        train_settings s = settings_of(&dense, 2);
        s.deterministic = deterministic;
        s.saving = (train_saving){.dir = here.path, .resume = 1};
        free_part(run_part(2, &s, TO_ITS_END));
        s.schedule.steps = 3;
        free_part(run_and_listen(s, TO_ITS_END, &l));
        assert_int_equal(strstr(l.text, "units was 2 until step 2, and is now 1") != NULL,
                         !deterministic);
    }
}

static void refuse(const train_settings *s, muon_status status, const char *message)
{
    train_run *run = NULL;
    train_record record = {0};
    assert_fails(train_run_create(&run, s, NULL, &record), status, message);
    assert_null(run);
    train_record_free(&record);
}

TEST(another_model_is_refused_with_both_values)
{
    place here = place_of("here");
    train_settings s = settings_of(&dense, 4), other;
    s.saving = (train_saving){.dir = here.path, .resume = 1};
    free_part(run_part(1, &s, TO_ITS_END));
    other = s;
    other.model.layers = 3;
    other.model.width = 18;
    refuse(&other, MUON_E_VALUE,
           "/here/step-00000004: does not fit this run: layers is 2 there and 3 here, width is 16 "
           "there "
           "and 18 here");
    other = s;
    other.model.rope_theta = 500;
    refuse(&other, MUON_E_VALUE, "rope_theta is 10000 there and 500 here");
    other = s;
    other.model = latent;
    refuse(&other, MUON_E_VALUE, "attention is gqa there and mla here");
    other = s;
    other.optimizer.muon = 0;
    refuse(&other, MUON_E_VALUE, "optimizer is muon there and adamw here");
    other = s;
    other.optimizer.variant = train_variant_named("cautious"); /* adds no state */
    refuse(&other, MUON_E_VALUE, "optimizer is muon there and cautious here");
    other.optimizer.variant = train_variant_named("normuon");
    refuse(&other, MUON_E_VALUE, "optimizer is muon there and normuon here");
    other = s;
    other.schedule.steps = 3;
    refuse(&other, MUON_E_VALUE, "the run is already at step 4, and only 3 steps are requested");
}

TEST(what_is_not_asked_for_is_not_overwritten)
{
    place here = place_of("here");
    char from[400];
    train_settings s = settings_of(&dense, 4);
    s.saving = (train_saving){.dir = here.path, .every = 2};
    free_part(run_part(1, &s, TO_ITS_END));
    refuse(&s, MUON_E_ARG,
           "/here: there is a checkpoint of step 4, which this run, from step 0 on");
    snprintf(from, sizeof from, "%s/step-00000002", here.path);
    s.saving.from = from;
    refuse(&s, MUON_E_ARG, "step 4, which this run, from step 2 on, would overwrite");
    s.saving = (train_saving){.from = "/no/such/dir"};
    refuse(&s, MUON_E_NO_CHECKPOINT, "/no/such/dir");
    s.saving = (train_saving){.from = root};
    refuse(&s, MUON_E_NO_CHECKPOINT, root);
    s.saving = (train_saving){.resume = 1};
    refuse(&s, MUON_E_ARG, "resume: no directory of checkpoints");
    s.saving = (train_saving){.dir = here.path, .every = -1};
    refuse(&s, MUON_E_VALUE, "every -1 steps");
    assert_steps(here.path, 2, 4);
}

/* ---- metadata ----------------------------------------------------------------------------------- */

/* A checkpoint of one element, with the metadata of a run in which one value was replaced. */
static muon_status give_zeros(void *user, size_t index, int64_t offset, void *data, size_t bytes)
{
    (void)user;
    (void)index;
    (void)offset;
    memset(data, 0, bytes);
    return MUON_OK;
}

static muon_checkpoint *write_with(const char *dir, const facts *f, const char *key,
                                   const char *value)
{
    muon_st_entry entries[FACTS_MOST];
    muon_checkpoint *out = NULL;
    muon_checkpoint_tensor tensor = {.name = "x", .dtype = "F32", .ndim = 1, .shape = {1}};
    muon_checkpoint_plan plan;
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++) {
        int is_it = strcmp(f->entries[i].key, key) == 0;
        if (!is_it || value) entries[n++] = f->entries[i];
        if (is_it && value) entries[n - 1].value = value;
    }
    muon_checkpoint_plan_init(&plan, sizeof plan);
    plan.step = 5;
    plan.tensors = &tensor;
    plan.ntensors = 1;
    plan.metadata = entries;
    plan.nmetadata = n;
    plan.replace = 1;
    plan.source = give_zeros;
    assert_ok(muon_checkpoint_write(dir, &plan));
    assert_ok(muon_checkpoint_open(&out, dir));
    return out;
}

TEST(progress_is_read_back_or_refused)
{
    static const struct {
        const char *key, *value, *message; /* message NULL: it is fine */
    } cases[] = {
        {"", NULL, NULL},
        {"train.step", NULL, "not of a training run: its metadata has no train.step"},
        {"train.step", "4", "train.step is 4"},
        {"train.step", "five", "train.step is 'five', must be 0.."},
        {"train.step", "", "train.step is ''"},
        {"train.tokens", "-1", "train.tokens is '-1'"},
        {"train.tokens", "99999999999999999999", "train.tokens is '9999"},
        {"train.skipped", "6", "train.skipped is '6', must be 0..5"},
        {"train.skipped", "1 ", "train.skipped is '1 '"},
        {"train.skipped_in_a_row", "10", "train.skipped_in_a_row is '10', must be 0..9"},
        {"train.validations", NULL, "its metadata has no train.validations"},
        {"train.validations", "0 1.5; 5 1.25", NULL},
        {"train.validations", "0 nan; 1 inf", NULL},
        {"train.validations", "", NULL},
        {"train.validations", "6 1.5", "train.validations has '6 1.5'"},
        {"train.validations", "2 1.5; 2 1.5", "train.validations has '2 1.5'"},
        {"train.validations", "2 1.5;3 1", "train.validations has '2 1.5;3 1'"},
        {"train.validations", "2", "train.validations has '2'"},
        {"train.validations", "2 x", "train.validations has '2 x'"},
    };
    enum { MANY = 5000 };
    place here = place_of("here");
    facts f = {.count = 0};
    train_record record = {0};
    train_run run = {.settings = settings_of(&dense, 9), .record = &record, .step = 5, .skips = 2};
    assert_ok(train_record_create(&record, MANY, 1));
    record.skipped = 3;
    record.tokens_per_step = 7;
    record.resumed = 2;
    record.totals.steps = 3;
    record.tokens_before = 100;
    for (int i = 0; i <= 5; i++)
        train_record_validate(&record, &(train_validation){i, 1.0 / (i + 3)});
    assert_ok(facts_of_progress(&f, &run));
    for (size_t i = 0; i < COUNT(cases); i++) {
        train_record got = {0};
        train_run again = {.settings = run.settings, .record = &got};
        muon_checkpoint *saved = write_with(here.path, &f, cases[i].key, cases[i].value);
        assert_ok(train_record_create(&got, 9, 1));
        if (cases[i].message) {
            muon_status status = facts_read_progress(&again, saved);
            assert_true(status == MUON_E_NAME || status == MUON_E_FORMAT);
            if (!strstr(muon_last_error(), cases[i].message))
                fail_msg("case %zu: '%s', want '%s'", i, muon_last_error(), cases[i].message);
        } else {
            assert_ok(facts_read_progress(&again, saved));
            assert_int_equal(again.step, 5);
            assert_int_equal(again.skips, 2);
            assert_int_equal(got.skipped, 3);
            assert_int_equal(got.tokens_before, 121);
        }
        if (i == 0) {
            assert_int_equal(got.nvalidations, 6);
            assert_memory_equal(got.validations, record.validations, 6 * sizeof *got.validations);
        }
        train_record_free(&got);
        muon_checkpoint_close(saved);
    }
    facts_free(&f);

    /* Of very many validations some stay, and the best and the newest. */
    run.step = MANY;
    record.nvalidations = 0;
    record.validated = 0;
    for (int i = 0; i < MANY; i++)
        train_record_validate(&record, &(train_validation){i, i == 77 ? 0.5 : 2});
    assert_ok(facts_of_progress(&f, &run));
    const char *list = f.entries[f.count - 1].value;
    assert_int_equal(strncmp(list, "0 2; 4 2; 8 2; ", 15), 0);
    assert_non_null(strstr(list, "; 76 2; 77 0.5; 80 2; "));
    assert_string_equal(list + strlen(list) - 8, "; 4999 2");
    facts_free(&f);
    train_record_free(&record);
}

TEST(metrics_go_on_after_the_last_saved_step)
{
    static const char before[] = "{\"run\":\"Muon\",\"step\":1,\"loss\":3}\n"
                                 "{\"run\":\"Muon\",\"step\":10,\"loss\":2}\n"
                                 "{\"run\":\"AdamW\",\"step\":11,\"loss\":2}\n"
                                 "{\"run\":\"AdamW\",\"step\":12,\"lo";
    static const struct {
        const char *run;
        int64_t step;
        int lines;
    } cases[] = {{"Muon", 0, 0},  {"Muon", 1, 1},   {"Muon", 9, 1},   {"Muon", 10, 3},
                 {"AdamW", 0, 2}, {"AdamW", 11, 3}, {"AdamW", 12, 3}, {"Muo", 0, 3}};
    place here = place_of("lines");
    train_step step = {.step = 2, .seconds = 1};
    train_validation validation = {0};
    train_record record = {.label = "Muon",
                           .steps = &step,
                           .nsteps = 1,
                           .validations = &validation,
                           .nvalidations = 1};
    for (size_t i = 0; i < COUNT(cases); i++) {
        metrics *m = NULL;
        char all[4096];
        FILE *file = fopen(here.path, "w");
        assert_non_null(file);
        fputs(before, file);
        fclose(file);
        assert_ok(metrics_append(&m, here.path));
        assert_ok(metrics_cut(m, cases[i].run, cases[i].step));
        metrics_step(m, &record);
        assert_ok(metrics_close(m));
        file = fopen(here.path, "r");
        assert_non_null(file);
        size_t length = fread(all, 1, sizeof all - 1, file);
        fclose(file);
        all[length] = '\0';
        const char *rest = all;
        for (int k = 0; k < cases[i].lines; k++)
            rest = strchr(rest, '\n') + 1;
        assert_int_equal(strncmp(all, before, (size_t)(rest - all)), 0);
        if (strncmp(rest, "{\"run\":\"Muon\",\"step\":2,", 23) != 0 ||
            strchr(rest, '\n') != all + length - 1)
            fail_msg("case %zu: after %d lines:\n%s", i, cases[i].lines, rest);
    }
    unlink(here.path);
    metrics *m = NULL; /* without a file there is nothing to cut */
    assert_ok(metrics_append(&m, here.path));
    assert_ok(metrics_cut(m, "Muon", 3));
    assert_ok(metrics_close(m));
    unlink(here.path);
}

/* ---- no memory ---------------------------------------------------------------------------------- */

static void assert_no_memory(muon_status status, int64_t k)
{
    if (status != MUON_E_NOMEM || !strstr(muon_last_error(), "memory"))
        fail_msg("allocation %lld: %s: %s", (long long)k, muon_status_name(status),
                 muon_last_error());
}

/* What is there stays: the last try goes on from it. */
TEST(no_memory_is_an_error_in_resuming_and_in_saving)
{
    enum { OF_A_SAVE = 12 }; /* those of the run itself come first */
    place here = place_of("here");
    train_settings s = settings_of(&dense, 10);
    muon_status status = MUON_E_NOMEM;
    train_run *run = NULL;
    train_record record = {0};
    s.saving = (train_saving){.dir = here.path, .every = 1, .resume = 1};
    free_part(run_part(1, &s, 1));
    for (int64_t k = 1; status != MUON_OK; k++) {
        train_record_free(&record);
        testlib_fail_allocation(k);
        status = train_run_create(&run, &s, NULL, &record);
        testlib_fail_allocation(0);
        if (status != MUON_OK) assert_no_memory(status, k);
    }
    assert_int_equal(record.resumed, 1);
    train_run_destroy(run);
    train_record_free(&record);

    for (int64_t k = 1; k <= OF_A_SAVE; k++) {
        record = (train_record){0};
        assert_ok(train_run_create(&run, &s, NULL, &record));
        assert_int_equal(record.resumed, 1);
        testlib_fail_allocation(k);
        assert_no_memory(step_and_save(run), k);
        testlib_fail_allocation(0);
        assert_steps(here.path, 1);
        train_run_destroy(run);
        train_record_free(&record);
    }
    free_part(run_part(1, &s, 2));
    assert_steps(here.path, 1, 2);
}

AROUND_ALL(make_root, remove_root)
