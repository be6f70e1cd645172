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
    size_t nranks = (size_t)plan->nranks, matrices = (size_t)plan->cost.matrices;
    int64_t *floats = NULL;
    TRY(CALLOC(&o->items, matrices, "waves"));
    TRY(CALLOC(&o->first, nranks + 1, "waves"));
    TRY(CALLOC(&floats, nranks, "waves"));
    for (size_t i = 0; i < matrices; i++) {
        const plan_item *item = &plan->items[plan->matrix_item[i]];
        o->first[item->owner + 1]++;
        floats[item->owner] += muon__slot_floats(item);
    }
    for (size_t r = 0; r < nranks; r++) {
        if (o->first[r + 1] > o->most) o->most = o->first[r + 1];
        if (floats[r] > o->floats) o->floats = floats[r];
        o->first[r + 1] += o->first[r];
    }
    free(floats);
    for (size_t i = 0; i < matrices; i++) { /* first[r] becomes its end ... */
        uint32_t item = plan->matrix_item[i];
        o->items[o->first[plan->items[item].owner]++] = item;
    }
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

typedef struct spreader {
    muon_plan *plan;
    const owners *o;
    double hide;      /* flops during which a full wave is gathered or scattered */
    uint32_t *middle; /* [most] a rank's items that are in neither end */
    size_t *next;     /* [most + 1] from item i on, what is the first that a wave has no room for */
    size_t *need;     /* [most + 1] waves for items i, i + 1, ... */
    size_t nwaves;    /* of the middle */
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
        if (used + slot_of(s, item) > s->plan->wave_floats) break;
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
    double local = 0;
    for (size_t i = first; i < first + count; i++) {
        s->plan->items[s->o->items[i]].wave = MIDDLE;
        if (s->o->local[s->o->items[i]]) local += flops_of(s, s->o->items[i]);
    }
    if (count < 2) return;
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
        while (used > s->plan->wave_floats)
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
        all += flops_of(s, s->middle[i]);
    size_t i = 0;
    for (size_t w = 0; w < s->nwaves; w++) {
        double goal = all * (double)(w + 1) / (double)s->nwaves;
        size_t room = i < n ? s->next[i] : n;
        while (i < room) {
            double flops = flops_of(s, s->middle[i]);
            int may_wait = s->need[i] <= s->nwaves - w - 1;
            if (may_wait && done + flops / 2 > goal) break;
            s->plan->items[s->middle[i++]].wave = (int32_t)(w + (size_t)s->opens);
            done += flops;
        }
    }
}

/* ---- All of them */

static void number_ends(spreader *s)
{
    for (size_t i = 0; i < (size_t)s->plan->cost.matrices; i++) {
        plan_item *item = &s->plan->items[s->plan->matrix_item[i]];
        if (item->wave == OPENING) item->wave = 0;
        if (item->wave == CLOSING) item->wave = (int32_t)(s->nwaves + (size_t)s->opens);
    }
    s->plan->nwaves = s->nwaves + (size_t)s->opens + (size_t)s->closes;
}

static void spread(spreader *s)
{
    size_t nranks = (size_t)s->plan->nranks;
    for (size_t r = 0; r < nranks; r++) {
        choose_ends(s, r);
        size_t n = list_middle(s, r);
        look_ahead(s, n);
        if (s->need[0] > s->nwaves) s->nwaves = s->need[0];
    }
    for (size_t r = 0; r < nranks; r++) {
        size_t n = list_middle(s, r);
        look_ahead(s, n);
        spread_middle(s, n);
    }
    number_ends(s);
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
    if (o->floats > plan->wave_floats) {
        const muon_machine *m = &plan->config.machine;
        double bandwidth = plan->nranks > m->ranks_per_node ? m->bandwidth : m->node_bandwidth;
        spreader s = {.plan = plan,
                      .o = o,
                      .hide = (double)plan->wave_floats * sizeof(float) / bandwidth * m->flops};
        muon_status status = CALLOC(&s.middle, o->most, "waves");
        if (status == MUON_OK) status = CALLOC(&s.next, o->most + 1, "waves");
        if (status == MUON_OK) status = CALLOC(&s.need, o->most + 1, "waves");
        if (status == MUON_OK) spread(&s);
        free(s.middle);
        free(s.next);
        free(s.need);
        TRY(status);
    }
    place_idle(plan);
    return MUON_OK;
}
