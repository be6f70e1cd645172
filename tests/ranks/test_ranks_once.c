/* Each thing exactly once, whatever is replicated: matrices orthogonalized, elements counted in the
 * norm, bytes moved; and each by its own shape. A recording function in place of the iteration sees
 * what a plan only promises. */
#include "muon/plan.h"
#include "tests/world/fleet.h"

#include <math.h>
#include <stdatomic.h>

enum { CALLS = 256 };

/* ---- What went through Newton-Schulz, on all ranks together */

typedef struct call {
    uint64_t hash; /* of rows, cols and every element */
    int64_t rows, cols;
    int zero_rows; /* rows of zeros only */
} call;

typedef struct recorder {
    atomic_int n;
    call calls[CALLS];
} recorder;

static int record(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    recorder *r = user;
    call c = {.hash = (uint64_t)(rows * 65536 + cols), .rows = rows, .cols = cols};
    for (int64_t i = 0; i < rows; i++) {
        int zero = 1;
        for (int64_t j = 0; j < cols; j++) {
            uint32_t bits;
            memcpy(&bits, &x[i * ld + j], sizeof bits);
            c.hash = (c.hash ^ bits) * 0x100000001b3u;
            zero &= x[i * ld + j] == 0;
        }
        c.zero_rows += zero;
    }
    int at = atomic_fetch_add(&r->n, 1);
    if (at < CALLS) r->calls[at] = c;
    return 0;
}

static int by_hash(const void *a, const void *b)
{
    const call *ca = a, *cb = b;
    return (ca->hash > cb->hash) - (ca->hash < cb->hash);
}

static void step_once(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, t->steps));
    rank_check(s.result.matrices == t->whole->result.matrices, "%lld matrices, want %lld",
               (long long)s.result.matrices, (long long)t->whole->result.matrices);
    ship_destroy(&s);
}

/* The calls on n ranks are those of one process: no matrix twice, none left out, none padded. */
static void check_calls(fleet *f, int nranks, int64_t matrices)
{
    recorder alone = {.n = 0}, together = {.n = 0};
    f->config.orthogonalize = record;
    f->config.user = &alone;
    ship whole;
    fleet_run_whole(&whole, f, 1);
    fleet there = *f;
    there.config.user = &together;
    fleet_task t = {&there, &whole, 1};
    ranks_run(nranks, step_once, &t);
    assert_int_equal(whole.result.matrices, matrices);
    assert_int_equal(atomic_load(&alone.n), matrices);
    assert_int_equal(atomic_load(&together.n), matrices);
    size_t n = (size_t)matrices;
    qsort(alone.calls, n, sizeof(call), by_hash);
    qsort(together.calls, n, sizeof(call), by_hash);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) assert_true(alone.calls[i].hash != alone.calls[i - 1].hash);
        assert_true(alone.calls[i].hash == together.calls[i].hash);
        assert_int_equal(alone.calls[i].rows, together.calls[i].rows);
        assert_int_equal(together.calls[i].zero_rows, 0);
    }
    ship_destroy(&whole);
}

TEST(every_matrix_is_orthogonalized_exactly_once)
{
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "mesh", "ep", 2, "fsdp", 2, NULL);
    fleet_add(&f, MUONS, "dense", NULL, "0: ep, fsdp", SHAPE(22, 9));
    fleet_add(&f, MUONS, "experts", "batch 1", "0: ep; 1: fsdp", SHAPE(5, 7, 6));
    fleet_add(&f, MUONS, "qkv", "rows 8, 4, 4", "0: fsdp", SHAPE(16, 10));
    fleet_add(&f, MUONS, "few", NULL, "0: fsdp", SHAPE(1, 6));
    check_calls(&f, 4, 1 + 5 + 3 + 1);
}

/* HSDP and DDP: a replica gets the result, it does not compute it again. */
TEST(replicas_do_not_orthogonalize_again)
{
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "mesh", "replicate", 3, "fsdp", 2, NULL);
    fleet_add(&f, MUONS, "sharded", NULL, "0: fsdp", SHAPE(13, 9));
    fleet_add(&f, MUONS, "experts", "rows / 4", "0: fsdp", SHAPE(24, 5));
    fleet_add(&f, MUONS, "whole", NULL, NULL, SHAPE(8, 9));
    check_calls(&f, 6, 1 + 4 + 1);
}

/* DeepSpeed#8441: without any sharding the update was not orthogonalized at all. */
TEST(without_any_sharding_newton_schulz_runs_too)
{
    for (int nranks = 1; nranks <= 3; nranks++) {
        fleet f;
        fleet_init(&f);
        fleet_add(&f, MUONS, "one", NULL, NULL, SHAPE(8, 5));
        fleet_add(&f, MUONS, "two", "batch 1", NULL, SHAPE(3, 4, 6));
        check_calls(&f, nranks, 1 + 3);
    }
}

/* ---- Nothing is padded, nothing falls back to sending everything to everybody */

typedef struct totals {
    int64_t matrices, sent, received, messages;
} totals;

static totals add_up(const muon_plan *plan)
{
    totals t = {0};
    for (int r = 0; r < muon_plan_count_ranks(plan); r++) {
        muon_rank_load load;
        assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
        t.matrices += load.matrices;
        t.sent += load.bytes_sent;
        t.received += load.bytes_received;
        t.messages += load.messages_sent;
    }
    return t;
}

static int64_t numel_of(const muon_param *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndim; d++)
        n *= p->shape[d];
    return n;
}

/* A matrix goes to its owner once and back to every holder; what the owner has stays where it is. Each
 * parameter here is one matrix. */
static int64_t bytes_that_must_move(const fleet *f, const muon_plan *plan)
{
    int64_t elements = 0;
    for (size_t i = 0; i < f->nparams; i++) {
        muon_matrix m;
        assert_ok(muon_plan_get_matrix(plan, i, &m, sizeof m));
        int64_t held = 0;
        for (int r = 0; r < muon_plan_count_ranks(plan); r++)
            held += muon_plan_count_elements(plan, i, r);
        int64_t at_owner = muon_plan_count_elements(plan, i, m.owner);
        elements += numel_of(&f->params[i]) - at_owner; /* there */
        elements += held - at_owner;                    /* and back */
    }
    return elements * 4;
}

TEST(messages_carry_matrices_and_not_one_byte_of_padding)
{
    /* 4 matrices of one shape on 4 ranks, 3 on 4, 5 on 4, rows that do not divide, more axes. */
    static const struct {
        int replicate, fsdp, count;
        int64_t rows;
    } cases[] = {{1, 4, 4, 8}, {1, 4, 3, 8}, {1, 4, 5, 8},  {1, 4, 8, 7},
                 {1, 8, 3, 5}, {2, 2, 4, 8}, {2, 3, 5, 10}, {4, 1, 2, 6}};
    static const char *const names[] = {"a", "b", "c", "d", "e", "g", "h", "i"};
    for (size_t k = 0; k < COUNT(cases); k++) {
        fleet f;
        fleet_init(&f);
        fleet_mesh(&f, "mesh", "replicate", cases[k].replicate, "fsdp", cases[k].fsdp, NULL);
        for (int i = 0; i < cases[k].count; i++)
            fleet_add(&f, MUONS, names[i], NULL, "0: fsdp", SHAPE(cases[k].rows, 12));
        muon_plan *plan = NULL;
        assert_ok(fleet_plan(&plan, &f, cases[k].replicate * cases[k].fsdp));
        totals t = add_up(plan);
        assert_int_equal(t.matrices, cases[k].count);
        assert_int_equal(t.sent, bytes_that_must_move(&f, plan));
        assert_int_equal(t.received, t.sent);
        muon_plan_destroy(plan);
    }
}

/* VeOmni#973: on a mesh with a replicated axis every tensor was gathered on every rank. */
TEST(a_mesh_with_replicas_does_not_fall_back_to_whole_tensors)
{
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "mesh", "replicate", 2, "fsdp", 4, NULL);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        fleet_add(&f, MUONS, names[i], NULL, "0: fsdp", SHAPE(32, 24));
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &f, 8));
    totals t = add_up(plan);
    const int64_t matrix = (int64_t)sizeof(float) * 32 * 24;
    int64_t gathered_everywhere = 4 * matrix * (8 - 2); /* every rank lacks 3/4 of all */
    assert_int_equal(t.matrices, 4);
    assert_true(t.sent < gathered_everywhere / 2);
    for (int r = 0; r < 8; r++) {
        muon_rank_load load;
        assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
        assert_true(load.bytes_received < 2 * matrix);
    }
    muon_plan_destroy(plan);
    fleet_check(&f, 8, 2);
}

/* ---- The norm (Megatron#6470: too large by sqrt(3)) */

TEST(the_norm_counts_each_element_once)
{
    static const struct {
        int replicate, fsdp, ep, tp;
    } cases[] = {{3, 1, 1, 1}, {1, 3, 1, 1}, {1, 1, 3, 1}, {1, 1, 1, 3},
                 {2, 2, 1, 1}, {2, 1, 2, 1}, {1, 2, 1, 2}, {1, 2, 2, 1}};
    for (size_t k = 0; k < COUNT(cases); k++) {
        fleet f;
        fleet_init(&f);
        f.constant = 1;
        int r = cases[k].replicate, d = cases[k].fsdp, e = cases[k].ep, t = cases[k].tp;
        fleet_mesh(&f, "mesh", "replicate", r, "fsdp", d, "ep", e, "tp", t, NULL);
        fleet_add(&f, MUONS, "dense", NULL, "0: fsdp; 1: tp", SHAPE(9, 16));
        fleet_add(&f, MUONS, "experts", "batch 1", "0: ep; 1: fsdp", SHAPE(5, 3, 7));
        fleet_add(&f, MUONS, "whole", NULL, NULL, SHAPE(4, 11));
        fleet_add(&f, ADAMWS, "norm", NULL, NULL, SHAPE(13));
        fleet_add(&f, ADAMWS, "bias", NULL, "0: tp", SHAPE(17));
        int64_t elements = 9 * 16 + 5 * 3 * 7 + 4 * 11 + 13 + 17;
        ship whole;
        fleet_run_whole(&whole, &f, 1);
        assert_true(whole.result.grad_norm == sqrt((double)elements));
        ship_destroy(&whole);
        fleet_check(&f, r * d * e * t, 1); /* compares the norm, too */
    }
}

/* ---- Gradients are taken as they are */

static void is_gradient(int rank, const muon_comm *comm, void *arg)
{
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, arg, comm));
    rank_ok(ship_run(&s, 1, 1));
    for (size_t i = 0; i < s.f->nparams; i++) {
        muon_tensor t = ship_state(&s, i, "momentum_buffer");
        rank_check(t.data && memcmp(t.data, s.grads[i], (size_t)s.numel[i] * sizeof(float)) == 0,
                   "param '%s': momentum is not the gradient", s.f->params[i].name);
    }
    ship_destroy(&s);
}

/* Megatron#7165: experts have other data-parallel groups than dense tensors, and their gradients got
 * another scale. Here momentum after the first step is the gradient, on whatever mesh. */
TEST(gradients_are_not_rescaled_by_the_size_of_any_mesh)
{
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "dense", "replicate", 2, "fsdp", 2, NULL);
    fleet_mesh(&f, "experts", "ep", 4, NULL);
    fleet_add(&f, MUONS, "dense", NULL, "0: fsdp", SHAPE(10, 6));
    fleet_add(&f, MUONS, "experts", "batch 1", "0: ep", SHAPE(4, 5, 6))->mesh = "experts";
    fleet_add(&f, MUONS, "whole", NULL, NULL, SHAPE(7, 6));
    ranks_run(4, is_gradient, &f);
}

/* DeepSpeed#8443: one step of a sum of four micro-batches is nearly that of the whole batch, whatever
 * the order of the sum, and every matrix is orthogonalized once for it, not once for each. */
TEST(the_order_of_accumulation_hardly_matters)
{
    fleet f;
    fleet_init(&f);
    fleet_add(&f, MUONS, "w", NULL, NULL, SHAPE(24, 16));
    ship forth, back;
    assert_ok(ship_create(&forth, &f, NULL));
    assert_ok(ship_create(&back, &f, NULL));
    for (int64_t e = 0; e < forth.numel[0]; e++) {
        float up = 0, down = 0;
        for (int k = 1; k <= 4; k++) {
            up += fleet_value("micro", e, k);
            down += fleet_value("micro", e, 5 - k);
        }
        fleet_put(forth.grads[0], MUON_F32, e, up);
        fleet_put(back.grads[0], MUON_F32, e, down);
    }
    assert_ok(ship_step(&forth));
    assert_ok(ship_step(&back));
    assert_int_equal(forth.result.matrices, 1);
    double worst = 0;
    for (int64_t e = 0; e < forth.numel[0]; e++)
        worst = fmax(worst, fabs((double)((float *)forth.buffers[0].param)[e] -
                                 (double)((float *)back.buffers[0].param)[e]));
    testlib_assert_error(worst, 4e-4, "forth and back");
    ship_destroy(&forth);
    ship_destroy(&back);
}
