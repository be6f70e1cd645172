/* Saving beside training: what is saved is what there was at the start, whatever happens until the end.
 * The disk here waits to be told before it syncs, so that everything can happen in between. */
#include "tests/save/save_fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <time.h>

/* ---- A disk that waits, and threads that are not to be had */

static _Atomic int gate_is_closed, threads_fail;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int __wrap_fsync(int fd)
{
    while (gate_is_closed)
        rest();
    return __real_fsync(fd);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg)
{
    return threads_fail ? EAGAIN : __real_pthread_create(thread, attributes, start, arg);
}

/* ---- Acts */

static muon_status act_start(ship *s, void *arg)
{
    muon_save_args args = save_args(s, 1);
    muon_status status = muon_save_start(s->opt, arg, &args);
    memset(&args, 0xee, sizeof args); /* nobody needs them any more */
    return status;
}

static muon_status act_finish(ship *s, void *arg)
{
    (void)arg;
    return muon_save_finish(s->opt);
}

typedef struct stage {
    fleet f;
    squadron q;
    ship first; /* one process after one step */
    scratch root;
} stage;

static void set_stage(stage *s, int nranks)
{
    save_fleet(&s->f, nranks);
    fleet_run_whole(&s->first, &s->f, 1);
    squadron_create(&s->q, &s->f, nranks);
    squadron_step(&s->q, 1);
    s->root = scratch_make();
}

static void clear_stage(stage *s)
{
    squadron_destroy(&s->q);
    ship_destroy(&s->first);
    scratch_remove(&s->root);
}

static void wait_until_written(const squadron *q)
{
    for (int i = 0; i < q->n; i++)
        while (!muon_save_is_written(q->ships[i].opt))
            rest();
}

/* ---- Tests */

static const int counts[] = {1, 3};

TEST(weights_state_and_settings_are_those_of_the_start)
{
    for (size_t k = 0; k < COUNT(counts); k++) {
        stage s;
        set_stage(&s, counts[k]);
        gate_is_closed = 1;
        squadron_ok(&s.q, act_start, s.root.path);
        squadron_step(&s.q, 2);
        squadron_step(&s.q, 3);
        for (int i = 0; i < s.q.n; i++) { /* the caller's own doing */
            ship *t = &s.q.ships[i];
            for (size_t p = 0; p < s.f.nparams; p++)
                if (t->numel[p] && s.f.params[p].group != FROZEN)
                    memset(t->buffers[p].param, 0x55,
                           (size_t)t->numel[p] * fleet_bytes(s.f.params[p].dtype));
            assert_ok(muon_opt_set_lr(t->opt, MUONS, 0.77));
        }
        for (int i = 0; i < s.q.n; i++)
            assert_int_equal(muon_save_is_written(s.q.ships[i].opt), 0);
        gate_is_closed = 0;
        wait_until_written(&s.q);
        if (strstr(names_in(s.root.path), "latest")) fail_msg("it is complete before its end");
        squadron_ok(&s.q, act_finish, NULL);
        for (int i = 0; i < s.q.n; i++)
            assert_int_equal(muon_save_is_written(s.q.ships[i].opt), 1);
        assert_string_equal(names_in(s.root.path), "latest step-00000001");
        squadron_ok(&s.q, act_load, s.root.path);
        squadron_compare(&s.q, &s.first, "what was saved");
        muon_checkpoint *cp = NULL;
        assert_ok(muon_checkpoint_open(&cp, s.root.path));
        assert_string_equal(muon_checkpoint_get_metadata(cp, "muon.group.0.lr"), "0.02");
        muon_checkpoint_close(cp);
        clear_stage(&s);
    }
}

TEST(one_at_a_time)
{
    for (size_t k = 0; k < COUNT(counts); k++) {
        stage s;
        set_stage(&s, counts[k]);
        save_order order = {s.root.path, 2, 0};
        squadron_fails(&s.q, act_finish, NULL, MUON_E_ARG, "no save is under way");
        squadron_ok(&s.q, act_start, s.root.path);
        squadron_fails(&s.q, act_start, s.root.path, MUON_E_ARG, "waits for muon_save_finish");
        squadron_fails(&s.q, act_save, &order, MUON_E_ARG, "waits for muon_save_finish");
        squadron_fails(&s.q, act_load, s.root.path, MUON_E_ARG, "waits for muon_save_finish");
        squadron_ok(&s.q, act_finish, NULL);
        squadron_fails(&s.q, act_finish, NULL, MUON_E_ARG, "no save is under way");
        squadron_ok(&s.q, act_save, &order);
        assert_string_equal(names_in(s.root.path), "latest step-00000001 step-00000002");
        clear_stage(&s);
    }
}

TEST(arguments_that_are_null)
{
    assert_fails(muon_save_start(NULL, "x", NULL), MUON_E_ARG, "opt must not be NULL");
    assert_fails(muon_save_finish(NULL), MUON_E_ARG, "opt must not be NULL");
    assert_int_equal(muon_save_is_written(NULL), 1);
}

/* An optimizer that is destroyed meanwhile takes its save with it. */
TEST(destroying_the_optimizer_leaves_nothing)
{
    for (size_t k = 0; k < COUNT(counts); k++)
        for (int written = 0; written < 2; written++) {
            stage s;
            set_stage(&s, counts[k]);
            save_order order = {s.root.path, 0, 0};
            squadron_ok(&s.q, act_save, &order);
            squadron_ok(&s.q, act_start, s.root.path);
            if (written) wait_until_written(&s.q);
            squadron_destroy(&s.q);
            assert_string_equal(names_in(s.root.path), "latest step-00000000");
            squadron_create(&s.q, &s.f, counts[k]);
            squadron_ok(&s.q, act_load, s.root.path);
            squadron_compare(&s.q, &s.first, "the one before");
            order.step = 1;
            squadron_ok(&s.q, act_save, &order);
            clear_stage(&s);
        }
}

TEST(a_step_that_exists_is_an_error_at_the_start)
{
    for (size_t k = 0; k < COUNT(counts); k++) {
        stage s;
        set_stage(&s, counts[k]);
        save_order order = {s.root.path, 1, 0};
        squadron_ok(&s.q, act_save, &order);
        squadron_fails(&s.q, act_start, s.root.path, MUON_E_IO, "exists already");
        squadron_fails(&s.q, act_finish, NULL, MUON_E_ARG, "no save is under way");
        squadron_step(&s.q, 2);
        clear_stage(&s);
    }
}

/* Somebody else has saved the same step meanwhile: theirs stays. */
TEST(a_step_that_came_to_exist_is_an_error_at_the_end)
{
    stage s;
    set_stage(&s, 1);
    squadron_ok(&s.q, act_start, s.root.path);
    assert_int_equal(mkdir(path_of("%s/step-00000001", s.root.path), 0777), 0);
    write_whole(path_of("%s/step-00000001/file", s.root.path), "x", 1);
    squadron_fails(&s.q, act_finish, NULL, MUON_E_IO, "step-00000001: exists already");
    assert_string_equal(names_in(s.root.path), "step-00000001");
    assert_string_equal(names_in(path_of("%s/step-00000001", s.root.path)), "file");
    clear_stage(&s);
}

TEST(without_a_thread_it_is_written_at_once)
{
    fleet f;
    ship s, first;
    save_fleet(&f, 1);
    fleet_run_whole(&first, &f, 1);
    fleet_run_whole(&s, &f, 1);
    scratch root = scratch_make();
    threads_fail = 1;
    assert_ok(act_start(&s, root.path));
    threads_fail = 0;
    assert_int_equal(muon_save_is_written(s.opt), 1);
    assert_ok(ship_run(&s, 2, 2));
    assert_ok(muon_save_finish(s.opt));
    assert_ok(ship_load(&s, root.path, NULL));
    const char *wrong = ship_compare_tensors(&s, &first);
    if (wrong) fail_msg("%s", wrong);
    ship_destroy(&s);
    ship_destroy(&first);
    scratch_remove(&root);
}

/* Two optimizers save into the same root, each while the other is at it. */
TEST(two_optimizers_in_one_root)
{
    fleet f;
    ship a, b;
    save_fleet(&f, 1);
    fleet_run_whole(&a, &f, 1);
    fleet_run_whole(&b, &f, 2);
    scratch root = scratch_make();
    muon_save_args first = save_args(&a, 1), second = save_args(&b, 2);
    assert_ok(muon_save_start(a.opt, root.path, &first));
    assert_ok(muon_save_start(b.opt, root.path, &second));
    assert_fails(muon_save(b.opt, root.path, &first), MUON_E_ARG, "muon_save_finish");
    ship c;
    fleet_run_whole(&c, &f, 2);
    assert_fails(ship_save(&c, root.path, 1), MUON_E_IO, "another process is saving step 1");
    assert_ok(muon_save_finish(a.opt));
    assert_ok(muon_save_finish(b.opt));
    assert_string_equal(names_in(root.path), "latest step-00000001 step-00000002");
    int64_t step = -1;
    assert_ok(ship_load(&a, root.path, &step));
    assert_int_equal(step, 2);
    const char *wrong = ship_compare_tensors(&a, &b);
    if (wrong) fail_msg("%s", wrong);
    ship_destroy(&a);
    ship_destroy(&b);
    ship_destroy(&c);
    scratch_remove(&root);
}

static int refuse(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    (void)user, (void)x, (void)rows, (void)cols, (void)ld;
    return 1;
}

/* A step that fails on all ranks breaks the optimizer, and is when a checkpoint is needed most. */
TEST(it_is_completed_after_a_step_that_failed)
{
    for (int nranks = 1; nranks <= 2; nranks++) {
        scratch root = scratch_make();
        fleet f;
        squadron q;
        int step = 1;
        save_fleet_small(&f, nranks);
        f.config.orthogonalize = refuse;
        squadron_create(&q, &f, nranks);
        squadron_ok(&q, act_start, root.path);
        squadron_fails(&q, act_step, &step, MUON_E_CALLBACK, "");
        squadron_ok(&q, act_finish, NULL);
        assert_string_equal(names_in(root.path), "latest step-00000001");
        squadron_destroy(&q);
        scratch_remove(&root);
    }
}

/* A relative root is where it was when the save was started, wherever the process has gone since. */
TEST(a_relative_root_stays_where_it_was)
{
    for (size_t i = 0; i < COUNT(counts); i++) {
        fleet f;
        squadron q;
        save_fleet(&f, counts[i]);
        squadron_create(&q, &f, counts[i]);
        scratch here = scratch_make(), elsewhere = scratch_make();
        int before = open(".", O_RDONLY);
        assert_true(before >= 0);
        assert_int_equal(chdir(here.path), 0);
        char relative[] = "ckpts";
        squadron_step(&q, 1);
        squadron_ok(&q, act_start, relative);
        assert_int_equal(chdir(elsewhere.path), 0);
        squadron_step(&q, 2);
        squadron_ok(&q, act_finish, NULL);
        assert_string_equal(names_in(elsewhere.path), "");
        assert_string_equal(names_in(path_of("%s/ckpts", here.path)), "latest step-00000001");
        assert_int_equal(fchdir(before), 0);
        close(before);
        squadron_destroy(&q);
        scratch_remove(&here);
        scratch_remove(&elsewhere);
    }
}
