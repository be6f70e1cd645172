/* A rank is late in the middle of a step, over a transport that cannot call messages back. The others
 * destroy their optimizers, then it comes: its messages still arrive, in memory that is still there.
 * Everybody who wants to goes on with new communicators, and nothing of the old ones is seen. */
#include "muon/plan.h"
#include "tests/world/clinging.h"
#include "tests/world/fleet.h"

#include <stdatomic.h>
#include <time.h>

enum { RANKS = 4, STEPS = 2 };
#define SHORT 1.5 /* seconds; more than ranks need that come */

typedef struct lateness {
    fleet f;
    int rank;           /* who is late */
    atomic_int gone;    /* ranks that have destroyed theirs */
    atomic_llong calls; /* of the late rank's callback while it was armed */
    atomic_llong kept;  /* bytes */
} lateness;

typedef struct seat_user {
    lateness *l;
    int rank, armed;
    size_t said; /* bytes that the log said would stay */
} seat_user;

static int oversleep(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    seat_user *u = user;
    (void)x, (void)rows, (void)cols, (void)ld;
    if (!u->armed || u->rank != u->l->rank) return 0;
    atomic_fetch_add(&u->l->calls, 1);
    while (atomic_load(&u->l->gone) < RANKS - 1)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    return 0;
}

static void listen(void *user, muon_log_level level, const char *message)
{
    seat_user *u = user;
    size_t bytes = 0;
    if (level == MUON_LOG_WARN && sscanf(message, "muon_destroy: %zu bytes stay", &bytes) == 1)
        u->said += bytes;
}

static void add_params(fleet *f, muon_path path)
{
    fleet_fsdp(f, RANKS);
    static const char *const names[] = {"a", "b", "c", "d", "e", "g", "h", "i"};
    for (size_t i = 0; i < COUNT(names); i++)
        fleet_add(f, MUONS, names[i], NULL, i % 2 ? "0: fsdp" : "1: fsdp", SHAPE(40, 24));
    fleet_add(f, MUONS, "alone", NULL, "0: fsdp", SHAPE(512, 160)); /* arrives in its place */
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(9));
    f->config.path = path;
}

static void step_late(int rank, const muon_comm *comm, void *arg)
{
    lateness *l = arg;
    clinging c;
    cling_init(&c, comm);
    fleet mine = l->f;
    seat_user user = {.l = l, .rank = rank};
    mine.config.orthogonalize = oversleep;
    mine.config.log = listen;
    mine.config.user = &user;
    mine.config.timeout = SHORT;
    ship s;
    rank_ok(ship_create(&s, &mine, &c.comm));
    rank_ok(ship_run(&s, 1, 1));
    user.armed = 1;
    ship_fill_grads(&s, 2);
    muon_status status = ship_step(&s);
    rank_check(status == MUON_E_TIMEOUT, "%s: %s", muon_status_name(status),
               status == MUON_OK ? "" : muon_last_error());
    ship_destroy(&s);
    atomic_fetch_add(&l->gone, 1);
    atomic_fetch_add(&l->kept, (long long)c.kept_bytes);
    ranks_barrier(); /* whatever the late rank has sent has come */
    /* A few more may be of the roll call, in which ranks find out who is late. */
    size_t unsaid = c.kept_bytes - user.said;
    rank_check(user.said > 0 && unsaid < 4096, "the log said %zu bytes stay, want %zu", user.said,
               c.kept_bytes);
    rank_check(c.nopen == 0, "%lld batches are open", (long long)c.nopen);
    int64_t missed = cling_finish(&c);
    rank_check(missed == 0, "%lld messages were in memory that was simply freed",
               (long long)missed);
}

static void check_late(muon_path path)
{
    lateness l = {.rank = 0};
    add_params(&l.f, path);
    muon_plan *plan = NULL;
    muon_matrix m;
    assert_ok(fleet_plan(&plan, &l.f, RANKS));
    assert_ok(muon_plan_get_matrix(plan, 0, &m, sizeof m));
    muon_plan_destroy(plan);
    l.rank = m.owner;
    ranks_run(RANKS, step_late, &l);
    assert_true(atomic_load(&l.calls) > 0);
    if (atomic_load(&l.kept) == 0) fail_msg("nothing was under way");
    fleet_check(&l.f, RANKS, STEPS);
}

TEST(memory_outlives_messages_that_come_late)
{
    check_late(MUON_PATH_PIPELINE);
}

TEST(on_the_reference_path_too)
{
    check_late(MUON_PATH_REFERENCE);
}

static void create_without_one(int rank, const muon_comm *comm, void *arg)
{
    clinging c;
    cling_init(&c, comm);
    ship s;
    if (rank == 2) return;
    rank_fails(ship_create(&s, arg, &c.comm), MUON_E_TIMEOUT, "rank 2 did not reach");
    int64_t missed = cling_finish(&c);
    rank_check(missed == 0, "%lld messages were in memory that was simply freed",
               (long long)missed);
}

TEST(when_an_optimizer_cannot_be_made_too)
{
    fleet f;
    add_params(&f, MUON_PATH_PIPELINE);
    f.config.timeout = 0.3;
    ranks_run(RANKS, create_without_one, &f);
}

static void step_well(int rank, const muon_comm *comm, void *arg)
{
    clinging c;
    cling_init(&c, comm);
    fleet_check_rank(rank, &c.comm, arg);
    rank_check(c.kept_bytes == 0, "%zu bytes are kept, and nothing has failed", c.kept_bytes);
    rank_check(cling_finish(&c) == 0, "messages were in memory that was simply freed");
}

TEST(nothing_stays_where_nothing_has_failed)
{
    fleet f;
    ship whole;
    add_params(&f, MUON_PATH_PIPELINE);
    fleet_run_whole(&whole, &f, STEPS);
    fleet_task t = {&f, &whole, STEPS};
    ranks_run(RANKS, step_well, &t);
    ship_destroy(&whole);
}
