/* A step on many ranks allocates nothing and opens nothing; the workspace is what the plan said, and
 * within the budget; a budget that is too small is the same error on every rank. */
#include "muon/plan.h"
#include "step/opt.h"
#include "tests/world/fleet.h"

#include <math.h>

enum { RANKS = 4 };

static void add_params(fleet *f)
{
    fleet_mesh(f, "mesh", "replicate", 2, "fsdp", 2, NULL);
    fleet_add(f, MUONS, "tall", NULL, "0: fsdp", SHAPE(70, 24));
    fleet_add(f, MUONS, "wide", NULL, "1: fsdp", SHAPE(24, 70));
    /* Parts of 64 KiB and more travel alone. */
    fleet_add(f, MUONS, "large", NULL, "0: fsdp", SHAPE(256, 160));
    muon_param *p = fleet_add(f, MUONS, "experts", "batch 1", "0: fsdp", SHAPE(5, 20, 30));
    p->dtype = p->grad_dtype = MUON_BF16;
    fleet_add(f, OTHERS, "whole", NULL, NULL, SHAPE(16, 20))->copy_dtype = MUON_BF16;
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(33));
}

/* ---- Nothing is allocated */

typedef struct count_task {
    const fleet *f;
    threads_world *world;
} count_task;

/* What all ranks have allocated and opened so far, between two moments when none of them is busy. */
typedef struct counts {
    int64_t allocations, batches;
} counts;

static counts count(threads_world *world)
{
    ranks_barrier();
    counts c = {.allocations = testlib_allocations()};
    for (int r = 0; r < RANKS; r++)
        c.batches += muon__threads_count(world, r).batches;
    ranks_barrier();
    return c;
}

static void count_steps(int rank, const muon_comm *comm, void *arg)
{
    const count_task *t = arg;
    ship s;
    rank_ok(ship_create(&s, t->f, comm));
    counts before = count(t->world);
    rank_check(before.allocations > 0 && before.batches > 0, "nothing is counted");
    rank_ok(ship_run(&s, 1, 3));
    rank_ok(muon_step(s.opt, &s.args, NULL));
    /* A step that is skipped, one that is refused, and one that ranks disagree about. */
    float kept = ((float *)s.grads[0])[0];
    if (rank == 1) ((float *)s.grads[0])[0] = (float)INFINITY;
    rank_ok(ship_step(&s));
    ((float *)s.grads[0])[0] = kept;
    const void *grad = s.buffers[1].grad;
    if (rank == 2) s.buffers[1].grad = NULL;
    rank_fails(ship_step(&s), MUON_E_GRAD, "'wide'");
    s.buffers[1].grad = grad;
    if (rank == 3) rank_ok(muon_opt_set_lr(s.opt, MUONS, 0.5));
    rank_fails(ship_step(&s), MUON_E_DISAGREE, "lr");
    rank_ok(muon_opt_set_lr(s.opt, MUONS, 0.5));
    rank_ok(ship_run(&s, 4, 4));
    counts after = count(t->world);
    rank_check(after.allocations == before.allocations, "%lld allocations",
               (long long)(after.allocations - before.allocations));
    rank_check(after.batches == before.batches, "%lld batches",
               (long long)(after.batches - before.batches));
    ship_destroy(&s);
}

TEST(a_step_allocates_nothing_and_opens_nothing)
{
    static const muon_path paths[] = {MUON_PATH_PIPELINE, MUON_PATH_REFERENCE};
    for (size_t p = 0; p < COUNT(paths); p++) {
        for (int threads = 1; threads <= 2; threads++) {
            fleet f;
            fleet_init(&f);
            add_params(&f);
            f.config.clip_norm = 1;
            f.config.path = paths[p];
            f.config.threads = threads;
            count_task t = {.f = &f};
            assert_ok(muon__threads_create(&t.world, RANKS));
            ranks_run_in(t.world, RANKS, count_steps, &t);
            muon__threads_destroy(t.world);
        }
    }
}

/* ---- The workspace */

static void check_workspace(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    ship s;
    rank_ok(ship_create(&s, t->f, comm));
    muon_rank_load load;
    rank_ok(muon_plan_get_rank(muon_opt_get_plan(s.opt), rank, &load, sizeof load));
    rank_check((int64_t)s.opt->workspace.size == load.workspace_bytes,
               "%zu bytes of workspace, the plan says %lld", s.opt->workspace.size,
               (long long)load.workspace_bytes);
    int64_t budget = t->f->config.workspace_budget, state = 0;
    rank_check(budget == 0 || load.workspace_bytes <= budget, "%lld bytes, %lld allowed",
               (long long)load.workspace_bytes, (long long)budget);
    for (size_t k = 0; k < muon_state_count(s.opt); k++) {
        muon_tensor tensor;
        rank_ok(muon_state_get(s.opt, k, &tensor, sizeof tensor));
        state += (int64_t)tensor.bytes;
    }
    rank_check(state == load.state_bytes, "%lld bytes of state, the plan says %lld",
               (long long)state, (long long)load.state_bytes);
    rank_ok(ship_run(&s, 1, t->steps));
    const char *wrong = ship_compare(&s, t->whole);
    rank_check(!wrong, "budget %lld: %s", (long long)budget, wrong);
    ship_destroy(&s);
}

/* The number that the error names. */
static int64_t least_budget(const fleet *f)
{
    fleet tight = *f;
    tight.config.workspace_budget = 1;
    muon_plan *plan = NULL;
    long long bytes = 0;
    assert_fails(fleet_plan(&plan, &tight, RANKS), MUON_E_BUDGET,
                 "workspace_budget is 1 bytes, but ");
    assert_int_equal(sscanf(strstr(muon_last_error(), "needs "), "needs %lld", &bytes), 1);
    return bytes;
}

static void refuse_budget(int rank, const muon_comm *comm, void *arg)
{
    ship s;
    (void)rank;
    rank_fails(ship_create(&s, arg, comm), MUON_E_BUDGET, "workspace_budget is ");
    rank_check(!s.opt, "there is an optimizer");
}

TEST(the_workspace_is_what_the_plan_says_within_any_budget_that_can_be_met)
{
    static const muon_dtype wires[] = {MUON_F32, MUON_BF16};
    for (size_t w = 0; w < COUNT(wires); w++) {
        for (size_t d = 0; d < COUNT(fleet_depths); d++) {
            if (testlib_quick() && d % 2 != w) continue;
            fleet f;
            fleet_init(&f);
            add_params(&f);
            f.config.in_flight = fleet_depths[d];
            f.config.wire = wires[w];
            ship whole;
            fleet_run_whole(&whole, &f, 2);
            fleet_task t = {&f, &whole, 2};
            int64_t least = least_budget(&f);
            const int64_t budgets[] = {0, least, least + 1, least * 5 / 4, least * 2, 1 << 28};
            for (size_t i = 0; i < COUNT(budgets); i++) {
                f.config.workspace_budget = budgets[i];
                ranks_run(RANKS, check_workspace, &t);
            }
            ship_destroy(&whole);
        }
    }
}

TEST(a_budget_that_cannot_be_met_is_the_same_error_on_every_rank)
{
    fleet f;
    fleet_init(&f);
    add_params(&f);
    int64_t least = least_budget(&f);
    const int64_t budgets[] = {1, 64, least / 2, least - 64};
    for (size_t i = 0; i < COUNT(budgets); i++) {
        f.config.workspace_budget = budgets[i];
        ranks_run(RANKS, refuse_budget, &f);
    }
}

/* ---- A long run does not grow */

static void run_long(int rank, const muon_comm *comm, void *arg)
{
    const count_task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, 1));
    counts before = count(t->world);
    for (int i = 0; i < (testlib_quick() ? 20 : 200); i++)
        rank_ok(ship_step(&s));
    counts after = count(t->world);
    rank_check(after.allocations == before.allocations && after.batches == before.batches,
               "%lld allocations, %lld batches",
               (long long)(after.allocations - before.allocations),
               (long long)(after.batches - before.batches));
    ship_destroy(&s);
}

TEST(many_steps_leave_nothing_behind)
{
    fleet f;
    fleet_fsdp(&f, RANKS);
    fleet_add(&f, MUONS, "a", NULL, "0: fsdp", SHAPE(9, 6));
    fleet_add(&f, MUONS, "b", NULL, "1: fsdp", SHAPE(6, 9));
    fleet_add(&f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(5));
    count_task t = {.f = &f};
    assert_ok(muon__threads_create(&t.world, RANKS));
    ranks_run_in(t.world, RANKS, run_long, &t);
    muon__threads_destroy(t.world);
}
