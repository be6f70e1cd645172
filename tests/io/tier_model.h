/* tier_model.h - a tier beside plain memory: stages change both in the same way, and every byte is
 * compared. */
#ifndef TESTS_IO_TIER_MODEL_H
#define TESTS_IO_TIER_MODEL_H

#include "io/tier/tier.h"
#include "tests/support/scratch.h"
#include "tests/support/testlib.h"

#include <stdlib.h>
#include <string.h>

typedef struct tier_model {
    region memory;
    size_t block, nblocks;
    char *shadow; /* what the region is to hold */
    char *copy;
    tier_stages stages;
    tier_settings settings;
    tier *t;
    uint64_t changes;
} tier_model;

static inline const char *tier_model_dir(void)
{
    const char *dir = getenv("TMPDIR");
    return dir ? dir : "/tmp";
}

/* All of these can be used without a tier, too. */
static inline void tier_model_init(tier_model *m, size_t bytes)
{
    *m = (tier_model){.settings = {.dir = tier_model_dir(), .cached = 1}};
    assert_ok(muon__region_reserve(&m->memory, bytes, "model"));
    m->block = muon__tier_block_bytes(m->memory.bytes);
    m->nblocks = m->memory.bytes / m->block;
    m->shadow = calloc(1, m->memory.bytes + 1);
    m->copy = malloc(m->memory.bytes + 1);
    assert_true(m->shadow && m->copy);
}

static inline void tier_model_free(tier_model *m)
{
    muon__tier_destroy(m->t);
    muon__region_release(&m->memory);
    free(m->shadow);
    free(m->copy);
    free(m->stages.first);
    free(m->stages.blocks);
}

/* Begins a list of stages; then blocks are added, and each stage is ended. */
static inline void tier_model_stages(tier_model *m, size_t nstages)
{
    free(m->stages.first);
    free(m->stages.blocks);
    m->stages = (tier_stages){.first = calloc(nstages + 2, sizeof *m->stages.first),
                              .blocks = calloc(nstages * m->nblocks + 1, sizeof(uint32_t))};
    assert_true(m->stages.first && m->stages.blocks);
}

static inline void tier_model_use(tier_model *m, size_t block)
{
    tier_stages *s = &m->stages;
    s->blocks[s->first[s->nstages + 1]++] = (uint32_t)block;
}

static inline void tier_model_end_stage(tier_model *m)
{
    tier_stages *s = &m->stages;
    s->nstages++;
    s->first[s->nstages + 1] = s->first[s->nstages];
}

static inline size_t tier_model_stage_size(const tier_model *m, size_t s)
{
    return m->stages.first[s + 1] - m->stages.first[s];
}

/* The blocks of the largest stage: no schedule works with less, and one works with this. */
static inline size_t tier_model_least(const tier_model *m)
{
    size_t least = 0;
    for (size_t s = 0; s < m->stages.nstages; s++)
        if (tier_model_stage_size(m, s) > least) least = tier_model_stage_size(m, s);
    return least;
}

static inline size_t tier_model_used(const tier_model *m)
{
    size_t used = 0;
    unsigned char *seen = calloc(1, m->nblocks + 1);
    assert_non_null(seen);
    for (size_t i = 0; i < m->stages.first[m->stages.nstages]; i++) {
        used += !seen[m->stages.blocks[i]];
        seen[m->stages.blocks[i]] = 1;
    }
    free(seen);
    return used;
}

static inline muon_status tier_model_create(tier_model *m, size_t budget_blocks, int fresh)
{
    m->settings.ram_budget = (int64_t)(budget_blocks * m->block);
    return muon__tier_create(&m->t, &m->memory, &m->stages, &m->settings, fresh);
}

static inline void tier_model_destroy(tier_model *m)
{
    muon__tier_destroy(m->t);
    m->t = NULL;
}

/* The work of a stage: what is there must be right, and then it changes. */
static inline void tier_model_work(tier_model *m, size_t s)
{
    for (size_t i = m->stages.first[s]; i < m->stages.first[s + 1]; i++) {
        size_t at = m->stages.blocks[i] * m->block;
        char *got = m->memory.base + at;
        char *want = m->shadow + at;
        if (memcmp(got, want, m->block) != 0)
            fail_msg("stage %zu: block %u is wrong", s, m->stages.blocks[i]);
        uint64_t salt = (++m->changes) * UINT64_C(0x9e3779b97f4a7c15);
        for (size_t k = 0; k < m->block; k += 512) {
            salt ^= salt >> 29;
            memcpy(want + k, &salt, sizeof salt);
            memcpy(got + k, &salt, sizeof salt);
        }
        want[m->block - 1] = got[m->block - 1] = (char)salt;
    }
}

static inline muon_status tier_model_stage(tier_model *m, size_t s)
{
    muon_status status = muon__tier_enter(m->t, s);
    if (status != MUON_OK) return status;
    tier_model_work(m, s);
    muon__tier_leave(m->t, s);
    return MUON_OK;
}

/* The first stages of a cycle. */
static inline void tier_model_run(tier_model *m, size_t nstages)
{
    for (size_t s = 0; s < nstages; s++)
        assert_ok(tier_model_stage(m, s));
}

static inline void tier_model_cycle(tier_model *m)
{
    tier_model_run(m, m->stages.nstages);
}

static inline void tier_model_compare(tier_model *m)
{
    memset(m->copy, 0x55, m->memory.bytes);
    assert_ok(muon__tier_read(m->t, 0, m->copy, m->memory.bytes));
    for (size_t block = 0; block < m->nblocks; block++)
        if (memcmp(m->copy + block * m->block, m->shadow + block * m->block, m->block) != 0)
            fail_msg("block %zu of %zu is wrong", block, m->nblocks);
    tier_counts counts = muon__tier_count(m->t);
    if (counts.resident_most > m->settings.ram_budget || counts.resident > counts.resident_most)
        fail_msg("resident %lld, at most %lld, budget %lld", (long long)counts.resident,
                 (long long)counts.resident_most, (long long)m->settings.ram_budget);
}

/* In memory again: every byte is where it was. */
static inline void tier_model_compare_memory(tier_model *m)
{
    assert_memory_equal(m->memory.base, m->shadow, m->memory.bytes);
}

/* Bytes that are not zero, in the region and beside it. */
static inline void tier_model_fill(tier_model *m)
{
    for (size_t at = 0; at < m->memory.bytes; at += sizeof(uint64_t)) {
        uint64_t bits = testlib_bits();
        memcpy(m->shadow + at, &bits, sizeof bits);
    }
    memcpy(m->memory.base, m->shadow, m->memory.bytes);
}

#endif
