/* Ranks that are late, die, or fail in the middle of a step, and transports that break: the others
 * return with an error that says whom they waited for, nothing hangs, nothing leaks, and what is left
 * can be destroyed. */
#include "muon/plan.h"
#include "tests/world/fleet.h"

#include <stdatomic.h>
#include <time.h>

enum { ODD = 2 };
#define SHORT 0.4 /* seconds that are enough for ranks that come */

static void add_params(fleet *f, int nranks)
{
    fleet_mesh(f, "mesh", "fsdp", nranks, NULL);
    fleet_add(f, MUONS, "a", NULL, "0: fsdp", SHAPE(10, 12));
    fleet_add(f, MUONS, "b", NULL, "0: fsdp", SHAPE(12, 10));
    fleet_add(f, MUONS, "c", NULL, "1: fsdp", SHAPE(8, 16));
    fleet_add(f, MUONS, "d", "batch 1", "1: fsdp", SHAPE(6, 7, 5));
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(9));
}

static void nap(long milliseconds)
{
    nanosleep(
        &(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000},
        NULL);
}

/* Most of this is waiting, for each number of ranks again; a sanitizer sees only the largest. */
static int least(int few, int many)
{
    return testlib_quick() ? many : few;
}

/* ---- Ranks that do not come */

static void create_without_one(int rank, const muon_comm *comm, void *arg)
{
    ship s;
    if (rank == ODD) return;
    rank_fails(ship_create(&s, arg, comm), MUON_E_TIMEOUT,
               "rank 2 did not reach muon_create within 0.4 s");
    rank_check(!s.opt, "there is an optimizer");
}

TEST(a_rank_that_never_comes_to_create_is_named)
{
    for (int n = least(3, 5); n <= 5; n++) {
        fleet f;
        fleet_init(&f);
        add_params(&f, n);
        f.config.timeout = SHORT;
        ranks_run(n, create_without_one, &f);
    }
}

typedef struct absence {
    fleet f;
    atomic_int gone; /* ranks that have given up */
    int others;
} absence;

static void step_without_one(int rank, const muon_comm *comm, void *arg)
{
    absence *a = arg;
    ship s;
    rank_ok(ship_create(&s, &a->f, comm));
    rank_ok(ship_run(&s, 1, 1));
    ship_fill_grads(&s, 2);
    uint64_t before = ship_digest(&s);
    /* If it comes when all others have given up, it does not hang either. */
    while (rank == ODD && atomic_load(&a->gone) < a->others)
        nap(5);
    muon_status status = ship_step(&s);
    if (rank != ODD) atomic_fetch_add(&a->gone, 1);
    rank_fails(status, MUON_E_TIMEOUT,
               rank == ODD ? "muon_step" /* it came too late, or saw nobody any more */
                           : "rank 2 did not reach muon_step within 0.4 s");
    rank_check(ship_digest(&s) == before, "something has changed");
    rank_fails(ship_step(&s), MUON_E_BROKEN, "destroy");
    ship_destroy(&s);
}

TEST(a_rank_that_never_comes_to_step_is_named)
{
    for (int n = least(3, 4); n <= 4; n++) {
        absence a = {.others = n - 1};
        fleet_init(&a.f);
        add_params(&a.f, n);
        a.f.config.timeout = SHORT;
        ranks_run(n, step_without_one, &a);
    }
}

static void step_late(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    ship s;
    if (rank == ODD) nap(200);
    rank_ok(ship_create(&s, t->f, comm));
    for (int step = 1; step <= t->steps; step++) {
        if (rank == step % 3) nap(100);
        rank_ok(ship_run(&s, step, step));
    }
    rank_same(&s, t->whole);
    ship_destroy(&s);
}

TEST(ranks_that_are_late_are_waited_for)
{
    fleet f;
    fleet_init(&f);
    add_params(&f, 3);
    fleet_check_by(step_late, &f, 3, 3);
}

/* ---- In mid-step */

typedef struct hold {
    int rank;        /* whose callback it is */
    int code;        /* what that returns */
    int wait_for;    /* ranks that must have given up before it returns */
    atomic_int gone; /* how many have */
    atomic_int calls;
} hold;

typedef struct hold_user {
    hold *h;
    int rank, armed;
} hold_user;

static int held_orthogonalize(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    const hold_user *u = user;
    (void)x, (void)rows, (void)cols, (void)ld;
    if (u->rank != u->h->rank || !u->armed) return 0;
    atomic_fetch_add(&u->h->calls, 1);
    while (atomic_load(&u->h->gone) < u->h->wait_for)
        nap(5);
    return u->h->code;
}

typedef struct hold_task {
    const fleet *f;
    hold *h;
} hold_task;

/* The rank that owns the first matrix; tests need one that is certain to be called. */
static int owner_of_first(const fleet *f, int nranks)
{
    muon_plan *plan = NULL;
    muon_matrix m;
    assert_ok(fleet_plan(&plan, f, nranks));
    assert_ok(muon_plan_get_matrix(plan, 0, &m, sizeof m));
    muon_plan_destroy(plan);
    return m.owner;
}

static void fail_callback(int rank, const muon_comm *comm, void *arg)
{
    const hold_task *t = arg;
    fleet mine = *t->f;
    hold_user user = {t->h, rank, 0};
    mine.config.orthogonalize = held_orthogonalize;
    mine.config.user = &user;
    ship s;
    rank_ok(ship_create(&s, &mine, comm));
    rank_ok(ship_run(&s, 1, 1));
    user.armed = 1;
    ship_fill_grads(&s, 2);
    char who[32];
    snprintf(who, sizeof who, "rank %d: param '", t->h->rank);
    rank_fails(ship_step(&s), MUON_E_CALLBACK, who);
    rank_check(strstr(muon_last_error(), "returned 7"), "%s", muon_last_error());
    rank_fails(ship_step(&s), MUON_E_BROKEN, "destroy");
    rank_check(muon_opt_check_replicas(s.opt, s.buffers) != MUON_OK, "a broken one was compared");
    ship_destroy(&s);
}

TEST(a_callback_that_fails_on_one_rank_breaks_the_step_on_all)
{
    static const muon_path paths[] = {MUON_PATH_PIPELINE, MUON_PATH_REFERENCE};
    for (int n = 2; n <= 4; n++) {
        for (size_t p = 0; p < COUNT(paths); p++) {
            fleet f;
            fleet_init(&f);
            add_params(&f, n);
            f.config.path = paths[p];
            hold h = {.rank = owner_of_first(&f, n), .code = 7};
            hold_task t = {&f, &h};
            ranks_run(n, fail_callback, &t);
        }
    }
}

/* A rank stops in the middle of a wave; the others are past the agreement and wait for its messages. */
static void stop_in_pipeline(int rank, const muon_comm *comm, void *arg)
{
    const hold_task *t = arg;
    fleet mine = *t->f;
    hold_user user = {t->h, rank, 0};
    mine.config.orthogonalize = held_orthogonalize;
    mine.config.user = &user;
    ship s;
    rank_ok(ship_create(&s, &mine, comm));
    rank_ok(ship_run(&s, 1, 1));
    user.armed = 1;
    ship_fill_grads(&s, 2);
    muon_status status = ship_step(&s);
    atomic_fetch_add(&t->h->gone, 1);
    rank_check(status == MUON_E_TIMEOUT, "%s: %s", muon_status_name(status), muon_last_error());
    rank_check(strstr(muon_last_error(), "rank"), "%s", muon_last_error());
    char who[32];
    snprintf(who, sizeof who, "no word from rank %d: ", t->h->rank);
    if (rank != t->h->rank) rank_check(strstr(muon_last_error(), who), "%s", muon_last_error());
    rank_fails(ship_step(&s), MUON_E_BROKEN, "destroy");
    ship_destroy(&s);
}

TEST(a_rank_that_stops_in_mid_pipeline_is_named)
{
    for (int n = least(2, 4); n <= 4; n++) {
        fleet f;
        fleet_init(&f);
        add_params(&f, n);
        f.config.timeout = SHORT;
        hold h = {.rank = owner_of_first(&f, n), .wait_for = n - 1};
        hold_task t = {&f, &h};
        ranks_run(n, stop_in_pipeline, &t);
        assert_true(atomic_load(&h.calls) > 0);
    }
}
