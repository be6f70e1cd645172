/* Waves of many ranks, which all go through the same ones.
 *
 * In every wave a rank does about the same part of its work as the others do of theirs, so that none
 * waits long for parts that another has not come to yet; and of its messages as of its work, so that its
 * link is busy from beginning to end. Before the first gather has arrived there is nothing to do but local
 * matrices, and likewise after the last scatter has left: some are kept for both ends. A rank that has none
 * opens and closes with those that have the fewest messages. */
#include "plan/route/waves.h"

#include <math.h>
#include <stdlib.h>

/* ---- One rank's way through the waves */

enum { MIDDLE = -1, OPENING = -2, CLOSING = -3 }; /* waves whose number is not known yet */

typedef struct spreader {
    muon_plan *plan;
    const owners *o;
    team_time *teams;  /* [nranks] */
    int64_t room;      /* floats of a wave, for this rank's matrices that no team has */
    double *team_work; /* [nwaves of the middle] seconds of this rank's teams */
    double hide;       /* flops during which a full wave is gathered or scattered */
    uint32_t *middle;  /* [most] a rank's items that are in neither end */
    size_t *next;  /* [most + 1] from item i on, what is the first that a wave has no room for */
    size_t *need;  /* [most + 1] waves for items i, i + 1, ... */
    size_t nwaves; /* of the middle */
    int opens, closes; /* some rank has an opening (closing) wave */
} spreader;

static int64_t slot_of(const spreader *s, uint32_t item)
{
    return muon__slot_floats(&s->plan->items[item]);
}

static double flops_of(const spreader *s, uint32_t item)
{
    return s->plan->items[item].flops;
}

static double seconds_of(const spreader *s, uint32_t item)
{
    return muon__waves_seconds(s->plan, &s->plan->items[item]);
}

/* Moves local items to an end until that hides a transfer; no more than half of them in work, so that
 * the other end gets its share. Returns how many. */
static size_t move_local(spreader *s, size_t rank, int end, double all)
{
    double goal = s->hide < all / 2 ? s->hide : all / 2, work = 0;
    int64_t used = 0;
    size_t count = s->o->first[rank + 1] - s->o->first[rank], moved = 0;
    for (size_t i = 0; i < count && work < goal; i++) {
        size_t at = end == OPENING ? s->o->first[rank] + i : s->o->first[rank + 1] - 1 - i;
        uint32_t item = s->o->items[at];
        if (s->o->messages[item] > 0 || s->plan->items[item].wave != MIDDLE) continue;
        if (used + slot_of(s, item) > s->room) break;
        used += slot_of(s, item);
        work += flops_of(s, item);
        s->plan->items[item].wave = end;
        moved++;
    }
    return moved;
}

/* The first of those with the fewest messages to the beginning, the last to the end. */
static void move_cheapest(spreader *s, size_t rank, int end)
{
    plan_item *cheapest = NULL;
    double least = HUGE_VAL;
    for (size_t i = s->o->first[rank]; i < s->o->first[rank + 1]; i++) {
        plan_item *item = &s->plan->items[s->o->items[i]];
        double messages = s->o->messages[s->o->items[i]];
        if (item->wave != MIDDLE || messages > least) continue;
        if (end == OPENING && messages == least) continue;
        cheapest = item;
        least = messages;
    }
    if (cheapest) cheapest->wave = end;
}

static void choose_ends(spreader *s, size_t rank)
{
    size_t first = s->o->first[rank], count = s->o->first[rank + 1] - first;
    size_t own = 0; /* without teams */
    double local = 0;
    for (size_t i = first; i < first + count; i++) {
        plan_item *item = &s->plan->items[s->o->items[i]];
        if (item->team != PLAN_NO_TEAM) continue;
        item->wave = MIDDLE;
        own++;
        if (s->o->messages[s->o->items[i]] == 0) local += item->flops;
    }
    if (own < 2) return;
    if (!move_local(s, rank, OPENING, local)) move_cheapest(s, rank, OPENING);
    if (!move_local(s, rank, CLOSING, local)) move_cheapest(s, rank, CLOSING);
}

/* What a rank has in the middle that no team has. */
typedef struct amount {
    size_t n;
    double work, messages;
} amount;

static int is_in_middle(const spreader *s, uint32_t item)
{
    const plan_item *it = &s->plan->items[item];
    return it->team == PLAN_NO_TEAM && it->wave != OPENING && it->wave != CLOSING;
}

static void count(const spreader *s, amount *a, uint32_t item)
{
    a->n++;
    a->work += flops_of(s, item);
    a->messages += s->o->messages[item];
}

/* Has the item more messages for its work than the mean? */
static int is_heavy(const spreader *s, const amount *all, uint32_t item)
{
    return s->o->messages[item] * all->work > flops_of(s, item) * all->messages;
}

static amount sum_middle(spreader *s, const uint32_t *items, size_t n)
{
    amount all = {0};
    for (size_t i = 0; i < n; i++) {
        int32_t wave = s->plan->items[items[i]].wave;
        if (is_in_middle(s, items[i]))
            count(s, &all, items[i]);
        else if (wave == OPENING)
            s->opens = 1;
        else if (wave == CLOSING)
            s->closes = 1;
    }
    return all;
}

/* Lists them so that messages keep step with work: the next of those with many messages where they are
 * behind, else of those with few. */
static size_t list_middle(spreader *s, size_t rank)
{
    const uint32_t *items = s->o->items + s->o->first[rank];
    size_t n = s->o->first[rank + 1] - s->o->first[rank], next[2] = {0, 0}; /* light, heavy */
    amount all = sum_middle(s, items, n), done = {0};
    while (done.n < all.n) {
        for (int heavy = 0; heavy < 2; heavy++)
            while (next[heavy] < n && !(is_in_middle(s, items[next[heavy]]) &&
                                        is_heavy(s, &all, items[next[heavy]]) == heavy))
                next[heavy]++;
        int behind = done.messages * all.work < done.work * all.messages;
        int heavy = next[0] == n || (next[1] < n && behind);
        s->middle[done.n] = items[next[heavy]];
        count(s, &done, items[next[heavy]++]);
    }
    return all.n;
}

/* Fills next and need for the middle's n items, from the last one back. */
static void look_ahead(spreader *s, size_t n)
{
    int64_t used = 0; /* of items i .. end - 1 */
    size_t end = n;
    s->need[n] = 0;
    for (size_t i = n; i-- > 0;) {
        used += slot_of(s, s->middle[i]);
        while (used > s->room)
            used -= slot_of(s, s->middle[--end]);
        s->next[i] = end;
        s->need[i] = 1 + s->need[end];
    }
}

/* A wave ends when its part of the work is there or its room is used up; but never so early that what
 * is left would need more waves than there are. */
static void spread_middle(spreader *s, size_t n)
{
    double all = 0, done = 0;
    for (size_t i = 0; i < n; i++)
        all += seconds_of(s, s->middle[i]);
    for (size_t w = 0; w < s->nwaves; w++)
        all += s->team_work[w];
    size_t i = 0;
    for (size_t w = 0; w < s->nwaves; w++) {
        double goal = all * (double)(w + 1) / (double)s->nwaves;
        done += s->team_work[w];
        size_t room = i < n ? s->next[i] : n;
        while (i < room) {
            double seconds = seconds_of(s, s->middle[i]);
            int may_wait = s->need[i] <= s->nwaves - w - 1;
            if (may_wait && done + seconds / 2 > goal) break;
            s->plan->items[s->middle[i++]].wave = (int32_t)(w + (size_t)s->opens);
            done += seconds;
        }
    }
}

/* ---- All of them */

static void number_ends(spreader *s)
{
    for (size_t i = 0; i < s->plan->nitems; i++) {
        plan_item *item = &s->plan->items[i];
        if (item->class == PLAN_IDLE) continue;
        if (item->team != PLAN_NO_TEAM) item->wave += s->opens;
        if (item->wave == OPENING) item->wave = 0;
        if (item->wave == CLOSING) item->wave = (int32_t)(s->nwaves + (size_t)s->opens);
    }
    s->plan->nwaves = s->nwaves + (size_t)s->opens + (size_t)s->closes;
}

static void sum_team_work(spreader *s, size_t rank)
{
    for (size_t w = 0; w < s->nwaves; w++)
        s->team_work[w] = 0;
    for (size_t i = s->o->first[rank]; i < s->o->first[rank + 1]; i++) {
        uint32_t item = s->o->items[i];
        if (s->plan->items[item].team == PLAN_NO_TEAM) continue;
        s->team_work[s->plan->items[item].wave] += seconds_of(s, item);
    }
}

/* Waves that stand for a time in which nobody begins anything do not exist. */
static muon_status drop_empty(muon_plan *plan)
{
    int32_t *number = NULL; /* 1 + that of each */
    TRY(CALLOC(&number, plan->nwaves, "waves"));
    for (size_t i = 0; i < plan->nitems; i++)
        if (plan->items[i].class != PLAN_IDLE) number[plan->items[i].wave] = 1;
    int32_t n = 0;
    for (size_t w = 0; w < plan->nwaves; w++)
        if (number[w]) number[w] = ++n;
    for (size_t i = 0; i < plan->nitems; i++)
        if (plan->items[i].class != PLAN_IDLE)
            plan->items[i].wave = number[plan->items[i].wave] - 1;
    plan->nwaves = (size_t)n;
    free(number);
    return MUON_OK;
}

/* One rank's matrices that no team has. Returns how many are in the middle. */
static size_t look_at(spreader *s, size_t rank, int64_t room)
{
    s->room = room;
    choose_ends(s, rank);
    size_t n = list_middle(s, rank);
    look_ahead(s, n);
    if (s->need[0] > s->nwaves) s->nwaves = s->need[0];
    return n;
}

/* As if every wave had the largest strip in it. */
static void place_teams(spreader *s)
{
    double busiest = 0;
    for (size_t r = 0; r < (size_t)s->plan->nranks; r++) {
        team_time *at = &s->teams[r];
        look_at(s, r, s->plan->wave_floats - s->o->strip);
        for (size_t i = s->o->first[r]; i < s->o->first[r + 1]; i++) {
            at->busy += seconds_of(s, s->o->items[i]);
            at->messages += s->o->messages[s->o->items[i]];
        }
        if (at->busy > busiest) busiest = at->busy;
    }
    s->nwaves = muon__waves_place_teams(s->plan, s->o, s->teams, s->nwaves, busiest);
}

static muon_status spread(spreader *s)
{
    size_t nranks = (size_t)s->plan->nranks;
    s->nwaves = 1;
    if (s->plan->nteams) place_teams(s);
    for (size_t r = 0; r < nranks; r++)
        look_at(s, r, s->plan->wave_floats - s->teams[r].most);
    TRY(CALLOC(&s->team_work, s->nwaves, "waves"));
    for (size_t r = 0; r < nranks; r++) {
        size_t n = look_at(s, r, s->plan->wave_floats - s->teams[r].most);
        sum_team_work(s, r);
        spread_middle(s, n);
    }
    number_ends(s);
    return drop_empty(s->plan);
}

/* What is in no matrix has no owner; its holders do it along with the matrix before it, and the first
 * item of a parameter is always a matrix. */
static void place_idle(muon_plan *plan)
{
    for (size_t i = 1; i < plan->nitems; i++)
        if (plan->items[i].class == PLAN_IDLE) plan->items[i].wave = plan->items[i - 1].wave;
}

muon_status muon__waves_spread(muon_plan *plan, const owners *o)
{
    for (size_t i = 0; i < plan->nitems; i++)
        plan->items[i].wave = 0;
    plan->nwaves = plan->nitems > 0;
    if (o->floats > plan->wave_floats || (plan->nteams && o->floats > WAVE_FLOATS)) {
        const muon_machine *m = &plan->config.machine;
        double bandwidth = plan->nranks > m->ranks_per_node ? m->bandwidth : m->node_bandwidth;
        spreader s = {.plan = plan,
                      .o = o,
                      .hide = (double)plan->wave_floats * sizeof(float) / bandwidth * m->flops};
        muon_status status = CALLOC(&s.middle, o->most, "waves");
        if (status == MUON_OK) status = CALLOC(&s.next, o->most + 1, "waves");
        if (status == MUON_OK) status = CALLOC(&s.need, o->most + 1, "waves");
        if (status == MUON_OK) status = CALLOC(&s.teams, (size_t)plan->nranks, "waves");
        if (status == MUON_OK) status = spread(&s);
        free(s.teams);
        free(s.team_work);
        free(s.middle);
        free(s.next);
        free(s.need);
        TRY(status);
    }
    place_idle(plan);
    return MUON_OK;
}
