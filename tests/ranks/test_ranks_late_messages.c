/* A transport that does everything as late as it may: what was started leaves only when somebody has
 * looked often enough, and where a message will arrive there are NaNs until it has. Whoever writes into
 * a buffer that is still to be sent, or reads one before it has arrived, gets other bits. */
#include "muon/plan.h"
#include "tests/world/fleet.h"
#include "tests/world/zoo.h"

enum { MOST_BATCHES = 4096 };

typedef struct lazy_batch {
    muon_batch *inner;
    muon_direction direction;
    int waits; /* started, but not yet with the inner transport */
    size_t n;
    muon_message messages[];
} lazy_batch;

typedef struct lazy {
    const muon_comm *inner;
    int patience;                    /* looks until the next batch leaves */
    int looks;                       /* since the last one has left */
    lazy_batch *queue[MOST_BATCHES]; /* in the order of their starts */
    size_t first, last;
} lazy;

static lazy_batch *of(muon_batch *batch)
{
    return (lazy_batch *)(void *)batch;
}

static muon_status lazy_open(void *self, muon_batch **out, muon_direction direction, int channel,
                             const muon_message *messages, size_t n)
{
    lazy *l = self;
    lazy_batch *batch = calloc(1, sizeof *batch + n * sizeof *messages);
    if (!batch) return muon_error_set(MUON_E_NOMEM, "no memory");
    batch->direction = direction;
    batch->n = n;
    memcpy(batch->messages, messages, n * sizeof *messages);
    *out = (muon_batch *)(void *)batch;
    return l->inner->ops->open(l->inner->self, &batch->inner, direction, channel, messages, n);
}

static void lazy_close(void *self, muon_batch *batch)
{
    lazy *l = self;
    l->inner->ops->close(l->inner->self, of(batch)->inner);
    free(batch);
}

static muon_status lazy_start(void *self, muon_batch *batch)
{
    lazy *l = self;
    lazy_batch *b = of(batch);
    for (size_t i = 0; b->direction == MUON_RECEIVE && i < b->n; i++)
        memset(b->messages[i].data, 0xff, (size_t)b->messages[i].bytes);
    b->waits = 1;
    l->queue[l->last++ % MOST_BATCHES] = b;
    return MUON_OK;
}

static muon_status lazy_test(void *self, muon_batch *batch, int *done)
{
    lazy *l = self;
    if (l->first < l->last && ++l->looks > l->patience) {
        lazy_batch *next = l->queue[l->first++ % MOST_BATCHES];
        l->looks = 0;
        next->waits = 0;
        muon_status status = l->inner->ops->start(l->inner->self, next->inner);
        if (status != MUON_OK) return status;
    }
    *done = 0;
    if (of(batch)->waits) return MUON_OK;
    return l->inner->ops->test(l->inner->self, of(batch)->inner, done);
}

static int lazy_late(void *self, muon_batch *batch)
{
    lazy *l = self;
    return l->inner->ops->late(l->inner->self, of(batch)->inner);
}

static const muon_comm_ops lazy_ops = {.struct_size = sizeof lazy_ops,
                                       .name = "lazy",
                                       .open = lazy_open,
                                       .close = lazy_close,
                                       .start = lazy_start,
                                       .test = lazy_test,
                                       .late = lazy_late};

static muon_comm lazy_comm(lazy *l, const muon_comm *inner)
{
    memset(l, 0, sizeof *l);
    l->inner = inner;
    l->patience = 2 + 10 * (inner->rank % 3); /* ranks are not equally lazy */
    muon_comm comm = *inner;
    comm.ops = &lazy_ops;
    comm.self = l;
    return comm;
}

/* ---- Many waves through few buffers */

enum { RANKS = 4 };

static void add_params(fleet *f)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "g", "h", "i",
                                        "j", "k", "l", "m", "n", "o", "p", "q"};
    fleet_mesh(f, "mesh", "replicate", 2, "fsdp", 2, NULL);
    for (size_t i = 0; i < COUNT(names); i++)
        fleet_add(f, MUONS, names[i], NULL, i % 2 ? "0: fsdp" : "1: fsdp",
                  SHAPE(150 + (int64_t)i, 200));
    fleet_add(f, MUONS, "experts", "batch 1", "1: fsdp", SHAPE(12, 14, 16));
    fleet_add(f, MUONS, "alone", NULL, "0: fsdp", SHAPE(256, 160)); /* arrives in its place */
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(33));
}

static int64_t least_budget(const fleet *f)
{
    fleet tight = *f;
    tight.config.workspace_budget = 1;
    muon_plan *plan = NULL;
    long long bytes = 0;
    assert_fails(fleet_plan(&plan, &tight, RANKS), MUON_E_BUDGET, "needs ");
    assert_int_equal(sscanf(strstr(muon_last_error(), "needs "), "needs %lld", &bytes), 1);
    return bytes;
}

static void run_lazily(int rank, const muon_comm *comm, void *arg)
{
    lazy *l = calloc(1, sizeof *l);
    muon_comm slow = lazy_comm(l, comm);
    fleet_check_rank(rank, &slow, arg);
    rank_check(l->first == l->last, "%zu batches were started and not waited for",
               l->last - l->first);
    free(l);
}

TEST(buffers_are_not_used_again_before_their_messages_have_gone)
{
    static const muon_dtype wires[] = {MUON_F32, MUON_BF16};
    int quick = testlib_quick(), steps = quick ? 1 : 2;
    for (int in_flight = 1; in_flight <= 3; in_flight++) {
        for (size_t w = 0; w < COUNT(wires); w++) {
            if (quick && in_flight != 1 + 2 * (int)w) continue;
            fleet f;
            fleet_init(&f);
            add_params(&f);
            f.config.in_flight = in_flight;
            f.config.wire = wires[w];
            ship whole;
            fleet_run_whole(&whole, &f, steps);
            f.config.workspace_budget = least_budget(&f);
            muon_plan *plan = NULL;
            muon_plan_cost cost;
            assert_ok(fleet_plan(&plan, &f, RANKS));
            assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
            muon_plan_destroy(plan);
            if (cost.waves < 5) fail_msg("only %lld waves", (long long)cost.waves);
            fleet_task t = {&f, &whole, steps};
            ranks_run(RANKS, run_lazily, &t);
            ship_destroy(&whole);
        }
    }
}

/* ---- Many waves in flight */

/* Matrices are large enough for several waves without a budget, and left as they are: work would take long. */
enum { TWO_RANKS = 2 };

static int leave(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    (void)user, (void)x, (void)rows, (void)cols, (void)ld;
    return 0;
}

static int64_t count_waves(const fleet *f, int64_t *in_flight)
{
    muon_plan *plan = NULL;
    muon_plan_cost cost;
    assert_ok(fleet_plan(&plan, f, TWO_RANKS));
    assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
    muon_plan_destroy(plan);
    *in_flight = cost.in_flight;
    return cost.waves;
}

TEST(any_number_of_waves_in_flight_has_the_bits_of_one_process)
{
    static const int depths[] = {2, 3, 4, 1000};
    fleet f;
    char names[10][8];
    fleet_init(&f);
    fleet_mesh(&f, "mesh", "fsdp", TWO_RANKS, NULL);
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(names[i], sizeof names[i], "%zu", i);
        fleet_add(&f, MUONS, names[i], NULL, i % 2 ? "0: fsdp" : "1: fsdp", SHAPE(1200, 1200));
    }
    f.config.orthogonalize = leave;
    ship whole;
    fleet_run_whole(&whole, &f, 2);
    for (size_t d = testlib_quick() ? 2 : 0; d < COUNT(depths); d++) {
        int64_t in_flight, waves;
        f.config.in_flight = depths[d];
        waves = count_waves(&f, &in_flight);
        if (waves < 5) fail_msg("only %lld waves", (long long)waves);
        assert_int_equal(in_flight, depths[d] < waves ? depths[d] : waves);
        fleet_task t = {&f, &whole, 2};
        ranks_run(TWO_RANKS, run_lazily, &t);
    }
    ship_destroy(&whole);
}

/* ---- One of everything */

typedef struct zoo_task {
    const zoo *z;
    const zoo_run *whole;
} zoo_task;

static void compare_lazily(int rank, const muon_comm *comm, void *arg)
{
    const zoo_task *t = arg;
    lazy *l = calloc(1, sizeof *l);
    muon_comm slow = lazy_comm(l, comm);
    const char *wrong = zoo_compare(t->z, &slow, t->whole);
    rank_check(!wrong, "rank %d: %s", rank, wrong);
    free(l);
}

TEST(a_zoo_over_late_messages_has_the_bits_of_one_process)
{
    static const zoo_axes axes[] = {{1, 3, 1, 1}, {2, 2, 1, 1}, {1, 1, 2, 2}, {2, 1, 3, 1}};
    static const muon_path paths[] = {MUON_PATH_PIPELINE, MUON_PATH_REFERENCE};
    for (size_t p = 0; p < COUNT(paths); p++) {
        zoo z;
        zoo_init(&z);
        z.f.config.path = paths[p];
        zoo_run *whole = NULL;
        const char *wrong = zoo_run_whole(&whole, &z);
        if (wrong) fail_msg("one process: %s", wrong);
        for (size_t i = 0; i < COUNT(axes); i++) {
            if (testlib_quick() && i % 2 != p) continue;
            const zoo_axes *a = &axes[i];
            zoo_lay_out(&z, *a);
            zoo_task t = {&z, whole};
            ranks_run(a->replicate * a->fsdp * a->ep * a->tp, compare_lazily, &t);
        }
        zoo_run_free(whole);
    }
}
