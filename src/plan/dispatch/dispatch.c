/* The dispatcher: which rank orthogonalizes which matrix.
 *
 * Matrices are taken by cost, the costliest first (LPT). One that a few ranks hold stays with one of
 * them as long as that rank's load keeps within a target; beyond it, it goes to the least loaded rank of
 * the node or of all, if that helps although its elements have to travel. One that many hold goes to
 * the least loaded rank. A loose target moves little, a tight one balances well: several are tried,
 * and a smaller makespan has to be worth its bytes. All of it is arithmetic on what every
 * rank knows, in an order that every rank follows, so every rank comes to the same owners. */
#include "plan/dispatch/dispatch.h"

#include "base/memory.h"
#include "plan/dispatch/priced.h"
#include "plan/dispatch/teams.h"
#include "plan/dispatch/tree.h"
#include "plan/predict/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Times the lower bound. The ends first: if the loosest is good enough, nothing moves without need; if
 * the tightest is, no other is much better. */
static const double TARGETS[] = {4, 1, 1.04, 1.1, 1.3, 2};
/* A makespan this much smaller is worth more bytes. */
static const double WORTH_IT = 0.01;
/* Times what no rank can do without; tried where the others are this far from the bound. */
static const double PRICED_TARGETS[] = {1.0, 1.1, 1.2, 1.35};
static const double FAR_FROM_BOUND = 0.05;
/* Among holders: seconds of messages against seconds of load. */
static const double BYTES_WEIGHT = 8;
/* Where messages take longer than work, work still counts a little. */
static const double WORK_WEIGHT = 1.0 / 64;

/* An assignment of owners and what comes of it. */
typedef struct outcome {
    int32_t *owner; /* [nitems] */
    double makespan;
    int64_t bytes_max, bytes_mean;
} outcome;

typedef struct dispatch {
    muon_plan *plan;
    cost_model model;
    load_tree tree;
    rank_load *load; /* [nranks] */
    cost_order order;
    int64_t *owned;        /* [nranks] of the bucket in work */
    unsigned char *closed; /* [nranks] has as many of them as it may */
    team_choices teams;
    unsigned char *shared; /* [nitems] a team has it: there is nothing to assign */
    double bound;          /* no assignment has a smaller makespan */
} dispatch;

/* ---- One assignment */

static double pressure_of(const rank_load *l)
{
    return muon__load_seconds(l) + WORK_WEIGHT * l->work;
}

static void refresh(dispatch *d, int rank)
{
    muon__load_tree_set(&d->tree, rank, d->closed[rank] ? HUGE_VAL : pressure_of(&d->load[rank]));
}

typedef struct candidate {
    int rank;
    rank_load cost;                  /* of being the owner */
    double load, pressure, messages; /* seconds, if it were */
} candidate;

static candidate consider(const dispatch *d, int rank, rank_load cost)
{
    candidate c = {.rank = rank, .cost = cost};
    rank_load after = d->load[rank];
    muon__load_add(&after, &cost);
    c.load = muon__load_seconds(&after);
    c.pressure = pressure_of(&after);
    c.messages = cost.in > cost.out ? cost.in : cost.out;
    return c;
}

static candidate consider_any(const dispatch *d, size_t item, int rank)
{
    return consider(d, rank, muon__cost_of_owner(&d->model, item, rank));
}

static candidate consider_holder(const dispatch *d, size_t item, uint32_t i)
{
    const holding_row *row = &d->model.rows[d->model.row_of[item]];
    return consider(d, d->model.holdings[row->first + i].rank,
                    muon__cost_of_keeper(&d->model, item, i));
}

static candidate choose_holder(const dispatch *d, size_t item, double target)
{
    const holding_row *row = &d->model.rows[d->model.row_of[item]];
    candidate best = consider_holder(d, item, 0);
    for (uint32_t i = 1; i < row->n; i++) {
        candidate c = consider_holder(d, item, i);
        if (c.pressure + BYTES_WEIGHT * c.messages < best.pressure + BYTES_WEIGHT * best.messages)
            best = c;
    }
    if (best.load <= target) return best;
    int64_t per_node = d->plan->config.machine.ranks_per_node;
    int64_t begin = best.rank / per_node * per_node, end = begin + per_node;
    if (end > d->plan->nranks) end = d->plan->nranks;
    const int others[] = {muon__load_tree_least_of(&d->tree, (int)begin, (int)end),
                          muon__load_tree_least(&d->tree)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        candidate c = consider_any(d, item, others[i]);
        if (c.pressure + c.messages < best.pressure + best.messages) best = c;
    }
    return best;
}

static void place(dispatch *d, size_t item, const candidate *owner)
{
    const holding_row *row = &d->model.rows[d->model.row_of[item]];
    muon__load_add(&d->load[owner->rank], &owner->cost);
    refresh(d, owner->rank);
    for (uint32_t i = 0; i < row->n; i++) {
        int holder = d->model.holdings[row->first + i].rank;
        if (holder == owner->rank) continue;
        rank_load cost = muon__cost_of_holder(&d->model, item, owner->rank, i);
        muon__load_add(&d->load[holder], &cost);
        refresh(d, holder);
    }
}

static void reopen(dispatch *d)
{
    memset(d->owned, 0, (size_t)d->plan->nranks * sizeof *d->owned);
    for (int r = 0; r < d->plan->nranks; r++) {
        if (!d->closed[r]) continue;
        d->closed[r] = 0;
        refresh(d, r);
    }
}

/* What comes of the owners whose loads are known. */
static void measure(const dispatch *d, outcome *out)
{
    out->makespan = 0;
    out->bytes_max = 0;
    int64_t sum = 0;
    for (int r = 0; r < d->plan->nranks; r++) {
        double seconds = muon__load_seconds(&d->load[r]);
        if (seconds > out->makespan) out->makespan = seconds;
        if (d->load[r].bytes > out->bytes_max) out->bytes_max = d->load[r].bytes;
        sum += d->load[r].bytes;
    }
    out->bytes_mean = sum / d->plan->nranks;
}

/* With `even`, a rank gets no more matrices of a cost than an equal share of each shape, so that a rank
 * which lacks a costly one is not given a crowd of cheap ones, which have more bytes for their work. */
static void assign(dispatch *d, outcome *out, double target, int even)
{
    memcpy(d->load, d->model.base, (size_t)d->plan->nranks * sizeof *d->load);
    for (int r = 0; r < d->plan->nranks; r++)
        d->tree.load[r] = pressure_of(&d->load[r]);
    muon__load_tree_reset(&d->tree, d->tree.load);
    const cost_order *order = &d->order;
    for (size_t b = 0; b < order->nbuckets; b++) {
        for (size_t i = order->bucket[b]; i < order->bucket[b + 1]; i++) {
            size_t item = order->items[i];
            if (d->shared[item]) continue;
            int few = d->model.rows[d->model.row_of[item]].n > 0;
            candidate owner = few ? choose_holder(d, item, target)
                                  : consider_any(d, item, muon__load_tree_least(&d->tree));
            out->owner[item] = owner.rank;
            if (even && ++d->owned[owner.rank] >= order->even[b]) d->closed[owner.rank] = 1;
            place(d, item, &owner);
        }
        if (even) reopen(d);
    }
    measure(d, out);
}

/* ---- The best of several */

static int is_better(const outcome *a, const outcome *b, int64_t cap)
{
    int a_fits = a->bytes_max <= cap, b_fits = b->bytes_max <= cap;
    if (a_fits != b_fits) return a_fits;
    if (a->makespan < b->makespan * (1 - WORTH_IT)) return 1;
    return a->makespan <= b->makespan * (1 + WORTH_IT) && a->bytes_max < b->bytes_max;
}

static void keep_better(outcome *best, outcome *next, int64_t cap)
{
    if (!is_better(next, best, cap)) return;
    outcome swapped = *best;
    *best = *next;
    *next = swapped;
}

static void try_targets(dispatch *d, outcome *best, outcome *next, int64_t cap, int even)
{
    double loosest = 0;
    for (size_t i = 0; i < sizeof TARGETS / sizeof *TARGETS; i++) {
        if (i > 0 && TARGETS[i] * d->bound >= loosest) return; /* it would be the same again */
        assign(d, next, TARGETS[i] * d->bound, even);
        if (i == 0) loosest = next->makespan;
        keep_better(best, next, cap);
        if (best->bytes_max <= cap && best->makespan <= d->bound * (1 + WORTH_IT)) return;
    }
}

/* No rank can receive less than the mean. */
static void try_prices(dispatch *d, outcome *best, outcome *next)
{
    double received = 0;
    for (int r = 0; r < d->plan->nranks; r++)
        received += d->load[r].in;
    double least = fmax(d->bound, received / d->plan->nranks);
    for (size_t i = 0; i < sizeof PRICED_TARGETS / sizeof *PRICED_TARGETS; i++) {
        muon__priced_owners(next->owner, d->load, &d->tree, &d->model, &d->order, d->shared,
                            PRICED_TARGETS[i] * least);
        measure(d, next);
        keep_better(best, next, INT64_MAX);
    }
}

static void find_bound(dispatch *d)
{
    double sum = 0, largest = 0;
    for (size_t i = 0; i < (size_t)d->plan->cost.matrices; i++) {
        uint32_t item = d->plan->matrix_item[i];
        double work = d->model.work[d->plan->items[item].class];
        sum += work;
        if (work > largest && !d->shared[item]) largest = work;
    }
    d->bound = sum / d->plan->nranks > largest ? sum / d->plan->nranks : largest;
}

static muon_status choose_teams(dispatch *d)
{
    TRY(CALLOC(&d->shared, d->plan->nitems, "owners"));
    TRY(muon__teams_choose(&d->teams, &d->model, &d->order));
    for (size_t i = 0; i < d->teams.n; i++)
        d->shared[d->teams.list[i].item] = 1;
    muon__teams_load(d->model.base, &d->teams, &d->model);
    return MUON_OK;
}

static muon_status run(dispatch *d, outcome *best, outcome *next)
{
    muon_plan *plan = d->plan;
    size_t nranks = (size_t)plan->nranks;
    TRY(muon__cost_model_create(&d->model, plan));
    TRY(muon__load_tree_create(&d->tree, plan->nranks, plan->config.machine.ranks_per_node));
    TRY(CALLOC(&d->load, nranks, "loads"));
    TRY(CALLOC(&d->owned, nranks, "loads"));
    TRY(CALLOC(&d->closed, nranks, "loads"));
    TRY(CALLOC(&best->owner, plan->nitems, "owners"));
    TRY(CALLOC(&next->owner, plan->nitems, "owners"));
    TRY(muon__cost_order_create(&d->order, plan));
    TRY(choose_teams(d));
    find_bound(d);
    muon_scheme_cost padded;
    TRY(muon__predict_padded(&padded, plan, &d->model.patterns));
    best->makespan = HUGE_VAL;
    best->bytes_max = INT64_MAX;
    try_targets(d, best, next, INT64_MAX, 0);
    if (best->makespan > d->bound * (1 + FAR_FROM_BOUND)) try_prices(d, best, next);
    /* Where tensors are whole on a rank, that scheme moves nothing and leaves the work as it lies: then
     * its bytes are no measure. */
    if (best->bytes_max > padded.bytes_max && best->bytes_mean <= padded.bytes_max)
        try_targets(d, best, next, padded.bytes_max, 1);
    if (d->teams.n == 0)
        TRY(muon__dispatch_small(best->owner, plan, &d->model.patterns, &d->order));
    for (size_t i = 0; i < (size_t)plan->cost.matrices; i++) {
        plan_item *item = &plan->items[plan->matrix_item[i]];
        item->owner = best->owner[plan->matrix_item[i]];
        plan->classes[item->class].alone += !d->shared[plan->matrix_item[i]];
    }
    return muon__teams_split(plan, &d->teams);
}

static muon_status count_flops(muon_plan *plan)
{
    plan->cost.flops = 0;
    for (size_t i = 0; i < plan->nclasses; i++) {
        plan_class *class = &plan->classes[i];
        class->alone = 0;
        ns_plan ns;
        TRY(muon__plan_class_ns(&ns, class, &plan->groups[class->group]));
        class->flops = muon__ns_flops(&ns);
    }
    for (size_t i = 0; i < (size_t)plan->cost.matrices; i++) {
        plan_item *item = &plan->items[plan->matrix_item[i]];
        item->flops = plan->classes[item->class].flops;
        plan->cost.flops += item->flops;
    }
    return MUON_OK;
}

muon_status muon__plan_choose_owners(muon_plan *plan)
{
    TRY(count_flops(plan));
    for (size_t i = 0; i < plan->nitems; i++)
        plan->items[i].owner = plan->items[i].class == PLAN_IDLE ? -1 : 0;
    if (plan->nranks == 1) {
        for (size_t i = 0; i < (size_t)plan->cost.matrices; i++)
            plan->classes[plan->items[plan->matrix_item[i]].class].alone++;
        return MUON_OK;
    }
    dispatch d = {.plan = plan};
    outcome best = {0}, next = {0};
    muon_status status = run(&d, &best, &next);
    muon__cost_model_destroy(&d.model);
    muon__load_tree_destroy(&d.tree);
    muon__cost_order_destroy(&d.order);
    free(d.load);
    free(d.owned);
    free(d.closed);
    free(d.shared);
    muon__team_choices_free(&d.teams);
    free(best.owner);
    free(next.owner);
    return status;
}
