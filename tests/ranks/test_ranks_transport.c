/* Transports that break. A table of functions around that of the threads fails at its k-th call, or
 * stops delivering: the rank returns what its transport said, the others return too, every batch that
 * was opened is closed. All cases run at the same time, each in a world of its own, because most of
 * what they do is wait. */
#include "tests/world/fleet.h"

enum { RANKS = 3, STEPS = 3 };
#define WAIT 2.5 /* seconds; much more than ranks that come need */

typedef enum kind { OPEN, START, TEST, DEAD } kind;

typedef struct wire {
    const muon_comm *inner;
    kind kind;
    int64_t countdown; /* 0: nothing will fail */
    int failed;
    int64_t open; /* batches */
} wire;

static int is_due(wire *w, kind k)
{
    if (w->kind != k || w->countdown == 0 || --w->countdown > 0) return 0;
    w->failed = 1;
    return 1;
}

static muon_status cut(const char *what)
{
    return muon_error_set(MUON_E_COMM, "the wire is cut in %s", what);
}

static muon_status wire_open(void *self, muon_batch **out, muon_direction direction, int channel,
                             const muon_message *messages, size_t n)
{
    wire *w = self;
    if (is_due(w, OPEN)) return cut("open");
    muon_status status = w->inner->ops->open(w->inner->self, out, direction, channel, messages, n);
    w->open += status == MUON_OK;
    return status;
}

static void wire_close(void *self, muon_batch *batch)
{
    wire *w = self;
    w->open--;
    w->inner->ops->close(w->inner->self, batch);
}

static muon_status wire_start(void *self, muon_batch *batch)
{
    wire *w = self;
    if (is_due(w, START)) return cut("start");
    return w->inner->ops->start(w->inner->self, batch);
}

static muon_status wire_test(void *self, muon_batch *batch, int *done)
{
    wire *w = self;
    if (is_due(w, TEST)) return cut("test");
    is_due(w, DEAD);
    if (w->kind != DEAD || !w->failed) return w->inner->ops->test(w->inner->self, batch, done);
    *done = 0;
    return MUON_OK;
}

static int wire_late(void *self, muon_batch *batch)
{
    wire *w = self;
    return w->inner->ops->late(w->inner->self, batch);
}

static const muon_comm_ops wire_ops = {.struct_size = sizeof wire_ops,
                                       .name = "wire",
                                       .open = wire_open,
                                       .close = wire_close,
                                       .start = wire_start,
                                       .test = wire_test,
                                       .late = wire_late};

/* ---- Cases */

typedef struct breakage {
    threads_world *world;
    int rank; /* whose wire breaks */
    kind kind;
    int64_t call;
    int happened;
} breakage;

typedef struct breakages {
    const fleet *f;
    breakage all[96];
    size_t n;
} breakages;

static int is_loss(muon_status status)
{
    return status == MUON_E_COMM || status == MUON_E_TIMEOUT;
}

/* Creates and steps until something fails; the broken rank fails in the first STEPS steps or never. */
static muon_status go_on(ship *s, wire *w, int *steps)
{
    for (*steps = 0; *steps < STEPS + 1; ++*steps) {
        if (*steps == STEPS) w->countdown = 0;
        muon_status status = ship_run(s, *steps + 1, *steps + 1);
        if (status != MUON_OK) return status;
    }
    return MUON_OK;
}

static void check_loss(const breakage *b, const wire *w, muon_status status)
{
    const char *said = status == MUON_OK ? "" : muon_last_error();
    rank_check(is_loss(status), "kind %d, call %lld: %s: %s", (int)b->kind, (long long)b->call,
               muon_status_name(status), said);
    if (!w->failed) return; /* another rank's: it may have heard of it, or waited in vain */
    if (b->kind == DEAD)
        rank_check(status == MUON_E_TIMEOUT, "%s: %s", muon_status_name(status), said);
    else
        rank_check(status == MUON_E_COMM && strstr(said, "the wire is cut"), "%s: %s",
                   muon_status_name(status), said);
}

static void break_wire(int seat, const muon_comm *unused, void *arg)
{
    breakages *all = arg;
    breakage *b = &all->all[seat / RANKS];
    int rank = seat % RANKS;
    (void)unused;
    const muon_comm *inner = muon__threads_comm(b->world, rank);
    wire w = {.inner = inner, .kind = b->kind, .countdown = rank == b->rank ? b->call : 0};
    muon_comm comm = *inner;
    comm.ops = &wire_ops;
    comm.self = &w;
    ship s;
    int steps = 0;
    muon_status status = ship_create(&s, all->f, &comm);
    int created = status == MUON_OK;
    if (created) status = go_on(&s, &w, &steps);
    if (w.failed) b->happened = 1;
    if (status != MUON_OK) {
        check_loss(b, &w, status);
        if (created) rank_fails(ship_step(&s), MUON_E_BROKEN, "destroy");
    } else {
        rank_check(!w.failed, "kind %d, call %lld: nobody noticed", (int)b->kind,
                   (long long)b->call);
    }
    ship_destroy(&s);
    rank_check(w.open == 0, "kind %d, call %lld: %lld batches are still open", (int)b->kind,
               (long long)b->call, (long long)w.open);
}

static void run_breakages(kind of, const int64_t *calls, size_t ncalls)
{
    fleet f;
    fleet_init(&f);
    f.config.timeout = WAIT;
    fleet_mesh(&f, "mesh", "fsdp", RANKS, NULL);
    fleet_add(&f, MUONS, "a", NULL, "0: fsdp", SHAPE(9, 12));
    fleet_add(&f, MUONS, "b", NULL, "0: fsdp", SHAPE(12, 9));
    fleet_add(&f, MUONS, "c", "batch 1", "1: fsdp", SHAPE(4, 6, 5));
    fleet_add(&f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(7));
    static breakages all;
    all.f = &f;
    all.n = 0;
    int quick = testlib_quick();
    for (size_t i = 0; i < ncalls; i++) {
        for (int rank = 0; rank < RANKS; rank++) {
            if (quick && (int)i % RANKS != rank) continue;
            breakage *b = &all.all[all.n++];
            *b = (breakage){.rank = rank, .kind = of, .call = calls[i]};
            assert_ok(muon__threads_create(&b->world, RANKS));
        }
    }
    ranks_run((int)all.n * RANKS, break_wire, &all);
    size_t happened = 0;
    for (size_t i = 0; i < all.n; i++) {
        happened += (size_t)all.all[i].happened;
        muon__threads_destroy(all.all[i].world);
    }
    if (happened < all.n / 2) fail_msg("only %zu of %zu cases happened", happened, all.n);
}

TEST(a_transport_that_cannot_open)
{
    static const int64_t calls[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14};
    run_breakages(OPEN, calls, COUNT(calls));
}

TEST(a_transport_that_cannot_start)
{
    static const int64_t calls[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 24};
    run_breakages(START, calls, COUNT(calls));
}

TEST(a_transport_that_fails_while_it_waits)
{
    static const int64_t calls[] = {1, 2, 3, 5, 8, 13, 21, 34};
    run_breakages(TEST, calls, COUNT(calls));
}

TEST(a_transport_that_does_not_deliver_any_more)
{
    static const int64_t calls[] = {1, 2, 4, 8, 16, 32};
    run_breakages(DEAD, calls, COUNT(calls));
}
