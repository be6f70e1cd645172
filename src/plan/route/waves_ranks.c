/* Waves of many ranks, which all go through the same ones.
 *
 * In every wave a rank does about the same part of its work as the others do of theirs, so that none
 * waits long for parts that another has not come to yet. Before the first gather has arrived there is
 * nothing to do but local matrices, and likewise after the last scatter has left: some are kept for
 * both ends. A rank that has none opens and closes with its smallest matrices. */
#include "plan/route/waves.h"

#include <stdlib.h>

/* ---- Who owns what */

static muon_status find_local(owners *o, const muon_plan *plan, const patterns *p)
{
    TRY(CALLOC(&o->local, plan->nitems, "waves"));
    for (size_t i = 0; i < p->n; i++) {
        uint32_t param = muon__pattern_param(p, i);
        size_t first = p->item_first[param], n = p->item_first[param + 1] - first;
        for (size_t j = 0; j < n; j++) {
            if (plan->items[first + j].class == PLAN_IDLE) continue;
            int sole = muon__shares_sole_holder(plan, first + j);
            for (size_t k = p->first[i]; k < p->first[i + 1]; k++) {
                size_t item = p->item_first[p->params[k]] + j;
                o->local[item] = plan->items[item].owner == sole;
            }
        }
    }
    return MUON_OK;
}

static muon_status list_owned(owners *o, const muon_plan *plan)
{
    size_t nranks = (size_t)plan->nranks;
    int64_t *floats = NULL;
    TRY(CALLOC(&o->items, plan->nitems, "waves"));
    TRY(CALLOC(&o->first, nranks + 1, "waves"));
    TRY(CALLOC(&floats, nranks, "waves"));
    for (size_t i = 0; i < plan->nitems; i++) {
        const plan_item *item = &plan->items[i];
        if (item->class == PLAN_IDLE) continue;
        int64_t slot = muon__slot_floats(item);
        int64_t *largest = item->team == PLAN_NO_TEAM ? &o->whole : &o->strip;
        if (slot > *largest) *largest = slot;
        o->first[item->owner + 1]++;
        floats[item->owner] += slot;
    }
    for (size_t r = 0; r < nranks; r++) {
        if (o->first[r + 1] > o->most) o->most = o->first[r + 1];
        if (floats[r] > o->floats) o->floats = floats[r];
        o->first[r + 1] += o->first[r];
    }
    free(floats);
    for (size_t i = 0; i < plan->nitems; i++) /* first[r] becomes its end ... */
        if (plan->items[i].class != PLAN_IDLE)
            o->items[o->first[plan->items[i].owner]++] = (uint32_t)i;
    for (size_t r = nranks; r > 0; r--) /* ... which is where the next begins */
        o->first[r] = o->first[r - 1];
    o->first[0] = 0;
    return MUON_OK;
}

muon_status muon__owners_create(owners *out, const muon_plan *plan, const patterns *p)
{
    TRY(list_owned(out, plan));
    return find_local(out, plan, p);
}

void muon__owners_destroy(owners *o)
{
    free(o->items);
    free(o->first);
    free(o->local);
}

/* ---- One rank's way through the waves */

enum { MIDDLE = -1, OPENING = -2, CLOSING = -3 }; /* waves whose number is not known yet */

typedef struct team_room { /* what a rank's teams take of waves */
    size_t wave;           /* the last one that it has one in, counted in the middle, */
    int64_t used, most;    /* floats in it; in any */
} team_room;

typedef struct spreader {
    muon_plan *plan;
    const owners *o;
    team_room *teams;  /* [nranks] */
    int64_t room;      /* floats of a wave, for this rank's matrices that no team has */
    double bandwidth;  /* of gathers and scatters */
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

/* Seconds of an item's way through its wave: gathered, orthogonalized, scattered. */
static double seconds_of(const spreader *s, uint32_t item)
{
    const plan_item *it = &s->plan->items[item];
    int64_t bytes = muon__item_numel(it) * (muon__wire_bytes(s->plan) + (int64_t)sizeof(float));
    double seconds = it->flops / s->plan->config.machine.flops;
    return s->o->local[item] ? seconds : seconds + (double)bytes / s->bandwidth;
}

/* Of which, what a member exchanges with its team. */
static double exchange_of(const spreader *s, uint32_t item)
{
    const muon_machine *m = &s->plan->config.machine;
    const plan_item *it = &s->plan->items[item];
    team_traffic t =
        muon__team_traffic(muon__item_shape(s->plan, it), muon__item_member(s->plan, it));
    return (double)t.received / m->node_bandwidth + t.rounds * m->latency;
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
        if (!s->o->local[item] || s->plan->items[item].wave != MIDDLE) continue;
        if (used + slot_of(s, item) > s->room) break;
        used += slot_of(s, item);
        work += flops_of(s, item);
        s->plan->items[item].wave = end;
        moved++;
    }
    return moved;
}

static void move_smallest(spreader *s, size_t rank, int end)
{
    plan_item *smallest = NULL;
    int64_t floats = INT64_MAX;
    for (size_t i = s->o->first[rank]; i < s->o->first[rank + 1]; i++) {
        plan_item *item = &s->plan->items[s->o->items[i]];
        if (item->wave != MIDDLE || slot_of(s, s->o->items[i]) >= floats) continue;
        smallest = item;
        floats = slot_of(s, s->o->items[i]);
    }
    if (smallest) smallest->wave = end;
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
        if (s->o->local[s->o->items[i]]) local += item->flops;
    }
    if (own < 2) return;
    if (!move_local(s, rank, OPENING, local)) move_smallest(s, rank, OPENING);
    if (!move_local(s, rank, CLOSING, local)) move_smallest(s, rank, CLOSING);
}

static size_t list_middle(spreader *s, size_t rank)
{
    size_t n = 0;
    for (size_t i = s->o->first[rank]; i < s->o->first[rank + 1]; i++) {
        int32_t wave = s->plan->items[s->o->items[i]].wave;
        if (wave == MIDDLE) s->middle[n++] = s->o->items[i];
        if (wave == OPENING) s->opens = 1;
        if (wave == CLOSING) s->closes = 1;
    }
    return n;
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

/* Teams come first, each as early as all its members have room for it. Half of a wave is theirs, if that
 * is little: what is large gets a wave of its own, so that the work of one hides the messages of the
 * next. */
static void place_teams(spreader *s)
{
    int64_t room = s->plan->wave_floats / 2, most = s->plan->wave_floats - s->o->whole;
    if (room < s->o->strip) room = s->o->strip;
    if (room > most) room = most;
    int64_t together = room < WAVE_FLOATS ? room : WAVE_FLOATS;
    for (size_t t = 0; t < s->plan->nteams; t++) {
        plan_item *strips = s->plan->items + s->plan->teams[t].first;
        int size = s->plan->shapes[s->plan->teams[t].shape].size, full = 0;
        size_t wave = 0;
        for (int k = 0; k < size; k++)
            if (s->teams[strips[k].owner].wave > wave) wave = s->teams[strips[k].owner].wave;
        for (int k = 0; k < size; k++) {
            const team_room *at = &s->teams[strips[k].owner];
            int64_t used = at->used + muon__slot_floats(&strips[k]);
            full |= at->wave == wave && at->used > 0 && used > together;
        }
        wave += (size_t)full;
        for (int k = 0; k < size; k++) {
            team_room *at = &s->teams[strips[k].owner];
            if (at->wave != wave) *at = (team_room){.wave = wave, .most = at->most};
            at->used += muon__slot_floats(&strips[k]);
            if (at->used > at->most) at->most = at->used;
            strips[k].wave = (int32_t)wave;
        }
        if (wave + 1 > s->nwaves) s->nwaves = wave + 1;
    }
}

static void sum_team_work(spreader *s, size_t rank)
{
    for (size_t w = 0; w < s->nwaves; w++)
        s->team_work[w] = 0;
    for (size_t i = s->o->first[rank]; i < s->o->first[rank + 1]; i++) {
        uint32_t item = s->o->items[i];
        if (s->plan->items[item].team == PLAN_NO_TEAM) continue;
        s->team_work[s->plan->items[item].wave] += seconds_of(s, item) + exchange_of(s, item);
    }
}

static muon_status spread(spreader *s)
{
    size_t nranks = (size_t)s->plan->nranks;
    place_teams(s);
    for (size_t r = 0; r < nranks; r++) {
        s->room = s->plan->wave_floats - s->teams[r].most;
        choose_ends(s, r);
        size_t n = list_middle(s, r);
        look_ahead(s, n);
        if (s->need[0] > s->nwaves) s->nwaves = s->need[0];
    }
    TRY(CALLOC(&s->team_work, s->nwaves, "waves"));
    for (size_t r = 0; r < nranks; r++) {
        s->room = s->plan->wave_floats - s->teams[r].most;
        size_t n = list_middle(s, r);
        look_ahead(s, n);
        sum_team_work(s, r);
        spread_middle(s, n);
    }
    number_ends(s);
    return MUON_OK;
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
                      .bandwidth = bandwidth,
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
