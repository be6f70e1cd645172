/* Numbers that are hard: so large or small that squares are no floats, not finite on some ranks, momentum
 * that overflows, logits that say nothing. Every rank sees the same, and the rest of the model steps on
 * with the bits of one process. */
#include "muon/comm.h"
#include "tests/world/fleet.h"

#include <float.h>
#include <math.h>

enum { RANKS = 5 };

static void fill(fleet *f)
{
    fleet_fsdp(f, RANKS);
    fleet_add(f, MUONS, "rows", NULL, "0: fsdp", SHAPE(11, 6));
    fleet_add(f, MUONS, "experts", "batch 1", "1: fsdp", SHAPE(3, 7, 4));
    fleet_add(f, OTHERS, "whole", NULL, NULL, SHAPE(6, 7))->copy_dtype = MUON_BF16;
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(13))->dtype = MUON_BF16;
}

/* A change of gradients that depends on where an element is in the whole tensor, not on who has it. */
typedef void (*change_fn)(ship *s, int step);

static void set_grad(ship *s, size_t param, int64_t index, float value)
{
    for (int64_t e = 0; e < s->numel[param]; e++)
        if (s->index[param][e] == index || index < 0)
            fleet_put(s->grads[param], s->f->params[param].grad_dtype, e, value);
}

static void scale_grads(ship *s, float by)
{
    for (size_t i = 0; i < s->f->nparams; i++)
        for (int64_t e = 0; s->grads[i] && e < s->numel[i]; e++)
            ((float *)s->grads[i])[e] *= by;
}

typedef struct task {
    const fleet *f;
    change_fn change;
    ship whole;
    muon_result results[3];
} task;

static muon_status run(ship *s, change_fn change, muon_result *results, const muon_result *want)
{
    for (int step = 1; step <= 3; step++) {
        ship_fill_grads(s, step);
        change(s, step);
        muon_status status = ship_step(s);
        if (status != MUON_OK) return status;
        if (results) results[step - 1] = s->result;
        const char *wrong = want ? ship_compare_result(s, &want[step - 1]) : NULL;
        if (wrong) return muon_error_set(MUON_E_VALUE, "step %d: %s", step, wrong);
    }
    return MUON_OK;
}

static void run_rank(int rank, const muon_comm *comm, void *arg)
{
    const task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(run(&s, t->change, NULL, t->results));
    rank_same(&s, &t->whole);
    rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
    ship_destroy(&s);
}

/* Three steps in one process, then on ranks; t has what one process made of it. */
static void compare(task *t, const fleet *f, change_fn change)
{
    *t = (task){.f = f, .change = change};
    assert_ok(ship_create(&t->whole, f, NULL));
    assert_ok(run(&t->whole, change, t->results, NULL));
    ranks_run(RANKS, run_rank, t);
}

static void finish(task *t)
{
    ship_destroy(&t->whole);
}

/* ---- Large and small */

static void make_huge(ship *s, int step)
{
    (void)step;
    scale_grads(s, 1e30f);
}

TEST(gradients_whose_squares_overflow_have_a_norm_and_are_clipped)
{
    fleet f;
    task t;
    fill(&f);
    f.config.clip_norm = 1;
    compare(&t, &f, make_huge);
    for (int step = 0; step < 3; step++) {
        const muon_result *r = &t.results[step];
        assert_true(r->applied && r->nonfinite_matrices == 0);
        assert_true(r->grad_norm > 1e30 && r->grad_norm < 1e32);
        assert_true(r->clip_coef == 1 / r->grad_norm);
    }
    finish(&t);
}

static void make_subnormal(ship *s, int step)
{
    (void)step;
    scale_grads(s, 1e-41f);
}

TEST(subnormal_gradients_move_the_weights_like_any_others)
{
    fleet f;
    task t;
    fill(&f);
    compare(&t, &f, make_subnormal);
    assert_true(t.results[2].grad_norm > 0 && t.results[2].grad_norm < 1e-38);
    assert_true(t.results[2].update_rms > 1e-4); /* lr 0.02 times 0.2 per element, about */
    finish(&t);
}

static void make_zero(ship *s, int step)
{
    if (step == 1) scale_grads(s, -0.0f);
}

TEST(a_step_of_zeros_divides_by_no_zero)
{
    fleet f;
    task t;
    fill(&f);
    f.config.clip_norm = 1;
    compare(&t, &f, make_zero);
    assert_true(t.results[0].grad_norm == 0 && t.results[0].clip_coef == 1);
    assert_true(t.results[0].update_rms == 0 && t.results[0].nonfinite_matrices == 0);
    finish(&t);
}

/* ---- Not finite */

static void overflow_momentum(ship *s, int step)
{
    (void)step;
    set_grad(s, 1, 30, 0.4f * FLT_MAX); /* of the second expert: too much from step 2 on */
}

TEST(momentum_that_overflows_stops_its_matrix_on_every_rank)
{
    fleet f;
    task t;
    fill(&f);
    compare(&t, &f, overflow_momentum);
    assert_int_equal(t.results[0].nonfinite_matrices, 0);
    assert_int_equal(t.results[2].nonfinite_matrices, 1);
    assert_true(t.results[2].applied && t.results[2].matrices == 5);
    finish(&t);
}

/* Elements of different ranks, in different tensors. */
static void make_bad(ship *s, int step)
{
    if (step != 2) return;
    set_grad(s, 3, 0, -INFINITY); /* rank 0 */
    set_grad(s, 1, 27, NAN);      /* rank 3 */
    set_grad(s, 0, 60, INFINITY); /* rank 3 */
}

static void check_skip(int rank, const muon_comm *comm, void *arg)
{
    const task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, 1));
    uint64_t before = ship_digest(&s);
    ship_fill_grads(&s, 2);
    make_bad(&s, 2);
    rank_ok(ship_step(&s));
    rank_check(!s.result.applied && s.result.nonfinite_params == 3, "applied %d, %lld not finite",
               s.result.applied, (long long)s.result.nonfinite_params);
    rank_check(strcmp(s.result.skip_param, "rows") == 0, "named '%s'", s.result.skip_param);
    rank_check(ship_digest(&s) == before, "something has changed");
    ship_destroy(&s);
}

TEST(bad_gradients_on_several_ranks_name_the_same_parameter_on_all)
{
    fleet f;
    task t;
    fill(&f);
    compare(&t, &f, make_bad);
    ranks_run(RANKS, check_skip, &t);
    finish(&t);
}

/* ---- Logits */

enum { HEADS = 5 };

/* What a rank has seen of each head; the last row is what all of them have seen together. */
static const float logits[RANKS + 1][HEADS] = {
    {NAN, 50, -3, 90, INFINITY},    {150, NAN, -INFINITY, 99, NAN},
    {-INFINITY, 60, NAN, 100, NAN}, {INFINITY, INFINITY, -9, 101, 0},
    {NAN, NAN, NAN, NAN, NAN},      {150, 60, -3, 101, 0},
};

static void clip_rank(int rank, const muon_comm *comm, void *arg)
{
    const task *t = arg;
    ship s;
    rank_ok(ship_create(&s, t->f, comm));
    ship_fill_grads(&s, 1);
    const float *layers[] = {rank == 4 ? NULL : logits[rank]}; /* the last one has no list at all */
    s.args.max_logits = layers;
    rank_ok(ship_step(&s));
    rank_same(&s, &t->whole);
    ship_destroy(&s);
}

/* Q in flat pieces that cut through rows, K by columns: every rank has parts of all heads. */
TEST(logits_that_say_nothing_on_some_ranks_do_not_hide_those_of_others)
{
    fleet f;
    task t = {.f = &f};
    fill(&f);
    muon_range ranges[RANKS];
    muon_param *q = fleet_add(&f, MUONS, "q", NULL, NULL, SHAPE(HEADS * 3, 7));
    for (int r = 0; r < RANKS; r++)
        ranges[r] = (muon_range){RANKS - 1 - r, 105 * r * r / 25, 105 * (r + 1) * (r + 1) / 25};
    q->ranges = ranges;
    q->nranges = RANKS;
    fleet_add(&f, ADAMWS, "k", NULL, "1: fsdp", SHAPE(HEADS * 3, 7))->dtype = MUON_BF16;
    muon_attention layer;
    muon_attention_init(&layer, sizeof layer);
    layer.q = "q";
    layer.k = "k";
    layer.heads = layer.kv_heads = HEADS;
    layer.head_dim = 3;
    f.config.attention = &layer;
    f.config.nattention = 1;
    assert_ok(ship_create(&t.whole, &f, NULL));
    const float *layers[] = {logits[RANKS]};
    t.whole.args.max_logits = layers;
    ship_fill_grads(&t.whole, 1);
    assert_ok(ship_step(&t.whole));
    assert_int_equal(t.whole.result.clipped_heads, 2);
    assert_true(t.whole.result.max_logit == 150);
    ranks_run(RANKS, clip_rank, &t);
    finish(&t);
}

/* ---- Addresses */

static void change_nothing(ship *s, int step)
{
    (void)s;
    (void)step;
}

TEST(buffers_at_any_address_give_the_same_bits)
{
    fleet f, shifted;
    task t;
    fill(&f);
    f.params[0].dtype = f.params[1].grad_dtype = MUON_BF16;
    compare(&t, &f, change_nothing);
    shifted = f;
    t.f = &shifted;
    for (shifted.shift = 1; shifted.shift < 16; shifted.shift += 2)
        ranks_run(RANKS, run_rank, &t);
    finish(&t);
}
