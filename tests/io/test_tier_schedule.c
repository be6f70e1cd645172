/* test_tier_schedule.c - what is decided before the first stage: visits, what they take, what stays. */
#include "io/tier/parts.h"
#include "tests/support/testlib.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, BLOCKS_MOST = 256, STAGES_MOST = 64 };

typedef struct stage_list {
    tier_stages stages;
    size_t first[STAGES_MOST + 1];
    uint32_t blocks[STAGES_MOST * BLOCKS_MOST];
} stage_list;

/* "01..1": block 0 is used by the stages with a 1, and so on for the other texts. */
static void parse_stages(stage_list *list, const char *const *uses, size_t nblocks)
{
    size_t n = 0;
    list->stages = (tier_stages){strlen(uses[0]), list->first, list->blocks};
    for (size_t s = 0; s < list->stages.nstages; s++) {
        list->first[s] = n;
        for (size_t block = 0; block < nblocks; block++)
            if (uses[block][s] == '1') list->blocks[n++] = (uint32_t)block;
    }
    list->first[list->stages.nstages] = n;
}

/* `size` blocks of its own for each stage. */
static void list_side_by_side(stage_list *list, size_t nstages, size_t size)
{
    list->stages = (tier_stages){nstages, list->first, list->blocks};
    for (size_t i = 0; i < nstages * size; i++)
        list->blocks[i] = (uint32_t)i;
    for (size_t s = 0; s <= nstages; s++)
        list->first[s] = s * size;
}

static stage_list list;

static muon_status schedule(tier_schedule *plan, size_t nblocks, size_t frames)
{
    return muon__tier_schedule(plan, &list.stages, nblocks, BLOCK, (int64_t)(frames * BLOCK));
}

TEST(a_block_waits_for_its_next_stage_if_that_is_near)
{
    static const struct {
        const char *uses;
        size_t visits[4][2]; /* first, last */
        size_t nvisits;
    } cases[] = {
        {"11100000", {{0, 2}}, 1},         {"10100000", {{0, 2}}, 1},
        {"10010000", {{0, 3}}, 1},         {"10001000", {{0, 0}, {4, 4}}, 2},
        {"10010010", {{0, 6}}, 1},         {"11000110", {{0, 1}, {5, 6}}, 2},
        {"10000001", {{0, 0}, {7, 7}}, 2}, /* the end of the cycle is the end of a visit */
        {"00000000", {{0, 0}}, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        /* The others keep it from being pinned. */
        const char *uses[] = {cases[i].uses, "11000000", "00110000", "00001100", "00000011"};
        parse_stages(&list, uses, COUNT(uses));
        tier_schedule plan;
        assert_ok(schedule(&plan, COUNT(uses), 2));
        assert_int_equal(plan.npinned, 0);
        size_t n = 0;
        for (size_t v = 0; v < plan.nvisits; v++) {
            if (plan.visits[v].block != 0) continue;
            assert_true(n < cases[i].nvisits);
            assert_int_equal(plan.visits[v].first, cases[i].visits[n][0]);
            assert_int_equal(plan.visits[v].last, cases[i].visits[n][1]);
            n++;
        }
        assert_int_equal(n, cases[i].nvisits);
        muon__tier_schedule_free(&plan);
    }
}

/* The same list needs two blocks if they may wait, and works with one. */
TEST(a_block_does_not_wait_where_there_is_no_room)
{
    static const char *const uses[] = {"101010", "010101"};
    parse_stages(&list, uses, 2);
    tier_schedule plan;
    assert_ok(schedule(&plan, 2, 1));
    assert_int_equal(plan.nvisits, 6);
    muon__tier_schedule_free(&plan);
    assert_fails(schedule(&plan, 2, 0), MUON_E_BUDGET,
                 "offloading needs at least 4096 bytes of memory for state, the budget is 0");
}

/* Each visit is read with its first stage and written with its last, in order; nothing is forgotten. */
static void check_plan(const tier_schedule *plan)
{
    size_t n = plan->nvisits;
    unsigned char *ended = calloc(n + 1, 1);
    assert_non_null(ended);
    for (size_t s = 0; s < plan->nstages; s++) {
        size_t live = plan->npinned;
        for (size_t v = 0; v < n; v++) {
            const tier_visit *visit = &plan->visits[v];
            live += visit->first <= s && s <= visit->last;
            assert_int_equal(visit->first == s, v >= plan->begins[s] && v < plan->begins[s + 1]);
            assert_false(plan->pins[visit->block]);
        }
        assert_true(live <= plan->frames);
        for (size_t i = plan->ends[s]; i < plan->ends[s + 1]; i++) {
            size_t v = 0;
            while (v < n && !(plan->visits[v].block == plan->ended[i] && plan->visits[v].last == s))
                v++;
            assert_true(v < n && !ended[v]);
            ended[v] = 1;
        }
    }
    assert_int_equal(plan->ends[0], 0);
    assert_int_equal(plan->ends[plan->nstages], n);
    for (size_t v = 0; v < n; v++)
        assert_true(ended[v]);
    free(ended);
}

TEST(every_budget_gives_a_schedule_that_keeps_it)
{
    testlib_seed(5);
    for (int round = 0; round < 100; round++) {
        size_t nstages = 1 + testlib_bits() % 20;
        size_t nblocks = 1 + testlib_bits() % 40;
        uint64_t density = 1 + testlib_bits() % 8;
        size_t n = 0;
        size_t least = 0;
        list.stages = (tier_stages){nstages, list.first, list.blocks};
        for (size_t s = 0; s < nstages; s++) {
            list.first[s] = n;
            for (size_t block = 0; block < nblocks; block++)
                if (testlib_bits() % density == 0) list.blocks[n++] = (uint32_t)block;
            if (n - list.first[s] > least) least = n - list.first[s];
        }
        list.first[nstages] = n;
        for (size_t frames = least; frames <= nblocks; frames++) {
            tier_schedule plan;
            assert_ok(schedule(&plan, nblocks, frames));
            check_plan(&plan);
            if (frames == nblocks) assert_int_equal(plan.nvisits, 0);
            muon__tier_schedule_free(&plan);
        }
    }
}

/* 64 stages of 4 blocks each: three stages take 12, what is beyond stays. */
TEST(what_stays_is_spread_over_the_cycle)
{
    list_side_by_side(&list, 64, 4);
    for (size_t frames = 4; frames <= 256; frames += 4) {
        tier_schedule plan;
        assert_ok(schedule(&plan, 256, frames));
        check_plan(&plan);
        size_t want = frames <= 12 ? 0 : frames - 12;
        if (plan.npinned < want)
            fail_msg("%zu frames: %zu stay, at least %zu could", frames, plan.npinned, want);
        /* Each eighth of the cycle moves about as much as any other. */
        for (size_t eighth = 0; eighth < 8; eighth++) {
            size_t moves = plan.begins[8 * eighth + 8] - plan.begins[8 * eighth];
            if (8 * moves > plan.nvisits + 16 || plan.nvisits > 8 * moves + 16)
                fail_msg("%zu frames: eighth %zu moves %zu of %zu", frames, eighth, moves,
                         plan.nvisits);
        }
        muon__tier_schedule_free(&plan);
    }
}

/* A block that would come twice in a cycle saves twice as much. */
TEST(blocks_with_more_visits_stay_first)
{
    static const char *const uses[] = {"1000000000000000", "1000001000001000", "0010000000000000",
                                       "0001000000010000", "0000100000000000", "0000001000000000",
                                       "0000000010000000", "0000000000000100"};
    parse_stages(&list, uses, COUNT(uses));
    tier_schedule plan;
    assert_ok(schedule(&plan, COUNT(uses), 5));
    check_plan(&plan);
    assert_true(plan.npinned >= 2 && plan.npinned < COUNT(uses));
    assert_true(plan.pins[1]);
    assert_true(plan.pins[3]);
    muon__tier_schedule_free(&plan);
}
