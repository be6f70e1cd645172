#include "plan/dispatch/teams.h"

#include "base/memory.h"
#include "plan/dispatch/nodes.h"
#include "plan/dispatch/tree.h"
#include "plan/team/shape.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 8 };

/* Matrices below this part of a makespan fill what the others leave, whoever gets them. */
static const double LARGE = 1.0 / 6;
/* Teams must shorten a step by this much. */
static const double WORTH_IT = 0.05;
/* So much of what a team's members spend must be what one owner would have, too. Found by trying: with
 * less, teams take from others what they save; with more, idle ranks stay idle. */
static const double EFFICIENT = 0.45;
/* Makespans this close to each other are the same. */
static const double CLOSE = 0.01;

typedef struct search {
    const cost_model *m;
    const cost_order *order;
    const muon_machine *machine;
    int most;           /* ranks of a team */
    int limit;          /* for the makespan that is tried */
    double *seconds[2]; /* [nclasses][most + 1] within a node, across nodes; 0: not known yet */
    double *work;       /* [nclasses][most + 1] of it, multiplying */
    double *strip;      /* [nclasses][most + 1] the largest, as a part of the matrix */
    load_tree tree;     /* of all ranks, by load */
    node_loads nodes;   /* the same loads, by node */
    double *zero;       /* [nranks] */
    team_choices now,
        best;        /* of the makespan that is tried, and of the smallest that is possible */
    double makespan; /* of all that was placed */
} search;

void muon__team_choices_free(team_choices *c)
{
    free(c->list);
    free(c->members);
    *c = (team_choices){0};
}

/* ---- How long a team takes */

/* Seconds until a matrix has come to its owners and its result has gone, if nothing hides that. */
static double message_seconds(const search *s, size_t item, int size)
{
    const holding_row *row = &s->m->rows[s->m->row_of[item]];
    double elements = (double)row->numel * (double)s->m->wire + (double)row->total * sizeof(float);
    size_t class = (size_t)s->m->plan->items[item].class;
    return elements * s->m->average * s->strip[class * (size_t)(s->most + 1) + (size_t)size];
}

static muon_status find_seconds(search *s, int32_t class, int size)
{
    const muon_plan *plan = s->m->plan;
    const plan_class *c = &plan->classes[class];
    size_t at = (size_t) class * (size_t)(s->most + 1) + (size_t)size;
    if (s->work[at] > 0) return MUON_OK;
    ns_plan ns;
    TRY(muon__plan_class_ns(&ns, c, &plan->groups[c->group]));
    double flops = size == 1 ? c->flops : muon__team_most_flops(&ns, size);
    REQUIRE(flops >= 0, E_NOMEM, "teams: no memory");
    s->work[at] = flops / s->machine->flops;
    s->seconds[0][at] = s->seconds[1][at] = s->work[at];
    s->strip[at] = size == 1 ? 1 : muon__team_largest_strip(&ns, size);
    if (size == 1) return MUON_OK;
    team_rounds rounds = muon__team_rounds(&ns);
    double square = (double)ns.m * (double)ns.m;
    double floats = rounds.strips * (double)ns.rows * (double)ns.cols + rounds.full * square +
                    rounds.symmetric * square / 2;
    double bytes = floats * sizeof(float) * (size - 1) / size;
    double latency = s->machine->latency * (rounds.strips + rounds.full + rounds.symmetric + 1);
    double near = size > s->machine->ranks_per_node
                      ? (double)(s->machine->ranks_per_node - 1) / (size - 1)
                      : 0;
    s->seconds[0][at] += latency + bytes / s->machine->node_bandwidth;
    s->seconds[1][at] +=
        latency + bytes * (near / s->machine->node_bandwidth + (1 - near) / s->machine->bandwidth);
    return MUON_OK;
}

static double seconds_of(const search *s, size_t item, int size, int far)
{
    size_t class = (size_t)s->m->plan->items[item].class;
    return s->seconds[far][class * (size_t)(s->most + 1) + (size_t)size] +
           message_seconds(s, item, size);
}

/* ---- Who is in it */

static muon_status add_choice(search *s, size_t item, const int *members, int size, int far)
{
    team_choices *c = &s->now;
    if (c->n == c->capacity) {
        size_t larger = 2 * c->capacity + 64;
        void *moved = realloc(c->list, larger * sizeof *c->list);
        REQUIRE(moved, E_NOMEM, "teams: no memory for %zu of them", larger);
        c->list = moved;
        c->capacity = larger;
    }
    if (c->nmembers + (size_t)size > c->member_capacity) {
        size_t larger = 2 * c->member_capacity + (size_t)4 * TEAM_MAX;
        void *moved = realloc(c->members, larger * sizeof *c->members);
        REQUIRE(moved, E_NOMEM, "teams: no memory for %zu members", larger);
        c->members = moved;
        c->member_capacity = larger;
    }
    c->list[c->n++] =
        (team_choice){(uint32_t)item, size, c->nmembers,
                      seconds_of(s, item, size, far) - message_seconds(s, item, size)};
    for (int i = 0; i < size; i++)
        c->members[c->nmembers++] = members[i];
    return MUON_OK;
}

static int by_rank(const void *a, const void *b)
{
    const int *ra = a, *rb = b;
    return (*ra > *rb) - (*ra < *rb);
}

/* The `size` least loaded ranks; returns the largest of their loads. */
static double least_of_all(search *s, int *members, int size)
{
    double loads[TEAM_MAX], start = 0;
    for (int i = 0; i < size; i++) {
        members[i] = muon__load_tree_least(&s->tree);
        loads[i] = s->tree.load[members[i]];
        muon__load_tree_set(&s->tree, members[i], HUGE_VAL);
    }
    for (int i = 0; i < size; i++) {
        muon__load_tree_set(&s->tree, members[i], loads[i]);
        if (loads[i] > start) start = loads[i];
    }
    return start;
}

/* The same of one node; HUGE_VAL: no node is that large. */
static double least_of_node(const search *s, int *members, int size)
{
    const int *best = muon__node_loads_best(&s->nodes, size);
    if (!best) return HUGE_VAL;
    memcpy(members, best, (size_t)size * sizeof *members);
    return s->tree.load[best[size - 1]];
}

/* end: with its messages, of which all but the first and the last of a rank are hidden by what else it
 * does; so they are no load. */
static muon_status take(search *s, size_t item, int *members, int size, int far, double end)
{
    double load = end - message_seconds(s, item, size);
    for (int i = 0; i < size; i++)
        muon__load_tree_set(&s->tree, members[i], load);
    for (int i = 0; s->limit > 1 && i < size; i++) /* nobody looks for a team otherwise */
        muon__node_loads_changed(&s->nodes, members[i]);
    if (end > s->makespan) s->makespan = end;
    if (size == 1) return MUON_OK;
    qsort(members, (size_t)size, sizeof *members, by_rank);
    return add_choice(s, item, members, size, far);
}

static int is_whole(const search *s, size_t item)
{
    return s->m->plan->classes[s->m->plan->items[item].class].whole;
}

static int64_t tiles_of(const search *s, size_t item)
{
    const plan_class *c = &s->m->plan->classes[s->m->plan->items[item].class];
    return muon__la_symmetric_tiles(c->rows < c->cols ? c->rows : c->cols);
}

/* What is one tile is not worth sharing. */
static int is_efficient(const search *s, size_t item, int size)
{
    return tiles_of(s, item) > 1 &&
           seconds_of(s, item, 1, 0) >= EFFICIENT * size * seconds_of(s, item, size, 0);
}

/* The fewest ranks that can do a matrix before `target`, but `least` at least. *found is 0 if there are
 * none. */
static muon_status place(search *s, size_t item, int least, double target, int *found)
{
    int members[TEAM_MAX];
    int limit = s->limit;
    *found = 1;
    if (limit > 1 && (is_whole(s, item) || tiles_of(s, item) > TEAM_TILES)) least = limit = 1;
    for (int size = least; size <= limit; size++) {
        TRY(find_seconds(s, s->m->plan->items[item].class, size));
        if (size > 1 && least == 1 && !is_efficient(s, item, size)) break;
        double near = seconds_of(s, item, size, 0), end = HUGE_VAL;
        if (near > target) continue; /* whoever they are */
        if (size > 1) end = least_of_node(s, members, size) + near;
        if (end <= target) return take(s, item, members, size, 0, end);
        int across = s->machine->ranks_per_node < s->m->plan->nranks;
        double far = seconds_of(s, item, size, across);
        if (far > target) continue;
        end = least_of_all(s, members, size) + far;
        if (end <= target) return take(s, item, members, size, across, end);
    }
    *found = 0;
    return MUON_OK;
}

/* Is this makespan possible, with teams of `least` ranks at least? all: every matrix is placed, else
 * small ones only have to find room. */
static muon_status try_makespan(search *s, double target, int least, int all, int *possible)
{
    s->now.n = s->now.nmembers = 0;
    s->makespan = 0;
    *possible = 1;
    double little = 0, room = 0;
    muon__load_tree_reset(&s->tree, s->zero);
    muon__node_loads_reset(&s->nodes);
    for (size_t i = 0; i < (size_t)s->m->plan->cost.matrices; i++) {
        size_t item = s->order->items[i];
        TRY(find_seconds(s, s->m->plan->items[item].class, 1));
        double alone = seconds_of(s, item, 1, 0);
        if (!all && alone < LARGE * target) {
            little += s->m->work[s->m->plan->items[item].class];
            continue;
        }
        TRY(place(s, item, least, target, possible));
        if (!*possible) return MUON_OK;
    }
    for (int r = 0; r < s->m->plan->nranks; r++)
        if (s->tree.load[r] < target) room += target - s->tree.load[r];
    *possible = little <= room;
    return MUON_OK;
}

static void keep(search *s)
{
    team_choices kept = s->best;
    s->best = s->now;
    s->now = kept;
}

/* ---- The search */

/* The makespan with one owner for each. */
static muon_status without_teams(search *s, double *makespan)
{
    int possible;
    s->limit = 1;
    muon_status status = try_makespan(s, DBL_MAX, 1, 1, &possible);
    s->limit = s->most;
    *makespan = s->makespan;
    return status;
}

/* Seconds of all messages, with the best owner for each matrix. */
static double least_messages(const search *s, size_t item)
{
    const holding_row *row = &s->m->rows[s->m->row_of[item]];
    if (row->n == 0) return message_seconds(s, item, 1);
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < row->n; i++) {
        rank_load cost = muon__cost_of_keeper(s->m, item, i);
        least = fmin(least, cost.in + cost.out);
    }
    return least;
}

static muon_status find(search *s)
{
    const muon_plan *plan = s->m->plan;
    int least = (int)(plan->config.team_min < s->most ? plan->config.team_min : s->most), possible;
    if (least > 1) {
        TRY(try_makespan(s, DBL_MAX, least, 1, &possible));
        keep(s);
        return MUON_OK;
    }
    double work = 0, costliest = 0, low, high, alone;
    for (size_t i = 0; i < plan->nclasses; i++)
        costliest = fmax(costliest, s->m->work[i]);
    for (size_t i = 0; i < (size_t)plan->cost.matrices; i++)
        work += s->m->work[plan->items[plan->matrix_item[i]].class];
    low = work / plan->nranks;
    if (costliest < low / 3) return MUON_OK; /* they balance well */
    TRY(without_teams(s, &alone));
    double messages = 0; /* a step that waits for messages gains nothing from larger teams */
    for (size_t i = 0; i < (size_t)plan->cost.matrices; i++)
        messages += least_messages(s, plan->matrix_item[i]);
    low = fmax(low, messages / plan->nranks);
    high = alone;
    for (int i = 0; i < TRIES && high > low * (1 + CLOSE); i++) {
        double middle = sqrt(low * high);
        TRY(try_makespan(s, middle, 1, 0, &possible));
        if (possible) keep(s);
        *(possible ? &high : &low) = middle;
    }
    if (high > alone * (1 - WORTH_IT)) s->best.n = s->best.nmembers = 0;
    return MUON_OK;
}

static muon_status run(search *s)
{
    const muon_plan *plan = s->m->plan;
    size_t times = plan->nclasses * (size_t)(s->most + 1);
    TRY(CALLOC(&s->seconds[0], times, "teams"));
    TRY(CALLOC(&s->seconds[1], times, "teams"));
    TRY(CALLOC(&s->work, times, "teams"));
    TRY(CALLOC(&s->strip, times, "teams"));
    TRY(CALLOC(&s->zero, (size_t)plan->nranks, "teams"));
    TRY(muon__load_tree_create(&s->tree, plan->nranks, s->machine->ranks_per_node));
    TRY(muon__node_loads_create(&s->nodes, s->tree.load, plan->nranks, s->machine->ranks_per_node,
                                s->most));
    return find(s);
}

muon_status muon__teams_choose(team_choices *out, const cost_model *m, const cost_order *order)
{
    const muon_config *config = &m->plan->config;
    int64_t most = config->team_max ? config->team_max : TEAM_MAX;
    if (most > m->plan->nranks) most = m->plan->nranks;
    if (most > TEAM_MAX) most = TEAM_MAX;
    if (most < 2 || config->orthogonalize || config->path == MUON_PATH_REFERENCE) return MUON_OK;
    search s = {
        .m = m, .order = order, .machine = &config->machine, .most = (int)most, .limit = (int)most};
    muon_status status = run(&s);
    if (status == MUON_OK)
        *out = s.best;
    else
        muon__team_choices_free(&s.best);
    muon__team_choices_free(&s.now);
    muon__load_tree_destroy(&s.tree);
    muon__node_loads_destroy(&s.nodes);
    for (int i = 0; i < 2; i++)
        free(s.seconds[i]);
    free(s.work);
    free(s.strip);
    free(s.zero);
    return status;
}

void muon__teams_load(rank_load *loads, const team_choices *c, const cost_model *m)
{
    for (size_t i = 0; i < c->n; i++) {
        const team_choice *t = &c->list[i];
        const holding_row *row = &m->rows[m->row_of[t->item]];
        double in = (double)row->numel * (double)m->wire / t->size;
        double out = (double)row->total * sizeof(float) / t->size;
        rank_load each = {.work = t->seconds,
                          .in = in * m->average,
                          .out = out * m->average,
                          .bytes = (int64_t)(in + out)};
        for (int k = 0; k < t->size; k++)
            muon__load_add(&loads[c->members[t->first + (size_t)k]], &each);
    }
}
