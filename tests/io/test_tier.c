/* test_tier.c - a region whose contents live in a file is, to whoever works on it, plain memory. */
#define _GNU_SOURCE /* mincore */
#include "tests/io/tier_model.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t pick(size_t n) /* 0 .. n - 1 */
{
    return (size_t)(testlib_bits() % n);
}

/* Stages of a random kind: every `density`-th of the first `span` blocks, none, or always the same. */
static void random_stages(tier_model *m)
{
    static const size_t spans[] = {1, 7, 60, 150};
    size_t nstages = 1 + pick(12);
    size_t span = spans[pick(COUNT(spans))];
    size_t density = 1 + pick(12);
    size_t begin = pick(m->nblocks - span + 1);
    size_t always = pick(3) == 0 ? begin + pick(span) : SIZE_MAX; /* a block of all stages */
    tier_model_stages(m, nstages);
    for (size_t s = 0; s < nstages; s++) {
        size_t kind = pick(5);
        for (size_t block = begin; block < begin + span; block++) {
            int used = kind == 0 ? 0 : kind == 1 ? block % nstages == s : pick(density) == 0;
            if (used || block == always) tier_model_use(m, block);
        }
        tier_model_end_stage(m);
    }
}

static void write_anywhere(tier_model *m)
{
    size_t bytes = pick(2) ? pick(3 * m->block) : pick(m->memory.bytes / 4);
    size_t offset = pick(m->memory.bytes - bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        m->shadow[offset + i] = (char)(testlib_bits() >> 40);
    assert_ok(muon__tier_write(m->t, offset, m->shadow + offset, bytes));
}

static void read_anywhere(tier_model *m)
{
    size_t bytes = pick(3 * m->block);
    size_t offset = pick(m->memory.bytes - bytes + 1);
    assert_ok(muon__tier_read(m->t, offset, m->copy, bytes));
    assert_memory_equal(m->copy, m->shadow + offset, bytes);
}

/* Whole cycles, some that are given up, reads and writes in between. */
static void live(tier_model *m)
{
    for (int cycle = 0; cycle < 4; cycle++) {
        if (pick(3) == 0) tier_model_run(m, pick(m->stages.nstages + 1));
        if (pick(4) == 0) {
            assert_ok(muon__tier_enter(m->t, 0)); /* given up before its work was done */
            if (pick(2)) muon__tier_leave(m->t, 0);
        }
        if (pick(3) == 0) write_anywhere(m);
        tier_model_cycle(m);
        if (pick(3) == 0) write_anywhere(m);
        if (pick(3) == 0) read_anywhere(m);
        if (pick(2) == 0) tier_model_compare(m);
    }
    tier_model_compare(m);
}

TEST(random_stages_change_what_plain_memory_would)
{
    int rounds = testlib_quick() ? 10 : 30;
    for (int round = 0; round < rounds; round++) {
        testlib_seed((uint64_t)round + 1);
        tier_model m;
        tier_model_init(&m, 1);
        int fresh = round % 2;
        if (!fresh) tier_model_fill(&m);
        random_stages(&m);
        m.settings.cached = round % 9 != 0;
        m.settings.threads = (int)pick(5);
        size_t least = tier_model_least(&m);
        size_t used = tier_model_used(&m);
        size_t budgets[] = {least, least + 1, 2 * least, (least + used) / 2, used, used + 100};
        for (size_t i = 0; i < COUNT(budgets); i++) {
            assert_ok(tier_model_create(&m, budgets[i], fresh && i == 0));
            live(&m);
            if (pick(2)) tier_model_run(&m, pick(m.stages.nstages + 1));
            assert_ok(muon__tier_restore(m.t));
            tier_model_compare_memory(&m);
            if (pick(2)) tier_model_cycle(&m); /* in memory, it goes on */
            tier_model_destroy(&m);
            tier_model_compare_memory(&m);
        }
        if (least > 0) {
            char text[200];
            snprintf(text, sizeof text,
                     "offloading needs at least %zu bytes of memory for state, the budget is %zu",
                     least * m.block, (least - 1) * m.block);
            assert_fails(tier_model_create(&m, least - 1, 0), MUON_E_BUDGET, text);
            tier_model_compare_memory(&m);
        }
        tier_model_free(&m);
    }
}

/* `nstages` stages of `size` blocks each, side by side. */
static void stages_side_by_side(tier_model *m, size_t nstages, size_t size)
{
    tier_model_stages(m, nstages);
    for (size_t s = 0; s < nstages; s++) {
        for (size_t i = 0; i < size; i++)
            tier_model_use(m, s * size + i);
        tier_model_end_stage(m);
    }
}

TEST(a_budget_of_all_blocks_means_no_traffic)
{
    for (int fresh = 0; fresh < 2; fresh++) {
        tier_model m;
        tier_model_init(&m, 1);
        if (!fresh) tier_model_fill(&m);
        stages_side_by_side(&m, 8, 16);
        assert_ok(tier_model_create(&m, 128, fresh));
        for (int cycle = 0; cycle < 3; cycle++)
            tier_model_cycle(&m);
        tier_counts counts = muon__tier_count(m.t);
        assert_int_equal(counts.bytes_read, 0);
        assert_int_equal(counts.bytes_written, 0);
        assert_int_equal(counts.resident, 128 * m.block);
        assert_int_equal(counts.resident_most, 128 * m.block);
        tier_model_compare(&m);
        tier_model_free(&m);
    }
}

/* What a cycle must move is each block that does not stay, once in and once out. */
TEST(every_block_moves_once_in_a_cycle)
{
    tier_model m;
    tier_model_init(&m, 1);
    stages_side_by_side(&m, 8, 16);
    assert_ok(tier_model_create(&m, 16, 1));
    for (int cycle = 0; cycle < 5; cycle++)
        tier_model_cycle(&m);
    assert_ok(muon__tier_enter(m.t, 0)); /* now the last blocks of the fifth have been written */
    tier_counts counts = muon__tier_count(m.t);
    assert_int_equal(counts.bytes_read, (size_t)(5 * 128 + 16) * m.block);
    assert_int_equal(counts.bytes_written, (size_t)5 * 128 * m.block);
    tier_model_free(&m);
}

static void expect_in_memory(const tier_model *m, size_t stage)
{
    static unsigned char in[1024];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_true(m->memory.bytes / page <= sizeof in && m->block == page);
    assert_int_equal(mincore(m->memory.base, m->memory.bytes, in), 0);
    size_t i = m->stages.first[stage];
    for (size_t block = 0; block < m->nblocks; block++) {
        int want = i < m->stages.first[stage + 1] && m->stages.blocks[i] == block;
        if (want) i++;
        if ((in[block] & 1) != want)
            fail_msg("stage %zu: block %zu %s in memory", stage, block, want ? "is not" : "is");
    }
}

/* With no room for more than a stage, there is nothing else when one begins: this is exact. */
TEST(no_other_pages_than_those_of_the_stage_are_in_memory)
{
    for (int cached = 0; cached < 2; cached++) {
        tier_model m;
        tier_model_init(&m, 1);
        tier_model_fill(&m);
        m.settings.cached = cached;
        stages_side_by_side(&m, 8, 16);
        assert_ok(tier_model_create(&m, 16, 0));
        for (size_t i = 0; i < 24; i++) {
            assert_ok(muon__tier_enter(m.t, i % 8));
            expect_in_memory(&m, i % 8);
            tier_model_work(&m, i % 8);
            muon__tier_leave(m.t, i % 8);
        }
        tier_model_compare(&m);
        tier_model_free(&m);
    }
}

static size_t resident_bytes(void)
{
    size_t total;
    size_t resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &total, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Blocks are huge pages here. The contents are compared as the stages go. A sanitizer takes memory of
 * its own for what is touched. */
TEST(a_large_region_takes_no_more_memory_than_its_budget)
{
    tier_model m = {.settings = {.dir = tier_model_dir()}};
    assert_ok(muon__region_reserve(&m.memory, 128 * REGION_ALIGN, "model"));
    m.block = muon__tier_block_bytes(m.memory.bytes);
    m.nblocks = 128;
    assert_int_equal(m.block, REGION_ALIGN);
    stages_side_by_side(&m, 8, 4);
    assert_ok(tier_model_create(&m, 8, 1));
    size_t before = resident_bytes();
    for (uint64_t cycle = 0; cycle < 3; cycle++)
        for (size_t s = 0; s < 8; s++) {
            assert_ok(muon__tier_enter(m.t, s));
            for (size_t block = 4 * s; block < 4 * s + 4; block++) {
                uint64_t *words = (uint64_t *)(void *)(m.memory.base + block * m.block);
                for (size_t i = 0; i < m.block / sizeof *words; i++)
                    if (words[i] != cycle * (i + 1)) fail_msg("block %zu, word %zu", block, i);
                for (size_t i = 0; i < m.block / sizeof *words; i++)
                    words[i] = (cycle + 1) * (i + 1);
            }
            size_t grown = resident_bytes() - before;
            if (!testlib_quick() && (int64_t)grown > m.settings.ram_budget + (int64_t)(1 << 20))
                fail_msg("%zu bytes more, the budget is %lld", grown,
                         (long long)m.settings.ram_budget);
            muon__tier_leave(m.t, s);
        }
    assert_true(muon__tier_count(m.t).resident_most <= m.settings.ram_budget);
    tier_model_free(&m);
}

TEST(a_fresh_region_is_zero_and_nothing_was_written)
{
    for (int cached = 0; cached < 2; cached++) {
        tier_model m;
        tier_model_init(&m, 1);
        m.settings.cached = cached;
        stages_side_by_side(&m, 4, 4);
        assert_ok(tier_model_create(&m, 4, 1));
        tier_model_compare(&m);
        assert_int_equal(muon__tier_count(m.t).bytes_written, 0);
        tier_model_cycle(&m);
        tier_model_compare(&m);
        tier_model_free(&m);
    }
}

TEST(without_bytes_or_blocks_or_stages_there_is_nothing_to_do)
{
    for (size_t bytes = 0; bytes < 2; bytes++)
        for (size_t nstages = 0; nstages < 3; nstages++) {
            tier_model m;
            tier_model_init(&m, bytes);
            if (bytes) tier_model_fill(&m);
            tier_model_stages(&m, nstages);
            for (size_t s = 0; s < nstages; s++)
                tier_model_end_stage(&m);
            m.settings.cached = 0;
            assert_ok(tier_model_create(&m, 0, 0));
            for (int cycle = 0; cycle < 2; cycle++)
                tier_model_cycle(&m);
            tier_model_compare(&m);
            assert_ok(muon__tier_restore(m.t));
            if (bytes) tier_model_compare_memory(&m);
            tier_model_free(&m);
        }
    muon__tier_destroy(NULL);
}

TEST(a_negative_budget_is_none)
{
    tier_model m;
    tier_model_init(&m, 1);
    stages_side_by_side(&m, 2, 3);
    m.settings.ram_budget = -1;
    assert_fails(muon__tier_create(&m.t, &m.memory, &m.stages, &m.settings, 1), MUON_E_BUDGET,
                 "at least 12288 bytes of memory for state, the budget is -1");
    tier_model_free(&m);
}

TEST(the_file_has_no_name)
{
    char dir[256];
    snprintf(dir, sizeof dir, "%s/muon-tier-XXXXXX", tier_model_dir());
    assert_non_null(mkdtemp(dir));
    tier_model m;
    tier_model_init(&m, 1);
    m.settings.dir = dir;
    stages_side_by_side(&m, 4, 4);
    assert_ok(tier_model_create(&m, 4, 1));
    assert_int_equal(count_names(dir), 0);
    tier_model_cycle(&m);
    tier_model_free(&m);
    assert_int_equal(rmdir(dir), 0);
}

TEST(a_directory_that_is_not_there_is_named)
{
    tier_model m;
    tier_model_init(&m, 1);
    tier_model_fill(&m);
    stages_side_by_side(&m, 4, 4);
    m.settings.dir = "/nowhere/at/all";
    assert_fails(tier_model_create(&m, 4, 0), MUON_E_IO,
                 "/nowhere/at/all: no offload file of 2097152 bytes can be created there: No such");
    m.settings.dir = "/dev/null";
    assert_fails(tier_model_create(&m, 4, 0), MUON_E_IO, "/dev/null: no offload file");
    tier_model_compare_memory(&m);
    tier_model_free(&m);
}

TEST(small_regions_still_have_many_blocks)
{
    static const struct {
        size_t region, block;
    } cases[] = {{0, 4096},
                 {REGION_ALIGN, 4096},
                 {2 * REGION_ALIGN, 8192},
                 {3 * REGION_ALIGN, 8192},
                 {4 * REGION_ALIGN, 16384},
                 {127 * REGION_ALIGN, 262144},
                 {128 * REGION_ALIGN, REGION_ALIGN},
                 {129 * REGION_ALIGN, REGION_ALIGN},
                 {(size_t)1 << 46, REGION_ALIGN}};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(muon__tier_block_bytes(cases[i].region),
                         cases[i].block > page ? cases[i].block : page);
}
