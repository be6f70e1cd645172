/* Settings that were saved and settings that are: groups found through their parameters, restored or
 * compared, in any locale. And metadata that no save has written. */
#include "tests/save/save_fleet.h"

#include <locale.h>

static const double custom[2][3] = {{3.4445, -4.7750, 2.0315}, {1.5, -0.5, 0.1}};
static const double other_custom[2][3] = {{3.4445, -4.7750, 2.0315}, {1.5, -0.5, 0.2}};

/* Group OTHERS with custom coefficients; nothing is at its default that need not be. */
static void settings_fleet(fleet *f)
{
    fleet_init(f);
    f->config.clip_norm = 0.7;
    f->config.skip_norm = 4000;
    f->config.qk_threshold = 55.5;
    f->config.qk_log_only = 1;
    f->groups[MUONS].lr = 1.0 / 30;
    f->groups[MUONS].weight_decay = 0.03;
    f->groups[MUONS].nesterov = 0;
    f->groups[MUONS].momentum = 0.9;
    f->groups[MUONS].lr_mode = MUON_LR_SPECTRAL;
    f->groups[OTHERS].lr = 0.001;
    f->groups[OTHERS].coefficients = MUON_COEFFICIENTS_CUSTOM;
    f->groups[OTHERS].custom = custom;
    f->groups[OTHERS].ncustom = 2;
    f->groups[OTHERS].momentum_form = MUON_EMA;
    f->groups[ADAMWS].beta2 = 0.999;
    f->groups[ADAMWS].clip = 0;
    fleet_add(f, MUONS, "a", NULL, NULL, SHAPE(6, 5));
    fleet_add(f, MUONS, "b", NULL, NULL, SHAPE(5, 7));
    fleet_add(f, OTHERS, "c", NULL, NULL, SHAPE(4, 4));
    fleet_add(f, ADAMWS, "d", NULL, NULL, SHAPE(8));
}

/* The same parameters; groups in another order, under other names, with default settings. */
static void shuffled_fleet(fleet *f)
{
    fleet_init(f);
    static const char *const names[FLEET_GROUPS] = {"one", "two", "three", "four"};
    for (int i = 0; i < FLEET_GROUPS; i++) {
        muon_group_init(&f->groups[i], sizeof f->groups[i]);
        f->groups[i].name = names[i];
    }
    f->groups[0].rule = MUON_RULE_ADAMW;
    f->groups[3].rule = MUON_RULE_FROZEN;
    fleet_add(f, 0, "d", NULL, NULL, SHAPE(8));
    fleet_add(f, 1, "c", NULL, NULL, SHAPE(4, 4));
    fleet_add(f, 2, "b", NULL, NULL, SHAPE(5, 7));
    fleet_add(f, 2, "a", NULL, NULL, SHAPE(6, 5));
}

static shelf kept;

static void fill_shelf(void)
{
    settings_fleet(&kept.f);
    shelf_fill(&kept);
}

static void clear_shelf(void)
{
    shelf_clear(&kept);
}

AROUND_EACH(fill_shelf, clear_shelf)

static muon_status load(ship *s, const char *path, int restore)
{
    muon_load_args args = load_args(s);
    args.restore_settings = restore;
    return muon_load(s->opt, path, &args, NULL);
}

static muon_group group_of(const ship *s, size_t index)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    assert_ok(muon_opt_get_group(s->opt, index, &group));
    return group;
}

/* The weight of a parameter in two ships whose order differs. */
static void compare_param(const ship *a, const ship *b, const char *name)
{
    const void *data[2] = {NULL, NULL};
    const ship *ships[2] = {a, b};
    size_t bytes = 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < ships[k]->f->nparams; i++)
            if (strcmp(ships[k]->f->params[i].name, name) == 0) {
                data[k] = ships[k]->buffers[i].param;
                bytes = (size_t)ships[k]->numel[i] * 4;
            }
    assert_true(data[0] && data[1]);
    if (memcmp(data[0], data[1], bytes) != 0) fail_msg("'%s' has other weights", name);
}

/* ---- Restored */

static void check_restored(const ship *t)
{
    muon_group adamw = group_of(t, 0), others = group_of(t, 1), muons = group_of(t, 2);
    assert_string_equal(adamw.name, "one"); /* names stay */
    assert_true(adamw.beta2 == 0.999 && adamw.clip == 0);
    assert_int_equal(others.coefficients, MUON_COEFFICIENTS_CUSTOM);
    assert_int_equal(others.ncustom, 2);
    assert_memory_equal(others.custom, custom, sizeof custom);
    assert_int_equal(others.momentum_form, MUON_EMA);
    assert_true(muons.lr == 1.0 / 30 && muons.weight_decay == 0.03 && muons.momentum == 0.9);
    assert_true(muons.nesterov == 0 && muons.lr_mode == MUON_LR_SPECTRAL);
}

TEST(groups_are_found_through_their_parameters)
{
    fleet f;
    ship t;
    shuffled_fleet(&f);
    assert_ok(ship_create(&t, &f, NULL));
    assert_ok(load(&t, kept.root.path, 1));
    check_restored(&t);
    /* clip_norm and the QK threshold, too: the next steps have the bits of who never stopped. */
    assert_ok(ship_run(&kept.saved, 3, 5));
    assert_ok(ship_run(&t, 3, 5));
    static const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < COUNT(names); i++)
        compare_param(&t, &kept.saved, names[i]);
    assert_true(t.result.clip_coef < 1 && t.result.clip_coef == kept.saved.result.clip_coef);
    ship_destroy(&t);
}

static void load_restored(int rank, const muon_comm *comm, void *arg)
{
    const shelf *s = arg;
    fleet f;
    ship t;
    (void)rank;
    shuffled_fleet(&f);
    rank_ok(ship_create(&t, &f, comm));
    rank_ok(load(&t, s->root.path, 1));
    rank_ok(ship_run(&t, 3, 4));
    rank_check(group_of(&t, 2).nesterov == 0, "settings are not restored");
    ship_destroy(&t);
}

TEST(on_several_ranks_too)
{
    ranks_run(3, load_restored, &kept);
}

/* What was one group can be two now; each gets the settings. And a group of nothing that was saved
 * stays as it is. */
TEST(a_group_may_have_been_split)
{
    fleet f;
    ship t;
    settings_fleet(&f);
    f.groups[MUONS].lr = f.groups[FROZEN].lr = 9;
    f.groups[FROZEN].rule = MUON_RULE_MUON; /* one more group of Muon */
    f.params[1].group = FROZEN;
    f.params[2].group = FROZEN;
    f.nparams = 2;
    f.groups[OTHERS].lr = 8;
    assert_ok(ship_create(&t, &f, NULL));
    muon_load_args args = load_args(&t);
    args.restore_settings = args.allow_extra = 1;
    assert_ok(muon_load(t.opt, kept.root.path, &args, NULL));
    assert_true(group_of(&t, MUONS).lr == 1.0 / 30);
    assert_true(group_of(&t, FROZEN).lr == 1.0 / 30);
    assert_true(group_of(&t, OTHERS).lr == 8);
    ship_destroy(&t);
}

/* Parameters of two groups are one group now: if their settings were the same, why not. */
TEST(groups_that_were_alike_may_be_one_now)
{
    for (int alike = 0; alike < 3; alike++) { /* 1: all but the custom list; 2: that, too */
        fleet f, g;
        ship s, t;
        settings_fleet(&f);
        const char *name = f.groups[MUONS].name;
        if (alike) f.groups[MUONS] = f.groups[OTHERS];
        f.groups[MUONS].name = name;
        if (alike == 1) f.groups[MUONS].custom = other_custom;
        settings_fleet(&g);
        g.groups[MUONS] = f.groups[OTHERS];
        g.groups[MUONS].lr = 5;
        g.params[2].group = MUONS;
        scratch root = scratch_make();
        fleet_run_whole(&s, &f, 2);
        assert_ok(ship_save(&s, root.path, 2));
        assert_ok(ship_create(&t, &g, NULL));
        uint64_t before = ship_digest(&t);
        if (alike == 2) {
            assert_ok(load(&t, root.path, 1));
            assert_true(group_of(&t, MUONS).lr == 0.001);
        } else {
            assert_fails(load(&t, root.path, 1), MUON_E_VALUE, "param 'c' was in group 1");
            assert_true(ship_digest(&t) == before && group_of(&t, MUONS).lr == 5);
        }
        ship_destroy(&s);
        ship_destroy(&t);
        scratch_remove(&root);
    }
}

/* A copy of a checkpoint with one entry changed, by way of the converters' writer. */
static muon_status copy_bytes(void *user, size_t index, int64_t offset, void *data, size_t bytes)
{
    return muon_checkpoint_read(user, index, offset, data, bytes);
}

static void copy_changed(const char *from, const char *to, const char *key, const char *value)
{
    enum { MOST = 256 };
    muon_checkpoint *cp = NULL;
    muon_checkpoint_tensor tensors[MOST];
    muon_st_entry metadata[MOST];
    muon_checkpoint_plan plan;
    assert_ok(muon_checkpoint_open(&cp, from));
    muon_checkpoint_plan_init(&plan, sizeof plan);
    plan.step = muon_checkpoint_get_step(cp);
    plan.replace = 1;
    plan.tensors = tensors;
    plan.metadata = metadata;
    plan.source = copy_bytes;
    plan.user = cp;
    for (; plan.ntensors < muon_checkpoint_count(cp); plan.ntensors++) {
        assert_true(plan.ntensors < MOST);
        assert_ok(
            muon_checkpoint_get(cp, plan.ntensors, &tensors[plan.ntensors], sizeof tensors[0]));
    }
    const char *name;
    for (size_t i = 0; (name = muon_checkpoint_get_key(cp, i)); i++) {
        assert_true(plan.nmetadata < MOST);
        const char *text = strcmp(name, key) == 0 ? value : muon_checkpoint_get_metadata(cp, name);
        if (text) metadata[plan.nmetadata++] = (muon_st_entry){name, text};
    }
    assert_ok(muon_checkpoint_write(to, &plan));
    muon_checkpoint_close(cp);
}

/* ---- Compared */

static notes said;

/* What no load changes: of each param and of the config. */
TEST(what_is_fixed_at_creation_is_compared_too)
{
    static const char *const lines[] = {
        "wire is bf16, was f32 when the checkpoint was saved\n",
        "missing_grad is skip, was error when the checkpoint was saved\n",
        "nattention is 0, was 1 when the checkpoint was saved\n",
        "param 'c': dtype is bf16, was f32 when the checkpoint was saved\n",
        "param 'a': matrices is 2 x [3, 5], was [6, 5] when the checkpoint was saved\n",
        "param 'b': matrices is [5, 7], transposed, was [5, 7] when the checkpoint was saved\n",
    };
    fleet f;
    ship s, t;
    settings_fleet(&f);
    muon_attention attention;
    muon_attention_init(&attention, sizeof attention);
    attention.name = "heads";
    attention.q = attention.k = "a";
    attention.heads = attention.kv_heads = 1;
    attention.head_dim = 3;
    attention.k_row = 3;
    f.config.attention = &attention;
    f.config.nattention = 1;
    scratch root = scratch_make();
    fleet_run_whole(&s, &f, 2);
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    assert_ok(muon_save(s.opt, root.path, &args));
    f.config.nattention = 0;
    f.config.wire = MUON_BF16;
    f.config.missing_grad = MUON_MISSING_GRAD_SKIP;
    f.params[0].matrices = "rows / 2";
    f.params[1].matrices = "transposed";
    f.params[2].dtype = MUON_BF16;
    for (int restore = 0; restore < 2; restore++) { /* restored or not, these stay what they are */
        listen(&f, &said);
        assert_ok(ship_create(&t, &f, NULL));
        forget(&said);
        muon_load_args how;
        muon_load_args_init(&how, sizeof how);
        how.restore_settings = restore;
        assert_ok(muon_load(t.opt, root.path, &how, NULL));
        size_t length = 0;
        for (size_t i = 0; i < COUNT(lines); i++) {
            if (count_notes(&said, lines[i]) != 1) fail_msg("%sis not in\n%s", lines[i], said.text);
            length += strlen(lines[i]);
        }
        if (strlen(said.text) != length) fail_msg("there is more:\n%s", said.text);
        ship_destroy(&t);
    }
    ship_destroy(&s);
    scratch_remove(&root);
}

/* A group of parameters that were in two: what is another value for either of them is named. */
TEST(a_group_that_was_two_is_compared_with_both)
{
    fleet f;
    ship t;
    settings_fleet(&f);
    f.groups[OTHERS].momentum_form = MUON_HEAVY_BALL;
    f.params[2].group = MUONS;
    listen(&f, &said);
    assert_ok(ship_create(&t, &f, NULL));
    forget(&said);
    muon_load_args args = load_args(&t);
    assert_fails(muon_load(t.opt, kept.root.path, &args, NULL), MUON_E_VALUE, "another form 'c'");
    scratch copy = scratch_make();
    copy_changed(kept.root.path, copy.path, "muon.group.1.momentum_form", "heavy_ball");
    forget(&said);
    assert_ok(muon_load(t.opt, copy.path, &args, NULL));
    assert_int_equal(count_notes(&said, "group 'muons', param 'c': momentum is 0.9, was 0.95 "), 1);
    assert_int_equal(count_notes(&said, "group 'muons', param 'c': coefficients is "), 1);
    assert_int_equal(count_notes(&said, "param 'a'"), 0);
    ship_destroy(&t);
    scratch_remove(&copy);
}

/* A checkpoint of 0.3.0 does not say these things, and nothing is said of them. */
TEST(what_was_not_saved_is_not_compared)
{
    static const char *const keys[] = {"muon.wire", "muon.dtype.a", "muon.matrices.b"};
    fleet f;
    ship t;
    settings_fleet(&f);
    f.config.wire = MUON_BF16;
    f.params[1].matrices = "transposed";
    listen(&f, &said);
    assert_ok(ship_create(&t, &f, NULL));
    forget(&said);
    assert_ok(load(&t, kept.root.path, 0));
    assert_int_equal(count_notes(&said, "\n"), 2);
    scratch copies[COUNT(keys)];
    const char *from = kept.root.path;
    for (size_t i = 0; i < COUNT(keys); i++) {
        copies[i] = scratch_make();
        copy_changed(from, copies[i].path, keys[i], NULL);
        from = copies[i].path;
    }
    forget(&said);
    assert_ok(load(&t, from, 0));
    assert_string_equal(said.text, "");
    ship_destroy(&t);
    for (size_t i = 0; i < COUNT(keys); i++)
        scratch_remove(&copies[i]);
}

TEST(differences_are_warned_of)
{
    fleet f;
    ship t;
    settings_fleet(&f);
    listen(&f, &said);
    assert_ok(ship_create(&t, &f, NULL));
    assert_ok(load(&t, kept.root.path, 0));
    assert_string_equal(said.text, "");
    assert_ok(muon_opt_set_lr(t.opt, MUONS, 0.5));
    assert_ok(muon_opt_set_clip_norm(t.opt, 3));
    assert_ok(muon_opt_set_skip_norm(t.opt, 44));
    assert_ok(muon_opt_set_qk_clip(t.opt, 77, 0));
    muon_group group = group_of(&t, OTHERS);
    group.custom = other_custom;
    group.momentum = 0.8;
    assert_ok(muon_opt_set_group(t.opt, OTHERS, &group));
    assert_ok(load(&t, kept.root.path, 0));
    static const char *const lines[] = {
        "group 'others': momentum is 0.8, was 0.95 when the checkpoint was saved\n",
        "group 'others': custom[1] is (1.5, -0.5, 0.2), was (1.5, -0.5, 0.1) when the checkpoint "
        "was "
        "saved\n",
        "clip_norm is 3, was 0.7 when the checkpoint was saved\n",
        "skip_norm is 44, was 4000 when the checkpoint was saved\n",
        "qk_threshold is 77, was 55.5 when the checkpoint was saved\n",
        "qk_log_only is 0, was 1 when the checkpoint was saved\n",
    };
    size_t length = 0;
    for (size_t i = 0; i < COUNT(lines); i++) {
        if (count_notes(&said, lines[i]) != 1) fail_msg("%sis not in\n%s", lines[i], said.text);
        length += strlen(lines[i]);
    }
    assert_int_equal(strlen(said.text), length);
    assert_true(group_of(&t, MUONS).lr == 0.5); /* it stays */
    forget(&said);
    assert_ok(load(&t, kept.root.path, 1));
    assert_string_equal(said.text, "");
    assert_ok(load(&t, kept.root.path, 0));
    assert_string_equal(said.text, "");
    ship_destroy(&t);
}

/* With the settings the form comes back, so that momentum of another form fits. */
TEST(a_form_that_is_restored_fits)
{
    fleet f;
    ship t;
    settings_fleet(&f);
    f.groups[MUONS].momentum_form = MUON_EMA;
    assert_ok(ship_create(&t, &f, NULL));
    assert_fails(load(&t, kept.root.path, 0), MUON_E_VALUE, "another form 'a'");
    assert_ok(load(&t, kept.root.path, 1));
    assert_int_equal(group_of(&t, MUONS).momentum_form, MUON_HEAVY_BALL);
    assert_ok(ship_run(&t, 3, 3));
    assert_ok(ship_run(&kept.saved, 3, 3));
    const char *wrong = ship_compare(&t, &kept.saved);
    if (wrong) fail_msg("%s", wrong);
    ship_destroy(&t);
}

/* ---- A locale that writes 0,02 */

TEST(a_decimal_comma_changes_nothing)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8",
                                        "de_DE",       "fr_FR",      "ru_RU.UTF-8"};
    const char *found = NULL;
    for (size_t i = 0; i < COUNT(names) && !found; i++)
        found = setlocale(LC_ALL, names[i]);
    if (!found || *localeconv()->decimal_point != ',') {
        setlocale(LC_ALL, "C");
        skip();
    }
    clear_shelf(); /* and saved in this locale */
    fill_shelf();
    fleet f;
    ship t;
    shuffled_fleet(&f);
    assert_ok(ship_create(&t, &f, NULL));
    assert_ok(load(&t, kept.root.path, 1));
    check_restored(&t);
    char text[16];
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5"); /* the caller's locale is as it was */
    setlocale(LC_ALL, "C");
    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, kept.root.path));
    assert_string_equal(muon_checkpoint_get_metadata(cp, "muon.qk_threshold"), "55.5");
    muon_checkpoint_close(cp);
    assert_ok(load(&t, kept.root.path, 1));
    check_restored(&t);
    ship_destroy(&t);
}

/* ---- Metadata that no save has written */

#define EIGHT "1 2 3;1 2 3;1 2 3;1 2 3;1 2 3;1 2 3;1 2 3;1 2 3;"

static const struct {
    const char *key, *value;
    muon_status status;
} strange[] = {
    {"muon.group.0.lr", "fast", MUON_E_FORMAT},
    {"muon.group.0.lr", "-1", MUON_E_FORMAT},
    {"muon.group.0.lr", "nan", MUON_E_FORMAT},
    {"muon.group.0.lr", "0,5", MUON_E_FORMAT},
    {"muon.group.0.lr_mode", "", MUON_E_FORMAT},
    {"muon.group.0.momentum", "1", MUON_E_FORMAT},
    {"muon.group.0.ns_steps", "99999999999999999999", MUON_E_FORMAT},
    {"muon.group.0.coefficients", "custom", MUON_E_FORMAT}, /* without a list */
    {"muon.group.1.custom", "1 2", MUON_E_FORMAT},
    {"muon.group.1.custom", "", MUON_E_FORMAT},
    {"muon.group.1.custom", "1 2 inf", MUON_E_FORMAT},
    {"muon.group.1.custom", "1 2 3 x", MUON_E_FORMAT},
    {"muon.group.1.custom", EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT "1 2 3", MUON_E_FORMAT},
    {"muon.clip_norm", "-1", MUON_E_FORMAT},
    {"muon.clip_norm", "nan", MUON_E_FORMAT},
    {"muon.skip_norm", "-1", MUON_E_FORMAT},
    {"muon.clip_norm", " 1", MUON_E_FORMAT},
    {"muon.qk_threshold", "-5", MUON_E_FORMAT},
    {"muon.qk_threshold", "", MUON_E_FORMAT},
    {"muon.param.a", "x", MUON_E_FORMAT},
    {"muon.param.a", "-1", MUON_E_FORMAT},
    {"muon.param.a", "99999999999999999999", MUON_E_VALUE}, /* another one than b's */
    {"muon.param.b", NULL, MUON_OK},
    {"muon.group.0.lr", NULL, MUON_OK}, /* of a version without it */
    {"muon.format", "2", MUON_E_VERSION},
    {"muon.clip_norm", NULL, MUON_OK},
    {"muon.skip_norm", NULL, MUON_OK},
};

TEST(strange_metadata_are_refused_before_anything_changes)
{
    ship t;
    scratch copy = scratch_make();
    assert_ok(ship_create(&t, &kept.f, NULL));
    for (size_t i = 0; i < COUNT(strange); i++) {
        copy_changed(kept.root.path, copy.path, strange[i].key, strange[i].value);
        assert_ok(ship_run(&t, 1, 1));
        assert_ok(muon_opt_set_lr(t.opt, MUONS, 0.25));
        uint64_t before = ship_digest(&t);
        muon_load_args args = load_args(&t);
        args.restore_settings = 1;
        muon_status status = muon_load(t.opt, copy.path, &args, NULL);
        if (status != strange[i].status)
            fail_msg("%s = %s: %s: %s", strange[i].key, strange[i].value, muon_status_name(status),
                     muon_last_error());
        if (status == MUON_OK) continue;
        if (ship_digest(&t) != before || group_of(&t, MUONS).lr != 0.25)
            fail_msg("%s = %s: something has changed", strange[i].key, strange[i].value);
    }
    ship_destroy(&t);
    scratch_remove(&copy);
}
