/* test_train_variants.c - variants of Muon by name: what they mean for groups, and for a run. */
#include "tests/train/train_runs.h"

#include <math.h>

static muon_group group_of(const train_variant *variant, muon_rule rule)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.rule = rule;
    group.lr = 0.5;
    assert_ok(train_variant_apply(variant, &group));
    return group;
}

TEST(a_variant_is_settings_of_groups)
{
    static const struct {
        const char *variant;
        muon_rule rule;
        const char *field, *value;
    } cases[] = {
        {"normuon", MUON_RULE_MUON, "second_moment", "rows"},
        {"normuon-long", MUON_RULE_MUON, "second_moment", "long_side"},
        {"adamuon", MUON_RULE_MUON, "second_moment", "elements"},
        {"muoneq", MUON_RULE_MUON, "equalize", "1"},
        {"muon-plus", MUON_RULE_MUON, "renormalize", "1"},
        {"polargrad", MUON_RULE_MUON, "adaptive", "1"},
        {"cautious", MUON_RULE_MUON, "cautious_decay", "1"},
        {"nanochat", MUON_RULE_MUON, "equalize", "1"},
        {"nanochat", MUON_RULE_MUON, "renormalize", "1"},
        {"nanochat", MUON_RULE_MUON, "second_moment", "long_side"},
        {"nanochat", MUON_RULE_MUON, "second_eps_mode", "clamp"},
        {"nanochat", MUON_RULE_MUON, "second_eps", "1e-10"},
        {"nanochat", MUON_RULE_MUON, "cautious_decay", "1"},
        {"nanochat", MUON_RULE_ADAMW, "cautious_decay", "0"},
        {"normuon", MUON_RULE_ADAMW, "rule", "adamw"},
        {"int8", MUON_RULE_MUON, "momentum_dtype", "i8"},
        {"lion", MUON_RULE_ADAMW, "rule", "lion"},
        {"lion", MUON_RULE_MUON, "rule", "muon"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[MUON_FIELD_TEXT];
        const train_variant *variant = train_variant_named(cases[i].variant);
        assert_non_null(variant);
        muon_group group = group_of(variant, cases[i].rule);
        assert_ok(muon_group_get(&group, cases[i].field, text, sizeof text));
        if (strcmp(text, cases[i].value) != 0)
            fail_msg("%s: %s is %s, want %s", cases[i].variant, cases[i].field, text,
                     cases[i].value);
    }
    assert_null(train_variant_named("muon"));
    assert_null(train_variant_named("normuo"));
}

TEST(only_what_is_not_muons_has_a_factor_on_its_learning_rate)
{
    const train_variant *variant;
    for (size_t i = 0; (variant = train_variant_at(i)); i++) {
        assert_true(group_of(variant, MUON_RULE_MUON).lr == 0.5);
        double want = 0.5 * train_variant_rest_lr(variant);
        assert_true(group_of(variant, MUON_RULE_ADAMW).lr == want);
        assert_int_equal(train_variant_rest_lr(variant) != 1, strcmp(variant->name, "lion") == 0);
    }
    assert_true(group_of(NULL, MUON_RULE_ADAMW).lr == 0.5);
}

/* The same data and initial weights; other weights in the end. */
TEST(every_variant_trains_in_a_way_of_its_own)
{
    enum { MOST = 16 };
    crew *runs[MOST];
    size_t n = 0;
    const train_variant *variant = NULL;
    do {
        train_settings s = settings_of(&dense, 3);
        s.optimizer.variant = variant;
        assert_true(n < MOST);
        runs[n] = run_on(1, &s);
        const train_record *r = &runs[n]->out[0].record;
        assert_string_equal(r->label, variant ? variant->label : "Muon");
        assert_true(r->steps[0].loss == runs[0]->out[0].record.steps[0].loss);
        assert_true(isfinite(r->steps[2].loss));
        for (size_t i = 0; i < n; i++)
            if (memcmp(runs[i]->out[0].weights, runs[n]->out[0].weights,
                       (size_t)runs[n]->out[0].numel * sizeof(float)) == 0)
                fail_msg("%s has the weights of %s", r->label, runs[i]->out[0].record.label);
        variant = train_variant_at(n++);
    } while (variant);
    for (size_t i = 0; i < n; i++)
        free_crew(runs[i]);
}

/* Norms have no weight decay: Lion moves each element by its learning rate, or not at all. */
TEST(lion_has_its_own_learning_rate)
{
    train_settings s = settings_of(&dense, 1);
    train_record record = {0};
    train_run *run = NULL;
    int64_t at = 0, moved = 0;
    s.optimizer.variant = train_variant_named("lion");
    s.schedule.warmup = s.schedule.decay = 0;
    double want = s.optimizer.adamw_lr * train_variant_rest_lr(s.optimizer.variant);
    assert_ok(train_run_create(&run, &s, NULL, &record));
    float *before = copy_weights(run);
    assert_ok(train_run_step(run));
    float *after = copy_weights(run);
    for (size_t i = 0; i < model_ntensors(train_run_model(run)); i++) {
        const model_tensor *t = model_tensor_at(train_run_model(run), i);
        for (int64_t k = at; k < at + t->numel && t->ndim == 1; k++) {
            double by = fabs((double)after[k] - (double)before[k]);
            if (by != 0 && fabs(by - want) > 1e-6)
                fail_msg("%s moved by %.9g, want %.9g", t->name, by, want);
            moved += by != 0;
        }
        at += t->numel;
    }
    assert_true(moved > 0);
    free(before);
    free(after);
    train_run_destroy(run);
    train_record_free(&record);
}

AROUND_ALL(make_text, remove_text)
