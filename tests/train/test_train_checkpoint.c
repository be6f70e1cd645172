/* test_train_checkpoint.c - training runs that are stopped and go on: with the bits of a run that never
 * was, on any ranks. */
#include "tests/train/train_saves.h"

#include <math.h>

/* ---- comparing ---------------------------------------------------------------------------------- */

/* NaN is NaN, and 0 is not -0. */
static int differ(double a, double b)
{
    uint64_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x != y;
}

static void assert_same_step(const train_step *want, const train_step *got, const char *what)
{
    const double x[] = {(double)want->step, want->loss,       want->balance,   want->lr,
                        want->grad_norm,    want->update_rms, want->max_logit, want->clip_coef};
    const double y[] = {(double)got->step, got->loss,       got->balance,   got->lr,
                        got->grad_norm,    got->update_rms, got->max_logit, got->clip_coef};
    for (size_t k = 0; k < COUNT(x); k++)
        if (differ(x[k], y[k]))
            fail_msg("%s: step %lld, number %zu: got %.17g, want %.17g", what,
                     (long long)want->step, k, y[k], x[k]);
}

/* `got` is the end of the run that `want` is the whole of. */
static void assert_same_end(const outcome *want, const outcome *got, const char *what)
{
    const train_record *x = &want->record, *y = &got->record;
    assert_int_equal(train_record_done(x), train_record_done(y));
    for (size_t i = 0; i < y->nsteps; i++)
        assert_same_step(&x->steps[(size_t)y->resumed + i], &y->steps[i], what);
    if (x->nvalidations != y->nvalidations)
        fail_msg("%s: %zu validations, want %zu", what, y->nvalidations, x->nvalidations);
    for (size_t i = 0; i < x->nvalidations; i++)
        if (x->validations[i].step != y->validations[i].step ||
            differ(x->validations[i].loss, y->validations[i].loss))
            fail_msg("%s: validation %zu: got step %lld, %.17g, want %lld, %.17g", what, i,
                     (long long)y->validations[i].step, y->validations[i].loss,
                     (long long)x->validations[i].step, x->validations[i].loss);
    assert_int_equal(x->skipped, y->skipped);
    for (size_t i = 0; i < y->nspectra; i++) /* rank 0's */
        assert_memory_equal(x->spectra[i].before, y->spectra[i].before,
                            (size_t)x->spectra[i].count * sizeof(double));
    assert_int_equal(want->numel, got->numel);
    for (int64_t i = 0; i < want->numel; i++)
        if (differ((double)want->weights[i], (double)got->weights[i]))
            fail_msg("%s: weight %lld: got %.9g, want %.9g", what, (long long)i,
                     (double)got->weights[i], (double)want->weights[i]);
}

/* Weights and state of the newest of two directories. */
static void assert_same_newest(const char *want, const char *got, const char *what)
{
    muon_checkpoint *x = NULL, *y = NULL;
    assert_ok(muon_checkpoint_open(&x, want));
    assert_ok(muon_checkpoint_open(&y, got));
    assert_int_equal(muon_checkpoint_get_step(x), muon_checkpoint_get_step(y));
    assert_int_equal(muon_checkpoint_count(x), muon_checkpoint_count(y));
    for (size_t i = 0; i < muon_checkpoint_count(x); i++) {
        muon_checkpoint_tensor a, b;
        assert_ok(muon_checkpoint_get(x, i, &a, sizeof a));
        int64_t j = muon_checkpoint_find(y, a.name);
        assert_true(j >= 0);
        assert_ok(muon_checkpoint_get(y, (size_t)j, &b, sizeof b));
        assert_ok(muon_checkpoint_verify(y, (size_t)j));
        if (a.crc32c != b.crc32c || a.bytes != b.bytes || strcmp(a.dtype, b.dtype) != 0)
            fail_msg("%s: %s differs", what, a.name);
    }
    muon_checkpoint_close(x);
    muon_checkpoint_close(y);
}

/* ---- the same bits ------------------------------------------------------------------------------ */

typedef struct layout {
    int ranks, replicate, fsdp, ep, threads;
    int64_t budget; /* of offload; 0: state is in memory */
} layout;

static void set_layout(train_settings *s, const layout *l)
{
    s->optimizer.replicate = l->replicate;
    s->optimizer.fsdp = l->fsdp;
    s->optimizer.ep = l->ep;
    s->threads = l->threads ? l->threads : 1;
    s->optimizer.offload_dir = l->budget ? root : NULL;
    s->optimizer.offload_budget = l->budget;
}

enum { BUDGET = 40 << 10 };

/* Saved on one layout after every 2nd step, killed in step 6, resumed on another. */
TEST(a_stopped_run_goes_on_with_the_same_bits_on_any_ranks)
{
    static const struct {
        const char *name;
        const model_config *model;
        const char *optimizer;
        int async;
        layout before, after;
    } cases[] = {
        {"dense, 1 to 1", &dense, "muon", 0, {.ranks = 1}, {.ranks = 1}},
        {"dense, 1 to 2", &dense, "muon", 0, {.ranks = 1, .threads = 2}, {.ranks = 2}},
        {"dense, 2 to 4",
         &dense,
         "muon",
         0,
         {.ranks = 2},
         {.ranks = 4, .replicate = 2, .fsdp = 2, .ep = 1}},
        {"dense, 4 to 1", &dense, "muon", 1, {.ranks = 4}, {.ranks = 1}},
        {"dense, AdamW, 2 to 1", &dense, "adamw", 0, {.ranks = 2}, {.ranks = 1}},
        {"experts, 4 to 2",
         &experts,
         "muon",
         0,
         {.ranks = 4, .replicate = 1, .fsdp = 2, .ep = 2},
         {.ranks = 2, .replicate = 1, .fsdp = 1, .ep = 2}},
        {"experts, 2 to 8",
         &experts,
         "muon",
         1,
         {.ranks = 2, .replicate = 2, .fsdp = 1, .ep = 1},
         {.ranks = 8, .replicate = 2, .fsdp = 2, .ep = 2}},
        {"latent, 8 to 4",
         &latent,
         "muon",
         0,
         {.ranks = 8},
         {.ranks = 4, .replicate = 4, .fsdp = 1, .ep = 1}},
        {"dense, offloaded, then not",
         &dense,
         "muon",
         0,
         {.ranks = 1, .budget = BUDGET},
         {.ranks = 2}},
        {"dense, then offloaded", &dense, "muon", 1, {.ranks = 2}, {.ranks = 1, .budget = BUDGET}},
        {"experts, offloaded",
         &experts,
         "muon",
         1,
         {.ranks = 2, .budget = BUDGET},
         {.ranks = 4, .budget = BUDGET}},
        {"experts, NorMuon, 2 to 4", &experts, "normuon", 0, {.ranks = 2}, {.ranks = 4}},
        {"dense, int8, 4 to 2", &dense, "int8", 0, {.ranks = 4}, {.ranks = 2}},
        {"dense, Lion, 1 to 2", &dense, "lion", 0, {.ranks = 1}, {.ranks = 2}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        place here = place_of("here"), other = place_of("other");
        train_settings s = settings_of(cases[i].model, 8);
        s.deterministic = 1;
        choose_optimizer(&s, cases[i].optimizer);
        s.optimizer.qk_clip = 0.05; /* below every logit: QK-clip takes part */
        s.saving = (train_saving){.dir = other.path};
        part *whole = run_part(1, &s, TO_ITS_END);

        s.saving =
            (train_saving){.dir = here.path, .every = 2, .async = cases[i].async, .resume = 1};
        set_layout(&s, &cases[i].before);
        part *first = run_part(cases[i].before.ranks, &s, 5);
        set_layout(&s, &cases[i].after);
        part *second = run_part(cases[i].after.ranks, &s, TO_ITS_END);

        int64_t resumed = second->out[0].record.resumed;
        /* The newest may still be on its way when its run is killed. */
        if (resumed != 4 && !(cases[i].async && resumed == 2))
            fail_msg("%s: resumed after step %lld", cases[i].name, (long long)resumed);
        for (int rank = 0; rank < cases[i].after.ranks; rank++)
            assert_same_end(&whole->out[0], &second->out[rank], cases[i].name);
        assert_same_newest(other.path, here.path, cases[i].name);
        free_part(whole);
        free_part(first);
        free_part(second);
    }
}

TEST(without_deterministic_the_same_number_of_ranks_does)
{
    place here = place_of("here");
    train_settings s = settings_of(&experts, 6);
    part *whole = run_part(3, &s, TO_ITS_END);
    s.saving = (train_saving){.dir = here.path, .every = 3, .resume = 1};
    part *first = run_part(3, &s, 4), *second = run_part(3, &s, TO_ITS_END);
    assert_int_equal(second->out[0].record.resumed, 3);
    assert_same_end(&whole->out[0], &second->out[2], "3 ranks");
    free_part(whole);
    free_part(first);
    free_part(second);
}

/* Every step is saved, and every run takes one step more; validations are not made again. */
TEST(a_run_can_be_resumed_as_often_as_it_has_steps)
{
    enum { STEPS = 6 };
    place here = place_of("here");
    train_settings s = settings_of(&dense, STEPS);
    part *whole = run_part(1, &s, TO_ITS_END);
    s.saving = (train_saving){.dir = here.path, .every = 1, .keep = 2, .resume = 1};
    for (int64_t step = 1; step <= STEPS; step++) {
        part *p = run_part(1, &s, step);
        assert_int_equal(p->out[0].record.resumed, step - 1);
        assert_int_equal(p->out[0].record.nsteps, 1);
        assert_int_equal(p->out[0].record.tokens_before, (step - 1) * 13 * 12);
        if (step == STEPS) assert_same_end(&whole->out[0], &p->out[0], "the last");
        free_part(p);
    }
    assert_steps(here.path, STEPS - 1, STEPS);
    free_part(whole);
}

TEST(a_complete_run_takes_no_step_when_it_is_resumed)
{
    place here = place_of("here");
    train_settings s = settings_of(&dense, 4);
    s.saving = (train_saving){.dir = here.path, .resume = 1};
    part *first = run_part(2, &s, TO_ITS_END), *second = run_part(1, &s, TO_ITS_END);
    assert_steps(here.path, 4);
    assert_int_equal(first->out[1].record.saves, 1);
    assert_int_equal(second->out[0].record.resumed, 4);
    assert_int_equal(second->out[0].record.nsteps, 0);
    assert_int_equal(second->out[0].record.saves, 0);
    assert_same_end(&first->out[0], &second->out[0], "complete");
    s.schedule.steps = 6; /* and can be made longer */
    part *third = run_part(1, &s, TO_ITS_END);
    assert_int_equal(third->out[0].record.nsteps, 2);
    assert_steps(here.path, 4, 6);
    free_part(first);
    free_part(second);
    free_part(third);
}

/* ---- when it is saved --------------------------------------------------------------------------- */

typedef struct interruption {
    train_settings settings;
    volatile sig_atomic_t flags[MOST_RANKS];
} interruption;

/* Somebody interrupts the last rank during its fifth step. */
static void train_until_interrupted(int rank, const muon_comm *comm, void *arg)
{
    interruption *in = arg;
    train_settings s = in->settings;
    train_record record = {0};
    train_run *run = NULL;
    s.interrupted = &in->flags[rank];
    rank_ok(train_run_create(&run, &s, comm, &record));
    while (!train_run_is_over(run)) {
        if (rank == comm->size - 1 && record.nsteps == 4) in->flags[rank] = 1;
        rank_ok(step_and_save(run));
    }
    rank_check(record.saved == 5, "step %lld is saved", (long long)record.saved);
    train_run_destroy(run);
    train_record_free(&record);
}

TEST(an_interrupted_run_saves_its_last_step)
{
    for (int async = 0; async < 2; async++) {
        place here = place_of("here");
        interruption in = {.settings = settings_of(&dense, 8)};
        in.settings.deterministic = 1;
        in.settings.validate_every = 5; /* it is validated where it ends */
        part *whole = run_part(1, &in.settings, TO_ITS_END);
        in.settings.saving =
            (train_saving){.dir = here.path, .every = async ? 2 : 0, .async = async, .resume = 1};
        ranks_run(2, train_until_interrupted, &in);
        if (async)
            assert_steps(here.path, 2, 4, 5);
        else
            assert_steps(here.path, 5);
        part *second = run_part(4, &in.settings, TO_ITS_END);
        assert_int_equal(second->out[0].record.resumed, 5);
        assert_same_end(&whole->out[0], &second->out[3], "interrupted");
        free_part(whole);
        free_part(second);
    }
}

static void break_weights(train_run *run)
{
    model *m = train_run_model(run);
    for (size_t i = 0; i < model_ntensors(m); i++)
        if (model_tensor_at(m, i)->ndim == 1) train_run_weights(run)[i][0] = NAN;
}

/* Weights that are NaN: nothing changes any more, and ten such steps in a row end the run, wherever it
 * was stopped in between. */
TEST(skipped_steps_are_counted_on)
{
    place here = place_of("here");
    train_settings s = settings_of(&dense, 40);
    s.saving = (train_saving){.dir = here.path, .every = 4, .resume = 1};
    train_run *run = NULL;
    train_record record = {0};
    assert_ok(train_run_create(&run, &s, NULL, &record));
    assert_ok(step_and_save(run));
    break_weights(run);
    for (int i = 0; i < 4; i++)
        assert_ok(step_and_save(run)); /* 2 .. 5; 4 is saved */
    assert_int_equal(record.skipped, 4);
    train_run_destroy(run);
    train_record_free(&record);

    record = (train_record){0};
    assert_ok(train_run_create(&run, &s, NULL, &record));
    assert_int_equal(record.resumed, 4);
    assert_int_equal(record.skipped, 3);
    for (int i = 0; i < 6; i++)
        assert_ok(step_and_save(run)); /* 5 .. 10 */
    assert_fails(step_and_save(run), MUON_E_NONFINITE, "in steps 2 to 11");
    assert_int_equal(record.skipped, 10);
    train_run_destroy(run);
    train_record_free(&record);
}

TEST(saves_can_fail_and_end_the_run)
{
    place here = place_of("here");
    train_settings s = settings_of(&dense, 4);
    train_run *run = NULL;
    train_record record = {0};
    s.saving = (train_saving){.dir = here.path, .every = 1};
    assert_ok(train_run_create(&run, &s, NULL, &record));
    FILE *file = fopen(here.path, "w"); /* where the directory would be */
    assert_non_null(file);
    fclose(file);
    assert_fails(step_and_save(run), MUON_E_IO, here.path);
    assert_int_equal(record.saves, 0);
    train_run_destroy(run);
    train_record_free(&record);
    unlink(here.path);
}

/* ---- where it begins ---------------------------------------------------------------------------- */

TEST(without_a_checkpoint_a_run_begins_from_scratch_and_says_so)
{
    place here = place_of("here");
    lines l;
    train_settings s = settings_of(&dense, 2);
    s.saving = (train_saving){.dir = here.path, .resume = 1};
    part *p = run_and_listen(s, TO_ITS_END, &l);
    assert_int_equal(p->out[0].record.resumed, 0);
    assert_int_equal(p->out[0].record.nsteps, 2);
    assert_said(&l, "Muon: no complete checkpoint in ");
    assert_said(&l, "the run starts from scratch");
    assert_int_equal(l.warnings, 0);
    free_part(p);
    p = run_and_listen(s, TO_ITS_END, &l);
    assert_said(&l, "Muon: resumed after step 2, from ");
    assert_said(&l, "/here/step-00000002");
    assert_int_equal(l.warnings, 0);
    free_part(p);
}

/* Changes a byte in the middle of a file. */
static void damage(const char *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long middle = ftell(file) / 4 * 3;
    fseek(file, middle, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, middle, SEEK_SET);
    fputc(byte ^ 16, file);
    fclose(file);
}

TEST(a_damaged_checkpoint_is_named_and_the_one_before_it_is_taken)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (size_t i = 0; i < COUNT(files); i++) {
        char name[64];
        place here = place_of("here");
        lines l;
        train_settings s = settings_of(&dense, 6);
        part *whole = run_part(1, &s, TO_ITS_END);
        s.saving = (train_saving){.dir = here.path, .every = 2, .resume = 1};
        free_part(run_part(1, &s, 5));
        snprintf(name, sizeof name, "step-00000004/%s", files[i]);
        damage(here.path, name);
        part *second = run_and_listen(s, TO_ITS_END, &l);
        assert_int_equal(second->out[0].record.resumed, 2);
        assert_true(l.warnings >= 1);
        assert_said(&l, files[i]);
        assert_said(&l, "Muon: resumed after step 2, from ");
        assert_same_end(&whole->out[0], &second->out[0], "after damage");
        assert_steps(here.path, 2, 4, 6); /* made again */
        free_part(whole);
        free_part(second);
    }
}

TEST(a_run_can_begin_with_any_checkpoint_and_save_elsewhere)
{
    place here = place_of("here"), there = place_of("there");
    char from[400];
    train_settings s = settings_of(&dense, 6);
    s.saving = (train_saving){.dir = here.path, .every = 2};
    part *whole = run_part(1, &s, TO_ITS_END);
    snprintf(from, sizeof from, "%s/step-00000002", here.path);
    s.saving = (train_saving){.dir = there.path, .every = 3, .from = from};
    part *p = run_part(1, &s, 5);
    assert_int_equal(p->out[0].record.resumed, 2);
    assert_steps(there.path, 3);
    free_part(p);
    /* With both, its own come first. */
    s.saving.resume = 1;
    p = run_part(1, &s, TO_ITS_END);
    assert_int_equal(p->out[0].record.resumed, 3);
    assert_same_end(&whole->out[0], &p->out[0], "from step 2, then 3");
    free_part(p);
    /* And nothing needs to be saved. */
    s.saving = (train_saving){.from = here.path};
    p = run_part(1, &s, TO_ITS_END);
    assert_int_equal(p->out[0].record.resumed, 6);
    free_part(p);
    free_part(whole);
}

AROUND_ALL(make_root, remove_root)
