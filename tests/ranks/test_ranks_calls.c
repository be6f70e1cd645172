/* Ranks in different calls: every rank says the same, which rank is where, nothing has changed, and the
 * next call that all make works. What is wrong on one rank alone is everybody's error, in every call. */
#include "tests/save/save_fleet.h"

enum { RANKS = 3, MOST_TURNS = 200 };

typedef enum call {
    STEP,
    STEP_OTHER, /* of a second optimizer on the same communicator */
    CREATE,     /* a third */
    REPLICAS,
    OFFLOAD,
    SAVE,
    START,
    FINISH,
    LOAD,
    CALLS
} call;

static const char *const names[CALLS] = {
    "muon_step",    "muon_step", "muon_create",     "muon_opt_check_replicas",
    "muon_offload", "muon_save", "muon_save_start", "muon_save_finish",
    "muon_load"};

/* What one rank has. */
typedef struct player {
    ship ship, other;
    const muon_comm *comm;
    const char *root;
} player;

static muon_status create_third(const player *p)
{
    ship third;
    muon_status status = ship_create(&third, p->ship.f, p->comm);
    if (status == MUON_OK) ship_destroy(&third);
    return status;
}

/* number: of the step, of the checkpoint; even: offload to a file. */
static muon_status make_call(player *p, call which, int number)
{
    muon_save_args args = save_args(&p->ship, number);
    switch (which) {
    case STEP:
        return ship_run(&p->ship, number, number);
    case STEP_OTHER:
        return ship_run(&p->other, number, number);
    case CREATE:
        return create_third(p);
    case REPLICAS:
        return muon_opt_check_replicas(p->ship.opt, p->ship.buffers);
    case OFFLOAD:
        return muon_offload(p->ship.opt, number % 2 ? NULL : p->root, 1 << 20);
    case SAVE:
        return muon_save(p->ship.opt, p->root, &args);
    case START:
        return muon_save_start(p->ship.opt, p->root, &args);
    case FINISH:
        return muon_save_finish(p->ship.opt);
    default:
        return ship_load(&p->ship, p->root, NULL);
    }
}

typedef struct game {
    fleet f;
    scratch root;
    ship whole; /* what one process makes of the steps that all ranks made */
} game;

static void start_game(game *g)
{
    save_fleet(&g->f, RANKS);
    g->root = scratch_make();
}

static void end_game(game *g)
{
    ship_destroy(&g->whole);
    scratch_remove(&g->root);
}

static void join(player *p, const game *g, const muon_comm *comm)
{
    p->comm = comm;
    p->root = g->root.path;
    rank_ok(ship_create(&p->ship, &g->f, comm));
    rank_ok(ship_create(&p->other, &g->f, comm));
}

static void leave(player *p)
{
    ship_destroy(&p->ship);
    ship_destroy(&p->other);
}

/* ---- One rank elsewhere */

/* The lowest rank, and the lowest that is elsewhere. */
static void expect_text(char *text, size_t size, call a, call b, int odd)
{
    int other = odd == 0 ? 1 : odd;
    call of_first = odd == 0 ? b : a, of_other = odd == 0 ? a : b;
    int apart = a != CREATE && b != CREATE && (a == STEP_OTHER) != (b == STEP_OTHER);
    if (strcmp(names[a], names[b]) == 0)
        snprintf(text, size, "rank %d is in %s of another optimizer than rank 0", other, names[a]);
    else
        snprintf(text, size, "rank %d is in %s, rank 0 in %s%s", other, names[of_other],
                 names[of_first], apart ? " of another optimizer" : "");
}

static void go_astray(int rank, const muon_comm *comm, void *arg)
{
    const game *g = arg;
    player p;
    join(&p, g, comm);
    rank_ok(ship_run(&p.ship, 1, 1));
    uint64_t before = ship_digest(&p.ship);
    for (int a = 0; a < CALLS; a++) {
        for (int b = 0; b < CALLS; b++) {
            for (int odd = 0; odd < RANKS && a != b; odd++) {
                char text[128];
                expect_text(text, sizeof text, (call)a, (call)b, odd);
                muon_status status = make_call(&p, (call)(rank == odd ? b : a), 2);
                rank_check(status == MUON_E_DISAGREE && strcmp(muon_last_error(), text) == 0,
                           "%s and %s on rank %d: %s: %s, want %s", names[a], names[b], odd,
                           muon_status_name(status), muon_last_error(), text);
            }
        }
    }
    rank_check(ship_digest(&p.ship) == before, "something has changed");
    rank_ok(ship_run(&p.ship, 2, 2));
    rank_same(&p.ship, &g->whole);
    leave(&p);
}

TEST(every_two_calls_that_meet_are_named_on_every_rank)
{
    game g;
    start_game(&g);
    fleet_run_whole(&g.whole, &g.f, 2);
    ranks_run(RANKS, go_astray, &g);
    const char *left = names_in(g.root.path);
    if (*left) fail_msg("left behind: %s", left);
    end_game(&g);
}

/* The save goes on until all have come to finish it. */
static void finish_too_early(int rank, const muon_comm *comm, void *arg)
{
    const game *g = arg;
    player p;
    join(&p, g, comm);
    rank_ok(make_call(&p, START, 1));
    rank_fails(make_call(&p, rank == 1 ? FINISH : STEP, 1), MUON_E_DISAGREE,
               "rank 1 is in muon_save_finish, rank 0 in muon_step");
    rank_fails(make_call(&p, SAVE, 2), MUON_E_ARG,
               "rank 0: muon_save: an earlier muon_save_start waits for muon_save_finish");
    rank_ok(make_call(&p, STEP, 1));
    rank_ok(make_call(&p, FINISH, 1));
    rank_fails(make_call(&p, FINISH, 1), MUON_E_ARG,
               "rank 0: muon_save_finish: no save is under way");
    leave(&p);
}

TEST(a_save_under_way_outlives_a_mismatch)
{
    game g;
    start_game(&g);
    fleet_run_whole(&g.whole, &g.f, 0);
    ranks_run(RANKS, finish_too_early, &g);
    assert_ok(ship_load(&g.whole, g.root.path, NULL));
    end_game(&g);
}

/* ---- One rank's mistake */

static muon_status save_nowhere(player *p)
{
    return muon_save(p->ship.opt, NULL, NULL);
}

static muon_status start_nowhere(player *p)
{
    return muon_save_start(p->ship.opt, "", NULL);
}

static muon_status load_from_nowhere(player *p)
{
    return muon_load(p->ship.opt, NULL, NULL, NULL);
}

static muon_status offload_to_nowhere(player *p)
{
    return muon_offload(p->ship.opt, "", 0);
}

static muon_status step_without_args(player *p)
{
    return muon_step(p->ship.opt, NULL, NULL);
}

static muon_status compare_nothing(player *p)
{
    muon_buffers none[FLEET_PARAMS];
    memset(none, 0, sizeof none);
    return muon_opt_check_replicas(p->ship.opt, none);
}

static muon_status create_of_nothing(player *p)
{
    muon_opt *opt = NULL;
    muon_config config = p->ship.f->config;
    config.comm = p->comm;
    return muon_create(&opt, &config, NULL, 3);
}

static muon_status create_for_nobody(player *p)
{
    muon_config config = p->ship.f->config;
    config.comm = p->comm;
    return muon_create(NULL, &config, p->ship.f->params, p->ship.f->nparams);
}

static const struct {
    call call; /* of all others */
    muon_status (*mistake)(player *p);
    const char *text;
} mistakes[] = {
    {SAVE, save_nowhere, "rank 1: muon_save: root must be the name of a directory"},
    {START, start_nowhere, "rank 1: muon_save_start: root must be the name of a directory"},
    {LOAD, load_from_nowhere, "muon_load: path must be the name of a directory"},
    {OFFLOAD, offload_to_nowhere, "rank 1: muon_offload: dir is empty"},
    {STEP, step_without_args, "rank 1: muon_step: args must not be NULL"},
    {REPLICAS, compare_nothing, "rank 1: param 'tall': the weight is NULL"},
    {CREATE, create_of_nothing, "rank 1: muon_create: params is NULL, nparams is 3"},
    {CREATE, create_for_nobody, "rank 1: muon_create: out and config must not be NULL"},
};

static void err_alone(int rank, const muon_comm *comm, void *arg)
{
    const game *g = arg;
    player p;
    join(&p, g, comm);
    rank_ok(make_call(&p, SAVE, 1));
    for (size_t i = 0; i < COUNT(mistakes); i++)
        rank_fails(rank == 1 ? mistakes[i].mistake(&p) : make_call(&p, mistakes[i].call, 2),
                   MUON_E_ARG, mistakes[i].text);
    rank_ok(ship_run(&p.ship, 1, 2));
    rank_same(&p.ship, &g->whole);
    leave(&p);
}

TEST(a_mistake_of_one_rank_is_everybodys_in_every_call)
{
    game g;
    start_game(&g);
    fleet_run_whole(&g.whole, &g.f, 2);
    ranks_run(RANKS, err_alone, &g);
    end_game(&g);
}

/* ---- At random */

typedef struct turn {
    call calls[RANKS];
    int number;
    muon_status want;
} turn;

typedef struct random_game {
    game g;
    turn turns[MOST_TURNS];
    int n;
} random_game;

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

static int is_common(const turn *t)
{
    for (int rank = 1; rank < RANKS; rank++)
        if (t->calls[rank] != t->calls[0]) return 0;
    return 1;
}

static muon_status expect(const turn *t, int *saving)
{
    if (!is_common(t)) return MUON_E_DISAGREE;
    int was = *saving;
    switch (t->calls[0]) {
    case SAVE:
    case LOAD:
        return was ? MUON_E_ARG : MUON_OK;
    case START:
        *saving = 1;
        return was ? MUON_E_ARG : MUON_OK;
    case FINISH:
        *saving = 0;
        return was ? MUON_OK : MUON_E_ARG;
    default:
        return MUON_OK;
    }
}

/* In two of three turns all make the same call. */
static void draw_turns(random_game *r, uint64_t seed)
{
    int saving = 0;
    for (int i = 0; i < r->n; i++) {
        turn *t = &r->turns[i];
        int together = draw(&seed, 3) > 0;
        t->number = i + 1;
        t->calls[0] = (call)draw(&seed, CALLS);
        for (int rank = 1; rank < RANKS; rank++)
            t->calls[rank] = together ? t->calls[0] : (call)draw(&seed, CALLS);
        t->want = expect(t, &saving);
    }
}

static void play(int rank, const muon_comm *comm, void *arg)
{
    random_game *r = arg;
    player p;
    join(&p, &r->g, comm);
    rank_ok(make_call(&p, SAVE, 0));
    for (int i = 0; i < r->n; i++) {
        const turn *t = &r->turns[i];
        muon_status status = make_call(&p, t->calls[rank], t->number);
        rank_check(status == t->want, "turn %d, %s: %s: %s, want %s", i, names[t->calls[rank]],
                   muon_status_name(status), muon_last_error(), muon_status_name(t->want));
    }
    rank_ok(muon_offload(p.ship.opt, NULL, 0));
    const char *wrong = ship_compare_tensors(&p.ship, &r->g.whole);
    rank_check(!wrong, "%s", wrong);
    leave(&p);
}

/* One process does what all have done together. */
static void play_alone(random_game *r, const scratch *root)
{
    player p = {.root = root->path};
    assert_ok(ship_create(&p.ship, &r->g.f, NULL));
    assert_ok(make_call(&p, SAVE, 0));
    for (int i = 0; i < r->n; i++) {
        const turn *t = &r->turns[i];
        if (t->want == MUON_OK && t->calls[0] != STEP_OTHER && t->calls[0] != CREATE)
            assert_ok(make_call(&p, t->calls[0], t->number));
    }
    assert_ok(muon_offload(p.ship.opt, NULL, 0));
    r->g.whole = p.ship;
}

TEST(whatever_ranks_call_they_agree_and_go_on)
{
    const char *given = getenv("MUON_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 2026;
    int games = testlib_quick() ? 1 : 4;
    for (int i = 0; i < games; i++) {
        random_game r = {.n = testlib_quick() ? 80 : MOST_TURNS};
        scratch alone = scratch_make();
        start_game(&r.g);
        draw_turns(&r, seed + (uint64_t)i);
        play_alone(&r, &alone);
        print_message("seed %llu\n", (unsigned long long)seed + (unsigned long long)i);
        ranks_run(RANKS, play, &r);
        end_game(&r.g);
        scratch_remove(&alone);
    }
}
