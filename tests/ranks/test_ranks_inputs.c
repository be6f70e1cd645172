/* What ranks bring to a step: a gradient that is missing, not finite or in the wrong place on one rank
 * is everybody's, nothing has changed when it is refused, and the next step goes on with the right
 * bits. */
#include "tests/world/fleet.h"

#include <math.h>

enum { RANKS = 4, ODD = 2 }; /* ODD: the rank that does something else */

static void add_params(fleet *f)
{
    fleet_mesh(f, "mesh", "replicate", 2, "fsdp", 2, NULL);
    fleet_add(f, MUONS, "dense", NULL, "0: fsdp", SHAPE(9, 14));
    fleet_add(f, MUONS, "experts", "batch 1", "0: fsdp", SHAPE(3, 5, 8));
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(11));
    fleet_add(f, OTHERS, "whole", NULL, NULL, SHAPE(6, 7))->copy_dtype = MUON_BF16;
}

typedef struct fault {
    const char *name;
    void (*make)(ship *s); /* on rank ODD, when its gradients are there */
    muon_status status;    /* of all ranks; MUON_OK: the step is skipped */
    const char *text;
} fault;

typedef struct fault_task {
    const fault *f;
    const fleet *fleet;
    const ship *whole;
} fault_task;

/* ---- Faults of arguments */

static void lose_gradient(ship *s)
{
    s->buffers[0].grad = NULL;
}

static void lose_weight(ship *s)
{
    s->buffers[2].param = NULL;
}

static void lose_copy(ship *s)
{
    s->buffers[3].copy = NULL;
}

static void alias(ship *s)
{
    s->buffers[1].param = s->buffers[0].param;
}

static void scale_by_zero(ship *s)
{
    s->args.grad_scale = 0;
}

static void scale_otherwise(ship *s)
{
    s->args.grad_scale = 2;
}

static void lose_buffers(ship *s)
{
    s->args.buffers = NULL;
}

static void shrink_args(ship *s)
{
    s->args.struct_size = 1;
}

static void put_nan(ship *s)
{
    fleet_put(s->grads[1], MUON_F32, 3, NAN);
}

static void put_infinity(ship *s)
{
    fleet_put(s->grads[2], MUON_F32, 0, -INFINITY);
}

static const fault faults[] = {
    {"no gradient", lose_gradient, MUON_E_GRAD, "param 'dense' has no gradient"},
    {"no weight", lose_weight, MUON_E_ARG, "param 'norm': the weight is NULL"},
    {"no copy", lose_copy, MUON_E_ARG, "param 'whole': copy is NULL"},
    {"aliasing buffers", alias, MUON_E_ALIAS, "overlap"},
    {"grad_scale 0", scale_by_zero, MUON_E_VALUE, "grad_scale is 0"},
    {"grad_scale 2", scale_otherwise, MUON_E_DISAGREE, "grad_scale"},
    {"no buffers", lose_buffers, MUON_E_ARG, "args.buffers is NULL"},
    {"args of another size", shrink_args, MUON_E_VERSION, "muon_step_args"},
    {"a NaN", put_nan, MUON_OK, "experts"},
    {"an infinity", put_infinity, MUON_OK, "norm"},
};

static void step_with_fault(ship *s, const fault *f, int step)
{
    muon_buffers buffers[FLEET_PARAMS];
    memcpy(buffers, s->buffers, sizeof buffers);
    muon_step_args args = s->args;
    uint64_t before = ship_digest(s);
    ship_fill_grads(s, step);
    if (s->rank == ODD) f->make(s);
    if (f->status == MUON_OK) {
        rank_ok(ship_step(s));
        rank_check(!s->result.applied && s->result.skip == MUON_SKIP_NONFINITE_GRAD,
                   "%s: not skipped", f->name);
        rank_check(s->result.skip_param && strcmp(s->result.skip_param, f->text) == 0,
                   "%s: skipped because of '%s'", f->name, s->result.skip_param);
    } else {
        rank_fails(ship_step(s), f->status, f->text);
        rank_check(strstr(muon_last_error(), "rank 2"), "%s: %s", f->name, muon_last_error());
    }
    memcpy(s->buffers, buffers, sizeof buffers);
    s->args = args;
    rank_check(ship_digest(s) == before, "%s: something has changed", f->name);
}

/* One good step, one that is refused or skipped, then two good ones again. */
static void run_fault(int rank, const muon_comm *comm, void *arg)
{
    const fault_task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->fleet, comm));
    rank_ok(ship_run(&s, 1, 1));
    step_with_fault(&s, t->f, 7);
    rank_ok(ship_run(&s, 2, 3));
    const char *wrong = ship_compare(&s, t->whole);
    rank_check(!wrong, "after %s: %s", t->f->name, wrong);
    ship_destroy(&s);
}

static void run_faults(muon_path path)
{
    fleet f;
    fleet_init(&f);
    add_params(&f);
    f.config.path = path;
    f.config.clip_norm = 2;
    ship whole;
    fleet_run_whole(&whole, &f, 3);
    for (size_t i = 0; i < COUNT(faults); i++) {
        fault_task t = {&faults[i], &f, &whole};
        ranks_run(RANKS, run_fault, &t);
    }
    ship_destroy(&whole);
}

TEST(one_ranks_fault_is_everybodys_and_the_next_step_is_right)
{
    run_faults(MUON_PATH_PIPELINE);
}

TEST(on_the_reference_path_too)
{
    run_faults(MUON_PATH_REFERENCE);
}

/* ---- args and result that are not there */

static void step_without_args(int rank, const muon_comm *comm, void *arg)
{
    ship s;
    rank_ok(ship_create(&s, arg, comm));
    ship_fill_grads(&s, 1);
    rank_fails(muon_step(s.opt, rank == ODD ? NULL : &s.args, NULL), MUON_E_ARG,
               "rank 2: muon_step: args must not be NULL");
    rank_ok(muon_step(s.opt, &s.args, NULL)); /* nobody wants a result */
    ship_fill_grads(&s, 2);
    muon_result_init(&s.result, sizeof s.result);
    rank_ok(muon_step(s.opt, &s.args, rank == ODD ? &s.result : NULL)); /* one does */
    rank_check(rank != ODD || s.result.matrices == 1 + 3 + 1, "%lld matrices",
               (long long)s.result.matrices);
    ship_destroy(&s);
}

TEST(args_may_be_missing_and_a_result_is_one_ranks_own_wish)
{
    fleet f;
    fleet_init(&f);
    add_params(&f);
    ranks_run(RANKS, step_without_args, &f);
}

/* ---- Gradients that are missing where that is allowed */

static void step_without_expert(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    ship s;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, 1));
    ship_fill_grads(&s, 2);
    for (size_t i = 1; i < 3; i++)
        s.buffers[i].grad =
            NULL; /* experts 1 and 2 saw no token; most ranks hold nothing of them */
    rank_ok(ship_step(&s));
    rank_check(s.result.missing_params == 2 && s.result.matrices == 2, "%lld missing, %lld",
               (long long)s.result.missing_params, (long long)s.result.matrices);
    for (size_t i = 1; i < 3; i++)
        s.buffers[i].grad = s.grads[i];
    /* Now the rank that holds expert 0 has a gradient, and one of the two replicas of `shared` has
     * none: that cannot be meant. */
    if (rank == 0) s.buffers[4].grad = NULL;
    uint64_t before = ship_digest(&s);
    rank_fails(ship_step(&s), MUON_E_GRAD,
               "param 'shared': rank 1 has a gradient, rank 0 has none");
    rank_check(ship_digest(&s) == before, "something has changed");
    s.buffers[4].grad = s.grads[4];
    rank_ok(ship_run(&s, 3, 3));
    rank_same(&s, t->whole);
    ship_destroy(&s);
}

/* Sets of gradients that differ from rank to rank made others wait forever. */
TEST(experts_without_a_gradient_on_some_ranks)
{
    static const int homes[4] = {0, 1, 2, 3};
    static const char *const names[4] = {"expert 0", "expert 1", "expert 2", "expert 3"};
    muon_box boxes[4];
    fleet f;
    fleet_init(&f);
    f.config.missing_grad = MUON_MISSING_GRAD_SKIP;
    for (int i = 0; i < 4; i++) {
        boxes[i] = (muon_box){.rank = homes[i], .end = {6, 8}};
        muon_param *p = fleet_add(&f, MUONS, names[i], NULL, NULL, SHAPE(6, 8));
        p->boxes = &boxes[i];
        p->nboxes = 1;
    }
    fleet_add(&f, ADAMWS, "shared", NULL, NULL, SHAPE(5));
    ship whole;
    fleet_run_whole(&whole, &f, 1);
    ship_fill_grads(&whole, 2);
    whole.buffers[1].grad = whole.buffers[2].grad = NULL;
    assert_ok(ship_step(&whole));
    whole.buffers[1].grad = whole.grads[1];
    whole.buffers[2].grad = whole.grads[2];
    assert_ok(ship_run(&whole, 3, 3));
    fleet_task t = {&f, &whole, 3};
    ranks_run(4, step_without_expert, &t);
    ship_destroy(&whole);
}

/* ---- Buffers that move between steps: nothing may be remembered by address */

static void move_buffers(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    ship s;
    rank_ok(ship_create(&s, t->f, comm));
    for (int step = 1; step <= t->steps; step++) {
        rank_ok(ship_run(&s, step, step));
        /* The two tensors are of one shape and change places; the copies are where the other was. */
        rank_check(s.numel[0] == s.numel[1], "rank %d: %lld", rank, (long long)s.numel[0]);
        size_t bytes = (size_t)s.numel[0] * sizeof(float);
        void *room = malloc(bytes), *at = s.buffers[0].param;
        memcpy(room, at, bytes);
        memcpy(at, s.buffers[1].param, bytes);
        memcpy(s.buffers[1].param, room, bytes);
        s.buffers[0].param = s.buffers[1].param;
        s.buffers[1].param = at;
        free(room);
        void *grad = s.grads[0];
        s.grads[0] = s.grads[1];
        s.grads[1] = grad;
        s.buffers[0].grad = s.grads[0];
        s.buffers[1].grad = s.grads[1];
    }
    rank_same(&s, t->whole);
    /* An overlap is found, too, although these very buffers were good a step ago. */
    void *good = s.buffers[1].param;
    if (rank == 1) s.buffers[1].param = s.buffers[0].param;
    rank_fails(ship_step(&s), MUON_E_ALIAS, "'one'");
    s.buffers[1].param = good;
    ship_destroy(&s);
}

TEST(buffers_may_move_and_are_not_known_by_address)
{
    fleet f;
    fleet_fsdp(&f, 3);
    fleet_add(&f, MUONS, "one", NULL, "0: fsdp", SHAPE(9, 6));
    fleet_add(&f, MUONS, "two", NULL, "0: fsdp", SHAPE(9, 6));
    fleet_check_by(move_buffers, &f, 3, 4);
}

/* ---- Gradients that are given back */

typedef struct giver {
    ship s;
    int told[FLEET_PARAMS];
} giver;

/* Whoever reads it after this has a NaN. */
static void spoil(void *user, size_t index)
{
    giver *g = user;
    g->told[index]++;
    memset(g->s.grads[index], 0xff, (size_t)g->s.numel[index] * sizeof(float));
}

static void give_back(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    giver g = {.told = {0}};
    fleet mine = *t->f;
    mine.config.grad_consumed = spoil;
    mine.config.user = &g;
    rank_ok(ship_create(&g.s, &mine, comm));
    rank_ok(ship_run(&g.s, 1, t->steps));
    for (size_t i = 0; i < mine.nparams; i++) {
        int want = g.s.numel[i] > 0 ? t->steps : 0;
        rank_check(g.told[i] == want, "rank %d: '%s' was told %d times, want %d", rank,
                   mine.params[i].name, g.told[i], want);
    }
    rank_same(&g.s, t->whole);
    ship_destroy(&g.s);
}

TEST(a_consumed_gradient_is_told_once_where_it_is_and_never_read_again)
{
    static const muon_path paths[] = {MUON_PATH_PIPELINE, MUON_PATH_REFERENCE};
    fleet f;
    fleet_init(&f);
    add_params(&f);
    fleet_add(&f, MUONS, "one row", NULL, "0: fsdp", SHAPE(1, 9));
    ship whole;
    fleet_run_whole(&whole, &f, 3);
    fleet_task t = {&f, &whole, 3};
    for (size_t i = 0; i < COUNT(paths); i++) {
        for (size_t d = 0; d < COUNT(fleet_depths); d += 2) {
            f.config.path = paths[i];
            f.config.in_flight = fleet_depths[d];
            ranks_run(RANKS, give_back, &t);
        }
    }
    ship_destroy(&whole);
}
