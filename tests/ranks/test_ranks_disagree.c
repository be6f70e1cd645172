/* Ranks that do not say the same: at creation, in settings between steps, in replicas that have drifted
 * apart. Always the same error on every rank, which names what differs, and always a way back. */
#include "tests/world/fleet.h"

enum { RANKS = 4, ODD = 2 }; /* ODD: the rank that says something else */

static void add_params(fleet *f)
{
    fleet_mesh(f, "mesh", "replicate", 2, "fsdp", 2, NULL);
    fleet_mesh(f, "other", "a", 4, NULL);
    fleet_add(f, MUONS, "dense", NULL, "0: fsdp", SHAPE(9, 14));
    fleet_add(f, MUONS, "experts", "batch 1", "0: fsdp", SHAPE(3, 5, 8));
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(11));
    fleet_add(f, OTHERS, "whole", NULL, NULL, SHAPE(6, 7));
}

/* ---- At creation */

static void rename_param(fleet *f)
{
    f->params[2].name = "morn";
}

/* A dict whose order depends on the process. */
static void reorder(fleet *f)
{
    muon_param first = f->params[0];
    f->params[0] = f->params[3];
    f->params[3] = first;
}

static void reshape(fleet *f)
{
    f->params[0].shape[1] = 15;
}

static void drop_last(fleet *f)
{
    f->nparams--;
}

static void widen(fleet *f)
{
    f->params[1].grad_dtype = MUON_BF16;
}

static void regroup(fleet *f)
{
    f->params[3].group = MUONS;
}

static void redeclare(fleet *f)
{
    f->params[3].matrices = "rows / 2";
}

static void place_otherwise(fleet *f)
{
    f->params[0].placement = "1: fsdp";
}

static void use_other_mesh(fleet *f)
{
    f->params[0].mesh = "other";
    f->params[0].placement = "0: a";
}

static void change_lr(fleet *f)
{
    f->groups[OTHERS].lr = 0.03;
}

static void change_steps(fleet *f)
{
    f->groups[MUONS].ns_steps = 4;
}

static void change_clip(fleet *f)
{
    f->config.clip_norm = 1;
}

static void change_wire(fleet *f)
{
    f->config.wire = MUON_BF16;
}

static void change_seed(fleet *f)
{
    f->config.seed = 7;
}

static void change_path(fleet *f)
{
    f->config.path = MUON_PATH_REFERENCE;
}

static void change_machine(fleet *f)
{
    f->config.machine.ranks_per_node = 2;
}

static void change_depth(fleet *f)
{
    f->config.in_flight = 1;
}

static const struct difference {
    const char *name;
    void (*make)(fleet *f);
    const char *text;
} differences[] = {
    {"name", rename_param, "'norm' on rank 0, 'morn' on rank 2"},
    {"registration order", reorder, "'dense' on rank 0, 'whole' on rank 2"},
    {"shape", reshape, "shape"},
    {"number of parameters", drop_last, "4 parameters on rank 0, 3 on rank 2"},
    {"grad_dtype", widen, "grad_dtype"},
    {"group", regroup, "'whole'"},
    {"matrices", redeclare, "matrices"},
    {"placement", place_otherwise, "'dense'"},
    {"mesh", use_other_mesh, "'dense'"},
    {"lr", change_lr, "lr is 0.02 on rank 0, 0.03 on rank 2"},
    {"ns_steps", change_steps, "ns_steps"},
    {"clip_norm", change_clip, "clip_norm"},
    {"wire", change_wire, "wire"},
    {"seed", change_seed, "seed"},
    {"path", change_path, "path"},
    {"machine", change_machine, "ranks_per_node"},
    {"in_flight", change_depth, "in_flight"},
};

typedef struct create_task {
    const fleet *f;
    const struct difference *d;
} create_task;

static void create_differently(int rank, const muon_comm *comm, void *arg)
{
    const create_task *t = arg;
    fleet mine = *t->f;
    if (rank == ODD) t->d->make(&mine);
    ship s;
    rank_fails(ship_create(&s, &mine, comm), MUON_E_DISAGREE, t->d->text);
    rank_check(strstr(muon_last_error(), "rank 2"), "%s: %s", t->d->name, muon_last_error());
    rank_check(!s.opt, "%s: there is an optimizer", t->d->name);
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, 1));
    ship_destroy(&s);
}

TEST(a_difference_at_creation_is_named_on_every_rank)
{
    fleet f;
    fleet_init(&f);
    add_params(&f);
    for (size_t i = 0; i < COUNT(differences); i++) {
        create_task t = {&f, &differences[i]};
        ranks_run(RANKS, create_differently, &t);
    }
}

/* One rank's own mistake is not a difference: everybody hears of it in that rank's words. */
static void create_wrongly(int rank, const muon_comm *comm, void *arg)
{
    fleet mine = *(const fleet *)arg;
    ship s;
    if (rank == ODD) mine.groups[MUONS].momentum = 1.5;
    rank_fails(ship_create(&s, &mine, comm), MUON_E_VALUE, "rank 2: ");
    /* A config that cannot even be read does not say who the others are: they wait, but not forever. */
    mine.groups[MUONS].momentum = 0.9;
    mine.config.timeout = 0.3;
    if (rank == ODD) mine.config.struct_size = 8;
    if (rank == ODD)
        rank_fails(ship_create(&s, &mine, comm), MUON_E_VERSION, "muon_config");
    else
        rank_fails(ship_create(&s, &mine, comm), MUON_E_TIMEOUT,
                   "rank 2 did not reach muon_create");
}

TEST(a_mistake_of_one_rank_at_creation_is_everybodys)
{
    fleet f;
    fleet_init(&f);
    add_params(&f);
    ranks_run(RANKS, create_wrongly, &f);
}

static void differ_in_threads(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    fleet mine = *t->f;
    mine.config.threads = 1 + rank % 3;
    mine.config.timeout = 60 + rank;
    ship s;
    rank_ok(ship_create(&s, &mine, comm));
    rank_ok(ship_run(&s, 1, t->steps));
    rank_same(&s, t->whole);
    ship_destroy(&s);
}

TEST(ranks_may_have_different_numbers_of_threads)
{
    fleet f;
    fleet_init(&f);
    add_params(&f);
    fleet_check_by(differ_in_threads, &f, RANKS, 3);
}

/* ---- Settings between steps */

static muon_status set_lr(muon_opt *opt)
{
    return muon_opt_set_lr(opt, MUONS, 0.05);
}

static muon_status set_clip_norm(muon_opt *opt)
{
    return muon_opt_set_clip_norm(opt, 0.5);
}

static muon_status set_qk_clip(muon_opt *opt)
{
    return muon_opt_set_qk_clip(opt, 50, 0);
}

static muon_status set_momentum(muon_opt *opt)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    muon_status status = muon_opt_get_group(opt, OTHERS, &group);
    group.momentum = 0.5;
    return status == MUON_OK ? muon_opt_set_group(opt, OTHERS, &group) : status;
}

typedef struct setting {
    muon_status (*set)(muon_opt *opt);
    const char *text;
} setting;

static const setting settings[] = {
    {set_lr, "group 'muons': lr is 0.02 on rank 0, 0.05 on rank 2"},
    {set_clip_norm, "clip_norm is 0 on rank 0, 0.5 on rank 2"},
    {set_qk_clip, "qk_threshold is 100 on rank 0, 50 on rank 2"},
    {set_momentum, "group 'others': momentum is 0.95 on rank 0, 0.5 on rank 2"},
};

typedef struct setting_task {
    const fleet *f;
    const setting *setting;
    const ship *whole;
} setting_task;

static void set_differently(int rank, const muon_comm *comm, void *arg)
{
    const setting_task *t = arg;
    ship s;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, 1));
    if (rank == ODD) rank_ok(t->setting->set(s.opt));
    uint64_t before = ship_digest(&s);
    ship_fill_grads(&s, 2);
    rank_fails(ship_step(&s), MUON_E_DISAGREE, t->setting->text);
    rank_fails(ship_step(&s), MUON_E_DISAGREE, t->setting->text); /* and it stays so */
    rank_check(ship_digest(&s) == before, "something has changed");
    if (rank != ODD) rank_ok(t->setting->set(s.opt));
    rank_ok(ship_run(&s, 2, 3));
    rank_same(&s, t->whole);
    ship_destroy(&s);
}

TEST(a_setting_changed_on_one_rank_is_named_and_can_be_put_right)
{
    fleet f;
    fleet_init(&f);
    add_params(&f);
    for (size_t i = 0; i < COUNT(settings); i++) {
        ship whole;
        fleet_run_whole(&whole, &f, 1);
        assert_ok(settings[i].set(whole.opt));
        assert_ok(ship_run(&whole, 2, 3));
        setting_task t = {&f, &settings[i], &whole};
        ranks_run(RANKS, set_differently, &t);
        ship_destroy(&whole);
    }
}

/* ---- Replicas: ranks 0 and 2, 1 and 3 hold the same */

static void drift(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    ship s;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
    rank_ok(ship_run(&s, 1, 2));
    rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
    struct {
        const char *name;
        unsigned char *byte;
    } places[] = {
        {"'dense'", s.buffers[0].param},
        {"'dense'", ship_state(&s, 0, "momentum_buffer").data},
        {"'experts'", ship_state(&s, 1, "momentum_buffer").data},
        {"'norm'", ship_state(&s, 2, "exp_avg_sq").data},
        {"'whole'", s.buffers[3].param},
    };
    for (size_t i = 0; i < COUNT(places); i++) {
        rank_check(places[i].byte, "%s has no such tensor", places[i].name);
        if (rank == ODD) *places[i].byte ^= 1; /* the last bit of one element */
        rank_fails(muon_opt_check_replicas(s.opt, s.buffers), MUON_E_DISAGREE, places[i].name);
        rank_check(strstr(muon_last_error(), "rank 2") || strstr(muon_last_error(), "and 2"), "%s",
                   muon_last_error());
        if (rank == ODD) *places[i].byte ^= 1;
        rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
    }
    rank_ok(ship_run(&s, 3, 3));
    rank_same(&s, t->whole);
    ship_destroy(&s);
}

TEST(replicas_stay_the_same_and_drift_of_one_bit_is_found)
{
    fleet f;
    fleet_init(&f);
    add_params(&f);
    fleet_check_by(drift, &f, RANKS, 3);
}

/* Somebody forgot to reduce a gradient over the replicas. */
static void step_unreduced(int rank, const muon_comm *comm, void *arg)
{
    ship s;
    rank_ok(ship_create(&s, arg, comm));
    ship_fill_grads(&s, 1);
    if (rank == ODD) fleet_put(s.grads[1], MUON_F32, 0, 0.125f);
    rank_ok(ship_step(&s));
    rank_fails(muon_opt_check_replicas(s.opt, s.buffers), MUON_E_DISAGREE, "'experts'");
    ship_destroy(&s);
}

TEST(a_gradient_that_was_not_reduced_shows_up_as_drift)
{
    fleet f;
    fleet_init(&f);
    add_params(&f);
    ranks_run(RANKS, step_unreduced, &f);
}
