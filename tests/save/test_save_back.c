/* A run that goes back: it loads an earlier checkpoint and saves from there, into the same root. */
#include "tests/save/save_fleet.h"

/* Saved after steps 1, 2 and 3; then back to 1, on with other gradients, and saved as step 2. */
typedef struct trip {
    fleet f;
    squadron q;
    ship forth, back; /* one process, after step 3; and after steps 1 and 7 */
    scratch root;
    notes said;
} trip;

typedef struct order {
    const char *root;
    int64_t step;
    int keep, replace;
} order;

static muon_status act_save_as(ship *s, void *arg)
{
    const order *o = arg;
    muon_save_args args = save_args(s, o->step);
    args.keep = o->keep;
    args.replace = o->replace;
    return muon_save(s->opt, o->root, &args);
}

static muon_status act_load_back(ship *s, void *arg)
{
    muon_load_args args = load_args(s);
    args.fall_back = 1;
    return muon_load(s->opt, arg, &args, NULL);
}

static char *in_root(const trip *t, const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", t->root.path, name);
    return path;
}

static void go(trip *t, int nranks, int keep)
{
    save_fleet_small(&t->f, nranks);
    fleet_run_whole(&t->forth, &t->f, 3);
    fleet_run_whole(&t->back, &t->f, 1);
    assert_ok(ship_run(&t->back, 7, 7));
    listen(&t->f, &t->said);
    squadron_create(&t->q, &t->f, nranks);
    t->root = scratch_make();
    for (int step = 1; step <= 3; step++) {
        order forth = {t->root.path, step, 0, 0};
        squadron_step(&t->q, step);
        squadron_ok(&t->q, act_save_as, &forth);
    }
    squadron_ok(&t->q, act_load, in_root(t, "step-00000001"));
    squadron_step(&t->q, 7);
    order back = {t->root.path, 2, keep, 0};
    squadron_fails(&t->q, act_save_as, &back, MUON_E_IO, "step-00000002: exists already");
    back.replace = 1;
    squadron_ok(&t->q, act_save_as, &back);
    squadron_ok(&t->q, act_load, in_root(t, "step-00000003")); /* so that a load has work to do */
    squadron_compare(&t->q, &t->forth, "what was abandoned is still whole");
}

static void end(trip *t)
{
    squadron_destroy(&t->q);
    ship_destroy(&t->forth);
    ship_destroy(&t->back);
    scratch_remove(&t->root);
}

static const int counts[] = {1, 3};

TEST(the_newest_is_what_was_saved_last)
{
    for (size_t i = 0; i < COUNT(counts); i++) {
        trip t;
        go(&t, counts[i], 0);
        squadron_ok(&t.q, act_load, t.root.path);
        squadron_compare(&t.q, &t.back, "loaded");
        char target[64] = "";
        assert_true(readlink(in_root(&t, "latest"), target, sizeof target - 1) > 0);
        assert_string_equal(target, "step-00000002");
        muon_checkpoint *cp = NULL;
        assert_ok(muon_checkpoint_open(&cp, t.root.path));
        assert_int_equal(muon_checkpoint_get_step(cp), 2);
        muon_checkpoint_close(cp);
        int64_t *steps = NULL;
        size_t n = 0;
        assert_ok(muon_checkpoint_list(&steps, &n, t.root.path));
        assert_int_equal(n, 3);
        assert_true(steps[0] == 3 && steps[1] == 1 && steps[2] == 2);
        free(steps);
        end(&t);
    }
}

TEST(a_load_falls_back_to_the_runs_own)
{
    for (size_t i = 0; i < COUNT(counts); i++) {
        trip t;
        ship first;
        go(&t, counts[i], 0);
        fleet_run_whole(&first, &t.f, 1);
        assert_int_equal(truncate(in_root(&t, "step-00000002/model.safetensors"), 100), 0);
        squadron_fails(&t.q, act_load, t.root.path, MUON_E_FORMAT, "step-00000002/model");
        squadron_ok(&t.q, act_load_back, t.root.path);
        squadron_compare(&t.q, &first, "the one before it in the run");
        assert_int_equal(count_notes(&t.said, "loading the checkpoint before it"), 1);
        /* Only if there is none of its own is what was abandoned better than nothing. */
        assert_int_equal(unlink(in_root(&t, "step-00000001/COMPLETE")), 0);
        squadron_ok(&t.q, act_load_back, t.root.path);
        squadron_compare(&t.q, &t.forth, "what was abandoned");
        ship_destroy(&first);
        end(&t);
    }
}

TEST(what_was_abandoned_goes_first)
{
    trip t;
    fleet f;
    ship s;
    save_fleet_small(&f, 1);
    t.root = scratch_make();
    fleet_run_whole(&s, &f, 1);
    static const struct {
        int64_t step;
        const char *left;
    } saves[] = {
        {100, "latest step-00000100"},
        {200, "latest step-00000100 step-00000200"},
        {300, "latest step-00000100 step-00000200 step-00000300"},
        {150, "latest step-00000100 step-00000150 step-00000300"},
        {160, "latest step-00000100 step-00000150 step-00000160"},
        {170, "latest step-00000150 step-00000160 step-00000170"},
        {300, "latest step-00000160 step-00000170 step-00000300"},
        {10, "latest step-00000010 step-00000170 step-00000300"},
        {20, "latest step-00000010 step-00000020 step-00000300"},
        {30, "latest step-00000010 step-00000020 step-00000030"},
    };
    for (size_t i = 0; i < COUNT(saves); i++) {
        order o = {t.root.path, saves[i].step, 3, 0};
        int64_t newest = -1;
        assert_ok(act_save_as(&s, &o));
        assert_string_equal(names_in(t.root.path), saves[i].left);
        assert_ok(ship_load(&s, t.root.path, &newest));
        assert_int_equal(newest, saves[i].step);
    }
    ship_destroy(&s);
    scratch_remove(&t.root);
}

TEST(a_damaged_one_that_was_left_behind_is_not_the_newest)
{
    fleet f;
    ship s;
    scratch root = scratch_make();
    static const int64_t steps[] = {100, 300, 150};
    save_fleet_small(&f, 1);
    fleet_run_whole(&s, &f, 1);
    for (size_t i = 0; i < COUNT(steps); i++) {
        order o = {root.path, steps[i], 0, 0};
        int64_t newest = -1;
        assert_ok(act_save_as(&s, &o));
        assert_ok(ship_load(&s, root.path, &newest));
        assert_int_equal(newest, steps[i]);
        if (newest != 300) continue;
        const char *model = path_of("%s/step-00000300/model.safetensors", root.path);
        assert_int_equal(truncate(model, 100), 0);
        assert_int_equal(ship_load(&s, root.path, &newest), MUON_E_FORMAT);
        assert_ok(ship_load(&s, path_of("%s/step-00000100", root.path), &newest));
    }
    ship_destroy(&s);
    scratch_remove(&root);
}
