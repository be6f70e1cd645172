/* A rank that does not come, or stops: every other rank names it, and no other; what they are told in
 * later calls is why, and only a step that had begun is called half-done. Cases run at the same time,
 * each in a world of its own, because most of what they do is wait. */
#include "muon/plan.h"
#include "tests/save/save_fleet.h"

#include <stdatomic.h>
#include <time.h>

#define WAIT 3.0 /* seconds; more than ranks that come need on a busy machine */

enum { MOST_CASES = 24, MOST_SEATS = 48, MOST_RANKS = 8 };

typedef enum call { CREATE, STEP, REPLICAS, OFFLOAD, SAVE, FINISH, LOAD, CALLS } call;

static const char *const names[CALLS] = {"muon_create",  "muon_step", "muon_opt_check_replicas",
                                         "muon_offload", "muon_save", "muon_save_finish",
                                         "muon_load"};

typedef struct absence {
    threads_world *world;
    fleet f;
    scratch root;
    call call;
    int size, missing;
    atomic_int gone; /* ranks that have returned */
    char texts[MOST_RANKS][1024];
} absence;

typedef struct absences {
    absence all[MOST_CASES];
    int n;
    struct {
        absence *a;
        int rank;
    } seats[MOST_SEATS];
    int nseats;
} absences;

static muon_status make_call(ship *s, const absence *a)
{
    switch (a->call) {
    case STEP:
        return ship_run(s, 2, 2);
    case REPLICAS:
        return muon_opt_check_replicas(s->opt, s->buffers);
    case OFFLOAD:
        return muon_offload(s->opt, a->root.path, 1 << 20);
    case SAVE:
        return ship_save(s, a->root.path, 2);
    case FINISH:
        return muon_save_finish(s->opt);
    default:
        return ship_load(s, a->root.path, NULL);
    }
}

static muon_status start_save(ship *s, const absence *a)
{
    muon_save_args args = save_args(s, 1);
    return muon_save_start(s->opt, a->root.path, &args);
}

static void check_text(absence *a, int rank, muon_status status)
{
    char want[128];
    snprintf(want, sizeof want, "rank %d did not reach %s within %g s", a->missing, names[a->call],
             WAIT);
    snprintf(a->texts[rank], sizeof a->texts[rank], "%s", muon_last_error());
    rank_check(status == MUON_E_TIMEOUT && strcmp(a->texts[rank], want) == 0,
               "%d ranks, rank %d: %s: %s, want %s", a->size, rank, muon_status_name(status),
               a->texts[rank], want);
}

/* Nothing was half-done, and the reason is the first one. */
static void check_later(ship *s, absence *a, int rank)
{
    char want[256];
    snprintf(want, sizeof want,
             "muon_step: this optimizer has lost the other ranks (%.100s); "
             "destroy it",
             a->texts[rank]);
    for (int i = 0; i < 2; i++) {
        rank_fails(ship_step(s), MUON_E_BROKEN, want);
        rank_fails(muon_opt_check_replicas(s->opt, NULL), MUON_E_BROKEN, a->texts[rank]);
    }
}

static void wait_for_others(absence *a)
{
    while (atomic_load(&a->gone) < a->size - 1)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void stay_away(int seat, const muon_comm *unused, void *arg)
{
    absences *all = arg;
    absence *a = all->seats[seat].a;
    int rank = all->seats[seat].rank;
    const muon_comm *comm = muon__threads_comm(a->world, rank);
    (void)unused;
    ship s;
    if (a->call == CREATE) {
        if (rank != a->missing) check_text(a, rank, ship_create(&s, &a->f, comm));
        return;
    }
    rank_ok(ship_create(&s, &a->f, comm));
    rank_ok(ship_run(&s, 1, 1));
    if (a->call == FINISH) rank_ok(start_save(&s, a));
    uint64_t before = ship_digest(&s);
    if (rank == a->missing) {
        wait_for_others(a);
    } else {
        muon_status status = make_call(&s, a);
        atomic_fetch_add(&a->gone, 1);
        check_text(a, rank, status);
        rank_check(ship_digest(&s) == before, "something has changed");
        check_later(&s, a, rank);
    }
    ship_destroy(&s);
}

static void run_absences(absences *all)
{
    ranks_run(all->nseats, stay_away, all);
    for (int i = 0; i < all->n; i++) {
        muon__threads_destroy(all->all[i].world);
        scratch_remove(&all->all[i].root);
    }
    all->n = all->nseats = 0;
}

/* Runs those there are when there is no room for another one. */
static void add_absence(absences *all, call of, int size, int missing)
{
    if (all->n == MOST_CASES || all->nseats + size > MOST_SEATS) run_absences(all);
    absence *a = &all->all[all->n++];
    *a = (absence){.call = of, .size = size, .missing = missing};
    save_fleet_small(&a->f, size);
    a->f.config.timeout = WAIT;
    a->root = scratch_make();
    assert_ok(muon__threads_create(&a->world, size));
    for (int rank = 0; rank < size; rank++, all->nseats++) {
        all->seats[all->nseats].a = a;
        all->seats[all->nseats].rank = rank;
    }
}

TEST(whoever_stays_away_from_a_step_is_named)
{
    static const int sizes[] = {2, 3, 4, 5, 8};
    static absences all;
    int quick = testlib_quick();
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int missing = 0; missing < sizes[i]; missing++)
            if (!quick || sizes[i] == 4) add_absence(&all, STEP, sizes[i], missing);
    run_absences(&all);
}

TEST(whoever_stays_away_from_any_call_is_named)
{
    static absences all;
    int quick = testlib_quick();
    for (int of = 0; of < CALLS; of++)
        for (int missing = 0; missing < 4; missing++)
            if (of != STEP && (!quick || missing == 2)) add_absence(&all, (call)of, 4, missing);
    run_absences(&all);
}

/* ---- In mid-step */

typedef struct stop { /* of a rank, when it has momentum and the others wait for what it sends */
    absence a;
    int armed[MOST_RANKS];
} stop;

typedef struct stopper {
    stop *s;
    int rank;
} stopper;

static void stop_here(void *user, size_t index)
{
    stopper *u = user;
    (void)index;
    if (!u->s->armed[u->rank] || u->rank != u->s->a.missing) return;
    wait_for_others(&u->s->a);
}

static void stop_in_step(int rank, const muon_comm *comm, void *arg)
{
    stop *st = arg;
    stopper user = {st, rank};
    fleet mine = st->a.f;
    mine.config.grad_consumed = stop_here;
    mine.config.user = &user;
    ship s;
    char want[64];
    rank_ok(ship_create(&s, &mine, comm));
    rank_ok(ship_run(&s, 1, 1));
    st->armed[rank] = 1;
    ship_fill_grads(&s, 2);
    muon_status status = ship_step(&s);
    if (rank != st->a.missing) atomic_fetch_add(&st->a.gone, 1);
    rank_check(status == MUON_E_TIMEOUT, "%s: %s", muon_status_name(status), muon_last_error());
    snprintf(want, sizeof want, "no word from rank %d: rank %d waited", st->a.missing, rank);
    if (rank != st->a.missing)
        rank_check(strstr(muon_last_error(), want), "\"%s\" lacks \"%s\"", muon_last_error(), want);
    snprintf(want, sizeof want, "an earlier step of this optimizer failed half-way (no word from");
    rank_fails(ship_step(&s), MUON_E_BROKEN, want);
    ship_destroy(&s);
}

/* One matrix: its owner waits for the rank that has stopped, and all others wait for the owner. */
TEST(a_rank_that_stops_is_named_by_those_who_wait_for_others)
{
    for (int missing = 0; missing < 4; missing++) {
        static stop st;
        st = (stop){.a = {.size = 4, .missing = missing}};
        fleet_init(&st.a.f);
        st.a.f.config.timeout = WAIT;
        fleet_mesh(&st.a.f, "mesh", "fsdp", 4, NULL);
        fleet_add(&st.a.f, MUONS, "w", NULL, "0: fsdp", SHAPE(12, 16));
        muon_plan *plan = NULL;
        muon_matrix m;
        assert_ok(fleet_plan(&plan, &st.a.f, 4));
        assert_ok(muon_plan_get_matrix(plan, 0, &m, sizeof m));
        muon_plan_destroy(plan);
        if (m.owner == missing) continue;
        ranks_run(4, stop_in_step, &st);
    }
}
