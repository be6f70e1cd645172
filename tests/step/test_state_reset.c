/* test_state_reset.c - a momentum that has overflowed: the matrix is named, and its state can start again. */
#include "tests/save/save_fleet.h"

typedef struct said {
    int count;
    char text[512];
} said;

static void hear(void *user, muon_log_level level, const char *message)
{
    said *s = user;
    if (level != MUON_LOG_WARN) return;
    s->count++;
    snprintf(s->text, sizeof s->text, "%s", message);
}

static void make_fleet(fleet *f, int nranks)
{
    fleet_fsdp(f, nranks);
    f->groups[MUONS].weight_decay = 0;
    f->groups[MUONS].nesterov = 0;
    fleet_add(f, MUONS, "calm", NULL, "0: fsdp", SHAPE(6, 8));
    fleet_add(f, MUONS, "wild", "rows / 2", "1: fsdp", SHAPE(8, 6));
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(9));
}

/* Two gradients whose sum no f32 holds, for the second matrix of `wild`. */
static muon_status run(ship *s, void *arg)
{
    (void)arg;
    for (int step = 1; step <= 5; step++) {
        ship_fill_grads(s, step);
        for (int64_t e = 0; step <= 2 && e < s->numel[1]; e++)
            if (s->index[1][e] >= 4 * 6) ((float *)s->grads[1])[e] = 3e38f;
        if (step == 4) {
            muon_status status = muon_state_reset(s->opt, 1);
            if (status != MUON_OK) return status;
        }
        muon_status status = ship_step(s);
        if (status != MUON_OK) return status;
        if (s->result.nonfinite_matrices != (step == 2 || step == 3)) return MUON_E_NONFINITE;
    }
    return MUON_OK;
}

TEST(an_overflow_is_named_once_and_a_reset_ends_it)
{
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        said heard = {0};
        fleet f;
        make_fleet(&f, 1);
        f.config.path = (muon_path)path;
        f.config.log = hear;
        f.config.user = &heard;
        ship s;
        assert_ok(ship_create(&s, &f, NULL));
        assert_ok(run(&s, NULL));
        assert_int_equal(heard.count, 1);
        assert_non_null(
            strstr(heard.text, "param 'wild': the 4 x 6 matrix at batch 0, row 4, column 0"));
        assert_int_equal(*(int64_t *)ship_state(&s, 1, "step").data, 2);
        assert_int_equal(*(int64_t *)ship_state(&s, 0, "step").data, 5);
        assert_true(s.result.update_rms > 0);
        assert_fails(muon_state_reset(s.opt, 3), MUON_E_ARG, "parameter 3 does not exist");
        assert_fails(muon_state_reset(NULL, 0), MUON_E_ARG, "opt");
        ship_destroy(&s);
    }
}

typedef struct reset_task {
    const fleet *f;
    const ship *whole;
    const char *dir; /* where state is offloaded, or NULL */
} reset_task;

static void run_rank(int rank, const muon_comm *comm, void *arg)
{
    const reset_task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    if (t->dir) rank_ok(muon_offload(s.opt, t->dir, 1 << 24));
    rank_ok(run(&s, NULL));
    if (t->dir) rank_ok(muon_offload(s.opt, NULL, 0));
    rank_same(&s, t->whole);
    ship_destroy(&s);
}

TEST(ranks_and_offloaded_state_have_the_same_bits)
{
    scratch dir = scratch_make();
    fleet f;
    make_fleet(&f, 3);
    ship whole;
    assert_ok(ship_create(&whole, &f, NULL));
    assert_ok(run(&whole, NULL));
    for (int offloaded = 0; offloaded <= 1; offloaded++) {
        reset_task t = {&f, &whole, offloaded ? dir.path : NULL};
        ranks_run(3, run_rank, &t);
    }
    ship_destroy(&whole);
    scratch_remove(&dir);
}
