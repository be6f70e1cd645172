/* test_train_ends.c - every way in which a training run can end, or not begin. */
#include "tests/train/train_runs.h"

#include <math.h>

/* ---- how runs end ------------------------------------------------------------------------------- */

typedef struct interruption {
    train_settings settings;
    volatile sig_atomic_t flags[MOST_RANKS];
    int64_t steps[MOST_RANKS];
} interruption;

/* Somebody interrupts rank 2 during its third step. */
static void train_until_interrupted(int rank, const muon_comm *comm, void *arg)
{
    interruption *in = arg;
    train_settings s = in->settings;
    train_record record = {0};
    train_run *run = NULL;
    s.interrupted = &in->flags[rank];
    rank_ok(train_run_create(&run, &s, comm, &record));
    while (!train_run_is_over(run)) {
        if (rank == 2 && record.nsteps == 2) in->flags[rank] = 1;
        rank_ok(train_run_step(run));
    }
    rank_ok(train_run_finish(run));
    in->steps[rank] = record.interrupted ? (int64_t)record.nsteps : -1;
    rank_check(record.validations[record.nvalidations - 1].step == 3, "validated after the end");
    train_run_destroy(run);
    train_record_free(&record);
}

TEST(an_interrupt_of_one_rank_ends_all_after_the_same_step)
{
    interruption in = {.settings = settings_of(&dense, 20)};
    ranks_run(3, train_until_interrupted, &in);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(in.steps[rank], 3);
}

TEST(a_step_without_a_number_is_skipped_and_counted)
{
    train_settings s = settings_of(&dense, 6);
    train_run *run = NULL;
    train_record record = {0};
    assert_ok(train_run_create(&run, &s, NULL, &record));
    assert_ok(train_run_step(run));
    float *norm = NULL;
    for (size_t i = 0; i < model_ntensors(train_run_model(run)); i++)
        if (model_tensor_at(train_run_model(run), i)->ndim == 1) norm = train_run_weights(run)[i];
    assert_non_null(norm);
    float before = *norm;
    *norm = NAN;
    float *snapshot = copy_weights(run);
    assert_ok(train_run_step(run));
    assert_ok(train_run_step(run));
    float *after = copy_weights(run);
    assert_memory_equal(snapshot, after, (size_t)model_numel(train_run_model(run)) * sizeof *after);
    assert_true(record.steps[1].skipped && record.steps[2].skipped && !record.steps[0].skipped);
    assert_int_equal(record.skipped, 2);
    assert_true(isnan(record.steps[1].loss));
    *norm = before;
    assert_ok(train_run_step(run));
    assert_false(record.steps[3].skipped);
    assert_int_equal(record.skipped, 2);
    free(snapshot);
    free(after);
    train_run_destroy(run);
    train_record_free(&record);
}

static void diverge(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    train_settings s = settings_of(&dense, 40);
    s.optimizer.clip_norm = 0;
    s.optimizer.lr = s.optimizer.adamw_lr = 1e30; /* weights become infinite at once */
    s.schedule.warmup = 0;
    train_run *run = NULL;
    train_record record = {0};
    rank_ok(train_run_create(&run, &s, comm, &record));
    muon_status status = MUON_OK;
    while (status == MUON_OK && !train_run_is_over(run))
        status = train_run_step(run);
    rank_check(status == MUON_E_NONFINITE, "status %s", muon_status_name(status));
    rank_check(strstr(muon_last_error(),
                      "Muon: the loss or a gradient was NaN or infinity in steps 2 "
                      "to 11, which were skipped"),
               "rank %d: %s", rank, muon_last_error());
    rank_check(record.skipped == TRAIN_MOST_SKIPS, "%lld skipped", (long long)record.skipped);
    train_run_destroy(run);
    train_record_free(&record);
}

TEST(a_run_that_learns_nothing_any_more_fails)
{
    ranks_run(2, diverge, NULL);
}

TEST(qk_clip_keeps_logits_bounded)
{
    train_settings s = settings_of(&dense, 60);
    s.optimizer.lr = 0.3; /* much too high: logits grow */
    s.optimizer.weight_decay = 0;
    crew *without = run_on(1, &s);
    s.optimizer.qk_clip = 10;
    crew *with = run_on(1, &s);
    double largest[2] = {0};
    for (size_t i = 30; i < 60; i++) {
        largest[0] = fmax(largest[0], without->out[0].record.steps[i].max_logit);
        largest[1] = fmax(largest[1], with->out[0].record.steps[i].max_logit);
    }
    if (largest[0] < 40 || largest[1] > 20)
        fail_msg("largest logits %g without and %g with QK-clip at 10", largest[0], largest[1]);
    free_crew(without);
    free_crew(with);
}

/* ---- what is refused ---------------------------------------------------------------------------- */

typedef struct refusal {
    train_settings settings;
    muon_status status;
    const char *text;
} refusal;

static void be_refused(int rank, const muon_comm *comm, void *arg)
{
    (void)rank;
    const refusal *r = arg;
    train_run *run = NULL;
    train_record record = {0};
    rank_fails(train_run_create(&run, &r->settings, comm->size > 1 ? comm : NULL, &record),
               r->status, r->text);
    train_record_free(&record);
}

TEST(settings_that_do_not_fit_are_refused)
{
    train_settings s = settings_of(&dense, 3);
    refusal r = {s, MUON_E_LAYOUT,
                 "mesh: fsdp 2 x ep 2 x replicate 1 are 4 ranks, but there are 3"};
    r.settings.optimizer.fsdp = r.settings.optimizer.ep = 2;
    ranks_run(3, be_refused, &r);
    r = (refusal){s, MUON_E_LAYOUT, "mesh: an axis of 2 ranks, but there is 1"};
    r.settings.optimizer.fsdp = 2;
    ranks_run(1, be_refused, &r);
    r = (refusal){s, MUON_E_VALUE, "8 units, which 3 ranks cannot share evenly; 1, 2, 4 and 8 can"};
    r.settings.deterministic = 1;
    ranks_run(3, be_refused, &r);
    r = (refusal){s, MUON_E_VALUE, "a batch of 0 sequences"};
    r.settings.batch = 0;
    ranks_run(1, be_refused, &r);
    r = (refusal){s, MUON_E_VALUE, "warmup 0.9 and decay 0.5"};
    r.settings.schedule.warmup = 0.9;
    ranks_run(2, be_refused, &r);
    r = (refusal){s, MUON_E_IO, "/no/such/file: cannot be opened"};
    r.settings.data = "/no/such/file";
    ranks_run(2, be_refused, &r);
    r = (refusal){s, MUON_E_VALUE, "model: width is -1"};
    r.settings.model.width = -1;
    ranks_run(1, be_refused, &r);
}

static void read_another_text(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    train_settings s = settings_of(&dense, 3);
    static const char *const root = "MUON_SOURCE_DIR";
    char path[1024];
    snprintf(path, sizeof path, "%s/LICENSE", getenv(root) ? getenv(root) : ".");
    if (rank == 1) s.data = path;
    train_run *run = NULL;
    train_record record = {0};
    rank_fails(train_run_create(&run, &s, comm, &record), MUON_E_DISAGREE,
               "rank 1 reads another text (");
    train_record_free(&record);
}

TEST(ranks_that_read_different_texts_disagree)
{
    ranks_run(2, read_another_text, NULL);
}

TEST(no_memory_is_an_error_at_every_allocation)
{
    train_settings s = settings_of(&experts, 2);
    int64_t k = 1;
    for (;; k++) {
        train_run *run = NULL;
        train_record record = {0};
        testlib_fail_allocation(k);
        muon_status status = train_run_create(&run, &s, NULL, &record);
        testlib_fail_allocation(0);
        if (status == MUON_OK) {
            train_run_destroy(run);
            train_record_free(&record);
            break;
        }
        if (status != MUON_E_NOMEM || !strstr(muon_last_error(), "memory"))
            fail_msg("allocation %lld: %s: %s", (long long)k, muon_status_name(status),
                     muon_last_error());
        assert_null(run);
        train_record_free(&record);
        assert_true(k < 2000);
    }
    assert_true(k > 20);
}

AROUND_ALL(make_text, remove_text)
