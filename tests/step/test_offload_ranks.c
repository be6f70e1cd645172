/* State in files on many ranks: the bits of one process, and all ranks do it or none. */
#include "tests/step/offload_fleet.h"
#include "tests/world/zoo.h"

enum { RANKS = 4 };

/* ---- One of everything */

typedef struct zoo_task {
    const zoo *z;
    const zoo_run *whole;
    int64_t
        wanted[ZOO_RANKS]; /* the least that each rank has asked for; 0: the budget was enough */
} zoo_task;

static void run_zoo(int rank, const muon_comm *comm, void *arg)
{
    zoo_task *t = arg;
    const char *wrong = zoo_compare(t->z, comm, t->whole);
    t->wanted[rank] = wrong && strstr(wrong, "at least ") ? offload_least() : 0;
    rank_check(!wrong || t->wanted[rank] > 0, "%s", wrong);
}

static void check_zoo(zoo *z, zoo_axes axes, const zoo_run *whole)
{
    int nranks = axes.replicate * axes.fsdp * axes.ep * axes.tp;
    zoo_lay_out(z, axes);
    z->f.config.offload_dir = offload_dir();
    z->f.config.offload_budget = 1;
    zoo_task t = {z, whole, {0}};
    for (int tries = 0;; tries++) { /* each rank names its own least, one at a time */
        ranks_run(nranks, run_zoo, &t);
        if (t.wanted[0] == 0) break;
        assert_true(t.wanted[0] > z->f.config.offload_budget && tries <= nranks);
        z->f.config.offload_budget = t.wanted[0];
    }
    z->f.config.offload_budget *= 3;
    ranks_run(nranks, run_zoo, &t);
    assert_true(t.wanted[0] == 0);
    z->f.config.offload_dir = NULL;
    z->f.config.offload_budget = 0;
}

TEST(every_kind_of_tensor_has_the_bits_of_one_process)
{
    static const zoo_axes axes[] = {{1, 2, 1, 1}, {2, 2, 1, 1}, {1, 2, 2, 1}, {1, 3, 1, 2}};
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        for (size_t i = 0; i < COUNT(axes); i++) {
            if (testlib_quick() && i % 3) continue;
            zoo z;
            zoo_init(&z);
            z.f.config.missing_grad = MUON_MISSING_GRAD_SKIP;
            z.skip_grads = 1;
            z.nan_step = 4;
            z.f.bind = i % 2;
            z.f.config.path = (muon_path)path;
            z.f.config.offload_cached = i % 2;
            zoo_run *whole = NULL;
            const char *wrong = zoo_run_whole(&whole, &z);
            if (wrong) fail_msg("%s", wrong);
            check_zoo(&z, axes[i], whole);
            zoo_run_free(whole);
        }
    }
}

/* ---- On and off */

/* All ranks need another budget; they are told the one of the lowest that has too little. */
static int64_t least_of_all(const ship *s)
{
    int64_t budget = 0;
    while (muon_offload(s->opt, offload_dir(), budget) == MUON_E_BUDGET) {
        rank_check(offload_least() > budget, "%s", muon_last_error());
        budget = offload_least();
    }
    rank_ok(muon_offload(s->opt, NULL, 0));
    return budget;
}

static void check_same(ship *s, const ship *want, const char *when)
{
    const char *wrong = offload_compare(s, want);
    rank_check(!wrong, "%s: %s", when, wrong);
}

static void toggle(int rank, const muon_comm *comm, void *arg)
{
    ship s, want;
    rank_ok(ship_create(&want, arg, comm));
    rank_ok(ship_create(&s, arg, comm));
    int64_t least = least_of_all(&s);
    static const int times[] = {0, 1, 4, 0, 0, 2};
    for (int step = 1; step <= (int)COUNT(times); step++) {
        /* Ranks may have different budgets. */
        int64_t budget = times[step - 1] * least + (rank == 1 ? 50000 : 0);
        rank_ok(muon_offload(s.opt, times[step - 1] ? offload_dir() : NULL, budget));
        rank_ok(ship_run(&s, step, step));
        rank_ok(ship_run(&want, step, step));
        muon_offload_info info = offload_info(&s);
        rank_check(info.resident_most <= (times[step - 1] ? budget : 0), "%lld bytes in memory",
                   (long long)info.resident_most);
        check_same(&s, &want, "after a change");
        rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
    }
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(state_goes_and_comes_between_any_two_steps)
{
    for (int bind = 0; bind <= 1; bind++) {
        for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
            for (size_t d = 0; d < COUNT(fleet_depths); d += 2) {
                fleet f;
                offload_fleet(&f);
                f.bind = bind;
                f.config.path = (muon_path)path;
                f.config.in_flight = fleet_depths[d];
                ranks_run(RANKS, toggle, &f);
            }
        }
    }
}

/* A rank that holds nothing has nothing to put into a file. */
static void run_empty(int rank, const muon_comm *comm, void *arg)
{
    ship s, want;
    rank_ok(ship_create(&want, arg, comm));
    rank_ok(ship_create(&s, arg, comm));
    rank_check(offload_info(&s).state_bytes == 0 || rank < 2, "rank %d has state", rank);
    rank_ok(muon_offload(s.opt, offload_dir(), 1 << 20));
    rank_ok(ship_run(&s, 1, 3));
    rank_ok(ship_run(&want, 1, 3));
    check_same(&s, &want, "with empty ranks");
    rank_ok(muon_offload(s.opt, NULL, 0));
    check_same(&s, &want, "in memory");
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(ranks_without_state_take_part)
{
    for (int bind = 0; bind <= 1; bind++) {
        fleet f;
        fleet_fsdp(&f, RANKS);
        f.bind = bind;
        fleet_add(&f, MUONS, "w", NULL, "0: fsdp", SHAPE(2, 900));
        fleet_add(&f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(1));
        ranks_run(RANKS, run_empty, &f);
    }
}

/* ---- All or none */

static void disagree(int rank, const muon_comm *comm, void *arg)
{
    ship s, want;
    rank_ok(ship_create(&want, arg, comm));
    rank_ok(ship_create(&s, arg, comm));
    int64_t least = least_of_all(&s);
    rank_ok(ship_run(&want, 1, 2));
    rank_ok(ship_run(&s, 1, 1));
    rank_fails(muon_offload(s.opt, rank == 2 ? offload_dir() : NULL, least), MUON_E_DISAGREE,
               "rank 0 wants its state in memory, rank 2 wants it in a file");
    rank_check(offload_is_in_memory(&s), "somebody went");
    rank_fails(muon_offload(s.opt, offload_dir(), rank == 3 ? -1 : least), MUON_E_VALUE,
               "rank 3: muon_offload: ram_budget is -1");
    /* One rank's failure brings the others back. */
    rank_fails(muon_offload(s.opt, rank == 1 ? "/nowhere/at/all" : offload_dir(), least), MUON_E_IO,
               "rank 1: /nowhere/at/all");
    rank_check(offload_is_in_memory(&s), "somebody went");
    rank_fails(muon_offload(s.opt, offload_dir(), rank == 1 ? 1 : least), MUON_E_BUDGET, "rank 1:");
    rank_ok(muon_offload(s.opt, offload_dir(), least));
    rank_fails(muon_offload(s.opt, rank == 1 ? "/nowhere/at/all" : offload_dir(), 2 * least),
               MUON_E_IO, "rank 1: /nowhere/at/all");
    rank_check(!offload_is_in_memory(&s) && offload_info(&s).resident <= least,
               "%lld bytes in memory", (long long)offload_info(&s).resident);
    rank_ok(ship_run(&s, 2, 2));
    check_same(&s, &want, "after all that");
    ship_destroy(&s);
    ship_destroy(&want);
}

TEST(one_ranks_failure_leaves_all_as_they_were)
{
    for (int bind = 0; bind <= 1; bind++) {
        fleet f;
        offload_fleet(&f);
        f.bind = bind;
        ranks_run(RANKS, disagree, &f);
    }
}

static void create_differently(int rank, const muon_comm *comm, void *arg)
{
    fleet mine = *(const fleet *)arg;
    ship s;
    mine.config.offload_dir = rank == 1 ? NULL : offload_dir();
    mine.config.offload_budget = rank == 1 ? 0 : 1 << 30;
    rank_fails(ship_create(&s, &mine, comm), MUON_E_DISAGREE,
               "rank 0 wants its state in a file, rank 1 wants it in memory");
    rank_check(!s.opt, "there is an optimizer");
    mine.config.offload_dir = rank == 2 ? "/nowhere/at/all" : offload_dir();
    mine.config.offload_budget = 1 << 30;
    rank_fails(ship_create(&s, &mine, comm), MUON_E_IO, "rank 2: /nowhere/at/all");
    rank_check(!s.opt, "there is an optimizer");
}

TEST(creation_fails_on_all_ranks_or_none)
{
    for (int bind = 0; bind <= 1; bind++) {
        fleet f;
        offload_fleet(&f);
        f.bind = bind;
        ranks_run(RANKS, create_differently, &f);
    }
}

/* ---- Replicas */

static void flip_bit(const ship *s, const char *name, int64_t at)
{
    muon_tensor t;
    size_t k = 0;
    uint64_t bits = 0;
    do {
        rank_ok(muon_state_get(s->opt, k, &t, sizeof t));
    } while (strcmp(t.name, name) != 0 && ++k < muon_state_count(s->opt));
    if (at < 0) at += (int64_t)(t.bytes / fleet_bytes(t.dtype));
    rank_ok(muon_state_read(s->opt, k, at, 1, &bits));
    bits ^= 1;
    rank_ok(muon_state_write(s->opt, k, at, 1, &bits));
}

static void compare_replicas(int rank, const muon_comm *comm, void *arg)
{
    static const struct {
        const char *tensor;
        int64_t at;
        const char *text;
    } cases[] = {
        {"a.momentum_buffer", 0, "param 'a': momentum_buffer differs between its replicas"},
        {"b.momentum_buffer", -1, "param 'b': momentum_buffer differs between its replicas"},
        {"embedding.exp_avg", 20000, "param 'embedding': exp_avg differs between its replicas"},
        {"embedding.exp_avg_sq", -1, "param 'embedding': exp_avg_sq differs between its replicas"},
        {"norm.exp_avg", -1, "param 'norm': exp_avg differs between its replicas on ranks 0 and 2"},
        {"c.step", 0, "param 'c': step differs between its replicas"},
    };
    ship s;
    rank_ok(ship_create(&s, arg, comm));
    int64_t least = least_of_all(&s);
    rank_ok(ship_run(&s, 1, 2));
    rank_ok(muon_offload(s.opt, offload_dir(), least));
    for (size_t i = 0; i < COUNT(cases); i++) {
        rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
        if (rank == 2) flip_bit(&s, cases[i].tensor, cases[i].at);
        rank_fails(muon_opt_check_replicas(s.opt, s.buffers), MUON_E_DISAGREE, cases[i].text);
        if (rank == 2) flip_bit(&s, cases[i].tensor, cases[i].at);
    }
    rank_ok(muon_opt_check_replicas(s.opt, NULL));
    ship_destroy(&s);
}

TEST(replicas_are_compared_in_their_files)
{
    for (int bind = 0; bind <= 1; bind++) {
        fleet f;
        offload_fleet(&f);
        f.bind = bind;
        ranks_run(RANKS, compare_replicas, &f);
    }
}

/* ---- Memory */

typedef struct count_task {
    fleet f;
    threads_world *world;
} count_task;

static int64_t count(threads_world *world)
{
    ranks_barrier();
    int64_t n = testlib_allocations();
    for (int r = 0; r < RANKS; r++)
        n += muon__threads_count(world, r).batches;
    ranks_barrier();
    return n;
}

static void count_steps(int rank, const muon_comm *comm, void *arg)
{
    count_task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, &t->f, comm));
    rank_ok(muon_offload(s.opt, offload_dir(), least_of_all(&s)));
    int64_t before = count(t->world);
    rank_ok(ship_run(&s, 1, 4));
    rank_ok(muon_step(s.opt, &s.args, NULL));
    int64_t after = count(t->world);
    rank_check(after == before, "%lld allocations and batches", (long long)(after - before));
    ship_destroy(&s);
}

TEST(a_step_allocates_nothing_and_opens_nothing)
{
    for (int path = MUON_PATH_PIPELINE; path <= MUON_PATH_REFERENCE; path++) {
        count_task t;
        offload_fleet(&t.f);
        t.f.config.path = (muon_path)path;
        assert_ok(muon__threads_create(&t.world, RANKS));
        ranks_run_in(t.world, RANKS, count_steps, &t);
        muon__threads_destroy(t.world);
    }
}
