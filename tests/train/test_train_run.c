/* test_train_run.c - training runs on one rank and on many: the same losses and weights, and a record of
 * all that happened. */
#include "tests/train/train_runs.h"
#include "train/run/metrics.h"
#include "train/run/spectrum.h"

#include <math.h>

/* ---- the same on any number of ranks ------------------------------------------------------------ */

static void assert_same_bits(const outcome *a, const outcome *b, const char *what)
{
    const train_record *x = &a->record, *y = &b->record;
    assert_int_equal(x->nsteps, y->nsteps);
    assert_int_equal(x->nvalidations, y->nvalidations);
    for (size_t i = 0; i < x->nsteps; i++) {
        const double want[] = {x->steps[i].loss, x->steps[i].balance, x->steps[i].grad_norm,
                               x->steps[i].update_rms, x->steps[i].max_logit};
        const double got[] = {y->steps[i].loss, y->steps[i].balance, y->steps[i].grad_norm,
                              y->steps[i].update_rms, y->steps[i].max_logit};
        for (size_t k = 0; k < COUNT(want); k++)
            if (want[k] != got[k])
                fail_msg("%s: step %zu, number %zu: got %.17g, want %.17g", what, i + 1, k, got[k],
                         want[k]);
    }
    for (size_t i = 0; i < x->nvalidations; i++)
        if (x->validations[i].loss != y->validations[i].loss)
            fail_msg("%s: validation %zu: got %.17g, want %.17g", what, i, y->validations[i].loss,
                     x->validations[i].loss);
    for (size_t i = 0; i < y->nspectra; i++) /* rank 0's */
        assert_memory_equal(x->spectra[i].before, y->spectra[i].before,
                            (size_t)x->spectra[i].count * sizeof(double));
    assert_int_equal(a->numel, b->numel);
    for (int64_t i = 0; i < a->numel; i++)
        if (memcmp(&a->weights[i], &b->weights[i], sizeof *a->weights) != 0)
            fail_msg("%s: weight %lld: got %.9g, want %.9g", what, (long long)i,
                     (double)b->weights[i], (double)a->weights[i]);
}

TEST(deterministic_runs_have_the_same_bits_on_any_mesh)
{
    static const struct {
        const char *name;
        const model_config *model;
        const char *optimizer;
        int replicate, fsdp, ep;
    } cases[] = {
        {"dense", &dense, "muon", 1, 2, 1},
        {"dense", &dense, "muon", 1, 8, 1},
        {"dense", &dense, "muon", 2, 2, 1},
        {"dense, AdamW", &dense, "adamw", 1, 4, 1},
        {"experts", &experts, "muon", 1, 1, 2},
        {"experts", &experts, "muon", 1, 2, 2},
        {"experts", &experts, "muon", 2, 2, 2},
        {"experts, AdamW", &experts, "adamw", 1, 2, 2},
        {"latent", &latent, "muon", 1, 4, 1},
        {"latent", &latent, "muon", 4, 1, 1},
        {"experts, nanochat", &experts, "nanochat", 1, 2, 2},
        {"dense, AdaMuon", &dense, "adamuon", 2, 2, 1},
        {"experts, int8", &experts, "int8", 1, 2, 2},
        {"dense, Lion", &dense, "lion", 1, 4, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        train_settings s = settings_of(cases[i].model, 5);
        char what[64];
        int ranks = cases[i].replicate * cases[i].fsdp * cases[i].ep;
        snprintf(what, sizeof what, "%s, %d ranks", cases[i].name, ranks);
        s.deterministic = 1;
        choose_optimizer(&s, cases[i].optimizer);
        s.optimizer.qk_clip = 0.05; /* below every logit: QK-clip takes part */
        s.threads = 2;
        crew *one = run_on(1, &s);
        s.threads = 1;
        s.optimizer.replicate = cases[i].replicate;
        s.optimizer.fsdp = cases[i].fsdp;
        s.optimizer.ep = cases[i].ep;
        crew *many = run_on(ranks, &s);
        assert_true(one->out[0].record.steps[0].clipped_heads > 0);
        int narrow = strstr(cases[i].name, "int8") != NULL; /* no shard has its momentum */
        assert_int_equal(many->out[0].record.nspectra, s.optimizer.muon && !narrow ? 2 : 0);
        for (int rank = 0; rank < ranks; rank++)
            assert_same_bits(&one->out[0], &many->out[rank], what);
        free_crew(one);
        free_crew(many);
    }
}

static double relative(double a, double b)
{
    return fabs(a - b) / fabs(b);
}

TEST(other_runs_agree_to_four_digits_over_fifty_steps)
{
    static const int counts[] = {3, 2, 4, 7};
    const model_config *models[] = {&dense, &experts};
    for (size_t k = 0; k < COUNT(models); k++) {
        train_settings s = settings_of(models[k], 50);
        crew *one = run_on(1, &s);
        const train_record *want = &one->out[0].record;
        assert_true(want->steps[49].loss < want->steps[0].loss - 1);
        for (size_t i = 0; i < (testlib_quick() ? 1 : COUNT(counts)); i++) {
            crew *many = run_on(counts[i], &s);
            const train_record *got = &many->out[counts[i] - 1].record;
            for (size_t step = 0; step < 50; step++)
                testlib_assert_error(relative(got->steps[step].loss, want->steps[step].loss), 1e-4,
                                     "model %zu, %d ranks, step %zu: loss %.9g, want %.9g", k,
                                     counts[i], step + 1, got->steps[step].loss,
                                     want->steps[step].loss);
            free_crew(many);
        }
        free_crew(one);
    }
}

/* More ranks than sequences: some have nothing to do, and still take part. */
TEST(ranks_without_a_sequence_take_part)
{
    train_settings s = settings_of(&dense, 4);
    s.batch = 2;
    crew *one = run_on(1, &s), *many = run_on(5, &s);
    for (size_t i = 0; i < 4; i++)
        testlib_assert_error(
            relative(many->out[4].record.steps[i].loss, one->out[0].record.steps[i].loss), 1e-5,
            "step %zu", i + 1);
    free_crew(one);
    free_crew(many);
}

TEST(the_data_are_the_seeds)
{
    train_settings s = settings_of(&dense, 2);
    crew *a = run_on(1, &s), *b = run_on(1, &s);
    assert_same_bits(&a->out[0], &b->out[0], "the same seed");
    s.seed++;
    crew *c = run_on(1, &s);
    assert_true(a->out[0].record.steps[0].loss != c->out[0].record.steps[0].loss);
    free_crew(a);
    free_crew(b);
    free_crew(c);
}

/* ---- the record --------------------------------------------------------------------------------- */

TEST(the_record_has_every_step_of_every_rank)
{
    train_settings s = settings_of(&experts, 5);
    s.optimizer.ep = 2;
    crew *f = run_on(2, &s);
    const train_record *r = &f->out[0].record;
    assert_int_equal(r->nsteps, 5);
    assert_int_equal(r->nvalidations, 4); /* before the first, after 2, 4 and the last */
    static const int64_t validated[] = {0, 2, 4, 5};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(r->validations[i].step, validated[i]);
    assert_int_equal(r->tokens_per_step, 13 * 12);
    assert_string_equal(r->label, "Muon");
    assert_non_null(strstr(r->description, "2 ranks"));
    assert_non_null(strstr(r->description, "ep 2"));
    double before =
        0; /* rank 0's beginning; the slowest rank may have begun earlier, so steps overlap */
    for (size_t i = 0; i < 5; i++) {
        const train_step *step = &r->steps[i];
        assert_int_equal(step->step, i + 1);
        assert_true(step->begin > before && step->seconds > 0);
        assert_true(step->grad_norm > 0 && step->update_rms > 0 && step->max_logit > 0);
        assert_true(step->balance > 0.5 && step->model_flops > 0);
        assert_true(step->clip_coef > 0 && step->clip_coef <= 1);
        assert_true(step->phase_flops[MUON_PHASE_ORTHO] > 0);
        assert_true(step->phase_bytes[MUON_PHASE_MOMENTUM] > 0);
        for (size_t rank = 0; i == 4 && rank < 2; rank++) { /* of the newest step */
            const train_rank_step *mine = &r->rank_steps[rank];
            assert_true(mine->model > 0 && mine->reduce > 0 && mine->optimizer > 0);
            assert_true(step->phase_max[MUON_PHASE_ORTHO] >= mine->phase[MUON_PHASE_ORTHO]);
            assert_true(step->phase_min[MUON_PHASE_ORTHO] <= mine->phase[MUON_PHASE_ORTHO]);
        }
        before = step->begin;
    }
    assert_true(r->ranks[0].matrices > 0 && r->ranks[1].matrices > 0);
    assert_true(r->ranks[0].bytes_sent > 0 && r->ranks[1].seconds.model > 0);
    double share = train_record_optimizer_share(r);
    assert_true(share > 0 && share < 1);
    free_crew(f);
}

/* Cuts what a name like "layers.1.attn.wq[6:12, 0:16]" means out of all tensors' elements. */
static void cut(const model *m, const char *name, const float *all, float *out, int64_t *rows,
                int64_t *cols)
{
    long long r0, r1, c0, c1;
    size_t length = strcspn(name, "["), i = 0;
    assert_int_equal(sscanf(name + length, "[%lld:%lld, %lld:%lld]", &r0, &r1, &c0, &c1), 4);
    for (;; i++) {
        const model_tensor *t = model_tensor_at(m, i);
        if (strlen(t->name) == length && strncmp(t->name, name, length) == 0) break;
        all += t->numel;
    }
    *rows = r1 - r0, *cols = c1 - c0;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++)
            *out++ = all[r * model_tensor_at(m, i)->shape[1] + c];
}

/* The weights tell: what the last step took from them is the update, after orthogonalization. */
TEST(spectra_are_those_of_the_last_update)
{
    enum { STEPS = 3, ROOM = 64 };
    train_settings s = settings_of(&dense, STEPS);
    train_run *run = NULL;
    train_record record = {0};
    float *before = NULL;
    assert_ok(train_run_create(&run, &s, NULL, &record));
    while (!train_run_is_over(run)) {
        free(before);
        before = copy_weights(run);
        assert_ok(train_run_step(run));
    }
    assert_ok(train_run_finish(run));
    assert_int_equal(record.nspectra, 2);
    float *after = copy_weights(run);
    double lr = record.steps[STEPS - 1].lr, decay = 1 - lr * s.optimizer.weight_decay;
    for (size_t k = 0; k < record.nspectra; k++) {
        const train_spectrum *got = &record.spectra[k];
        float old[ROOM * ROOM], new[ROOM * ROOM], update[ROOM * ROOM];
        double want[ROOM];
        int64_t rows = 0, cols = 0;
        cut(train_run_model(run), got->name, before, old, &rows, &cols);
        cut(train_run_model(run), got->name, after, new, &rows, &cols);
        assert_int_equal(got->count, rows < cols ? rows : cols);
        double factor = lr * 0.2 * sqrt((double)(rows > cols ? rows : cols));
        for (int64_t i = 0; i < rows * cols; i++)
            update[i] = (float)(((double)old[i] * decay - (double)new[i]) / factor);
        assert_ok(train_singular_values(want, got->count, update, rows, cols));
        assert_int_equal(got->step, STEPS);
        assert_true(got->before[0] == 1);
        for (int i = 0; i < got->count; i++)
            testlib_assert_error(fabs(got->after[i] - want[i]), 2e-3, "%s: value %d: %g, want %g",
                                 got->name, i, got->after[i], want[i]);
    }
    free(before);
    free(after);
    train_run_destroy(run);
    train_record_free(&record);
}

TEST(metrics_are_one_line_of_json_for_each_step)
{
    char path[] = "/tmp/test_train_metrics.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    train_settings s = settings_of(&dense, 3);
    train_run *run = NULL;
    train_record record = {0};
    metrics *m = NULL;
    assert_ok(metrics_open(&m, path));
    assert_ok(train_run_create(&run, &s, NULL, &record));
    while (!train_run_is_over(run)) {
        assert_ok(train_run_step(run));
        metrics_step(m, &record);
    }
    record.steps[2].loss = (double)NAN;
    metrics_step(m, &record);
    assert_ok(metrics_close(m));
    train_run_destroy(run);

    FILE *file = fdopen(fd, "r");
    char line[4096];
    int lines = 0;
    for (; fgets(line, sizeof line, file); lines++) {
        char start[64];
        snprintf(start, sizeof start,
                 "{\"run\":\"Muon\",\"step\":%d,\"loss\":", lines < 3 ? lines + 1 : 3);
        assert_int_equal(strncmp(line, start, strlen(start)), 0);
        assert_string_equal(line + strlen(line) - 4, "}}}\n");
        assert_true((strstr(line, "\"validation_loss\":") != NULL) == (lines > 0));
        if (lines == 3) assert_non_null(strstr(line, "\"loss\":null"));
        /* The number reads back to the bit. */
        const char *norm = strstr(line, "\"grad_norm\":");
        assert_non_null(norm);
        if (lines < 3) assert_true(strtod(norm + 12, NULL) == record.steps[lines].grad_norm);
    }
    assert_int_equal(lines, 4);
    fclose(file);
    remove(path);
    train_record_free(&record);
    assert_fails(metrics_open(&m, "/no/such/dir/file"), MUON_E_IO, "/no/such/dir/file: cannot be");
    assert_ok(metrics_close(NULL));
}

TEST(a_full_disk_is_reported_at_the_end)
{
    metrics *m = NULL;
    train_step step = {.step = 1, .seconds = 1};
    train_validation validation = {0};
    train_record record = {.label = "Muon",
                           .steps = &step,
                           .nsteps = 1,
                           .validations = &validation,
                           .nvalidations = 1};
    if (metrics_open(&m, "/dev/full") != MUON_OK) skip();
    metrics_step(m, &record);
    assert_fails(metrics_close(m), MUON_E_IO, "/dev/full: not all could be written: No space left");
}

AROUND_ALL(make_text, remove_text)
