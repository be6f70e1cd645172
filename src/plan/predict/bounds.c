/* Four lower bounds on the makespan of any plan, as walk.c predicts it. There, the seconds of a
 * rank are at least
 *
 *     busy      what it multiplies and what it exchanges with its teams,
 *     messages  what it sends, and what it receives, to and from owners,
 *     path      of each of its waves: gathering what it owns there, busy, scattering what it owns there.
 *
 * work    Teams compute every tile once, so all ranks together multiply for as long as one would. The
 *         busiest of them is at least the mean.
 * matrix  The members of a team are in the same wave, and each of them has a path. The longest path is
 *         at least their mean: gather, work, exchange and scatter of the whole matrix, divided by the
 *         team's size. So the matrix takes no less than the least mean, over all teams.
 * bytes   A message takes as long to send as to receive, so over all ranks the mean of `messages` is at
 *         least all of them / ranks. A result need only come to a node once from another one, if relays pass
 *         it on inside. What a matrix must move depends on its team: members that hold much of it save
 *         messages, but exchange more. Since a makespan is at least both busy and
 *         messages, it is at least part * busy + (1 - part) * messages, for any part of 0 .. 1; so its
 *         mean is at least the sum, over all matrices, of the least that any team makes of that, / ranks.
 *         That holds for each of PARTS; the largest counts.
 * teams   If a plan takes T, every matrix has a team whose mean path is at most T, and all teams together
 *         are busy for no more than ranks * T. So no plan takes a T at which even the least busy teams
 *         with such paths are busier than that. What is possible at T is possible at more, so the least
 *         T is found by halving; its lower end, which is not possible, is the bound.
 *
 * A team here is only `size` ranks on `nodes` nodes. No team of that kind does better than this: its
 * members are those ranks, and its nodes those nodes, that hold most of the matrix, though perhaps not
 * both at once; as many members as possible are in one node; every member has the same share. */
#include "plan/predict/bounds.h"

#include "base/memory.h"
#include "plan/predict/holders.h"

#include <math.h>
#include <stdlib.h>

static const double PARTS[] = {1.0 / 256, 1.0 / 64, 1.0 / 32, 1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2};
enum { NPARTS = sizeof PARTS / sizeof *PARTS, HALVINGS = 12 };

/* What a team of matrices of one class does, all members together. */
typedef struct class_cost {
    int limit;     /* ranks of a team */
    double work;   /* seconds */
    double bytes;  /* that members compute, and that every other one needs */
    double rounds; /* of exchange */
} class_cost;

/* Matrices that one owner alone might not do in time. */
typedef struct slow {
    holders h;
    int32_t class;
    double count;
} slow;

typedef struct finder {
    const muon_plan *plan; /* without teams */
    int limit;             /* ranks of any team */
    int64_t per_node;
    double near, far; /* seconds for a byte */
    double wire;
    class_cost *classes;
    holders_finder held;
    double
        sums[NPARTS]; /* over all matrices: least seconds of part * busy + (1 - part) * messages */
    double slowest, slowest_alone; /* the longest of the best paths, and with one owner */
    slow *slow;
    size_t nslow, slow_capacity;
} finder;

double muon__bounds_largest(const bounds *b)
{
    return fmax(fmax(b->work, b->matrix), fmax(b->bytes, b->teams));
}

static double even_work(const muon_plan *plan)
{
    return plan->cost.flops / plan->config.machine.flops / plan->nranks;
}

/* ---- What a team does */

/* Gathering a matrix: what is in the members' nodes is near, what is on themselves does not move. */
static double gather_of(const finder *f, const holders *h, int size, int nodes)
{
    double near = fmin(h->node[nodes], h->numel), own = fmin(h->rank[size], near);
    return f->wire * ((near - own) * f->near + (h->numel - near) * f->far);
}

/* Scattering it: everybody but the members gets a result, and every node but theirs gets it from another
 * one, at least once. */
static double scatter_of(const finder *f, const holders *h, int size, int nodes)
{
    double far = fmax(h->once - h->node_once[nodes], 0);
    return sizeof(float) * (fmax(h->total - h->rank[size], 0) * f->near + far * (f->far - f->near));
}

static double messages_of(const finder *f, const holders *h, int size, int nodes)
{
    return gather_of(f, h, size, nodes) + scatter_of(f, h, size, nodes);
}

/* What of it the members send themselves. */
static double sent_of(const finder *f, const holders *h, int size, int nodes)
{
    double seconds = h->once * f->far - h->saved[nodes] - h->rank[size] * f->near;
    return sizeof(float) * fmax(seconds, 0);
}

static double busy_of(const finder *f, const class_cost *c, int size, int nodes)
{
    if (size == 1) return c->work;
    int64_t together = size - nodes + 1; /* members in the fullest node */
    if (together > f->per_node) together = f->per_node;
    double each = (double)(together - 1) * f->near + (double)(size - together) * f->far;
    return c->work + c->bytes * each + c->rounds * size * f->plan->config.machine.latency;
}

/* The mean of its members. */
static double path_of(const finder *f, const class_cost *c, const holders *h, int size, int nodes)
{
    return (gather_of(f, h, size, nodes) + busy_of(f, c, size, nodes) +
            sent_of(f, h, size, nodes)) /
           size;
}

/* The best that a team does for one matrix. */
typedef struct best {
    double path, parts[NPARTS];
} best;

static void consider(const finder *f, best *b, const class_cost *c, const holders *h, int size,
                     int nodes)
{
    double messages = messages_of(f, h, size, nodes), busy = busy_of(f, c, size, nodes);
    b->path = fmin(b->path, path_of(f, c, h, size, nodes));
    for (int i = 0; i < NPARTS; i++)
        b->parts[i] = fmin(b->parts[i], PARTS[i] * busy + (1 - PARTS[i]) * messages);
}

/* Can a team of so many ranks, or more of them, still be the best? It is busy for longer if it is larger,
 * and what it exchanges inside a node is a part of its path. */
static int is_worth_trying(const finder *f, const best *b, const class_cost *c, int size)
{
    double exchange =
        c->bytes * f->near * (size - 1) / size + c->rounds * f->plan->config.machine.latency;
    int worth = exchange < b->path;
    for (int i = 0; i < NPARTS; i++)
        worth |= PARTS[i] * busy_of(f, c, size, 1) < b->parts[i];
    return worth;
}

static best find_best(const finder *f, const class_cost *c, const holders *h)
{
    best b = {.path = HUGE_VAL};
    for (int i = 0; i < NPARTS; i++)
        b.parts[i] = HUGE_VAL;
    for (int size = 1; size <= c->limit; size++) {
        if (size > 1 && !is_worth_trying(f, &b, c, size)) break;
        for (int nodes = (int)((size + f->per_node - 1) / f->per_node); nodes <= size; nodes++)
            consider(f, &b, c, h, size, nodes);
    }
    return b;
}

/* ---- All matrices */

/* In all tiles of an m x m product together: those of a symmetric one are the squares along the diagonal,
 * and what is left of them. (Their sum, because a plan may have matrices with any number of tiles.) */
static double square_floats(int64_t m, int symmetric)
{
    if (!symmetric) return (double)m * (double)m;
    la_tiling g = muon__la_tiling(m, m, 1);
    double h = (double)g.height, full = (double)(g.down - 1), last = (double)m - full * h;
    return full * h * h + last * last + h * h * full * (full - 1) / 2 + last * full * h;
}

static muon_status cost_classes(finder *f)
{
    const muon_plan *plan = f->plan;
    TRY(CALLOC(&f->classes, plan->nclasses, "shapes"));
    for (size_t i = 0; i < plan->nclasses; i++) {
        const plan_class *c = &plan->classes[i];
        f->classes[i].work = c->flops / plan->config.machine.flops;
        f->classes[i].limit = c->whole ? 1 : f->limit;
        if (f->classes[i].limit == 1) continue;
        ns_plan ns;
        TRY(muon__plan_class_ns(&ns, c, &plan->groups[c->group]));
        team_rounds r = muon__team_rounds(&ns);
        double floats = r.strips * (double)c->rows * (double)c->cols;
        if (r.symmetric) floats += r.symmetric * square_floats(ns.m, 1);
        if (r.full) floats += r.full * square_floats(ns.m, 0);
        f->classes[i].bytes = floats * sizeof(float);
        f->classes[i].rounds = r.strips + r.symmetric + r.full + 1;
    }
    return MUON_OK;
}

static muon_status add_slow(finder *f, const holders *h, int32_t class, double count)
{
    if (f->nslow == f->slow_capacity) {
        size_t larger = 2 * f->slow_capacity + 16;
        void *moved = realloc(f->slow, larger * sizeof *f->slow);
        REQUIRE(moved, E_NOMEM, "bounds: no memory for %zu matrices", larger);
        f->slow = moved;
        f->slow_capacity = larger;
    }
    f->slow[f->nslow++] = (slow){*h, class, count};
    return MUON_OK;
}

static muon_status add_pattern(finder *f, const patterns *p, size_t pattern)
{
    uint32_t param = muon__pattern_param(p, pattern);
    double count = (double)(p->first[pattern + 1] - p->first[pattern]);
    for (size_t item = p->item_first[param]; item < p->item_first[param + 1]; item++) {
        const plan_item *it = &f->plan->items[item];
        if (it->class == PLAN_IDLE) continue;
        holders h;
        TRY(muon__holders_find(&f->held, &h, item));
        best b = find_best(f, &f->classes[it->class], &h);
        f->slowest = fmax(f->slowest, b.path);
        double alone = path_of(f, &f->classes[it->class], &h, 1, 1);
        f->slowest_alone = fmax(f->slowest_alone, alone);
        if (alone > even_work(f->plan)) TRY(add_slow(f, &h, it->class, count));
        for (int i = 0; i < NPARTS; i++)
            f->sums[i] += count * b.parts[i];
    }
    return MUON_OK;
}

/* ---- Teams that are fast enough */

/* How much longer than one owner the least busy team is that does a matrix within `seconds`. */
static double least_extra(const finder *f, const slow *s, double seconds)
{
    const class_cost *c = &f->classes[s->class];
    double least = HUGE_VAL;
    for (int size = 1; size <= c->limit; size++) {
        int fewest = (int)((size + f->per_node - 1) / f->per_node);
        if (busy_of(f, c, size, fewest) >= least) break; /* larger teams are busier */
        for (int nodes = fewest; nodes <= size; nodes++)
            if (path_of(f, c, &s->h, size, nodes) <= seconds)
                least = fmin(least, busy_of(f, c, size, nodes));
    }
    return least - c->work;
}

static int is_possible(const finder *f, double seconds)
{
    double busy = even_work(f->plan) * f->plan->nranks;
    for (size_t i = 0; i < f->nslow; i++)
        busy += f->slow[i].count * least_extra(f, &f->slow[i], seconds);
    return busy <= seconds * f->plan->nranks * (1 + 1e-9);
}

/* low: a bound already. With one owner each, nobody is slower than the slowest of them. */
static double find_teams(const finder *f, double low)
{
    double high = fmax(low, f->slowest_alone);
    if (is_possible(f, low)) return low;
    for (int i = 0; i < HALVINGS; i++) {
        double middle = (low + high) / 2;
        *(is_possible(f, middle) ? &high : &low) = middle;
    }
    return low;
}

static muon_status find(finder *f, const patterns *p)
{
    TRY(cost_classes(f));
    TRY(muon__holders_finder_create(&f->held, f->plan, f->near, f->far));
    for (size_t i = 0; i < p->n; i++)
        TRY(add_pattern(f, p, i));
    return MUON_OK;
}

static int team_limit(const muon_plan *plan)
{
    const muon_config *c = &plan->config;
    int64_t limit = c->team_max ? c->team_max : TEAM_MAX;
    if (c->orthogonalize || c->path == MUON_PATH_REFERENCE) limit = 1;
    if (limit > TEAM_MAX) limit = TEAM_MAX;
    return (int)(limit < plan->nranks ? limit : plan->nranks);
}

static muon_status find_whole(bounds *out, const muon_plan *whole)
{
    const muon_machine *m = &whole->config.machine;
    finder f = {.plan = whole,
                .limit = team_limit(whole),
                .per_node = m->ranks_per_node,
                .near = 1 / fmax(m->node_bandwidth, m->bandwidth),
                .far = 1 / m->bandwidth,
                .wire = (double)muon__wire_bytes(whole)};
    patterns p = {0};
    muon_status status = muon__patterns_create(&p, whole);
    if (status == MUON_OK) status = find(&f, &p);
    out->work = even_work(whole);
    out->matrix = f.slowest;
    out->bytes = 0;
    for (int i = 0; i < NPARTS; i++)
        out->bytes = fmax(out->bytes, f.sums[i] / whole->nranks);
    out->teams = 0;
    if (status == MUON_OK) out->teams = find_teams(&f, muon__bounds_largest(out));
    muon__patterns_destroy(&p);
    free(f.classes);
    free(f.slow);
    muon__holders_finder_destroy(&f.held);
    return status;
}

muon_status muon__bounds_find(bounds *out, const muon_plan *plan)
{
    muon_plan whole;
    TRY(muon__plan_without_teams(&whole, plan));
    muon_status status = find_whole(out, &whole);
    muon__plan_free_items(&whole);
    return status;
}
