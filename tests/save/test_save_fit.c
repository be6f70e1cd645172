/* A checkpoint that does not fit: everything that is missing, extra, misshapen or of another form is
 * named, and nothing changes. */
#include "tests/save/save_fleet.h"

/* ---- A checkpoint of the usual model, by one process after two steps */

static shelf kept;

static void fill_shelf(void)
{
    save_fleet(&kept.f, 1);
    shelf_fill(&kept);
}

static void clear_shelf(void)
{
    shelf_clear(&kept);
}

AROUND_EACH(fill_shelf, clear_shelf)

static muon_param *find(fleet *f, const char *name)
{
    for (size_t i = 0; i < f->nparams; i++)
        if (strcmp(f->params[i].name, name) == 0) return &f->params[i];
    abort();
}

/* ---- Models that differ from it */

static void add_one(fleet *f)
{
    fleet_add(f, MUONS, "new", NULL, NULL, SHAPE(3, 3));
}

static void drop_one(fleet *f)
{
    *find(f, "tall") = f->params[--f->nparams];
}

static void rename_one(fleet *f)
{
    find(f, "whole")->name = "entire";
}

static void reshape_one(fleet *f)
{
    find(f, "tall")->shape[0] = 131;
}

static void turn_one(fleet *f)
{
    find(f, "wide")->shape[0] = 70;
    find(f, "wide")->shape[1] = 30;
}

static void flatten_one(fleet *f)
{
    find(f, "few")->ndim = 1;
    find(f, "few")->shape[0] = 6;
}

static void widen_weight(fleet *f)
{
    find(f, "half")->dtype = MUON_F32;
}

static void widen_momentum(fleet *f)
{
    f->groups[OTHERS].momentum_dtype = MUON_F32;
}

static void change_form(fleet *f)
{
    f->groups[MUONS].momentum_form = MUON_EMA;
}

static void change_rule(fleet *f)
{
    find(f, "tall")->group = ADAMWS;
}

static void thaw(fleet *f)
{
    find(f, "frozen")->group = MUONS;
}

static void freeze(fleet *f)
{
    find(f, "one")->group = FROZEN;
}

static const struct difference {
    const char *name;
    void (*make)(fleet *f);
    muon_status status;
    const char *texts[3];
} differences[] = {
    {"one more", add_one, MUON_E_NAME, {"missing 'new.momentum_buffer', 'new.step', 'new'"}},
    {"one less", drop_one, MUON_E_NAME, {"extra 'tall.step', 'tall.momentum_buffer', 'tall'"}},
    {"renamed",
     rename_one,
     MUON_E_NAME,
     {"missing 'entire.momentum_buffer'",
      "; extra 'whole.step', 'whole.momentum_buffer', 'whole'"}},
    {"another size",
     reshape_one,
     MUON_E_SHAPE,
     {"misshapen 'tall.momentum_buffer' (F32 [130, 20], must be F32 [131, 20])"}},
    {"transposed",
     turn_one,
     MUON_E_SHAPE,
     {"'wide.momentum_buffer' (F32 [30, 70], must be F32 [70, 30])", "'wide' (F32 [30, 70]"}},
    {"flattened", flatten_one, MUON_E_SHAPE, {"'few.exp_avg' (F32 [3, 2], must be F32 [6])"}},
    {"weights of another dtype",
     widen_weight,
     MUON_E_SHAPE,
     {"'half' (BF16 [64, 50], must be F32 [64, 50])"}},
    {"momentum of another dtype",
     widen_momentum,
     MUON_E_SHAPE,
     {"'half.momentum_buffer' (BF16 [64, 50], must be F32 [64, 50])"}},
    {"momentum of another form",
     change_form,
     MUON_E_VALUE,
     {"momentum of another form 'tall' (heavy_ball, must be ema)", "'wide'", "'experts'"}},
    {"another rule",
     change_rule,
     MUON_E_NAME,
     {"missing 'tall.exp_avg', 'tall.exp_avg_sq'", "extra 'tall.momentum_buffer'"}},
    {"trained from now on", thaw, MUON_E_NAME, {"missing 'frozen.momentum_buffer'"}},
    {"frozen from now on", freeze, MUON_E_NAME, {"extra 'one.step', 'one.exp_avg'"}},
};

typedef struct task {
    const fleet *f;
    const char *root;
    const struct difference *d;
} task;

static void load_and_fail(int rank, const muon_comm *comm, void *arg)
{
    const task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, 1));
    uint64_t before = ship_digest(&s);
    int64_t step = -7;
    for (size_t i = 0; i < COUNT(t->d->texts) && t->d->texts[i]; i++)
        rank_fails(ship_load(&s, t->root, &step), t->d->status, t->d->texts[i]);
    rank_check(strstr(muon_last_error(), "does not fit this optimizer"), "%s", muon_last_error());
    rank_check(step == -7 && ship_digest(&s) == before, "%s: something has changed", t->d->name);
    rank_ok(ship_run(&s, 2, 2)); /* nothing is broken */
    ship_destroy(&s);
}

TEST(what_does_not_fit_is_named_and_nothing_changes)
{
    static const int counts[] = {1, 3};
    for (size_t i = 0; i < COUNT(differences); i++)
        for (size_t k = 0; k < COUNT(counts); k++) {
            fleet f;
            save_fleet(&f, counts[k]);
            differences[i].make(&f);
            task t = {&f, kept.root.path, &differences[i]};
            ranks_run(counts[k], load_and_fail, &t);
        }
}

/* ---- Many of them */

enum { MANY = 30 };

static void name_many(fleet *f, char (*names)[24])
{
    fleet_init(f);
    fleet_add(f, MUONS, "common", NULL, NULL, SHAPE(3, 3));
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "layers.%d.w", i);
        fleet_add(f, MUONS, names[i], NULL, NULL, SHAPE(2, 3));
    }
}

TEST(the_message_names_three_and_the_log_all)
{
    static char names[MANY][24], others[MANY][24];
    static notes said;
    fleet f, g;
    ship s, t;
    name_many(&f, names);
    name_many(&g, others);
    for (int i = 0; i < MANY; i++)
        others[i][0] = 'L';
    listen(&g, &said);
    scratch root = scratch_make();
    fleet_run_whole(&s, &f, 1);
    assert_ok(ship_save(&s, root.path, 1));
    assert_ok(ship_create(&t, &g, NULL));
    muon_load_args args = load_args(&t);
    args.buffers = NULL; /* momentum and step of each */
    assert_fails(muon_load(t.opt, root.path, &args, NULL), MUON_E_NAME,
                 "missing 'Layers.0.w.momentum_buffer', 'Layers.0.w.step', "
                 "'Layers.1.w.momentum_buffer' and 57 more; extra 'layers.");
    assert_true(strstr(muon_last_error(), " and 57 more; extra ") != NULL);
    const char *end = muon_last_error() + strlen(muon_last_error()) - strlen(" and 57 more");
    assert_string_equal(end, " and 57 more");
    for (int i = 0; i < MANY; i++) {
        if (count_notes(&said, path_of("missing: 'Layers.%d.w.momentum_buffer'\n", i)) != 1 ||
            count_notes(&said, path_of("missing: 'Layers.%d.w.step'\n", i)) != 1 ||
            count_notes(&said, path_of("extra: 'layers.%d.w.momentum_buffer'\n", i)) != 1 ||
            count_notes(&said, path_of("extra: 'layers.%d.w.step'\n", i)) != 1)
            fail_msg("layer %d is not in the log:\n%s", i, said.text);
    }
    ship_destroy(&s);
    ship_destroy(&t);
    scratch_remove(&root);
}

/* ---- What is allowed */

TEST(what_is_missing_may_stay_as_it_is)
{
    ship t;
    fleet f;
    save_fleet(&f, 1);
    add_one(&f);
    fleet_run_whole(&t, &f, 1);
    size_t new = f.nparams - 1;
    float weight[9], momentum[9];
    memcpy(weight, t.buffers[new].param, sizeof weight);
    memcpy(momentum, ship_state(&t, new, "momentum_buffer").data, sizeof momentum);
    muon_load_args args = load_args(&t);
    args.allow_extra = 1;
    assert_fails(muon_load(t.opt, kept.root.path, &args, NULL), MUON_E_NAME, "missing 'new");
    args.allow_extra = 0;
    args.allow_missing = 1;
    int64_t step = -1;
    assert_ok(muon_load(t.opt, kept.root.path, &args, &step));
    assert_int_equal(step, 2);
    assert_memory_equal(weight, t.buffers[new].param, sizeof weight);
    assert_memory_equal(momentum, ship_state(&t, new, "momentum_buffer").data, sizeof momentum);
    assert_int_equal(*(const int64_t *)ship_state(&t, new, "step").data, 1);
    for (size_t i = 0; i < kept.f.nparams; i++) {
        const char *wrong = ship_compare_bits(&t, i, "weight", t.buffers[i].param,
                                              kept.saved.buffers[i].param, f.params[i].dtype);
        if (!wrong) wrong = ship_compare_state(&t, i, &kept.saved);
        if (wrong) fail_msg("%s", wrong);
    }
    ship_destroy(&t);
}

TEST(what_is_extra_may_be_passed_over)
{
    ship t, want;
    fleet f;
    save_fleet(&f, 1);
    f.nparams = 3;
    fleet_run_whole(&want, &f, 2);
    assert_ok(ship_create(&t, &f, NULL));
    muon_load_args args = load_args(&t);
    args.allow_missing = 1;
    assert_fails(muon_load(t.opt, kept.root.path, &args, NULL), MUON_E_NAME, "extra 'e");
    args.allow_missing = 0;
    args.allow_extra = 1;
    assert_ok(muon_load(t.opt, kept.root.path, &args, NULL));
    const char *wrong = ship_compare_tensors(&t, &want);
    if (wrong) fail_msg("%s", wrong);
    ship_destroy(&want);
    ship_destroy(&t);
}

/* Both together, a shape that is wrong is wrong all the same. */
TEST(shapes_must_fit_whatever_is_allowed)
{
    ship t;
    fleet f;
    save_fleet(&f, 1);
    reshape_one(&f);
    assert_ok(ship_create(&t, &f, NULL));
    muon_load_args args = load_args(&t);
    args.allow_missing = args.allow_extra = args.restore_settings = args.fall_back = 1;
    assert_fails(muon_load(t.opt, kept.root.path, &args, NULL), MUON_E_SHAPE, "'tall'");
    ship_destroy(&t);
}

/* A checkpoint of state alone: without buffers it loads; with buffers all weights are missing. */
TEST(weights_that_were_not_saved_are_missing)
{
    fleet f;
    ship s;
    save_fleet(&f, 1);
    scratch root = scratch_make();
    fleet_run_whole(&s, &f, 1);
    muon_save_args save = save_args(&s, 1);
    save.buffers = NULL;
    assert_ok(muon_save(s.opt, root.path, &save));
    assert_fails(ship_load(&s, root.path, NULL), MUON_E_NAME,
                 "missing 'tall', 'wide', 'half' and 5 more");
    muon_load_args args = load_args(&s);
    args.buffers = NULL;
    assert_ok(muon_load(s.opt, root.path, &args, NULL));
    ship_destroy(&s);
    scratch_remove(&root);
}

/* Weights in the checkpoint that nobody asks for are not extra, and stay where they are. */
TEST(weights_that_are_not_asked_for_are_not_touched)
{
    ship t;
    assert_ok(ship_create(&t, &kept.f, NULL));
    float before = *(float *)t.buffers[0].param;
    muon_load_args args = load_args(&t);
    args.buffers = NULL;
    assert_ok(muon_load(t.opt, kept.root.path, &args, NULL));
    assert_memory_equal(&before, t.buffers[0].param, sizeof before);
    for (size_t i = 0; i < kept.f.nparams; i++) {
        const char *wrong = ship_compare_state(&t, i, &kept.saved);
        if (wrong) fail_msg("%s", wrong);
    }
    ship_destroy(&t);
}

/* ---- Again and again */

TEST(a_load_makes_the_optimizer_forget_what_it_was)
{
    ship t, on;
    fleet_run_whole(&on, &kept.f, 4);
    fleet_run_whole(&t, &kept.f, 5);
    for (int again = 0; again < 3; again++) {
        int64_t step = -1;
        assert_ok(ship_load(&t, kept.root.path, &step));
        if (again == 1) assert_ok(ship_load(&t, kept.root.path, &step)); /* twice in a row */
        assert_int_equal(step, 2);
        const char *wrong = ship_compare_tensors(&t, &kept.saved);
        if (wrong) fail_msg("%s", wrong);
        assert_ok(ship_run(&t, 3, 4));
        wrong = ship_compare(&t, &on);
        if (wrong) fail_msg("%s", wrong);
    }
    ship_destroy(&t);
    ship_destroy(&on);
}

/* Parameters have steps of their own: AdamW's bias correction depends on them. */
TEST(steps_of_single_parameters_come_back)
{
    fleet f;
    ship s, t;
    save_fleet(&f, 1);
    scratch root = scratch_make();
    assert_ok(ship_create(&s, &f, NULL));
    for (int step = 1; step <= 4; step++) {
        ship_fill_grads(&s, step);
        for (size_t i = 0; i < f.nparams; i++)
            s.buffers[i].grad = (step + (int)i) % 3 == 0 ? NULL : s.grads[i];
        assert_ok(ship_step(&s));
    }
    assert_ok(ship_save(&s, root.path, 4));
    assert_ok(ship_create(&t, &f, NULL));
    assert_ok(ship_load(&t, root.path, NULL));
    assert_int_not_equal(*(const int64_t *)ship_state(&t, 5, "step").data,
                         *(const int64_t *)ship_state(&t, 7, "step").data);
    for (size_t i = 0; i < f.nparams; i++)
        s.buffers[i].grad = s.grads[i];
    assert_ok(ship_run(&s, 5, 6));
    assert_ok(ship_run(&t, 5, 6));
    const char *wrong = ship_compare(&t, &s);
    if (wrong) fail_msg("%s", wrong);
    ship_destroy(&s);
    ship_destroy(&t);
    scratch_remove(&root);
}
