/* Checkpoints of state in the caller's memory: the same bytes, loaded into bound and unbound state. */
#include "tests/save/save_fleet.h"

typedef struct stage {
    fleet f;
    squadron q;
    ship second, fourth; /* one process, not bound, after two steps and after four */
    scratch root;
} stage;

static void set_stage(stage *s, int nranks)
{
    save_fleet(&s->f, nranks);
    fleet_run_whole(&s->second, &s->f, 2);
    fleet_run_whole(&s->fourth, &s->f, 4);
    s->root = scratch_make();
}

static void clear_stage(stage *s)
{
    ship_destroy(&s->second);
    ship_destroy(&s->fourth);
    scratch_remove(&s->root);
}

static muon_status act_move(ship *s, void *arg)
{
    (void)arg;
    return ship_move_state(s);
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

/* All ships' state is in their own memory. */
static void assert_bound(const squadron *q)
{
    for (int i = 0; i < q->n; i++)
        assert_ptr_equal(ship_state(&q->ships[i], 0, "step").data, q->ships[i].state[0].step);
}

static const int counts[] = {1, 2, 5};

TEST(bound_state_makes_the_same_files)
{
    for (size_t k = 0; k < COUNT(counts); k++)
        for (int beside = 0; beside < 2; beside++) {
            stage s;
            set_stage(&s, counts[k]);
            scratch plain = scratch_make();
            assert_ok(ship_save(&s.second, plain.path, 2));
            s.f.bind = 1;
            squadron_create(&s.q, &s.f, counts[k]);
            squadron_step(&s.q, 1);
            squadron_step(&s.q, 2);
            save_order order = {s.root.path, 2, beside};
            squadron_ok(&s.q, act_save, &order);
            compare_files("step 2", path_of("%s/step-00000002", plain.path),
                          path_of("%s/step-00000002", s.root.path));
            squadron_destroy(&s.q);
            scratch_remove(&plain);
            clear_stage(&s);
        }
}

/* From any number of ranks to any other, whoever is bound. */
TEST(it_loads_into_either_kind)
{
    for (size_t k = 0; k < COUNT(counts); k++)
        for (int bind = 0; bind < 4; bind++) { /* while saving, and after loading */
            stage s;
            set_stage(&s, counts[k]);
            s.f.bind = bind & 1;
            squadron_create(&s.q, &s.f, counts[k]);
            squadron_step(&s.q, 1);
            squadron_step(&s.q, 2);
            save_order order = {s.root.path, 2, 0};
            squadron_ok(&s.q, act_save, &order);
            squadron_destroy(&s.q);
            int nranks = counts[(k + 1) % COUNT(counts)];
            fleet other;
            save_fleet(&other, nranks);
            other.bind = bind >> 1;
            squadron_create(&s.q, &other, nranks);
            squadron_ok(&s.q, act_load, s.root.path);
            squadron_compare(&s.q, &s.second, "loaded");
            if (other.bind) squadron_ok(&s.q, act_move, NULL);
            if (other.bind) assert_bound(&s.q);
            squadron_step(&s.q, 3);
            squadron_step(&s.q, 4);
            squadron_compare(&s.q, &s.fourth, "resumed");
            squadron_destroy(&s.q);
            clear_stage(&s);
        }
}

/* The save has a copy: tensors may move, and their old memory be freed, before it is finished. */
TEST(state_may_move_while_it_is_being_saved)
{
    for (size_t k = 0; k < COUNT(counts); k++) {
        stage s;
        set_stage(&s, counts[k]);
        s.f.bind = 1;
        squadron_create(&s.q, &s.f, counts[k]);
        squadron_step(&s.q, 1);
        squadron_step(&s.q, 2);
        squadron_ok(&s.q, act_start, s.root.path);
        squadron_ok(&s.q, act_move, NULL);
        squadron_step(&s.q, 3);
        squadron_ok(&s.q, act_finish, NULL);
        squadron_ok(&s.q, act_load, s.root.path);
        squadron_compare(&s.q, &s.second, "what was saved");
        squadron_step(&s.q, 3);
        squadron_step(&s.q, 4);
        squadron_compare(&s.q, &s.fourth, "it goes on");
        squadron_destroy(&s.q);
        clear_stage(&s);
    }
}
