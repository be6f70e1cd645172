/* Messages that go through relays, because of a bound or because it is faster: the bits of one process, connections within the bound, and a relay or
 * an end that stops is named by everybody, also by those who wait for somebody between. */
#include "comm/comm.h"
#include "muon/plan.h"
#include "tests/world/fleet.h"

#include <stdatomic.h>
#include <time.h>

enum { MOST_RANKS = 16 };

static void add_params(fleet *f)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "g", "h", "i"};
    for (size_t i = 0; i < COUNT(names); i++)
        fleet_add(f, MUONS, names[i], NULL, i % 2 ? "0: fsdp" : "1: fsdp", SHAPE(40, 24));
    static const char *const large[] = {"j", "k", "l", "m"}; /* parts that are not packed */
    for (size_t i = 0; i < COUNT(large); i++)
        fleet_add(f, MUONS, large[i], NULL, "0: fsdp", SHAPE(144, 1024));
    fleet_add(f, MUONS, "blocks", "rows 3*[5, 6]", "0: fsdp", SHAPE(33, 17))->copy_dtype =
        MUON_BF16;
    fleet_add(f, OTHERS, "experts", "batch 1", "0: fsdp", SHAPE(7, 12, 9));
    fleet_add(f, OTHERS, "whole", NULL, NULL, SHAPE(30, 20)); /* all ranks are replicas */
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(33));
}

static void make_fleet(fleet *f, int replicate, int fsdp, int per_node)
{
    fleet_init(f);
    fleet_mesh(f, "mesh", "replicate", replicate, "fsdp", fsdp, NULL);
    add_params(f);
    f->config.machine.ranks_per_node = per_node;
}

static int64_t relayed_bytes(const fleet *f, int nranks)
{
    muon_plan *plan = NULL;
    muon_prediction p;
    assert_ok(fleet_plan(&plan, f, nranks));
    assert_ok(muon_plan_predict(plan, &p, sizeof p));
    muon_plan_destroy(plan);
    return p.relayed_bytes;
}

/* The least budget with these settings, which the error names. */
static int64_t least_budget(fleet *f, int nranks)
{
    muon_plan *plan = NULL;
    long long bytes = 0;
    f->config.workspace_budget = 1;
    assert_fails(fleet_plan(&plan, f, nranks), MUON_E_BUDGET, "workspace_budget is 1 bytes, but ");
    assert_int_equal(sscanf(strstr(muon_last_error(), "needs "), "needs %lld", &bytes), 1);
    return bytes;
}

static void set(fleet *f, int in_flight, int threads, muon_dtype wire)
{
    f->config.in_flight = in_flight;
    f->config.threads = threads;
    f->config.wire = wire;
}

TEST(what_is_relayed_has_the_bits_of_one_process)
{
    static const struct {
        int replicate, fsdp, per_node, in_flight, tight, threads;
        muon_dtype wire;
    } cases[] = {
        {1, 4, 2, 3, 0, 1, MUON_F32},  {1, 4, 2, 3, 1, 1, MUON_F32},  {1, 4, 2, 2, 1, 1, MUON_F32},
        {1, 4, 2, 1, 1, 1, MUON_F32},  {1, 6, 3, 3, 1, 2, MUON_BF16}, {1, 6, 2, 2, 1, 1, MUON_F32},
        {2, 4, 4, 3, 1, 1, MUON_F32},  {4, 2, 2, 3, 1, 1, MUON_BF16}, {3, 3, 3, 2, 1, 1, MUON_F32},
        {1, 8, 3, 3, 1, 1, MUON_F32},  {1, 12, 4, 3, 1, 1, MUON_F32}, {1, 6, 3, 6, 1, 1, MUON_F32},
        {1, 8, 3, 99, 1, 1, MUON_F32},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        fleet f;
        int n = cases[i].replicate * cases[i].fsdp;
        make_fleet(&f, cases[i].replicate, cases[i].fsdp, cases[i].per_node);
        set(&f, cases[i].in_flight, cases[i].threads, cases[i].wire);
        f.config.peers_max = fleet_least_peers(&f, n);
        assert_true(relayed_bytes(&f, n) > 0);
        if (cases[i].tight) f.config.workspace_budget = least_budget(&f, n);
        fleet_check(&f, n, 3);
    }
}

/* Ranks along one axis and more on a node than hold different things; or all of them hold everything. */
static void make_mates(fleet *f, int fsdp, int replicate, int per_node)
{
    fleet_init(f);
    fleet_mesh(f, "mesh", "fsdp", fsdp, "replicate", replicate, NULL);
    add_params(f);
    f->config.machine.ranks_per_node = per_node;
    fleet_slow_between_nodes(&f->config);
}

/* Where results go to a node once, ranks may need more than the least that any plan needs. */
static void use_little(fleet *f, int nranks)
{
    f->config.workspace_budget = least_budget(f, nranks);
    for (int i = 0; i < 64 && relayed_bytes(f, nranks) == 0; i++)
        f->config.workspace_budget += f->config.workspace_budget / 16;
    assert_true(relayed_bytes(f, nranks) > 0);
}

/* With one team size for all, so that every matrix has one owner or several. */
TEST(what_ranks_pass_on_has_the_bits_of_one_process)
{
    static const struct {
        int fsdp, replicate, per_node, in_flight, tight, threads, team;
        muon_dtype wire;
    } cases[] = {
        {1, 4, 2, 3, 0, 1, 1, MUON_F32},  {1, 4, 2, 3, 1, 1, 1, MUON_F32},
        {1, 6, 3, 2, 1, 1, 1, MUON_BF16}, {1, 8, 3, 1, 1, 2, 1, MUON_F32},
        {2, 4, 4, 3, 1, 1, 1, MUON_F32},  {4, 2, 4, 3, 1, 1, 1, MUON_BF16},
        {2, 6, 4, 2, 1, 1, 1, MUON_F32},  {3, 3, 3, 3, 1, 2, 1, MUON_F32},
        {2, 5, 4, 3, 1, 1, 1, MUON_F32},  {1, 12, 4, 3, 1, 1, 1, MUON_F32},
        {1, 6, 2, 3, 0, 1, 2, MUON_F32},  {2, 4, 4, 2, 0, 1, 3, MUON_BF16},
        {1, 6, 3, 6, 1, 1, 1, MUON_F32},  {1, 8, 3, 99, 1, 1, 1, MUON_F32},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        fleet f;
        int n = cases[i].fsdp * cases[i].replicate;
        make_mates(&f, cases[i].fsdp, cases[i].replicate, cases[i].per_node);
        set(&f, cases[i].in_flight, cases[i].threads, cases[i].wire);
        f.config.team_max = f.config.team_min = cases[i].team;
        if (relayed_bytes(&f, n) == 0) fail_msg("case %zu: nobody passes on", i);
        if (cases[i].tight) use_little(&f, n);
        fleet_check(&f, n, 3);
    }
}

/* ---- Ranks that are late */

typedef struct late_user {
    unsigned turn;
} late_user;

/* Leaves the matrix as it is, after a while that is another one each time. */
static int come_late(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    late_user *u = user;
    (void)x, (void)rows, (void)cols, (void)ld;
    if (u)
        nanosleep(&(struct timespec){.tv_nsec = (u->turn = u->turn * 77 + 13) % 8 * 500000}, NULL);
    return 0;
}

static void step_late(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    fleet mine = *t->f;
    late_user user = {(unsigned)rank};
    mine.config.user = &user;
    ship s;
    rank_ok(ship_create(&s, &mine, comm));
    rank_ok(ship_run(&s, 1, t->steps));
    rank_same(&s, t->whole);
    ship_destroy(&s);
}

static void check_late(fleet *f, int nranks, int in_flight)
{
    f->config.orthogonalize = come_late;
    f->config.in_flight = in_flight;
    use_little(f, nranks);
    fleet_check_by(step_late, f, nranks, 6);
}

/* What is relayed in one wave never overtakes, nor is overtaken by, what the relay sends itself. */
TEST(ranks_that_are_late_keep_their_messages_in_order)
{
    for (size_t d = 0; d < COUNT(fleet_depths); d++) {
        fleet f;
        make_fleet(&f, 1, 6, 3);
        f.config.peers_max = fleet_least_peers(&f, 6);
        check_late(&f, 6, fleet_depths[d]);
        make_mates(&f, 2, 4, 4);
        check_late(&f, 8, fleet_depths[d]);
        make_mates(&f, 1, 6, 3);
        check_late(&f, 6, fleet_depths[d]);
    }
}

/* ---- Connections */

static _Thread_local unsigned char met[MOST_RANKS];
static muon_status (*real_open)(void *, muon_batch **, muon_direction, int, const muon_message *,
                                size_t);

static muon_status open_and_note(void *self, muon_batch **out, muon_direction direction,
                                 int channel, const muon_message *messages, size_t nmessages)
{
    for (size_t i = 0; i < nmessages && channel != CHANNEL_ROLL; i++)
        met[messages[i].peer] = 1;
    return real_open(self, out, direction, channel, messages, nmessages);
}

static void count_peers(int rank, const muon_comm *comm, void *arg)
{
    const fleet *f = arg;
    muon_comm_ops ops = *comm->ops;
    muon_comm noted = *comm;
    ops.open = open_and_note;
    noted.ops = &ops;
    memset(met, 0, sizeof met);
    ship s;
    rank_ok(ship_create(&s, f, &noted));
    rank_ok(ship_run(&s, 1, 2));
    muon_rank_load load;
    rank_ok(muon_plan_get_rank(muon_opt_get_plan(s.opt), rank, &load, sizeof load));
    int peers = 0;
    for (int r = 0; r < comm->size; r++)
        peers += met[r];
    rank_check(peers == load.peers, "%d peers, the plan says %lld", peers, (long long)load.peers);
    rank_check(peers <= f->config.peers_max, "%d peers, at most %lld", peers,
               (long long)f->config.peers_max);
    ship_destroy(&s);
}

TEST(ranks_open_connections_to_no_more_peers)
{
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, 2));
    real_open = muon__threads_comm(world, 0)->ops->open;
    muon__threads_destroy(world);
    for (int64_t more = 0; more < 3; more++) {
        fleet f;
        make_fleet(&f, 1, 12, 4);
        f.config.peers_max = fleet_least_peers(&f, 12) + more;
        assert_true(relayed_bytes(&f, 12) > 0);
        ranks_run(12, count_peers, &f);
    }
}

/* ---- A rank stops */

#define SHORT 1.5 /* seconds; more than ranks need that come */

typedef struct stop {
    fleet f;
    int rank;
    atomic_int gone, calls, indirect;
} stop;

typedef struct stop_user {
    stop *s;
    int rank, armed;
} stop_user;

static int stop_there(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    stop_user *u = user;
    (void)x, (void)rows, (void)cols, (void)ld;
    if (!u->armed || u->rank != u->s->rank) return 0;
    atomic_fetch_add(&u->s->calls, 1);
    while (atomic_load(&u->s->gone) < 3)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    return 0;
}

static void run_until_stop(int rank, const muon_comm *comm, void *arg)
{
    stop *t = arg;
    fleet mine = t->f;
    stop_user user = {t, rank, 0};
    mine.config.user = &user;
    ship s;
    rank_ok(ship_create(&s, &mine, comm));
    rank_ok(ship_run(&s, 1, 1));
    user.armed = 1;
    ship_fill_grads(&s, 2);
    muon_status status = ship_step(&s);
    atomic_fetch_add(&t->gone, 1);
    if (rank != t->rank) {
        char who[32], late[32], whom[32];
        snprintf(who, sizeof who, "no word from rank %d: ", t->rank);
        snprintf(late, sizeof late, "rank %d did not reach ", t->rank); /* all had what they need */
        snprintf(whom, sizeof whom, "for rank %d (", t->rank);
        rank_check(status == MUON_E_TIMEOUT, "%s: %s", muon_status_name(status), muon_last_error());
        rank_check(strstr(muon_last_error(), who) || strstr(muon_last_error(), late), "%s",
                   muon_last_error());
        if (strstr(muon_last_error(), who) && !strstr(muon_last_error(), whom))
            atomic_fetch_add(&t->indirect, 1);
    }
    ship_destroy(&s);
}

/* Ranks 0, 1 and 2, 3 are nodes, and each rank has two peers: what 0 and 3, or 1 and 2, have for each
 * other goes through the other two. */
TEST(a_relay_that_stops_is_named)
{
    int indirect = 0;
    for (int rank = 0; rank < 4; rank++) {
        stop t = {.rank = rank};
        make_fleet(&t.f, 1, 4, 2);
        t.f.config.timeout = SHORT;
        t.f.config.orthogonalize = stop_there;
        t.f.config.peers_max = 2;
        assert_int_equal(fleet_least_peers(&t.f, 4), 2);
        ranks_run(4, run_until_stop, &t);
        assert_true(atomic_load(&t.calls) > 0);
        indirect += atomic_load(&t.indirect);
    }
    assert_true(indirect > 0); /* who waits for a relay that waits itself */
}

TEST(a_bound_that_cannot_be_met_is_an_error_at_creation)
{
    fleet f;
    make_fleet(&f, 1, 4, 2);
    f.config.peers_max = 1;
    muon_plan *plan = NULL;
    assert_fails(fleet_plan(&plan, &f, 4), MUON_E_BUDGET,
                 "peers_max is 1, but with machine.ranks_per_node 2 the smallest possible is 2");
}
