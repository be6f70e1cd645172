#include "io/tier/tier.h"

#include "base/memory.h"
#include "io/tier/parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS = 2,     /* one reads while the other one writes */
    BLOCKS = 512,    /* that a small region has at least */
    LARGE_FROM = 128 /* huge pages from which on each is a block */
};

#define BOUNCE_BYTES REGION_ALIGN /* a multiple of every block */

size_t muon__tier_block_bytes(size_t region_bytes)
{
    if (region_bytes / REGION_ALIGN >= LARGE_FROM) return REGION_ALIGN;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = page > 4096 ? page : 4096;
    while (bytes < REGION_ALIGN && bytes * 2 <= region_bytes / BLOCKS)
        bytes *= 2;
    return bytes;
}

/* A part of the region whose blocks are alike: all of them `absent`, or none. */
typedef struct stretch {
    size_t offset, bytes;
    int absent;
} stretch;

/* The first one of offset .. offset + bytes; the caller has settled the tier. */
static stretch first_stretch(const tier *t, size_t offset, size_t bytes)
{
    size_t block = offset / t->block_bytes;
    size_t end = offset + bytes;
    stretch s = {.offset = offset, .absent = t->state[block] == BLOCK_ABSENT};
    size_t next = block + 1;
    while (next * t->block_bytes < end && (t->state[next] == BLOCK_ABSENT) == s.absent)
        next++;
    s.bytes = (next * t->block_bytes < end ? next * t->block_bytes : end) - offset;
    return s;
}

/* What is not in memory goes there from the file, or, to let go of it again, is dropped. */
static muon_status read_absent(tier *t)
{
    stretch s;
    for (size_t at = 0; at < t->memory.bytes; at += s.bytes) {
        s = first_stretch(t, at, t->memory.bytes - at);
        if (!s.absent) continue;
        TRY(muon__tier_file_read(&t->file, t->memory.base + at, at, s.bytes));
        t->bytes_read += (int64_t)s.bytes;
    }
    return MUON_OK;
}

static void drop_absent(tier *t)
{
    stretch s;
    for (size_t at = 0; at < t->memory.bytes; at += s.bytes) {
        s = first_stretch(t, at, t->memory.bytes - at);
        if (s.absent) muon__region_drop(&t->memory, at, s.bytes);
    }
}

static muon_status write_absent(tier *t)
{
    stretch s;
    for (size_t at = 0; at < t->memory.bytes; at += s.bytes) {
        s = first_stretch(t, at, t->memory.bytes - at);
        if (s.absent) TRY(muon__tier_file_write(&t->file, t->memory.base + at, at, s.bytes));
    }
    return MUON_OK;
}

/* Small blocks with huge pages would take more memory than they count for. */
static void allow_huge(tier *t, int allow)
{
    if (t->block_bytes < REGION_ALIGN) muon__region_allow_huge(&t->memory, allow);
}

static muon_status take_memory(tier *t)
{
    const tier_schedule *plan = &t->plan;
    TRY(CALLOC(&t->state, plan->nblocks, "offload blocks"));
    TRY(CALLOC(&t->queue, plan->nblocks, "offload blocks"));
    TRY(CALLOC(&t->missing, plan->nstages, "offload stages"));
    void *bounce = NULL;
    REQUIRE(posix_memalign(&bounce, t->block_bytes, BOUNCE_BYTES) == 0, E_NOMEM,
            "offload buffer: no memory for %zu bytes", BOUNCE_BYTES);
    t->bounce = memset(bounce, 0, t->block_bytes);
    for (size_t block = 0; block < plan->nblocks; block++)
        t->state[block] = plan->pins[block] ? BLOCK_PINNED : BLOCK_ABSENT;
    t->resident = t->resident_most = plan->npinned;
    return MUON_OK;
}

static muon_status build(tier *t, const tier_stages *stages, const tier_settings *settings,
                         int fresh)
{
    size_t nblocks = t->memory.bytes / t->block_bytes;
    TRY(muon__tier_schedule(&t->plan, stages, nblocks, t->block_bytes, settings->ram_budget));
    TRY(take_memory(t));
    TRY(muon__tier_file_open(&t->file, settings->dir, t->memory.bytes, settings->cached, t->bounce,
                             t->block_bytes));
    if (!fresh) TRY(write_absent(t));
    return muon__tier_start(t, settings->threads > 0 ? settings->threads : THREADS);
}

muon_status muon__tier_create(tier **out, region *r, const tier_stages *stages,
                              const tier_settings *settings, int fresh)
{
    tier *t = NULL;
    TRY(CALLOC(&t, 1, "offload"));
    t->memory = *r;
    t->block_bytes = muon__tier_block_bytes(r->bytes);
    t->file.fd = -1;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    muon_status status = build(t, stages, settings, fresh);
    if (status != MUON_OK) {
        muon__tier_destroy(t);
        return status;
    }
    /* Nothing can fail any more: only now does the region change. */
    pthread_mutex_lock(&t->lock);
    allow_huge(t, 0);
    if (!fresh) drop_absent(t);
    muon__tier_resume(t);
    *out = t;
    return MUON_OK;
}

muon_status muon__tier_restore(tier *t)
{
    TRY(muon__tier_settle(t));
    allow_huge(t, 1);
    muon_status status = muon__region_touch(&t->memory, "state");
    if (status == MUON_OK) status = read_absent(t);
    if (status != MUON_OK) {
        allow_huge(t, 0);
        drop_absent(t);
    } else {
        /* Now all are pinned, and no stage has anything to wait for. */
        size_t nblocks = t->plan.nblocks;
        size_t nstages = t->plan.nstages;
        memset(t->state, BLOCK_PINNED, nblocks);
        memset(t->plan.begins, 0, (nstages + 1) * sizeof *t->plan.begins);
        memset(t->plan.ends, 0, (nstages + 1) * sizeof *t->plan.ends);
        memset(t->missing, 0, nstages * sizeof *t->missing);
        t->plan.nvisits = 0;
        t->queue_length = 0;
        t->resident = t->resident_most = nblocks;
    }
    muon__tier_resume(t);
    return status;
}

void muon__tier_destroy(tier *t)
{
    if (!t) return;
    muon__tier_stop(t);
    muon__tier_file_close(&t->file);
    muon__tier_schedule_free(&t->plan);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t->threads);
    free(t->state);
    free(t->missing);
    free(t->queue);
    free(t->bounce);
    free(t);
}

/* O_DIRECT moves nothing but whole blocks, so bytes pass through a buffer: as many as it holds. */
typedef struct passage {
    size_t begin, bytes; /* of the blocks, in the file */
    size_t inside;       /* where the caller's bytes are among them */
} passage;

static passage plan_passage(const tier *t, size_t offset, size_t *bytes)
{
    size_t inside = offset % t->block_bytes;
    if (*bytes > BOUNCE_BYTES - inside) *bytes = BOUNCE_BYTES - inside;
    size_t blocks = (inside + *bytes + t->block_bytes - 1) / t->block_bytes;
    return (passage){.begin = offset - inside, .bytes = blocks * t->block_bytes, .inside = inside};
}

static muon_status read_into_bounce(tier *t, const passage *p)
{
    TRY(muon__tier_file_read(&t->file, t->bounce, p->begin, p->bytes));
    t->bytes_read += (int64_t)p->bytes;
    return MUON_OK;
}

static muon_status read_passing(tier *t, size_t offset, char *data, size_t *bytes)
{
    passage p = plan_passage(t, offset, bytes);
    TRY(read_into_bounce(t, &p));
    memcpy(data, t->bounce + p.inside, *bytes);
    return MUON_OK;
}

static muon_status write_passing(tier *t, size_t offset, const char *data, size_t *bytes)
{
    passage p = plan_passage(t, offset, bytes);
    if (*bytes < p.bytes) TRY(read_into_bounce(t, &p));
    memcpy(t->bounce + p.inside, data, *bytes);
    TRY(muon__tier_file_write(&t->file, t->bounce, p.begin, p.bytes));
    t->bytes_written += (int64_t)p.bytes;
    return MUON_OK;
}

static muon_status read_some(tier *t, size_t offset, char *data, size_t *bytes)
{
    stretch s = first_stretch(t, offset, *bytes);
    *bytes = s.bytes;
    if (!s.absent) {
        memcpy(data, t->memory.base + offset, s.bytes);
        return MUON_OK;
    }
    if (t->file.direct) return read_passing(t, offset, data, bytes);
    TRY(muon__tier_file_read(&t->file, data, offset, s.bytes));
    t->bytes_read += (int64_t)s.bytes;
    return MUON_OK;
}

static muon_status write_some(tier *t, size_t offset, const char *data, size_t *bytes)
{
    stretch s = first_stretch(t, offset, *bytes);
    *bytes = s.bytes;
    if (!s.absent) {
        memcpy(t->memory.base + offset, data, s.bytes);
        size_t last = (offset + s.bytes - 1) / t->block_bytes;
        for (size_t block = offset / t->block_bytes; block <= last; block++)
            if (t->state[block] == BLOCK_CLEAN) t->state[block] = BLOCK_CHANGED;
        return MUON_OK;
    }
    if (t->file.direct) return write_passing(t, offset, data, bytes);
    TRY(muon__tier_file_write(&t->file, data, offset, s.bytes));
    t->bytes_written += (int64_t)s.bytes;
    return MUON_OK;
}

muon_status muon__tier_read(tier *t, size_t offset, void *data, size_t bytes)
{
    assert(offset <= t->memory.bytes && bytes <= t->memory.bytes - offset);
    TRY(muon__tier_settle(t));
    muon_status status = MUON_OK;
    size_t some;
    for (size_t got = 0; got < bytes && status == MUON_OK; got += some) {
        some = bytes - got;
        status = read_some(t, offset + got, (char *)data + got, &some);
    }
    muon__tier_resume(t);
    return status;
}

muon_status muon__tier_write(tier *t, size_t offset, const void *data, size_t bytes)
{
    assert(offset <= t->memory.bytes && bytes <= t->memory.bytes - offset);
    TRY(muon__tier_settle(t));
    muon_status status = MUON_OK;
    size_t some;
    for (size_t put = 0; put < bytes && status == MUON_OK; put += some) {
        some = bytes - put;
        status = write_some(t, offset + put, (const char *)data + put, &some);
    }
    muon__tier_resume(t);
    return status;
}

tier_counts muon__tier_count(tier *t)
{
    pthread_mutex_lock(&t->lock);
    tier_counts counts = {.resident = (int64_t)(t->resident * t->block_bytes),
                          .resident_most = (int64_t)(t->resident_most * t->block_bytes),
                          .bytes_read = t->bytes_read,
                          .bytes_written = t->bytes_written,
                          .direct = t->file.direct};
    pthread_mutex_unlock(&t->lock);
    return counts;
}
