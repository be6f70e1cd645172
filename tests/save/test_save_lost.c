/* A rank is late in the middle of a save or a load, over a transport that cannot call messages back. The
 * others return, and free their optimizers and their weights; then it comes. No message was ever in
 * memory of the caller's, and what they were in is still there. */
#include "comm/comm.h"
#include "tests/save/save_fleet.h"
#include "tests/world/clinging.h"

#include <stdatomic.h>
#include <time.h>

enum { RANKS = 3, LATE = 1 };
#define SHORT 1.5 /* seconds; more than ranks need that come */

typedef struct voyage {
    fleet f;
    ship whole; /* after the step that is saved */
    scratch root;
    int is_load, is_beside;
    int64_t round; /* before which batch of stripes somebody stops */
    atomic_int gone, held;
    atomic_llong kept;
} voyage;

typedef struct sailor {
    voyage *v;
    int rank, armed;
    int64_t batches;
    size_t said; /* bytes that the log said would stay */
} sailor;

static void wait_for_others(void *user, int channel)
{
    sailor *s = user;
    if (!s->armed || s->rank != LATE || channel != CHANNEL_GATHER) return;
    if (++s->batches != s->v->round) return;
    atomic_fetch_add(&s->v->held, 1);
    while (atomic_load(&s->v->gone) < RANKS - 1)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void hear(void *user, muon_log_level level, const char *message)
{
    sailor *s = user;
    size_t bytes = 0;
    char call[32];
    if (level == MUON_LOG_WARN && sscanf(message, "%31[a-z_]: %zu bytes stay", call, &bytes) == 2)
        s->said += bytes;
}

static muon_status act(ship *s, const voyage *v)
{
    if (v->is_load) return ship_load(s, v->root.path, NULL);
    muon_save_args args = save_args(s, 7);
    return v->is_beside ? muon_save_start(s->opt, v->root.path, &args)
                        : muon_save(s->opt, v->root.path, &args);
}

static void be_late(int rank, const muon_comm *comm, void *arg)
{
    voyage *v = arg;
    clinging c;
    cling_init(&c, comm);
    sailor me = {.v = v, .rank = rank};
    c.before_start = wait_for_others;
    c.user = &me;
    fleet mine = v->f;
    mine.config.timeout = SHORT;
    mine.config.log = hear;
    mine.config.user = &me;
    ship s;
    rank_ok(ship_create(&s, &mine, &c.comm));
    rank_ok(ship_run(&s, 1, 1));
    ranks_barrier();
    me.armed = 1;
    muon_status status = act(&s, v);
    rank_check(status == MUON_E_TIMEOUT, "%s: %s", muon_status_name(status),
               status == MUON_OK ? "" : muon_last_error());
    ship_destroy(&s); /* the weights too */
    atomic_fetch_add(&v->gone, 1);
    atomic_fetch_add(&v->kept, (long long)c.kept_bytes);
    ranks_barrier();
    /* A few more may be of the roll call, in which ranks find out who is late. */
    size_t unsaid = c.kept_bytes - me.said;
    rank_check(me.said > 0 && unsaid < 4096, "the log said %zu bytes stay, want %zu", me.said,
               c.kept_bytes);
    int64_t missed = cling_finish(&c);
    rank_check(missed == 0, "%lld messages were in memory that others free", (long long)missed);
}

/* The layout makes ranks exchange most of what they have. */
static void begin(voyage *v)
{
    memset(v, 0, sizeof *v);
    fleet_fsdp(&v->f, RANKS);
    fleet_add(&v->f, MUONS, "columns", NULL, "1: fsdp", SHAPE(150, 91));
    fleet_add(&v->f, MUONS, "rows", NULL, "0: fsdp", SHAPE(100, 40))->dtype = MUON_BF16;
    fleet_add(&v->f, OTHERS, "whole", NULL, NULL, SHAPE(60, 50));
    fleet_add(&v->f, ADAMWS, "embedding", NULL, "1: fsdp", SHAPE(90, 31));
    v->root = scratch_make();
    fleet_run_whole(&v->whole, &v->f, 1);
}

static void end(voyage *v)
{
    ship_destroy(&v->whole);
    scratch_remove(&v->root);
}

static void check_round(voyage *v, int64_t round)
{
    v->round = round;
    atomic_store(&v->gone, 0);
    atomic_store(&v->held, 0);
    atomic_store(&v->kept, 0);
    ranks_run(RANKS, be_late, v);
    if (!atomic_load(&v->held)) fail_msg("batch %lld was never started", (long long)round);
    if (!atomic_load(&v->kept)) fail_msg("nothing was under way");
}

TEST(a_save_that_loses_a_rank)
{
    voyage v;
    begin(&v);
    for (v.is_beside = 0; v.is_beside < 2; v.is_beside++)
        check_round(&v, v.is_beside ? 1 : 4);
    end(&v);
}

TEST(a_load_that_loses_a_rank)
{
    voyage v;
    begin(&v);
    assert_ok(ship_save(&v.whole, v.root.path, 7));
    v.is_load = 1;
    check_round(&v, 1);
    check_round(&v, 4);
    end(&v);
}

static void save_and_load(int rank, const muon_comm *comm, void *arg)
{
    voyage *v = arg;
    clinging c;
    cling_init(&c, comm);
    (void)rank;
    ship s;
    rank_ok(ship_create(&s, &v->f, &c.comm));
    rank_ok(ship_run(&s, 1, 1));
    rank_ok(ship_save(&s, v->root.path, 8));
    rank_ok(ship_run(&s, 2, 2));
    rank_ok(ship_load(&s, v->root.path, NULL));
    const char *wrong = ship_compare_tensors(&s, &v->whole);
    rank_check(!wrong, "%s", wrong);
    ship_destroy(&s);
    rank_check(c.kept_bytes == 0, "%zu bytes are kept, and nothing has failed", c.kept_bytes);
    rank_check(cling_finish(&c) == 0, "messages were in memory that others free");
}

TEST(no_message_is_in_the_callers_memory)
{
    voyage v;
    begin(&v);
    ranks_run(RANKS, save_and_load, &v);
    end(&v);
}
