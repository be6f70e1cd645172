/* test_ranks_norm.c - the norm of gradients on many ranks: the same everywhere, whoever computed it. */
#include "tests/world/fleet.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, ODD = 2 };

static void make(fleet *f)
{
    fleet_fsdp(f, RANKS);
    fleet_add(f, MUONS, "dense", NULL, "0: fsdp", SHAPE(10, 6));
    fleet_add(f, MUONS, "whole", NULL, NULL, SHAPE(5, 7));
    fleet_add(f, MUONS, "few", NULL, "0: fsdp", SHAPE(3, 8))->grad_dtype = MUON_BF16;
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(9));
}

/* ---- Steps that know their norm */

static void step_by_norm(ship *s, int step, double skip_norm)
{
    double norm = 0;
    ship_fill_grads(s, step);
    uint64_t before = ship_digest(s);
    s->args.grad_norm = MUON_UNKNOWN;
    rank_ok(muon_opt_set_skip_norm(s->opt, skip_norm));
    rank_ok(muon_grad_norm(s->opt, &s->args, &norm));
    rank_check(ship_digest(s) == before, "muon_grad_norm has changed something");
    s->args.grad_norm = norm;
    rank_ok(ship_step(s));
    rank_check(s->result.applied == (skip_norm <= 0), "applied is %d with a skip_norm of %g",
               s->result.applied, skip_norm);
    rank_check(s->result.grad_norm == norm, "the norm is %g, was %g", s->result.grad_norm, norm);
    if (skip_norm <= 0) return;
    rank_check(s->result.skip == MUON_SKIP_GRAD_NORM && ship_digest(s) == before, "not skipped");
}

static void run_known(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    for (int step = 1; step <= t->steps; step++) {
        step_by_norm(&s, step + 7, 1e-3);
        step_by_norm(&s, step, 0);
    }
    rank_check(s.result.skipped_steps == t->steps, "%lld skipped",
               (long long)s.result.skipped_steps);
    rank_same(&s, t->whole);
    ship_destroy(&s);
}

TEST(steps_that_know_their_norm_have_the_bits_of_those_that_find_it)
{
    for (int path = 0; path < 2; path++) {
        fleet f;
        make(&f);
        f.config.clip_norm = 1.5;
        f.config.path = path ? MUON_PATH_REFERENCE : MUON_PATH_PIPELINE;
        fleet_check_by(run_known, &f, RANKS, 3);
    }
}

/* ---- One rank that knows something else */

typedef struct difference {
    const char *name;
    void (*make)(ship *s);
    muon_status status;
    const char *text;
} difference;

static void know_another_norm(ship *s)
{
    s->args.grad_norm = 4;
}

static void know_no_norm(ship *s)
{
    s->args.grad_norm = MUON_UNKNOWN;
}

static void know_a_nan(ship *s)
{
    s->args.grad_norm = (double)NAN;
}

static void know_bad_news(ship *s)
{
    s->args.finite = 0;
}

static void know_nonsense(ship *s)
{
    s->args.grad_norm = -3;
}

static void skip_otherwise(ship *s)
{
    rank_ok(muon_opt_set_skip_norm(s->opt, 0.5));
}

static const difference differences[] = {
    {"norm", know_another_norm, MUON_E_DISAGREE,
     "muon_step: grad_norm is 3 on rank 0, 4 on rank 2"},
    {"no norm", know_no_norm, MUON_E_DISAGREE, "muon_step: grad_norm is 3 on rank 0, -1 on rank 2"},
    {"NaN", know_a_nan, MUON_E_DISAGREE, "muon_step: grad_norm is 3 on rank 0, nan on rank 2"},
    {"finite", know_bad_news, MUON_E_DISAGREE, "muon_step: finite is -1 on rank 0, 0 on rank 2"},
    {"nonsense", know_nonsense, MUON_E_VALUE, "rank 2: muon_step: grad_norm is -3"},
    {"skip_norm", skip_otherwise, MUON_E_DISAGREE,
     "muon_step: skip_norm is 0 on rank 0, 0.5 on rank 2"},
};

static void run_difference(int rank, const muon_comm *comm, void *arg)
{
    const difference *d = arg;
    fleet f;
    ship s;
    make(&f);
    rank_ok(ship_create(&s, &f, comm));
    ship_fill_grads(&s, 1);
    s.args.grad_norm = 3;
    if (rank == ODD) d->make(&s);
    uint64_t before = ship_digest(&s);
    rank_fails(ship_step(&s), d->status, d->text);
    rank_check(ship_digest(&s) == before, "%s: something has changed", d->name);
    s.args.grad_norm = 3;
    s.args.finite = 1;
    rank_ok(muon_opt_set_skip_norm(s.opt, 0));
    rank_ok(ship_step(&s));
    rank_check(s.result.applied, "%s: the next step is skipped", d->name);
    ship_destroy(&s);
}

TEST(ranks_must_know_the_same)
{
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        difference d = differences[i];
        ranks_run(RANKS, run_difference, &d);
    }
}

/* ---- One rank in another call */

static void run_calls(int rank, const muon_comm *comm, void *arg)
{
    fleet f;
    ship s;
    double norm = 5;
    (void)arg;
    make(&f);
    rank_ok(ship_create(&s, &f, comm));
    ship_fill_grads(&s, 1);
    muon_status status =
        rank == ODD ? muon_grad_norm(s.opt, &s.args, &norm) : muon_step(s.opt, &s.args, NULL);
    rank_fails(status, MUON_E_DISAGREE, "rank 2 is in muon_grad_norm, rank 0 in muon_step");
    rank_check(norm == 5, "the norm has become %g", norm);
    if (rank == ODD) s.args.grad_scale = 2;
    rank_fails(muon_grad_norm(s.opt, &s.args, &norm), MUON_E_DISAGREE,
               "muon_grad_norm: grad_scale is 1 on rank 0, 2 on rank 2");
    s.args.grad_scale = 1;
    rank_ok(muon_grad_norm(s.opt, &s.args, &norm));
    if (rank == 1) fleet_put(s.grads[3], MUON_F32, 0, (float)NAN);
    rank_ok(muon_grad_norm(s.opt, &s.args, &norm));
    rank_check(isnan(norm), "the norm is %g", norm);
    ship_destroy(&s);
}

TEST(the_norm_is_a_collective_call)
{
    ranks_run(RANKS, run_calls, NULL);
}
