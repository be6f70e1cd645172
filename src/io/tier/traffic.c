/* The traffic of a tier: threads that read ahead of the stages and write behind them.
 *
 * Why nobody waits for ever. Reads begin in the order of the schedule, so while stage s is awaited,
 * every block in memory that comes and goes is one of these: visited by s; about to be written, since
 * its visit is over; or read ahead for a later stage, which is so only if all of s was read before. If
 * s lacks a block then there are none of the last kind. Writes need nothing but a thread, so those of
 * the second kind go, and then the blocks of s have room: the schedule has seen to it that the visited
 * ones and the pinned ones together fit. Should the next block to read still be there from its visit
 * before, that visit ended before s, so the block is of the second kind too. */
#include "base/memory.h"
#include "io/tier/parts.h"

#include <assert.h>
#include <string.h>

enum { JOB_BYTES = 2 * 1024 * 1024 }; /* of one call: blocks side by side share one */

typedef struct job {
    int writes;
    size_t block, count;
    size_t stage; /* that needs what is read */
} job;

static size_t most_per_job(const tier *t)
{
    return t->block_bytes < JOB_BYTES ? JOB_BYTES / t->block_bytes : 1;
}

static void set_state(tier *t, size_t block, size_t count, block_state state)
{
    memset(t->state + block, (int)state, count);
}

static void enqueue(tier *t, uint32_t block)
{
    size_t last = (t->queue_first + t->queue_length++) % t->plan.nblocks;
    t->queue[last] = block;
    t->state[block] = BLOCK_QUEUED;
}

static int take_write(tier *t, job *out)
{
    if (t->queue_length == 0) return 0;
    size_t most = most_per_job(t);
    *out = (job){.writes = 1, .block = t->queue[t->queue_first]};
    do {
        t->queue_first = (t->queue_first + 1) % t->plan.nblocks;
        t->queue_length--;
        out->count++;
    } while (out->count < most && t->queue_length > 0 &&
             t->queue[t->queue_first] == out->block + out->count);
    set_state(t, out->block, out->count, BLOCK_WRITING);
    return 1;
}

static int can_read(const tier *t, const tier_visit *v)
{
    return t->state[v->block] == BLOCK_ABSENT && t->resident < t->plan.frames;
}

static int take_read(tier *t, job *out)
{
    const tier_schedule *plan = &t->plan;
    if (plan->nvisits == 0 || !can_read(t, &plan->visits[t->next])) return 0;
    size_t most = most_per_job(t);
    const tier_visit *v = &plan->visits[t->next];
    size_t end = plan->begins[v->first + 1];
    *out = (job){.block = v->block, .stage = v->first};
    do {
        t->state[v->block] = BLOCK_READING;
        t->resident++;
        t->next++;
        out->count++;
        v++;
    } while (out->count < most && t->next < end && v->block == out->block + out->count &&
             can_read(t, v));
    if (t->resident > t->resident_most) t->resident_most = t->resident;
    if (t->next == plan->nvisits) t->next = 0;
    return 1;
}

/* Writes first, since they make room; but while a stage waits, what can be read for it is read. */
static int take(tier *t, job *out)
{
    if (t->paused || t->status != MUON_OK) return 0;
    if (t->waiting) return take_read(t, out) || take_write(t, out);
    return take_write(t, out) || take_read(t, out);
}

static muon_status run(tier *t, const job *j)
{
    size_t offset = j->block * t->block_bytes;
    size_t bytes = j->count * t->block_bytes;
    if (!j->writes) return muon__tier_file_read(&t->file, t->memory.base + offset, offset, bytes);
    TRY(muon__tier_file_write(&t->file, t->memory.base + offset, offset, bytes));
    muon__region_drop(&t->memory, offset, bytes);
    return MUON_OK;
}

static void finish(tier *t, const job *j, muon_status status)
{
    int64_t bytes = (int64_t)(j->count * t->block_bytes);
    if (status != MUON_OK) {
        if (t->status == MUON_OK) {
            t->status = status;
            memcpy(t->message, muon_last_error(), strlen(muon_last_error()) + 1);
        }
    } else if (j->writes) {
        set_state(t, j->block, j->count, BLOCK_ABSENT);
        t->resident -= j->count;
        t->bytes_written += bytes;
    } else {
        set_state(t, j->block, j->count, BLOCK_CLEAN);
        t->missing[j->stage] -= j->count;
        t->bytes_read += bytes;
    }
}

static void *thread_main(void *arg)
{
    tier *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->quit) {
        job j;
        if (!take(t, &j)) {
            pthread_cond_wait(&t->work, &t->lock);
            continue;
        }
        t->running++;
        pthread_mutex_unlock(&t->lock);
        muon_status status = run(t, &j);
        pthread_mutex_lock(&t->lock);
        t->running--;
        finish(t, &j, status);
        pthread_cond_broadcast(&t->done);
        pthread_cond_broadcast(&t->work);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static size_t begun_by(const tier_schedule *plan, size_t stage)
{
    return plan->begins[stage + 1] - plan->begins[stage];
}

static void begin_reading(tier *t)
{
    for (size_t s = 0; s < t->plan.nstages; s++)
        t->missing[s] = begun_by(&t->plan, s);
    t->next = 0;
}

muon_status muon__tier_start(tier *t, int threads)
{
    t->paused = 1;
    begin_reading(t);
    TRY(CALLOC(&t->threads, (size_t)threads, "offload threads"));
    for (; t->started < threads; t->started++)
        REQUIRE(pthread_create(&t->threads[t->started], NULL, thread_main, t) == 0, E_NOMEM,
                "offload thread %d of %d could not be started", t->started + 1, threads);
    return MUON_OK;
}

void muon__tier_stop(tier *t)
{
    pthread_mutex_lock(&t->lock);
    t->quit = 1;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->started; i++)
        pthread_join(t->threads[i], NULL);
    t->started = 0;
}

static void await_quiet(tier *t)
{
    t->paused = 1;
    while (t->running > 0)
        pthread_cond_wait(&t->done, &t->lock);
}

static muon_status fail_again(tier *t)
{
    muon_status status = t->status;
    muon__fail(status, "%s", t->message);
    pthread_mutex_unlock(&t->lock);
    return status;
}

muon_status muon__tier_settle(tier *t)
{
    pthread_mutex_lock(&t->lock);
    await_quiet(t);
    return t->status == MUON_OK ? MUON_OK : fail_again(t);
}

void muon__tier_resume(tier *t)
{
    t->paused = 0;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
}

/* After a cycle that was given up: what its stages had goes back, and reading begins anew. */
static void restart(tier *t)
{
    const tier_schedule *plan = &t->plan;
    await_quiet(t);
    for (size_t block = 0; block < plan->nblocks; block++) {
        if (t->state[block] == BLOCK_CHANGED) enqueue(t, (uint32_t)block);
        if (t->state[block] != BLOCK_CLEAN) continue;
        muon__region_drop(&t->memory, block * t->block_bytes, t->block_bytes);
        t->state[block] = BLOCK_ABSENT;
        t->resident--;
    }
    begin_reading(t);
    t->paused = 0;
    pthread_cond_broadcast(&t->work);
}

muon_status muon__tier_enter(tier *t, size_t stage)
{
    const tier_schedule *plan = &t->plan;
    pthread_mutex_lock(&t->lock);
    if (t->status != MUON_OK) return fail_again(t);
    assert(stage == t->expected || stage == 0);
    if (stage != t->expected) restart(t);
    t->waiting = 1;
    while (t->missing[stage] > 0 && t->status == MUON_OK)
        pthread_cond_wait(&t->done, &t->lock);
    t->waiting = 0;
    if (t->status != MUON_OK) return fail_again(t);
    for (size_t i = plan->begins[stage]; i < plan->begins[stage + 1]; i++)
        t->state[plan->visits[i].block] = BLOCK_CHANGED;
    t->expected = plan->nstages; /* until it is left; a cycle given up here begins anew, too */
    /* For the next cycle: none of these is read again before its visit in this one has ended. */
    t->missing[stage] = begun_by(plan, stage);
    pthread_mutex_unlock(&t->lock);
    return MUON_OK;
}

void muon__tier_leave(tier *t, size_t stage)
{
    const tier_schedule *plan = &t->plan;
    pthread_mutex_lock(&t->lock);
    /* After a failure, whatever was changed stays where it is. */
    for (size_t i = plan->ends[stage]; t->status == MUON_OK && i < plan->ends[stage + 1]; i++)
        enqueue(t, plan->ended[i]);
    t->expected = (stage + 1) % plan->nstages;
    if (t->queue_length > 0) pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
}
