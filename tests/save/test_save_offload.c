/* Checkpoints of optimizers whose state is in a file: the same bytes, and loaded from one kind into the
 * other. */
#include "tests/save/save_fleet.h"

enum { BUDGET = 1 << 20 };

static muon_status act_offload(ship *s, void *arg) /* the directory, or NULL */
{
    return muon_offload(s->opt, arg, BUDGET);
}

static muon_status act_offload_half(ship *s, void *arg)
{
    muon_offload_info info;
    muon_status status = muon_opt_get_offload(s->opt, &info, sizeof info);
    return status == MUON_OK ? muon_offload(s->opt, arg, info.state_bytes / 2) : status;
}

static muon_status act_start(ship *s, void *arg)
{
    muon_save_args args = save_args(s, 2);
    return muon_save_start(s->opt, arg, &args);
}

static muon_status act_finish(ship *s, void *arg)
{
    (void)arg;
    return muon_save_finish(s->opt);
}

typedef struct stage {
    fleet f;
    squadron q;
    ship second, fourth; /* one process after two steps and after four */
    scratch root;
} stage;

static void set_stage(stage *s, int nranks, int bind)
{
    save_fleet(&s->f, nranks);
    s->f.bind = bind;
    fleet_run_whole(&s->second, &s->f, 2);
    fleet_run_whole(&s->fourth, &s->f, 4);
    squadron_create(&s->q, &s->f, nranks);
    s->root = scratch_make();
}

static void clear_stage(stage *s)
{
    squadron_destroy(&s->q);
    ship_destroy(&s->second);
    ship_destroy(&s->fourth);
    scratch_remove(&s->root);
}

/* Everything is read back into memory, where it can be compared. */
static void compare(stage *s, const ship *want, const char *when)
{
    squadron_ok(&s->q, act_offload, NULL);
    squadron_compare(&s->q, want, when);
}

static const int counts[] = {1, 2, 5};

TEST(an_offloaded_state_makes_the_same_files)
{
    for (int bind = 0; bind <= 1; bind++) {
        for (size_t k = 0; k < COUNT(counts); k++)
            for (int beside = 0; beside < 2; beside++) {
                stage s;
                set_stage(&s, counts[k], bind);
                scratch plain = scratch_make();
                assert_ok(ship_save(&s.second, plain.path, 2));
                save_order order = {s.root.path, 2, beside};
                squadron_step(&s.q, 1);
                squadron_ok(&s.q, act_offload, s.root.path);
                squadron_step(&s.q, 2);
                squadron_ok(&s.q, act_save, &order);
                compare_files("step 2", path_of("%s/step-00000002", plain.path),
                              path_of("%s/step-00000002", s.root.path));
                squadron_step(&s.q, 3);
                squadron_step(&s.q, 4);
                compare(&s, &s.fourth, "it goes on");
                scratch_remove(&plain);
                clear_stage(&s);
            }
    }
}

TEST(it_loads_into_either_kind)
{
    for (int bind = 0; bind <= 1; bind++) {
        for (size_t k = 0; k < COUNT(counts); k++)
            for (int saved = 0; saved < 2; saved++) {
                stage s;
                set_stage(&s, counts[k], bind);
                save_order order = {s.root.path, 2, 0};
                squadron_step(&s.q, 1);
                squadron_step(&s.q, 2);
                if (saved) squadron_ok(&s.q, act_offload, s.root.path);
                squadron_ok(&s.q, act_save, &order);
                squadron_step(&s.q, 3);
                squadron_ok(&s.q, act_offload, saved ? NULL : s.root.path);
                squadron_ok(&s.q, act_load, s.root.path);
                squadron_step(&s.q, 3);
                squadron_step(&s.q, 4);
                compare(&s, &s.fourth, "resumed");
                clear_stage(&s);
            }
    }
}

/* It is written at once, and only synced while steps go on. */
TEST(steps_may_follow_before_it_is_finished)
{
    for (int bind = 0; bind <= 1; bind++) {
        for (size_t k = 0; k < COUNT(counts); k++) {
            stage s;
            set_stage(&s, counts[k], bind);
            squadron_ok(&s.q, act_offload, s.root.path);
            squadron_step(&s.q, 1);
            squadron_step(&s.q, 2);
            squadron_ok(&s.q, act_start, s.root.path);
            squadron_step(&s.q, 3);
            squadron_step(&s.q, 4);
            squadron_ok(&s.q, act_finish, NULL);
            squadron_ok(&s.q, act_load, s.root.path);
            compare(&s, &s.second, "what was saved");
            clear_stage(&s);
        }
    }
}

/* State goes to a file, or comes back, while it is being saved. */
TEST(it_may_move_meanwhile)
{
    for (int bind = 0; bind <= 1; bind++) {
        for (size_t k = 0; k < COUNT(counts); k++)
            for (int first = 0; first < 2; first++) {
                stage s;
                set_stage(&s, counts[k], bind);
                squadron_ok(&s.q, act_offload, first ? s.root.path : NULL);
                squadron_step(&s.q, 1);
                squadron_step(&s.q, 2);
                squadron_ok(&s.q, act_start, s.root.path);
                squadron_ok(&s.q, act_offload, first ? NULL : s.root.path);
                squadron_step(&s.q, 3);
                squadron_ok(&s.q, act_finish, NULL);
                squadron_ok(&s.q, act_load, s.root.path);
                squadron_step(&s.q, 3);
                squadron_step(&s.q, 4);
                compare(&s, &s.fourth, "after the move");
                clear_stage(&s);
            }
    }
}

/* The state's own file has no name: it is never taken for a part of a checkpoint. */
TEST(nothing_of_it_is_seen_in_the_root)
{
    stage s;
    set_stage(&s, 2, 0);
    save_order order = {s.root.path, 2, 0};
    squadron_ok(&s.q, act_offload, s.root.path);
    squadron_step(&s.q, 1);
    squadron_ok(&s.q, act_save, &order);
    assert_string_equal(names_in(s.root.path), "latest step-00000002");
    clear_stage(&s);
}

/* A column shard has many short pieces of a stripe, but one piece of it is one piece of the shard: it is
 * read, or written, with one call. */
TEST(column_shards_are_read_and_written_about_once)
{
    enum { RANKS = 2 };
    stage s = {.root = scratch_make()};
    fleet_init(&s.f);
    fleet_mesh(&s.f, "mesh", "tp", RANKS, NULL);
    fleet_add(&s.f, ADAMWS, "w", NULL, "1: tp", SHAPE(1024, 256));
    s.f.config.allow_no_muon = 1;
    squadron_create(&s.q, &s.f, RANKS);
    squadron_step(&s.q, 1);
    squadron_ok(&s.q, act_offload_half, s.root.path);
    muon_offload_info before[RANKS], after[RANKS];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < RANKS; i++)
            assert_ok(muon_opt_get_offload(s.q.ships[i].opt, &before[i], sizeof before[i]));
        save_order order = {s.root.path, 2, 0};
        if (k == 0)
            squadron_ok(&s.q, act_save, &order);
        else
            squadron_ok(&s.q, act_load, s.root.path);
        for (int i = 0; i < RANKS; i++) {
            assert_ok(muon_opt_get_offload(s.q.ships[i].opt, &after[i], sizeof after[i]));
            int64_t moved = after[i].bytes_read - before[i].bytes_read + after[i].bytes_written -
                            before[i].bytes_written;
            if (moved == 0 || moved > 3 * after[i].state_bytes)
                fail_msg("rank %d moved %lld bytes of a state of %lld", i, (long long)moved,
                         (long long)after[i].state_bytes);
        }
    }
    squadron_destroy(&s.q);
    scratch_remove(&s.root);
}
