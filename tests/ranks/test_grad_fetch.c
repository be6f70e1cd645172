/* Gradients that the caller brings when a step asks for them (muon_config.grad_fetch). */
#include "tests/step/offload_fleet.h"
#include "tests/world/model.h"

#include <math.h>

enum { STEPS = 3, UNIT = 16384 };

/* ---- Who brings them */

/* The gradients are the ship's; whatever a step reads is a copy that lives until the next call. */
typedef struct bringer {
    const ship *s;
    void *lent[FLEET_PARAMS];
    int calls, fail_at;                    /* 0: never */
    int forget, misplace;                  /* 1: data stays NULL, or is not aligned */
    int64_t most;                          /* bytes of one call */
    int64_t elements, asked[FLEET_PARAMS]; /* of all calls */
    const char *wrong;
} bringer;

/* Whoever reads them later reads NaNs, or memory that is not there. */
static void take_back(bringer *b)
{
    for (int i = 0; i < FLEET_PARAMS; i++) {
        free(b->lent[i]);
        b->lent[i] = NULL;
    }
}

static int bring(void *user, muon_grad_part *parts, size_t nparts)
{
    bringer *b = user;
    take_back(b);
    if (++b->calls == b->fail_at) return 7;
    int64_t bytes = 0;
    if (nparts == 0) b->wrong = "asked for nothing";
    for (size_t i = 0; i < nparts; i++) {
        muon_grad_part *part = &parts[i];
        const muon_param *p = &b->s->f->params[part->param];
        int64_t n = part->end - part->begin;
        if (part->begin < 0 || n <= 0 || part->end > b->s->numel[part->param])
            b->wrong = "asked for elements that are not there";
        if (b->lent[part->param]) b->wrong = "asked for a gradient twice";
        if (!b->s->buffers[part->param].grad) b->wrong = "asked for a gradient that is missing";
        if (b->wrong) return 1;
        size_t element = fleet_bytes(p->grad_dtype);
        char *copy = malloc((size_t)n * element + 1);
        memcpy(copy, (char *)b->s->grads[part->param] + (size_t)part->begin * element,
               (size_t)n * element);
        b->lent[part->param] = copy;
        b->asked[part->param] += n;
        bytes += n * (int64_t)element;
        part->data = b->forget ? NULL : copy + b->misplace;
    }
    if (bytes > b->most) b->most = bytes;
    return 0;
}

/* What buffers say of a gradient that is elsewhere: reading there would crash. */
static void hide_grads(ship *s)
{
    for (size_t i = 0; i < s->f->nparams; i++)
        if (s->buffers[i].grad) s->buffers[i].grad = (const void *)(uintptr_t)(i + 1);
}

static muon_status fetch_create(ship *s, fleet *f, bringer *b, const muon_comm *comm)
{
    *b = (bringer){.s = s};
    f->config.grad_fetch = bring;
    f->config.user = b;
    muon_status status = ship_create(s, f, comm);
    if (status == MUON_OK) hide_grads(s);
    return status;
}

static void fetch_destroy(ship *s, bringer *b)
{
    take_back(b);
    ship_destroy(s);
}

/* ---- One process */

static void make_fleet(fleet *f, int nranks)
{
    fleet_fsdp(f, nranks);
    fleet_add(f, MUONS, "dense", NULL, "0: fsdp", SHAPE(130, 300));
    fleet_add(f, ADAMWS, "embed", NULL, "0: fsdp", SHAPE(500, 90));
    fleet_add(f, MUONS, "interleaved", "rows 3*[40, 20], skip 2; cols 50, 40", "0: fsdp",
              SHAPE(182, 90));
    fleet_add(f, MUONS, "experts", "batch 1", "0: fsdp", SHAPE(6, 100, 120))->grad_dtype =
        MUON_BF16;
    fleet_add(f, FROZEN, "frozen", NULL, "0: fsdp", SHAPE(9, 9));
    muon_param *half = fleet_add(f, ADAMWS, "half", NULL, "1: fsdp", SHAPE(40, 700));
    half->grad_dtype = half->copy_dtype = MUON_BF16;
    f->config.clip_norm = 1;
    f->config.missing_grad = MUON_MISSING_GRAD_SKIP;
}

static int64_t least_workspace(const fleet *f)
{
    fleet g = *f;
    ship s;
    long long bytes = 0;
    g.config.workspace_budget = 1;
    assert_fails(ship_create(&s, &g, NULL), MUON_E_BUDGET, "the largest matrix needs ");
    assert_int_equal(sscanf(strstr(muon_last_error(), "needs "), "needs %lld", &bytes), 1);
    ship_destroy(&s);
    return bytes;
}

TEST(gradients_that_are_brought_give_the_same_bits)
{
    static const struct {
        int threads, waves, path;
        int64_t budget;
    } cases[] = {
        {1, 0, MUON_PATH_PIPELINE, 0},      {2, 0, MUON_PATH_PIPELINE, 1},
        {1, 1, MUON_PATH_PIPELINE, 1},      {2, 1, MUON_PATH_PIPELINE, 100000},
        {1, 1, MUON_PATH_PIPELINE, 300000}, {1, 0, MUON_PATH_REFERENCE, 1},
    };
    fleet f;
    make_fleet(&f, 1);
    ship want;
    fleet_run_whole(&want, &f, STEPS);
    int64_t least = least_workspace(&f);
    for (size_t i = 0; i < COUNT(cases); i++) {
        fleet g = f;
        g.config.threads = cases[i].threads;
        g.config.path = (muon_path)cases[i].path;
        g.config.workspace_budget = cases[i].waves ? least : 0;
        g.config.grad_budget = cases[i].budget;
        ship s;
        bringer b;
        assert_ok(fetch_create(&s, &g, &b, NULL));
        assert_ok(ship_run(&s, 1, STEPS));
        const char *wrong = ship_compare(&s, &want);
        if (b.wrong || wrong) fail_msg("case %zu: %s", i, b.wrong ? b.wrong : wrong);
        if (cases[i].path == MUON_PATH_PIPELINE) {
            int64_t most = cases[i].budget ? cases[i].budget : INT64_MAX;
            int64_t unit = UNIT * (int64_t)sizeof(float) * 2; /* rows of a matrix in wider rows */
            if (most < unit) most = unit;
            if (b.most > most)
                fail_msg("case %zu: one call has asked for %lld bytes", i, (long long)b.most);
        }
        assert_int_equal(b.asked[4], 0); /* it is frozen */
        for (size_t p = 0; p < g.nparams; p++)
            if (p != 4) assert_true(b.asked[p] >= 2 * STEPS * s.numel[p]);
        fetch_destroy(&s, &b);
    }
    ship_destroy(&want);
}

TEST(without_a_budget_a_small_model_is_asked_for_three_times_a_step)
{
    fleet f;
    make_fleet(&f, 1);
    ship s;
    bringer b;
    assert_ok(fetch_create(&s, &f, &b, NULL));
    assert_ok(ship_run(&s, 1, STEPS));
    assert_int_equal(b.calls, 3 * STEPS); /* norm, momentum, AdamW */
    for (size_t p = 0; p < f.nparams; p++)
        assert_int_equal(b.asked[p], p == 4 ? 0 : 2 * STEPS * s.numel[p]);
    fetch_destroy(&s, &b);
}

TEST(a_missing_gradient_is_not_asked_for)
{
    fleet f;
    make_fleet(&f, 1);
    ship with, without;
    bringer b;
    assert_ok(fetch_create(&with, &f, &b, NULL));
    f.config.grad_fetch = NULL;
    assert_ok(ship_create(&without, &f, NULL));
    for (size_t p = 0; p < 2; p++)
        with.buffers[p].grad = without.buffers[p].grad = NULL;
    assert_ok(ship_run(&with, 1, STEPS));
    assert_ok(ship_run(&without, 1, STEPS));
    assert_null(b.wrong);
    assert_int_equal(b.asked[0] + b.asked[1], 0);
    assert_null(ship_compare(&with, &without));
    ship_destroy(&without);
    fetch_destroy(&with, &b);
}

TEST(a_brought_gradient_that_is_not_finite_skips_the_step)
{
    fleet f;
    make_fleet(&f, 1);
    f.config.grad_budget = 1;
    ship s;
    bringer b;
    assert_ok(fetch_create(&s, &f, &b, NULL));
    uint64_t before = ship_digest(&s);
    ship_fill_grads(&s, 1);
    fleet_put(s.grads[3], MUON_BF16, 71000, INFINITY);
    assert_ok(ship_step(&s));
    assert_false(s.result.applied);
    assert_string_equal(s.result.skip_param, "experts");
    assert_true(ship_digest(&s) == before);
    fetch_destroy(&s, &b);
}

TEST(gradients_may_be_brought_while_state_is_in_a_file)
{
    fleet f;
    offload_fleet(&f);
    ship want, s;
    bringer b;
    fleet_run_whole(&want, &f, STEPS);
    assert_ok(fetch_create(&s, &f, &b, NULL));
    assert_ok(muon_offload(s.opt, offload_dir(), 1 << 20));
    assert_ok(ship_run(&s, 1, STEPS));
    assert_ok(muon_offload(s.opt, NULL, 0));
    assert_null(b.wrong);
    assert_null(ship_compare(&s, &want));
    fetch_destroy(&s, &b);
    ship_destroy(&want);
}

/* ---- Failures */

TEST(a_gradient_that_cannot_be_brought_fails_the_step)
{
    fleet f;
    make_fleet(&f, 1);
    ship s;
    bringer b;
    for (int at = 1; at <= 3; at++) {
        assert_ok(fetch_create(&s, &f, &b, NULL));
        uint64_t before = ship_digest(&s);
        ship_fill_grads(&s, 1);
        b.fail_at = at;
        assert_fails(ship_step(&s), MUON_E_CALLBACK, "the grad_fetch callback returned 7 for ");
        b.fail_at = 0;
        if (at == 1) { /* nothing has changed yet */
            assert_true(ship_digest(&s) == before);
            assert_ok(ship_step(&s));
        } else {
            assert_fails(ship_step(&s), MUON_E_BROKEN, "failed half-way");
        }
        fetch_destroy(&s, &b);
    }
}

TEST(what_is_brought_must_be_there_and_aligned)
{
    fleet f;
    make_fleet(&f, 1);
    ship s;
    bringer b;
    assert_ok(fetch_create(&s, &f, &b, NULL));
    ship_fill_grads(&s, 1);
    b.forget = 1;
    assert_fails(ship_step(&s), MUON_E_CALLBACK, "param 'dense': grad_fetch has left data NULL");
    b.forget = 0;
    b.misplace = 1;
    assert_fails(ship_step(&s), MUON_E_CALLBACK,
                 "param 'dense': what grad_fetch gave is not aligned to its elements");
    fetch_destroy(&s, &b);
    f.config.grad_budget = -1;
    assert_fails(ship_create(&s, &f, NULL), MUON_E_VALUE, "grad_budget is -1, must be at least 0");
    ship_destroy(&s);
}

/* ---- Many ranks */

/* Only some of them fetch, each with a budget of its own. */
static void run_rank(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    fleet mine = *t->f;
    ship s;
    bringer b = {0};
    mine.config.grad_budget = rank == 1 ? 1 : 70000 * rank;
    muon_status status =
        rank == 2 ? ship_create(&s, &mine, comm) : fetch_create(&s, &mine, &b, comm);
    rank_ok(status);
    rank_ok(ship_run(&s, 1, t->steps));
    rank_check(!b.wrong, "rank %d: %s", rank, b.wrong);
    rank_check((b.calls > 0) == (rank != 2), "rank %d was asked %d times", rank, b.calls);
    rank_same(&s, t->whole);
    fetch_destroy(&s, &b);
}

TEST(on_many_ranks_some_of_which_fetch_the_bits_are_those_of_one)
{
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        fleet f;
        make_fleet(&f, 4);
        f.config.path = (muon_path)path;
        fleet_check_by(run_rank, &f, 4, STEPS);
    }
}

typedef struct fault {
    fleet f;
    int at; /* the call that fails on rank 1 */
} fault;

static void run_fault(int rank, const muon_comm *comm, void *arg)
{
    const fault *t = arg;
    fleet mine = t->f;
    ship s;
    bringer b = {0};
    muon_status status =
        rank == 2 ? ship_create(&s, &mine, comm) : fetch_create(&s, &mine, &b, comm);
    rank_ok(status);
    if (rank == 1) b.fail_at = t->at;
    ship_fill_grads(&s, 1);
    rank_fails(muon_step(s.opt, &s.args, NULL), MUON_E_CALLBACK, "grad_fetch callback returned 7");
    if (t->at == 1)
        rank_ok(ship_step(&s));
    else
        rank_fails(ship_step(&s), MUON_E_BROKEN, "failed half-way");
    fetch_destroy(&s, &b);
}

TEST(if_one_rank_cannot_bring_a_gradient_all_hear_of_it)
{
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        for (int at = 1; at <= 3; at++) {
            fault t = {.at = at};
            make_fleet(&t.f, 3);
            t.f.config.path = (muon_path)path;
            ranks_run(3, run_fault, &t);
        }
    }
}
