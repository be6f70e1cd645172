/* The schedule of a tier: which blocks come and go, in which order, and which ones stay.
 *
 * Stages are known, so what is decided here needs no guess about the future: a block comes before the
 * first stage of a visit and goes after the last. */
#include "base/memory.h"
#include "io/tier/parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    IDLE_MOST = 2, /* stages between two uses for which a block rather waits than goes and comes */
    NEIGHBOURS = 1 /* stages before and after one that are read and written while it runs */
};

/* Blocks that are used again after at most `idle` other stages belong to one visit. `open` has the
 * latest visit of each block, and 0 for none: its index + 1. Stages come in order and the blocks of
 * each too, so the visits are in the order of reading without being sorted. */
static void find_visits(tier_schedule *plan, const tier_stages *stages, size_t idle, size_t *open)
{
    memset(open, 0, plan->nblocks * sizeof *open);
    plan->nvisits = 0;
    for (size_t s = 0; s < stages->nstages; s++) {
        plan->begins[s] = plan->nvisits;
        for (size_t i = stages->first[s]; i < stages->first[s + 1]; i++) {
            uint32_t block = stages->blocks[i];
            assert(block < plan->nblocks);
            assert(i == stages->first[s] || stages->blocks[i - 1] < block);
            tier_visit *latest = open[block] ? &plan->visits[open[block] - 1] : NULL;
            if (latest && s - latest->last <= idle + 1) {
                latest->last = (uint32_t)s;
                continue;
            }
            plan->visits[plan->nvisits++] =
                (tier_visit){.block = block, .first = (uint32_t)s, .last = (uint32_t)s};
            open[block] = plan->nvisits;
        }
    }
    plan->begins[plan->nstages] = plan->nvisits;
}

/* The most blocks that are visited at once, not counting pinned ones, if each visit takes `more` stages
 * more on either side. The cycle repeats: what begins before stage 0 does so in the cycle before. */
static size_t most_visited(const tier_schedule *plan, size_t more, int64_t *change)
{
    size_t n = plan->nstages;
    memset(change, 0, n * sizeof *change);
    int64_t now = 0;
    for (size_t i = 0; i < plan->nvisits; i++) {
        const tier_visit *v = &plan->visits[i];
        if (plan->pins[v->block]) continue;
        size_t length = v->last - v->first + 1 + 2 * more;
        if (length >= n) { /* all the time */
            now++;
            continue;
        }
        size_t from = (v->first + n - more) % n;
        size_t to = (from + length) % n;
        change[from]++;
        change[to]--;
        if (to < from) now++; /* already there at stage 0; to == 0 has ended by then */
    }
    int64_t most = n > 0 ? 0 : now;
    for (size_t s = 0; s < n; s++) {
        now += change[s];
        if (now > most) most = now;
    }
    return (size_t)most;
}

/* A block that may be pinned. */
typedef struct candidate {
    uint32_t block;
    uint32_t visits; /* what pinning it saves */
    uint32_t place;  /* its rank by first use, the bits reversed */
} candidate;

static uint32_t reverse_bits(uint32_t x)
{
    uint32_t reversed = 0;
    for (int bit = 0; bit < 32; bit++)
        reversed |= (x >> bit & 1U) << (31 - bit);
    return reversed;
}

/* Ranks in the order of their reversed bits are spread evenly, however many of them one takes. */
static int by_worth(const void *left, const void *right)
{
    const candidate *a = left;
    const candidate *b = right;
    if (a->visits != b->visits) return a->visits > b->visits ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static size_t list_candidates(candidate *list, const tier_schedule *plan, size_t *seen)
{
    size_t n = 0;
    memset(seen, 0, plan->nblocks * sizeof *seen);
    for (size_t i = 0; i < plan->nvisits; i++) {
        uint32_t block = plan->visits[i].block;
        if (!seen[block]) {
            list[n] = (candidate){.block = block, .place = reverse_bits((uint32_t)n)};
            seen[block] = ++n;
        }
        list[seen[block] - 1].visits++;
    }
    qsort(list, n, sizeof *list, by_worth);
    return n;
}

static void pin_first(tier_schedule *plan, const candidate *list, size_t count)
{
    memset(plan->pins, 0, plan->nblocks);
    for (size_t i = 0; i < count; i++)
        plan->pins[list[i].block] = 1;
    plan->npinned = count;
}

/* Pins as many as leave room for three stages of the others, so that one can be read and another one
 * written while a third one runs. What is pinned makes those stages smaller, so the number is searched
 * for; below it fits, above it does not. The pinned blocks are spread over the cycle, and so is then
 * the traffic. Where three stages do not fit at all, all room is for reading ahead. */
static void choose_pins(tier_schedule *plan, const candidate *list, size_t n, int64_t *change)
{
    size_t fits = n <= plan->frames ? n : 0;
    size_t fails = n;
    while (fails > fits + 1) {
        size_t middle = fits + (fails - fits) / 2;
        pin_first(plan, list, middle);
        if (middle + most_visited(plan, NEIGHBOURS, change) <= plan->frames)
            fits = middle;
        else
            fails = middle;
    }
    pin_first(plan, list, fits);
}

/* Pinned blocks neither come nor go. */
static void remove_pinned(tier_schedule *plan)
{
    size_t kept = 0;
    size_t i = 0;
    for (size_t s = 0; s < plan->nstages; s++) {
        plan->begins[s] = kept;
        for (; i < plan->nvisits && plan->visits[i].first == s; i++)
            if (!plan->pins[plan->visits[i].block]) plan->visits[kept++] = plan->visits[i];
    }
    plan->begins[plan->nstages] = kept;
    plan->nvisits = kept;
}

static void list_ends(tier_schedule *plan)
{
    for (size_t i = 0; i < plan->nvisits; i++)
        plan->ends[plan->visits[i].last + 1]++;
    for (size_t s = 0; s < plan->nstages; s++)
        plan->ends[s + 1] += plan->ends[s];
    /* Filled from the back, each end moves down to its stage's beginning: one place too low. */
    for (size_t i = plan->nvisits; i-- > 0;)
        plan->ended[--plan->ends[plan->visits[i].last + 1]] = plan->visits[i].block;
    for (size_t s = 0; s < plan->nstages; s++)
        plan->ends[s] = plan->ends[s + 1];
    plan->ends[plan->nstages] = plan->nvisits;
}

typedef struct scratch {
    size_t *of_block;
    int64_t *of_stage;
    candidate *candidates;
} scratch;

static muon_status plan_cycle(tier_schedule *plan, const tier_stages *stages, size_t block_bytes,
                              int64_t budget, scratch *tmp)
{
    size_t uses = stages->first[stages->nstages];
    TRY(CALLOC(&plan->visits, uses, "offload schedule"));
    TRY(CALLOC(&plan->ended, uses, "offload schedule"));
    TRY(CALLOC(&plan->begins, plan->nstages + 1, "offload schedule"));
    TRY(CALLOC(&plan->ends, plan->nstages + 1, "offload schedule"));
    TRY(CALLOC(&plan->pins, plan->nblocks, "offload schedule"));
    TRY(CALLOC(&tmp->of_block, plan->nblocks, "offload schedule"));
    TRY(CALLOC(&tmp->of_stage, plan->nstages, "offload schedule"));
    TRY(CALLOC(&tmp->candidates, plan->nblocks, "offload schedule"));
    size_t least = 0;
    for (int idle = IDLE_MOST; idle >= 0; idle--) { /* blocks wait only where there is room to */
        find_visits(plan, stages, (size_t)idle, tmp->of_block);
        least = most_visited(plan, 0, tmp->of_stage);
        if (least <= plan->frames) break;
    }
    REQUIRE(least <= plan->frames, E_BUDGET,
            "offloading needs at least %zu bytes of memory for state, the budget is %lld",
            least * block_bytes, (long long)budget);
    size_t n = list_candidates(tmp->candidates, plan, tmp->of_block);
    choose_pins(plan, tmp->candidates, n, tmp->of_stage);
    remove_pinned(plan);
    list_ends(plan);
    return MUON_OK;
}

muon_status muon__tier_schedule(tier_schedule *out, const tier_stages *stages, size_t nblocks,
                                size_t block_bytes, int64_t budget)
{
    tier_schedule plan = {.nblocks = nblocks, .nstages = stages->nstages};
    if (budget > 0) plan.frames = (size_t)budget / block_bytes;
    scratch tmp = {0};
    muon_status status = plan_cycle(&plan, stages, block_bytes, budget, &tmp);
    free(tmp.of_block);
    free(tmp.of_stage);
    free(tmp.candidates);
    if (status != MUON_OK) {
        muon__tier_schedule_free(&plan);
        return status;
    }
    *out = plan;
    return MUON_OK;
}

void muon__tier_schedule_free(tier_schedule *plan)
{
    free(plan->visits);
    free(plan->begins);
    free(plan->ended);
    free(plan->ends);
    free(plan->pins);
    *plan = (tier_schedule){0};
}
